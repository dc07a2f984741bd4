"""One reference page per lifecycle: its picture, its states and every move."""

from __future__ import annotations

from detent.lifecycle import Machine
from detent.lifecycle.diagram import table, to_mermaid
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
    mermaid = f"```mermaid\n{to_mermaid(machine)}```\n"
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
    """The tables of the machine come as one text, separated by blank lines, in this order."""
    wanted = (("Transitions", True), ("Amendments", machine.amendments), ("Guards", machine.guards))
    titles = [title for title, present in wanted if present]
    tables = table(machine).rstrip("\n").split("\n\n")
    return [section(title, f"{text}\n") for title, text in zip(titles, tables, strict=True)]
