"""Claims many like jobs at once: one is decided about, and the others follow it.

A decision about a claim looks at the record, the wish, the gate and the moment. Within one claim
the last three are the same for all jobs of a lane, and records that differ in their names, their
place and in when they came are the same to it. So the answer to the first is written down with
blanks, and whoever stands just like it gets it with their own names in them.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import astuple

from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.stores.api import Failure, Stored, Want
from detent.stores.sqlite import rows
from detent.stores.sqlite.ends import FEW
from detent.stores.sqlite.pending import Pending
from detent.stores.sqlite.spots import Spot, spot_of
from detent.stores.sqlite.statements import SQL, numbered

_FIELDS = Job.__struct_fields__
_ID, _CREATED, _LAST, _PREVIOUS, _PLACE, _HELD, _ENQUEUED, _READY, _LEASE = (
    _FIELDS.index(name)
    for name in (
        *("id", "created_at", "last_at", "previous", "place", "held"),
        *("enqueued_at", "ready_at", "lease"),
    )
)
_EXPIRES, _STEP = 1 + _FIELDS.index("expires_at"), 1 + _FIELDS.index("step")
_TYPE = 2 + len(_FIELDS)
_KEY = _TYPE + 6
_SIMPLE = re.compile(r"[\w.\-]*", re.ASCII)
_encode = msgspec.json.Encoder().encode
_When: TypeAlias = int | None
_Text: TypeAlias = str | None
_Own: TypeAlias = tuple[int, str, int, _When, _When, _When]
"""What is a job's own: its row, its id, when it was made, its place, when it came and was ready."""
_Found: TypeAlias = tuple[int, str, int, _When, _When, _When, str, str, _Text, _Text, _Text]
"""The same, and its payload, meta, tags, retry and schema."""
_decode_found = msgspec.json.Decoder(list[_Found]).decode


