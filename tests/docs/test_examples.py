"""Every fenced block of every page does what the page says."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, run_page
from tests.postgres.server import databases

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_the_page_does_what_it_says(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = page.read_text("utf-8")
    monkeypatch.chdir(ROOT)
    if "DATABASE_URL" in text:
        monkeypatch.setenv("DATABASE_URL", databases().of(tmp_path))
    # What a page keeps in its working directory is not to be kept in ours.
    monkeypatch.setenv("DETENT_URL", f"sqlite:///{tmp_path}/detent.db")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    run_page(text, str(page.relative_to(ROOT)))


def test_there_are_pages() -> None:
    assert ROOT / "README.md" in PAGES
    assert ROOT / "docs" / "index.md" in PAGES
