"""Which state stands on which level of the picture."""

from __future__ import annotations

from typing import Final

from detent.lifecycle.machine import Machine

START: Final = ""
"""The point that births come from; no state is named so."""


def pairs_of(machine: Machine) -> tuple[tuple[str, str], ...]:
    """Every (source, target) that an edge joins, once, in the order of the table.

    An edge from a state to itself moves nothing and is no arrow.
    """
    pairs = [
        (str(source or START), str(edge.target))
        for edge in machine.edges
        for source in edge.sources
        if source != edge.target
    ]
    return tuple(dict.fromkeys(pairs))


def ranks_of(machine: Machine) -> dict[str, int]:
    """The level of every state: below all that lead to it, the ends together on the last."""
    forward = _forward(machine)
    ranks = dict.fromkeys([START, *(str(state.name) for state in machine.states)], 0)
    for _ in ranks:
        for source, target in forward:
            ranks[target] = max(ranks[target], ranks[source] + 1)
    last = max(ranks.values())
    return {name: last if name in machine.terminal else rank for name, rank in ranks.items()}


def _forward(machine: Machine) -> list[tuple[str, str]]:
    """The pairs without those that close a circle for somebody who walks from the start."""
    targets: dict[str, list[str]] = {}
    for source, target in pairs_of(machine):
        targets.setdefault(source, []).append(target)
    forward: list[tuple[str, str]] = []
    seen: set[str] = set()

    def walk(name: str, path: frozenset[str]) -> None:
        seen.add(name)
        for target in targets.get(name, ()):
            if target not in path:
                forward.append((name, target))
                if target not in seen:
                    walk(target, path | {target})

    walk(START, frozenset((START,)))
    return forward
