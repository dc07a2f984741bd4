"""New jobs by the column: one statement per table, however many they are.

A statement that is run row by row gives up and takes back Python's lock for each of them, and is
told again each time what all of them share. Here SQLite reads the columns by itself.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from detent.stores.births import SAMPLE_AT, Birth, Mould, Own, around_place, sample
from detent.stores.sqlite import rows
from detent.stores.sqlite.spots import Spot, spot_of
from detent.stores.sqlite.statements import SQL, numbered
from detent.stores.sqlite.turns import Calls

_encode = msgspec.json.Encoder().encode
_MOULDS: Final = 1_024
_SOME: Final = 4
"""From so many on columns pay."""
_CHARS: Final = 1_000_000
"""Payloads that are longer together are written one by one."""


class Shared(msgspec.Struct, frozen=True):
    """What the jobs of a mould share, in the order of the statements that bear them."""

    mould: Mould
    job: tuple[Any, ...]
    body: tuple[Any, ...]
    event: tuple[Any, ...]
    spot: Spot
    counts: tuple[tuple[str, tuple[Any, ...]], ...]
    """The statements that count one of them where it stands."""


def bear(
    connection: sqlite3.Connection, common: Shared, own: Sequence[Own], seq: int, pos: int
) -> None:
    """Write jobs, bodies and events; `seq` and `pos` are those of the first."""
    if len(own) < _SOME:
        for at, one in enumerate(own):
            _bear_one(connection, common, one, seq + at, pos + at)
        return
    _bear_jobs(connection, common, own, seq)
    _bear_bodies(connection, common, [one[3] for one in own], seq)
    told = (pos - seq, seq, seq + len(own) - 1, *common.event)
    connection.execute(SQL["birth_events"], numbered(told))


def _bear_jobs(
    connection: sqlite3.Connection, common: Shared, own: Sequence[Own], seq: int
) -> None:
    _, at, place, _ = own[0]
    if all(one[1] == at and one[2] == there for there, one in enumerate(own, place)):
        # Most are made in one go, and to take each apart would be a third of writing it.
        ids = _text([one[0] for one in own])
        told = (seq, ids, *common.job, at, place)
        connection.execute(SQL["births_at_once"], numbered(told))
    else:
        told = (seq, _text([one[:3] for one in own]), *common.job)
        connection.execute(SQL["births"], numbered(told))


def alone(birth: Birth) -> Calls | None:
    """All statements of a transaction in which this job is born, and nothing else happens.

    None of them needs the answer of another, so that they can be run without coming back here.
    Nothing if the job stands like no others, and has to be looked at.
    """
    mould, job_id, at, place, payload = birth
    common = shared(mould)
    if common is None:
        return None
    return (
        (SQL["begin"],),
        (SQL["lone_job"], numbered((job_id, at, place, *common.job))),
        (SQL["lone_body"], (payload, *common.body)),
        (SQL["lone_event"], numbered((job_id, at, place, mould.tenant, *common.event))),
        *common.counts,
        (SQL["commit"],),
    )


def _bear_bodies(
    connection: sqlite3.Connection, common: Shared, payloads: Sequence[str], seq: int
) -> None:
    if sum(map(len, payloads)) <= _CHARS:
        connection.execute(SQL["birth_bodies"], numbered((seq, _text(payloads), *common.body)))
        return
    # As one text they would be held several times over, and take no less time.
    bodies = ((seq + at, payload, *common.body) for at, payload in enumerate(payloads))
    connection.executemany(SQL["body_insert"], bodies)


def _text(value: object) -> str:
    return _encode(value).decode()


def _bear_one(connection: sqlite3.Connection, common: Shared, own: Own, seq: int, pos: int) -> None:
    new = common.mould.unit(*own).new[0]
    kind, key = new.body.type, new.body.key
    born = (seq, *rows.born_row(new.job), kind, key, new.wake_at, 0, 0)
    connection.execute(SQL["job_born"], born)
    connection.execute(SQL["body_insert"], (seq, new.body.payload, *common.body))
    connection.execute(SQL["event_insert"], (pos, *rows.event_row(new.events[0])))


@lru_cache(_MOULDS)
def shared(mould: Mould) -> Shared | None:
    """What goes for all jobs of this mould; nothing if they cannot be written by the column."""
    new = sample(mould)
    if new is None:
        return None
    job, event = new.job, rows.event_row(new.events[0])
    fixed = (job.tenant, *rows.born_row(job)[2:10], int(job.held))
    waits = (job.available_us, job.pending_us, job.active_us)
    wakes_after = None if new.wake_at is None else new.wake_at - SAMPLE_AT
    return Shared(
        mould=mould,
        job=(*fixed, *waits, new.body.type, new.body.key, wakes_after),
        body=rows.body_row(0, new.body)[2:],
        event=(*event[4:9], event[10], *around_place(event[-1])),
        spot=(spot := spot_of(job, new.body.type, new.body.key)),
        counts=_counts(spot),
    )


def _counts(spot: Spot) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    lane = spot.lane
    counted = (lane.tenant, lane.queue, spot.state, 1)
    return (SQL["count"], counted), (SQL["lane_count"], (*lane, 1))
