"""Claims by the dozen: of jobs that stand alike one is decided about, and the others go like it.

A decision about a claim looks at the record, the wish, the gate and the moment. Within one claim
the last three are the same for all jobs of a lane, and records that differ in their names, their
place and in when they came are the same to it. So the answer to the first is written down with
blanks, and whoever stands just like it gets it with their own names in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.stores.api import Failure, Stored, Want
from detent.stores.sqlite import rows
from detent.stores.sqlite.pending import Pending
from detent.stores.sqlite.spots import Spot, spot_of

__all__ = ["Taking"]

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


class _Pattern:
    """The answer to one job, with blanks for what is another's own."""

    def __init__(self, row: Sequence[Any], answer: j.Accepted, wake_at: int | None) -> None:
        job, (event,) = answer.job, answer.events
        self.shape = _shape(row)
        self.wake_at = wake_at
        self.before = row[4]
        self.first = spot_of(job, row[_TYPE], row[_KEY])
        self._job = list(astuple(job))
        self._row = rows.taken_row(job, wake_at, 0, 0)
        self._version = row[3]
        told = rows.event_row(event)
        self._event = told[2:-1]
        self._rest: list[str] = str(told[-1]).split(str(job.lease))
        self.count = 0

    @property
    def is_whole(self) -> bool:
        """Whether there is one place for a lease in what the event says."""
        return len(self._rest) == 2  # noqa: PLR2004 - before it, and after it

    def job(self, row: Sequence[Any], lease: str) -> Job:
        values = self._job.copy()
        values[_ID], values[_CREATED], values[_PLACE] = row[2], row[1 + _CREATED], row[1 + _PLACE]
        values[_ENQUEUED], values[_READY] = row[1 + _ENQUEUED], row[1 + _READY]
        values[_LEASE] = lease
        return Job(*values)

    def rows(self, row: Sequence[Any], lease: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Of the job and of its event."""
        taken, (before, after) = self._row, self._rest
        moved = (*taken[:7], lease, *taken[8:15], row[0], self._version)
        return moved, (row[1], row[2], *self._event, f"{before}{lease}{after}")


class Taking:
    """What was learnt from the decisions of one claim."""

    def __init__(self, pending: Pending, want: Want, now: int) -> None:
        self._pending = pending
        self._now = now
        self._is_learning = not want.wire and all(map(_SIMPLE.fullmatch, want.leases))
        self._pattern: _Pattern | None = None

    def learn(self, row: Sequence[Any], answer: j.Accepted, wake_at: int | None) -> None:
        """Remember what became of this job, if it could become of another just so."""
        if not self._is_learning or not self._is_common(row) or len(answer.events) != 1:
            return
        pattern = _Pattern(row, answer, wake_at)
        lease = str(answer.job.lease)
        if pattern.is_whole and pattern.job(row, lease) == answer.job:
            self.count()
            self._pattern = pattern

    def like_another(
        self, row: Sequence[Any], failed: tuple[Failure, ...], lease: str
    ) -> Stored | None:
        """The job as it is taken, and its rows are waiting; nothing if it stands by itself."""
        pattern = self._pattern
        if pattern is None or _shape(row) != pattern.shape or not self._is_common(row):
            return None
        job, (moved, event) = pattern.job(row, lease), pattern.rows(row, lease)
        self._pending.add_row("job_taken", moved)
        self._pending.record_row(event)
        pattern.count += 1
        return rows.stored_with(row, failed, job, pattern.wake_at)

    def count(self) -> None:
        """Count those that went like another, all at once."""
        if self._pattern is not None and self._pattern.count:
            after, number = self._pattern.first, self._pattern.count
            self._pending.count(Spot(after.lane, self._pattern.before), after, number)
            self._pattern.count = 0

    def _is_common(self, row: Sequence[Any]) -> bool:
        """Not unique, no member of a workflow, and the clock has nothing to say about it."""
        return (
            not row[-1]
            and row[_STEP] is None
            and row[_EXPIRES] is None
            and bool(row[1 + _LAST] <= self._now)
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
