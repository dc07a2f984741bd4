"""Rows on a terminal of any width: they fit, and no word is ever broken."""

from __future__ import annotations

import pytest
from rich.text import Text

from detent.cli.output import render
from detent.cli.tables import rows_for

HEAD = ("state", "meaning", "next")
ROWS = [
    (Text("scheduled"), Text("It waits for a time that was named."), Text("available, cancelled")),
    (Text("available"), Text("Anybody may re-claim it."), Text("pending, a_very_long_state")),
]
WORDS = {word for row in ROWS for cell in row for word in cell.plain.split()}
# Longest words 9, 8 and 17, and what the frame takes.
LEAST = 9 + 8 + 17 + 3 * 3 + 1


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    return render(rows_for(width, HEAD, ROWS), plain=False)


@pytest.mark.parametrize("width", range(1, 130))
def test_no_word_is_broken_and_lines_fit(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(width, monkeypatch)
    assert set(text.split()) >= WORDS
    assert max(map(len, text.splitlines())) <= max(width, len("    a_very_long_state"))


@pytest.mark.parametrize("width", [LEAST - 1, LEAST, LEAST + 1, 200])
def test_a_table_is_shown_as_soon_as_it_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ("╭" in shown(width, monkeypatch)) is (width >= LEAST)


def test_a_list_has_one_cell_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(30, monkeypatch) == (
        "state: scheduled\n"
        "  meaning: It waits for a time\n"
        "    that was named.\n"
        "  next: available, cancelled\n"
        "state: available\n"
        "  meaning: Anybody may\n"
        "    re-claim it.\n"
        "  next: pending,\n"
        "    a_very_long_state\n"
    )


def test_a_list_leaves_out_what_is_empty_and_fills_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    rows = [(Text("x" * 20), Text(""), Text("why")), (Text("y"), Text("c"), Text("z" * 30))]
    told = render(rows_for(30, ("id", "b", "a"), rows), plain=False)
    assert told == f"id: {'x' * 20}\n  a: why\nid: y  b: c\n  a:\n    {'z' * 30}\n"


def test_a_table_does_without_a_frame_before_it_is_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(LEAST - 5, monkeypatch).splitlines()[0].split() == list(HEAD)


def test_plain_rows_are_never_folded() -> None:
    lines = render(rows_for(None, HEAD, ROWS), plain=True).splitlines()
    assert len(lines) == 3
    assert lines[0].split() == list(HEAD)
