"""Workers as pictures: the tree below their supervisors, and the path that one has taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from detent.engine.workers import Listed
from detent.lifecycle import WORKER
from detent.lifecycle.diagram import Node, graph_svg, lifecycle_svg, tone_of
from detent.lifecycle.event import Event
from detent.runtime.supervisor.diagrams import state_diagram, tree_diagram
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
    """Return every supervisor by what it is called, with its workers, each with its slot."""
    branches = tuple(_branch(name, workers) for name, workers in kept.items())
    whole = Snapshot("workers", "", "other", _ALIVE, children=branches)
    top = branches[0] if len(branches) == 1 else whole
    return tree_diagram(top) if picture is Picture.MERMAID else _tree_svg(top)


def drawn_life(events: Sequence[Event], picture: Picture) -> str:
    """Return all states and moves, and those among them that this worker has made."""
    if picture is Picture.SVG:
        return lifecycle_svg(WORKER, history=events)
    born = events[0].worker if events else None
    return state_diagram("" if born is None else str(born.slot), events)


def _branch(name: str, workers: Sequence[tuple[str, Listed]]) -> Snapshot:
    below = tuple(_leaf(slot, listed) for slot, listed in workers)
    return Snapshot(name, name, "supervisor", _ALIVE, children=below)


def _leaf(slot: str, listed: Listed) -> Snapshot:
    instance = listed.instance
    holder = None if listed.row is None else listed.row.who
    process = None if holder is None else holder.process
    kind = "process" if listed.is_process else "function"
    if instance is None:
        pid = None if process is None else process.pid
        return Snapshot(slot, slot, kind, listed.state, pid=pid)
    pid = instance.pid if process is None else process.pid
    governor = None if instance.governor is None else str(instance.governor)
    health = str(instance.health)
    return Snapshot(slot, slot, kind, listed.state, pid=pid, health=health, reason=governor)


def _tree_svg(top: Snapshot) -> str:
    """Return the tree from left to right, a box for each supervisor and each worker."""
    nodes: list[Node] = []
    edges: list[tuple[str, str]] = []

    def add(shown: Snapshot, place: str) -> None:
        nodes.append(_node(shown, place))
        for number, child in enumerate(shown.children):
            edges.append((place, f"{place}_{number}"))
            add(child, f"{place}_{number}")

    add(top, "root")
    return graph_svg("supervision tree", nodes, edges)


def _node(shown: Snapshot, place: str) -> Node:
    if shown.kind not in ("process", "function"):
        # A branch is called "host: supervisor ...", and the picture has a line for each part.
        host, _, keeper = shown.name.partition(": ")
        return Node(place, host, keeper, shown.kind, "off")
    state = shown.status.lower()
    facts = [state, "" if shown.pid is None else f"PID {shown.pid}", shown.reason or ""]
    facts += [shown.health] if shown.health != "unknown" else []
    known = {one.name: tone_of(one) for one in WORKER.states}
    tone = known.get(state, "off")
    return Node(place, shown.name, " \u00b7 ".join(filter(None, facts)), state, tone)
