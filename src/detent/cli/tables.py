"""Rows of text for a pipe, for a terminal, and for a terminal too narrow for a table."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

# What a frame takes: a space on both sides of each cell, a line between cells and at both ends.
_PER_COLUMN, _AT_THE_END = 3, 1
_GAP = "  "


def rows_for(
    width: int | None, head: Sequence[str], rows: Sequence[Sequence[Text]]
) -> RenderableType:
    """A table in a frame that fits the width; else one without; else a list: no word is broken.

    Without a width it is plain: no frame, and no row is ever folded.
    """
    if width is None:
        return _table(head, rows, None, framed=False)
    room = width - _PER_COLUMN * len(head) - _AT_THE_END
    if widths := _fitted(head, rows, room):
        return _table(head, rows, widths, framed=True)
    if widths := _fitted(head, rows, width - len(_GAP) * (len(head) - 1)):
        return _table(head, rows, widths, framed=False)
    return Group(*(line for row in rows for line in _listed(head, row, width)))


def _fitted(head: Sequence[str], rows: Sequence[Sequence[Text]], room: int) -> list[int] | None:
    """The width of each column: the widest give way first, none below its longest word."""
    columns = list(zip(head, *((cell.plain for cell in row) for row in rows), strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in cell.split()) for column in columns]
    while sum(widths) > room:
        giving = [at for at, width in enumerate(widths) if width > least[at]]
        if not giving:
            return None
        widths[max(giving, key=widths.__getitem__)] -= 1
    return widths


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[Text]],
    widths: Sequence[int] | None,
    *,
    framed: bool,
) -> Table:
    table = Table(box=box.ROUNDED if framed else None, header_style="bold", pad_edge=framed)
    for at, name in enumerate(head):
        table.add_column(name, width=None if widths is None else widths[at], overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _listed(head: Sequence[str], row: Sequence[Text], width: int) -> list[Text]:
    """One cell after the other, each with the name of its column; empty ones are left out."""
    lines: list[Text] = []
    for name, cell in zip(head, row, strict=True):
        text = f"{name}: {cell.plain}"
        if not cell.plain:
            continue
        if lines and len(lines[-1]) + len(_GAP) + len(text) <= width:
            lines[-1].append(_GAP).append(text, style=cell.style)
        else:
            folded = _folded(text, width, _GAP if lines else "")
            lines.append(Text("", no_wrap=True, overflow="ignore").append(folded, style=cell.style))
    return lines


def _folded(text: str, width: int, indent: str) -> str:
    """On as many lines as it takes, between words only."""
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=_GAP * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )
