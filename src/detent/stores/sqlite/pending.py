"""Rows that wait to be written: collected unit by unit, written table by table."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any, NamedTuple

from detent.lifecycle.job import Job
from detent.stores.api import Key
from detent.stores.sqlite.statements import SQL

__all__ = ["Head", "Lane", "Pending", "head_of", "lane_of"]


class Head(NamedTuple):
    """What a fence asks of a stored job, in the order of the statement `head`."""

    seq: int
    version: int
    state: str
    queue: str
    type: str
    lease: str | None
    wire: int
    holder: str | None
    is_unique: int


class Lane(NamedTuple):
    """What jobs are counted by."""

    tenant: str
    queue: str
    state: str
    type: str
    profile: str


# In this order: what others refer to comes first, and a row is born before it moves. A re-arm is
# fenced by the version, so it does nothing to a job that has also moved on.
_ORDER = (
    "job_insert",
    "job_move",
    "job_rearm",
    "body_insert",
    "event_insert",
    "result_put",
    "failure_insert",
    "lease_put",
    "lease_end",
    "unique_insert",
    "unique_move",
    "idempotency_put",
    "unhand",
    "worker_reopen",
    "log_insert",
)


class Pending:
    """What one transaction has decided to write but not written yet, and the heads it leads to."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _ORDER}
        self._counts: Counter[Lane] = Counter()
        self._last_seq: int | None = None
        self._has_handed: bool | None = None
        self.heads: dict[Key, Head] = {}
        self.cursors: dict[int, int] = {}
        self.size = 0

    def add(self, statement: str, *values: Any) -> None:
        """One row for the named statement."""
        self._rows[statement].append(values)
        self.size += 1

    def add_row(self, statement: str, row: tuple[Any, ...]) -> None:
        """The same, for a row that is one already."""
        self._rows[statement].append(row)
        self.size += 1

    def count(self, before: Lane | None, after: Lane) -> None:
        """One job more in a lane, and one less where it was."""
        if before == after:
            return
        self._counts[after] += 1
        if before is not None:
            self._counts[before] -= 1

    def next_seq(self) -> int:
        """The row number of the next job; only we write, so nobody else takes it."""
        if self._last_seq is None:
            self._last_seq = self._connection.execute(SQL["last_seq"]).fetchone()[0]
        self._last_seq += 1
        return self._last_seq

    def next_cursor(self, seq: int) -> int:
        """The cursor of a job's next log line."""
        if seq not in self.cursors:
            self.cursors[seq] = self._connection.execute(SQL["log_last"], (seq,)).fetchone()[0]
        self.cursors[seq] += 1
        return self.cursors[seq]

    @property
    def has_handed(self) -> bool:
        """Whether any job of a lost worker is handed out: almost never, and asked once."""
        if self._has_handed is None:
            self._has_handed = self._connection.execute(SQL["any_handed"]).fetchone() is not None
        return self._has_handed

    def flush(self) -> None:
        """Write everything; whoever reads the tables afterwards sees it."""
        if self.size or self._counts:
            for name, rows in self._rows.items():
                if rows:
                    self._connection.executemany(SQL[name], rows)
            counts = [(*lane, count) for lane, count in self._counts.items() if count]
            self._connection.executemany(SQL["count"], counts)
        self.forget()

    def flush_leases(self) -> None:
        """Write everything, if anything that waits is about a lease: whoever asks needs no more."""
        if self._rows["lease_put"] or self._rows["lease_end"]:
            self.flush()

    def forget(self) -> None:
        """Nothing is waiting any more; what was remembered about the tables may be outdated."""
        if self.size:
            self._rows = {name: [] for name in _ORDER}
        self._counts.clear()
        self.heads.clear()
        self.cursors.clear()
        self._has_handed = None
        self.size = 0


def lane_of(job: Job, kind: str) -> Lane:
    """Where the job is counted."""
    return Lane(job.tenant, job.queue, str.__str__(job.state), kind, job.profile)


def head_of(seq: int, job: Job, kind: str, is_unique: int) -> Head:
    """The head that a job will have once it is written."""
    held = (job.lease, job.wire, job.holder)
    return Head(seq, job.version, job.state, job.queue, kind, *held, is_unique)
