"""A machine as Markdown tables, for the reference pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from detent.lifecycle.machine import Machine


def table(machine: Machine) -> str:
    """Every edge of `machine` as a table, then its amendments and guards where it has any."""
    edges = [
        (
            _names(source or "(new)" for source in edge.sources),
            _code(edge.event),
            _code(edge.target),
            _plain(edge.actors),
            _names(edge.guards),
            _cell(edge.meaning),
        )
        for edge in machine.edges
    ]
    amendments = [
        (
            _names(one.states),
            _code(one.event),
            _plain(one.actors),
            _names(one.guards),
            _cell(one.meaning),
        )
        for one in machine.amendments
    ]
    guards = [(_code(guard.name), _cell(guard.meaning)) for guard in machine.guards]
    blocks = [_grid(("from", "event", "to", "who", "guards", "meaning"), edges)]
    if amendments:
        blocks.append(_grid(("in", "amendment", "who", "guards", "meaning"), amendments))
    if guards:
        blocks.append(_grid(("guard", "holds when"), guards))
    return "\n".join(blocks)


def _grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(_code(name) for name in names)


def _plain(words: Iterable[str]) -> str:
    return ", ".join(words)


def _code(name: str) -> str:
    """A name set as code; one with a backtick in it cannot be, and is shown as text."""
    text = " ".join(str(name).split())
    return _cell(text) if "`" in text else "`" + text.replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    """Text that stays inside its cell and is never taken for markup."""
    flat = html.escape(" ".join(text.split()), quote=False)
    return "".join(f"\\{char}" if char in "\\|`*_[]" else char for char in flat)
