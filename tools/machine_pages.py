"""One reference page per lifecycle: its picture, its states and every move."""

from __future__ import annotations

import html
from collections.abc import Sequence

from detent.lifecycle import Machine
from detent.lifecycle.diagram import lifecycle_mermaid
from tools.markdown import code, codes, grid, page, section

__all__ = ["machine_page"]

_INTROS = {
    "job": "A job is one piece of work. It is always in exactly one of these states.",
    "workflow": "A workflow is a graph of steps that begins and ends as one thing.",
    "step": "A step is a set of jobs inside a workflow that opens and closes together.",
    "worker": "A worker instance is one attempt at running a worker process; it lives once.",
}
_MERMAID_NOTE = "The same picture as text, for tools that draw Mermaid:\n"
_CAUSES_NOTE = "The closed list of words that an event may give as its reason:\n"


def machine_page(machine: Machine) -> str:
    """The page of one lifecycle."""
    name = machine.name
    blocks = [
        f"{_INTROS[name]}\n",
        f"![The {name} lifecycle](../../images/{name}.svg)\n",
        section("States", _states(machine)),
        *_moves(machine),
    ]
    if machine.causes:
        blocks.append(section("Causes", _CAUSES_NOTE, f"{codes(machine.causes)}\n"))
    mermaid = f"```mermaid\n{lifecycle_mermaid(machine)}```\n"
    blocks.append(section("Mermaid", _MERMAID_NOTE, mermaid))
    return page(f"{name.capitalize()} lifecycle", *blocks)


def _states(machine: Machine) -> str:
    rows = [
        (
            code(state.name),
            state.phase.value + (", final" if state.is_terminal else ""),
            state.meaning,
        )
        for state in machine.states
    ]
    return grid(("state", "phase", "meaning"), rows)


def _moves(machine: Machine) -> list[str]:
    """Return a section for the edges, and for amendments and guards where there are any."""
    edges = [
        (
            codes(source or "(new)" for source in edge.sources),
            code(edge.event),
            code(edge.target),
            ", ".join(edge.actors),
            codes(edge.guards),
            _plain(edge.meaning),
        )
        for edge in machine.edges
    ]
    amendments = [
        (
            codes(one.states),
            code(one.event),
            ", ".join(one.actors),
            codes(one.guards),
            _plain(one.meaning),
        )
        for one in machine.amendments
    ]
    guards = [(code(guard.name), _plain(guard.meaning)) for guard in machine.guards]
    tables: list[tuple[str, tuple[str, ...], Sequence[Sequence[str]]]] = [
        ("Transitions", ("from", "event", "to", "who", "guards", "meaning"), edges),
        ("Amendments", ("in", "amendment", "who", "guards", "meaning"), amendments),
        ("Guards", ("guard", "holds when"), guards),
    ]
    return [section(title, grid(head, rows)) for title, head, rows in tables if rows]


def _plain(text: str) -> str:
    """Return text that is never taken for markup."""
    escaped = html.escape(text, quote=False)
    return "".join(f"\\{char}" if char in "\\|`*_[]" else char for char in escaped)
