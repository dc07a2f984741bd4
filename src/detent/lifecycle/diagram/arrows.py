"""What is drawn of a machine: its arrows, what is written on them, and which were walked.

All events between the same two states share an arrow. Arrows that say the same thing about the
same target ("cancel", from four states) are drawn as one, flowing together. Arrows of a walked
path stay alone, for each has its own story to tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.diagram.ranks import START, ranks_of
from detent.lifecycle.diagram.text import clip, duration
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor, Machine

_VISITS_SHOWN: Final = 3
_ID_LENGTH: Final = 14


class Row(msgspec.Struct, frozen=True):
    """One line of a label: markers of who may cause it (or did), then the words."""

    text: str
    actors: tuple[Actor, ...] = ()
    step: int | None = None
    is_detail: bool = False


class Visit(msgspec.Struct, frozen=True):
    """One walk along an edge: the how-many-th move it was, and how long it took to come to it."""

    step: int
    event: str
    source: str
    target: str
    actor: Actor
    actor_id: str
    spent_us: int | None


class Arrow(msgspec.Struct, frozen=True):
    """One drawn arrow; more than one source means that several flow together."""

    sources: tuple[str, ...]
    target: str
    rows: tuple[Row, ...]
    is_lit: bool = False

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Everybody named on the label, in the order of the language."""
        named = {actor for row in self.rows for actor in row.actors}
        return tuple(actor for actor in Actor if actor in named)


def visits_of(events: Sequence[Event]) -> tuple[Visit, ...]:
    """The moves of a history, numbered from 1, each with the time spent in the state it left."""
    moves = [event for event in events if event.target is not None]
    visits: list[Visit] = []
    for place, event in enumerate(moves):
        visits.append(
            Visit(
                step=place + 1,
                event=event.name,
                source=event.source or START,
                target=str(event.target),
                actor=event.actor,
                actor_id=event.actor_id,
                spent_us=event.at - moves[place - 1].at if place else None,
            )
        )
    return tuple(visits)


def arrows_of(machine: Machine, visits: Sequence[Visit] = ()) -> tuple[Arrow, ...]:
    """Every arrow of the picture, in the order of the table."""
    declared = _rows_by_pair(machine)
    walked: dict[tuple[str, str], list[Visit]] = {}
    for visit in visits:
        if (visit.source, visit.target) not in declared:
            raise BadHistory(
                f"{machine.name}: no edge leads from {visit.source or '(new)'} to {visit.target}",
                step=visit.step,
            )
        walked.setdefault((visit.source, visit.target), []).append(visit)
    lit = {
        pair: Arrow((pair[0],), pair[1], _told(walked[pair]), is_lit=True)
        for pair in declared
        if pair in walked
    }
    plain = _gathered(
        machine, {pair: rows for pair, rows in declared.items() if pair not in walked}
    )
    return (*lit.values(), *plain)


def _rows_by_pair(machine: Machine) -> dict[tuple[str, str], tuple[Row, ...]]:
    pairs: dict[tuple[str, str], list[Row]] = {}
    for edge in machine.edges:
        for source in edge.sources:
            if source != edge.target:
                row = Row(str(edge.event), tuple(Actor(actor) for actor in edge.actors))
                pairs.setdefault((str(source or START), str(edge.target)), []).append(row)
    return {pair: tuple(rows) for pair, rows in pairs.items()}


def _gathered(
    machine: Machine, rows_by_pair: dict[tuple[str, str], tuple[Row, ...]]
) -> list[Arrow]:
    """One arrow for all pairs with the same target and words; births and ways back stay alone."""
    ranks = ranks_of(machine)
    groups: dict[tuple[str, tuple[Row, ...], str], list[str]] = {}
    for (source, target), rows in rows_by_pair.items():
        joins = source != START and ranks[source] < ranks[target]
        groups.setdefault((target, rows, "" if joins else f"alone {source}"), []).append(source)
    return [Arrow(tuple(sources), target, rows) for (target, rows, _), sources in groups.items()]


def _told(visits: Sequence[Visit]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for visit in visits[:_VISITS_SHOWN]:
        rows.append(Row(visit.event, (visit.actor,), step=visit.step))
        who = clip(visit.actor_id, _ID_LENGTH) or str(visit.actor)
        after = "" if visit.spent_us is None else f" \u00b7 after {duration(visit.spent_us)}"
        rows.append(Row(who + after, is_detail=True))
    if len(visits) > _VISITS_SHOWN:
        rows.append(Row(f"and {len(visits) - _VISITS_SHOWN} more", is_detail=True))
    return tuple(rows)
