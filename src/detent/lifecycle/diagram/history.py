"""The moves of one record, as pictures of its lifecycle show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor, Machine

_UNITS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"))


class Move(msgspec.Struct, frozen=True):
    """One move along an edge, its number in the history, and the time spent in its source."""

    number: int
    event: str
    source: str | None
    target: str
    actor: Actor
    actor_id: str
    spent_us: int | None

    @property
    def text(self) -> str:
        """The move in words."""
        after = "" if self.spent_us is None else f" after {format_duration(self.spent_us)}"
        return f"{self.event} by {f'{self.actor} {self.actor_id}'.rstrip()}{after}"


def moves_of(machine: Machine, history: Sequence[Event]) -> tuple[Move, ...]:
    """Return the moves of a history, numbered from 1.

    Raises `BadHistory` when the history takes a way that the machine does not have.
    """
    declared = set(pairs_of(machine))
    events = [event for event in history if event.target is not None]
    moves: list[Move] = []
    for at, event in enumerate(events):
        source, target = event.source, str(event.target)
        if (source, target) not in declared:
            raise BadHistory(
                f"{machine.name}: no edge leads from {source or '(new)'} to {target}", step=at + 1
            )
        spent_us = event.at - events[at - 1].at if at else None
        moves.append(
            Move(at + 1, event.name, source, target, event.actor, event.actor_id, spent_us)
        )
    return tuple(moves)


def pairs_of(machine: Machine) -> tuple[tuple[str | None, str], ...]:
    """Return every (source, target) that an edge joins, once, in the order of the table.

    An edge from a state to itself moves nothing and is no arrow.
    """
    pairs = [
        (source, edge.target)
        for edge in machine.edges
        for source in edge.sources
        if source != edge.target
    ]
    return tuple(dict.fromkeys(pairs))


def format_duration(length_us: int) -> str:
    """Return a length of time with one unit, such as "1.5 min"."""
    for unit_us, name in _UNITS:
        if length_us >= unit_us:
            return f"{_short(length_us / unit_us)} {name}"
    if length_us >= 999_500:
        return f"{_short(length_us / 1_000_000)} s"
    return f"{_short(length_us / 1000)} ms"


def _short(value: float) -> str:
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    return text.removesuffix(".0")
