"""The generated pages are those that the tables would give today, and a stale one is noticed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from detent import errors
from detent.lifecycle import MACHINES
from tests.tidy.tree import ROOT
from tools.generate import generated, main, stale
from tools.markdown import GENERATED, grid

JOB_PAGE = "docs/reference/lifecycle/job.md"


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return generated()


@pytest.fixture
def copy(tmp_path: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8", newline="\n")
    return tmp_path


def test_this_checkout_is_up_to_date(texts: dict[str, str]) -> None:
    assert stale(ROOT, texts) == [], "run `make generate`"


def test_generating_twice_gives_the_same_bytes(texts: dict[str, str]) -> None:
    assert generated() == texts


def test_a_fresh_copy_passes_the_check(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(copy)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", generated())
def test_one_changed_letter_makes_any_file_stale(
    name: str, copy: Path, texts: dict[str, str]
) -> None:
    file = copy / name
    file.write_text(file.read_text("utf-8").replace("e", "é", 1), encoding="utf-8")
    assert stale(copy, texts) == [name]


def test_the_check_names_what_is_stale_changes_nothing_and_exits_with_one(copy: Path) -> None:
    """As `make check` runs it: a process of its own."""
    (copy / JOB_PAGE).write_text("old\n", encoding="utf-8")
    command = [sys.executable, "-m", "tools.generate", "--check", "--root", str(copy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stderr) == (1, "")
    assert f"stale: {JOB_PAGE}\n" in done.stdout
    assert "make generate" in done.stdout
    assert (copy / JOB_PAGE).read_text("utf-8") == "old\n"


def test_generating_mends_what_is_stale_and_missing(copy: Path, texts: dict[str, str]) -> None:
    (copy / JOB_PAGE).write_text("old\n", encoding="utf-8")
    shutil.rmtree(copy / "docs" / "images")
    assert main(["--root", str(copy)]) == 0
    assert stale(copy, texts) == []


def test_a_page_that_is_no_longer_generated_is_stale_and_removed(
    copy: Path, texts: dict[str, str]
) -> None:
    gone, by_hand = copy / "docs/images/gone.svg", copy / "docs/images/photo.svg"
    gone.write_text(f"<!-- {GENERATED} -->", encoding="utf-8")
    by_hand.write_text("<svg/>", encoding="utf-8")
    assert stale(copy, texts) == ["docs/images/gone.svg"]
    assert main(["--root", str(copy)]) == 0
    assert not gone.exists()
    assert by_hand.exists()


def test_every_file_says_that_it_is_generated(texts: dict[str, str]) -> None:
    assert all("Written by `make generate`" in text for text in texts.values())


def test_every_error_is_told_of(texts: dict[str, str]) -> None:
    found = [getattr(errors, name) for name in errors.__all__]
    codes = [one.code for one in found if issubclass(one, errors.DetentError)]
    assert len(codes) > 90
    page = texts["docs/reference/errors.md"]
    assert [code for code in codes if f"| `{code}` |" not in page] == []


@pytest.mark.parametrize("name", MACHINES)
def test_a_lifecycle_page_tells_everything(name: str, texts: dict[str, str]) -> None:
    page, machine = texts[f"docs/reference/lifecycle/{name}.md"], MACHINES[name]
    assert f"](../../images/{name}.svg)" in page
    assert "```mermaid\nstateDiagram-v2\n" in page
    for words in (machine.states, machine.guards):
        assert all(f"| `{word.name}` |" in page for word in words)
    assert all(f"| `{event}` |" in page for event in machine.events)
    assert all(f"`{cause}`" in page for cause in machine.causes)


@pytest.mark.parametrize("name", MACHINES)
def test_a_picture_is_well_formed(name: str, texts: dict[str, str]) -> None:
    assert ET.fromstring(texts[f"docs/images/{name}.svg"]).tag.endswith("svg")  # noqa: S314


def test_tables_have_equally_many_cells_in_every_row(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}
            assert len(cells) == 1, (name, block)
    with pytest.raises(ValueError, match="columns one, two"):
        grid(("one", "two"), [("alone",)])