class _Pattern:
    """The answer to one job, with blanks for what is another's own."""

    def __init__(self, row: Sequence[Any], answer: j.Accepted, wake_at: int | None) -> None:
        job, (event,) = answer.job, answer.events
        self.shape = _shape(row)
        self.tenant = row[1]
        self.stands = _stands(row)
        self.is_new = row[3] == 1
        self.wake_at = wake_at
        self.lease_us = (job.lease_us or 0) if job.wire else None
        """How long the rows of wire leases are good for; others have none."""
        self.before = row[4]
        self.first = spot_of(job, row[_TYPE], row[_KEY])
        self._job = list(astuple(job))
        self._row = rows.taken_row(job, wake_at, 0, 0)
        self._version = row[3]
        told = rows.event_row(event)
        self._event = told[2:-1]
        self._rest: list[str] = str(told[-1]).split(str(job.lease))

    @property
    def is_whole(self) -> bool:
        """Whether there is one place for a lease in what the event says."""
        return len(self._rest) == 2

    def job(self, own: _Own, lease: str) -> Job:
        values = self._job.copy()
        _, values[_ID], values[_CREATED], values[_PLACE], *entered = own
        values[_ENQUEUED], values[_READY] = entered
        values[_LEASE] = lease
        return Job(*values)

    def rows(self, seq: int, job_id: str, lease: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Of the job and of its event."""
        taken, (before, after) = self._row, self._rest
        moved = (*taken[:7], lease, *taken[8:15], seq, self._version)
        return moved, (self.tenant, job_id, *self._event, f"{before}{lease}{after}")

    def stored(self, found: _Found, lease: str) -> Stored:
        """One that was found to stand so, as it is taken."""
        kind, key = self.stands[-2:]
        body = rows.body_of((self.tenant, found[1]), (kind, *found[6:], key))
        return Stored(self.job(found[:6], lease), body, self.wake_at)

    @property
    def columns(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What the rows of all of them have in common, of the jobs and of the events."""
        taken = self._row
        moved = (*taken[:7], *taken[8:15], self._version)
        return moved, (self.tenant, *self._event, *self._rest)


_Alike: TypeAlias = tuple[_Pattern, int, str, str]
"""What it goes like, its row, its id and its lease."""


class Taking:
    """What was learnt from the decisions of one claim."""

    def __init__(
        self, connection: sqlite3.Connection, pending: Pending, want: Want, now: int
    ) -> None:
        self._connection = connection
        self._pending = pending
        self._now = now
        self._is_learning = bool(_SIMPLE.fullmatch("".join(want.leases)))
        self._patterns: dict[tuple[str, str | None], _Pattern] = {}
        """The last one of each type and key: jobs of several stand in one line."""
        self._alike: list[_Alike] = []
        """Those that went like another and are not written yet."""

    def learn(self, row: Sequence[Any], answer: j.Accepted, wake_at: int | None) -> None:
        """Remember what became of this job, if it could become of another just so."""
        if not self._is_learning or not self._is_common(row) or len(answer.events) != 1:
            return
        pattern = _Pattern(row, answer, wake_at)
        lease = str(answer.job.lease)
        if pattern.is_whole and pattern.job(_own(row), lease) == answer.job:
            self._patterns[row[_TYPE], row[_KEY]] = pattern

    def like_another(
        self, row: Sequence[Any], failed: tuple[Failure, ...], lease: str
    ) -> Stored | None:
        """The job as it is taken, to be written with others; nothing if it stands by itself."""
        pattern = self._patterns.get((row[_TYPE], row[_KEY]))
        if pattern is None or _shape(row) != pattern.shape or not self._is_common(row):
            return None
        self._alike.append((pattern, row[0], row[2], lease))
        job = pattern.job(_own(row), lease)
        return rows.stored_with(row, failed, job, pattern.wake_at)

    def all_like_another(self, seqs: Sequence[int], leases: Sequence[str]) -> list[Stored]:
        """The same for all of these, of which less is read; nothing if one stands by itself."""
        pattern = next(iter(self._patterns.values()), None)
        if pattern is None or not pattern.is_new or len(seqs) < FEW:
            return []
        asked = (_encode(seqs).decode(), self._now, pattern.tenant, *pattern.stands)
        [told] = self._connection.execute(SQL["stored_like"], numbered(asked)).fetchone()
        found = _decode_found(told)
        if len(found) != len(seqs):
            return []
        taken = list(zip(found, leases, strict=False))
        self._alike += [(pattern, own[0], own[1], lease) for own, lease in taken]
        return [pattern.stored(own, lease) for own, lease in taken]

    def write(self) -> None:
        """Write and count those that went like another: whatever is decided next comes after."""
        alike, self._alike = self._alike, []
        for pattern, some in groupby(alike, itemgetter(0)):
            self._write(pattern, list(some))

    def _write(self, pattern: _Pattern, alike: Sequence[_Alike]) -> None:
        if len(alike) < FEW:
            for _, seq, job_id, lease in alike:
                moved, event = pattern.rows(seq, job_id, lease)
                self._pending.add_row("job_taken", moved)
                self._pending.record_row(event)
        else:
            self._write_together(pattern, alike)
        if pattern.lease_us is not None:
            until = self._now + pattern.lease_us
            for _, seq, _, lease in alike:
                self._pending.add("lease_put", lease, until, seq)
        after = pattern.first
        self._pending.count(Spot(after.lane, pattern.before), after, len(alike))

    def _write_together(self, pattern: _Pattern, alike: Sequence[_Alike]) -> None:
        """With one statement per table, as columns."""
        pending, number = self._pending, len(alike)
        pending.flush()
        moved, event = pattern.columns
        taken = _encode([f"{seq} {lease}" for _, seq, _, lease in alike]).decode()
        done = self._connection.execute(SQL["jobs_taken"], numbered((taken, *moved)))
        if done.rowcount != number:
            raise sqlite3.IntegrityError(f"{done.rowcount} of {number} jobs could be taken")
        named = _encode([f"{lease} {job_id}" for _, _, job_id, lease in alike]).decode()
        first = pending.positions(number)
        self._connection.execute(SQL["events_taken"], numbered((named, first, *event)))

    def _is_common(self, row: Sequence[Any]) -> bool:
        """Not unique, no member of a workflow, and the clock has nothing to say about it."""
        return (
            not row[-1]
            and row[_STEP] is None
            and row[_EXPIRES] is None
            and bool(row[1 + _LAST] <= self._now)
        )


def _own(row: Sequence[Any]) -> _Own:
    came = row[1 + _CREATED], row[1 + _PLACE], row[1 + _ENQUEUED], row[1 + _READY]
    return row[0], row[2], *came


def _stands(row: Sequence[Any]) -> tuple[Any, ...]:
    """How it stands, in the order of the statement `stored_like`, after the version."""
    return (
        *row[4 : 1 + _CREATED],
        row[1 + _PREVIOUS],
        *row[1 + _HELD : 1 + _ENQUEUED],
        *row[2 + _READY : _TYPE - 1],
        row[_TYPE],
        row[_KEY],
    )


def _shape(row: Sequence[Any]) -> tuple[Any, ...]:
    """How it stands: all of its record but its id, its place and when it came; its type and key."""
    return (
        row[1],
        row[3 : 1 + _CREATED],
        row[1 + _PREVIOUS],
        row[1 + _HELD : 1 + _ENQUEUED],
        row[2 + _READY : _TYPE - 1],
        row[_TYPE],
        row[_KEY],
    )
