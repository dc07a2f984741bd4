"""The parameters for completions that are alike: columns, and what they share once.

A worker ends its jobs by the hundred at one moment, and what is said about them differs in a few
names. So the first of them is looked at closely, and each of the others is only compared with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from detent.lifecycle.event import Event
from detent.stores.api import Move, Unit
from detent.stores.completions import Completions
from detent.stores.postgres.rows import rest_of

_SEPARATOR: Final = "\x1f"
"""Stands between the texts of a column. No JSON has it in it, and hardly any name."""
_CHARS: Final = 1_000_000
"""Results that are longer together are told one by one: the server takes long to part them."""
_DIGEST: Final = Event.__struct_fields__.index("digest")
_COLUMNS: Final = (
    *("end_ids", "end_fences", "end_leases", "end_commands", "end_rests", "end_results"),
)
_SHARED: Final = (
    *("end_tenant", "end_at", "end_name", "end_source", "end_state", "end_actor", "end_actor_id"),
)
_Row = tuple[str, str, str, str, str, str]
_of_unit: Final = attrgetter("new", "flow", "puts", "gates", "limits")
_of_move: Final = attrgetter(
    *("wake_at", "lost", "taken_by", "failure", "lines", "checkpoint", "meta", "result_until")
)
_of_job: Final = attrgetter(
    *("tenant", "state", "previous", "state_at", "last_at", "ended_at", "cause", "wire", "lease"),
    *("lease_us", "received_at", "start_us", "erased_at", "workflow"),
)


class Ends(msgspec.Struct, frozen=True):
    """What a statement is told about some completions, in the order in which it locks their rows.

    `order` says which unit each of them is; `is_rich` whether there are results.
    """

    told: dict[str, Any]
    order: Sequence[int]
    is_rich: bool


def joined(texts: Sequence[str]) -> str | None:
    """The texts as one; nothing if they could not be taken apart again."""
    text = _SEPARATOR.join(texts)
    return text if text.count(_SEPARATOR) == len(texts) - 1 else None


def ends_of(units: Sequence[Unit]) -> Ends | None:
    """Completions like the first one, which is a report that brings a result at most.

    Nothing if not all of them are like it.
    """
    first = units[0]
    if isinstance(units, Completions):
        if len({row[-1] for row in units.rows}) > 1:
            return None
        return _ends(first.moves[0], [_own(units, at) for at in range(len(units))])
    like = _likeness(first, first.moves[0], astuple(first.moves[0].events[0]))
    rows: list[_Row] = []
    for unit in units:
        row = _row(unit, like)
        if row is None:
            return None
        rows.append(row)
    return _ends(first.moves[0], rows)


def _ends(first: Move, rows: list[_Row]) -> Ends | None:
    if sum(len(row[5]) for row in rows) > _CHARS:
        return None
    order = sorted(range(len(rows)), key=rows.__getitem__)
    columns = [joined(column) for column in zip(*(rows[at] for at in order), strict=True)]
    if None in columns or len({row[0] for row in rows}) < len(rows):
        return None
    return _told(first, dict(zip(_COLUMNS, columns, strict=True)), order)


def _own(ends: Completions, at: int) -> _Row:
    """What is this one's own, of those that are known to be alike."""
    job, command_id, digest, result, _ = ends.rows[at]
    rest = "" if digest is None else rest_of(astuple(ends[at].moves[0].events[0])) or ""
    return job.id, str(job.version), job.lease or "", command_id, rest, result or ""


def _likeness(unit: Unit, move: Move, event: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that is the same about completions that are alike."""
    said = (event[3:9], event[10:_DIGEST], event[_DIGEST + 1 :])
    return (_of_unit(unit), _of_move(move), _of_job(move.job), *said)


def _row(unit: Unit, like: tuple[Any, ...]) -> _Row | None:
    """What is this one's own, if it is like the others and its history goes on where it stands."""
    if len(unit.moves) != 1 or len(unit.moves[0].events) != 1:
        return None
    move = unit.moves[0]
    job, event, version = move.job, astuple(move.events[0]), move.version + 1
    if _likeness(unit, move, event) != like or move.lease is None:
        return None
    if event[:3] != (job.tenant, job.id, version) or job.version != version:
        return None
    rest = "" if event[_DIGEST] is None else rest_of(event) or ""
    return job.id, str(move.version), move.lease, event[9], rest, move.result or ""


def _told(first: Move, columns: dict[str, str | None], order: Sequence[int]) -> Ends:
    event = astuple(first.events[0])
    nothing = _SEPARATOR * (len(order) - 1)
    for name in ("end_rests", "end_results"):
        if columns[name] == nothing:
            columns[name] = None
    told = {
        **columns,
        **dict(zip(_SHARED, (event[0], *event[3:9]), strict=True)),
        "end_cause": first.job.cause,
        "end_until": first.result_until,
        "end_rest": rest_of((*event[:_DIGEST], None, *event[_DIGEST + 1 :])),
        "ends": len(order),
    }
    return Ends(told, order, columns["end_results"] is not None)
