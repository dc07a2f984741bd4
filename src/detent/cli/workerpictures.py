"""Workers as pictures: the tree below their supervisors, and the way that one of them has gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from detent.engine.workers import Listed
from detent.lifecycle import WORKER
from detent.lifecycle.diagram import to_svg
from detent.lifecycle.event import Event
from detent.runtime.supervisor.diagrams import state_diagram, tree_diagram
from detent.runtime.supervisor.drawing import tree_svg
from detent.runtime.supervisor.snapshot import Snapshot

_ALIVE = "Running"


class Picture(StrEnum):
    """The ways to draw."""

    MERMAID = "mermaid"
    SVG = "svg"


Drawn = Annotated[
    Picture | None, typer.Option("--format", "-f", help="Draw it instead, for a page.")
]


def drawn_tree(kept: Mapping[str, Sequence[tuple[str, Listed]]], picture: Picture) -> str:
    """Every supervisor by what it is called, with its workers, each with its slot."""
    branches = tuple(_branch(name, some) for name, some in kept.items())
    whole = Snapshot("workers", "", "other", _ALIVE, children=branches)
    top = branches[0] if len(branches) == 1 else whole
    return tree_diagram(top) if picture is Picture.MERMAID else tree_svg(top)


def drawn_life(events: Sequence[Event], picture: Picture) -> str:
    """All states and moves, and those among them that this worker has made."""
    if picture is Picture.SVG:
        return to_svg(WORKER, lit=events)
    born = events[0].worker if events else None
    return state_diagram("" if born is None else str(born.slot), events)


def _branch(name: str, some: Sequence[tuple[str, Listed]]) -> Snapshot:
    below = tuple(_leaf(slot, one) for slot, one in some)
    return Snapshot(name, name, "supervisor", _ALIVE, children=below)


def _leaf(slot: str, one: Listed) -> Snapshot:
    told = one.instance
    who = None if one.row is None else one.row.who
    process = None if who is None else who.process
    pid = process.pid if process is not None else None if told is None else told.pid
    shown = Snapshot(slot, slot, "process" if one.is_process else "function", one.state, pid=pid)
    if told is None:
        return shown
    governor = None if told.governor is None else str(told.governor)
    return Snapshot(
        slot, slot, shown.kind, one.state, pid=pid, health=str(told.health), reason=governor
    )
