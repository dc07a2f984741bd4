"""Small pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["GENERATED", "code", "codes", "grid", "page", "section"]

GENERATED = "Written by `make generate` from the tables in detent.lifecycle. Do not edit it."


def page(title: str, *blocks: str, mark: str = GENERATED) -> str:
    """A whole page, marked as generated."""
    return "\n".join([f"<!-- {mark} -->\n", f"# {title}\n", *blocks])


def section(title: str, *blocks: str, level: int = 2) -> str:
    """A heading and what stands under it."""
    return "\n".join([f"{'#' * level} {title}\n", *blocks])


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells hold Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    if any(len(cells) != len(head) for cells in lines):
        raise ValueError(f"a row does not have the columns {', '.join(head)}")
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def code(name: object) -> str:
    """A name, set as code."""
    return f"`{name}`"


def codes(names: Iterable[object]) -> str:
    """Names, set as code."""
    return ", ".join(code(name) for name in names)
