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


def rows_for(
    width: int | None, head: Sequence[str], rows: Sequence[Sequence[Text]]
) -> RenderableType:
    """A table in a frame that fits the width, or a list if only broken words would fit.

    Without a width it is plain: no frame, and no row is ever folded.
    """
    if width is None:
        return _table(head, rows, None)
    room = width - _PER_COLUMN * len(head) - _AT_THE_END
    widths = _fitted(head, rows, room)
    return _listed(head, rows, width) if widths is None else _table(head, rows, widths)


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
    head: Sequence[str], rows: Sequence[Sequence[Text]], widths: Sequence[int] | None
) -> Table:
    plain = widths is None
    table = Table(box=None if plain else box.ROUNDED, header_style="bold", pad_edge=not plain)
    for at, name in enumerate(head):
        table.add_column(name, width=None if widths is None else widths[at], overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _listed(head: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> RenderableType:
    """One cell under the other, each with the name of its column, between words only."""
    lines: list[Text] = []
    for row in rows:
        for at, (name, cell) in enumerate(zip(head, row, strict=True)):
            text = textwrap.fill(
                f"{name}: {cell.plain}",
                width,
                initial_indent="  " if at else "",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            lines.append(Text(text, style=cell.style, no_wrap=True, overflow="ignore"))
    return Group(*lines)
