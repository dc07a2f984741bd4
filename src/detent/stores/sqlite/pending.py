"""Rows that wait to be written: collected unit by unit, written table by table."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.workflow import Flow, Tally
from detent.stores.api import Key
from detent.stores.births import Birth, Births, by_mould
from detent.stores.sqlite.bearing import bear, shared
from detent.stores.sqlite.rows import event_row, tally_row
from detent.stores.sqlite.spots import Lane, Spot
from detent.stores.sqlite.statements import SQL


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
    key: str | None
    previous: str | None
    attempt: int
    step: str | None
    erased_at: int | None
    returned_by: str | None


# In this order: what others refer to comes first, and a row is born before it moves. A re-arm is
# fenced by the version, so it does nothing to a job that has also moved on.
_ORDER = {
    name: number
    for number, name in enumerate(
        (
            "workflow_put",
            "step_put",
            "step_tally",
            "step_flips",
            "step_sweep",
            "job_born",
            "job_insert",
            "job_taken",
            "job_move",
            "job_done",
            "job_rearm",
            "body_insert",
            "event_insert",
            "tag_insert",
            "meta_put",
            "result_put",
            "checkpoint_put",
            "note_put",
            "failure_insert",
            "lease_put",
            "lease_end",
            "unique_insert",
            "unique_move",
            "idempotency_put",
            "unhand",
            "worker_reopen",
            "log_insert",
            "record_put",
            "record_drop",
        )
    )
}
_AVAILABLE = JobState.AVAILABLE.value


class Pending:
    """What one transaction has decided to write but not written yet, and the heads it leads to."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._rows: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._lanes: Counter[Lane] = Counter()
        self._births: list[Birth] = []
        self._last_seq: int | None = None
        self._last_pos: int | None = None
        self._has_handed: bool | None = None
        self._has_limits: bool | None = None
        self.heads: dict[Key, Head] = {}
        self.absent: set[Key] = set()
        self.flows: dict[Key, Flow | None] = {}
        self.tallies: dict[Key, Tally | None] = {}
        """The newest of each step: many jobs move it in one transaction, and it is written once."""
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

    def run(self, statement: str, *values: Any) -> None:
        """One row that is written at once, after everything that was decided before it."""
        self.flush()
        self._connection.execute(SQL[statement], values)
        self._has_limits = None

    def record(self, events: tuple[Event, ...]) -> None:
        """The next events of the feed. Only we write, so their positions are known."""
        for event in events:
            self.record_row(event_row(event))

    def record_row(self, row: tuple[Any, ...]) -> None:
        """The next event of the feed, as a row already."""
        self._rows["event_insert"].append((self.positions(1), *row))
        self.size += 1

    def positions(self, number: int) -> int:
        """The first of the next so many positions of the feed, which are taken then."""
        if self._last_pos is None:
            self._last_pos = self._connection.execute(SQL["last_pos"]).fetchone()[0]
        first = self._last_pos + 1
        self._last_pos += number
        return first

    def shift(self, tenant: str, queue: str, before: str, after: str, number: int = 1) -> None:
        """Jobs more in a state, and as many less where they were; claimable in neither."""
        self._counts[tenant, queue, before] -= number
        self._counts[tenant, queue, after] += number

    def count(self, before: Spot | None, after: Spot | None, number: int = 1) -> None:
        """So many jobs more in a spot, and as many less where they were."""
        if before == after:
            return
        for spot, change in ((after, number), (before, -number)):
            if spot is not None:
                self._counts[spot.lane.tenant, spot.lane.queue, spot.state] += change
                if spot.state == _AVAILABLE:
                    self._lanes[spot.lane] += change

    def next_seq(self, number: int = 1) -> int:
        """The row number of the next job, or of so many; only we write, so nobody takes them."""
        if self._last_seq is None:
            self._last_seq = self._connection.execute(SQL["last_seq"]).fetchone()[0]
        self._last_seq += number
        return self._last_seq - number + 1

    def bear(self, births: Births) -> bool:
        """Whether these jobs can be written by the column, and will be."""
        if any(shared(birth[0]) is None for birth in births.rows):
            return False
        self._births += births.rows
        self.size += len(births)
        return True

    def flush_births(self) -> None:
        """Write what was born: who asks for one of them finds it in the table, and only there."""
        if not self._births:
            return
        births, self._births = self._births, []
        for mould, own in by_mould(births).items():
            common, number = shared(mould), len(own)
            if common is not None:
                bear(self._connection, common, own, self.next_seq(number), self.positions(number))
                self.count(None, common.spot, number)

    def next_cursor(self, seq: int) -> int:
        """The cursor of a job's next log line."""
        if seq not in self.cursors:
            self.cursors[seq] = self._connection.execute(SQL["log_last"], (seq,)).fetchone()[0]
        self.cursors[seq] += 1
        return self.cursors[seq]

    @property
    def has_handed(self) -> bool:
        """Whether any job is handed out that is due by its holder or step: asked once."""
        if self._has_handed is None:
            self._has_handed = self._connection.execute(SQL["any_handed"]).fetchone() is not None
        return self._has_handed

    @property
    def has_limits(self) -> bool:
        """Whether there is any limit at all: asked once, and again after whatever may set one."""
        if self._has_limits is None:
            self._has_limits = self._connection.execute(SQL["any_limit"]).fetchone() is not None
        return self._has_limits

    def flush(self) -> None:
        """Write everything; whoever reads the tables afterwards sees it."""
        if self.size or self._counts or self.tallies:
            if self.tallies:
                self._rows["step_tally"] += [tally_row(*one) for one in self.tallies.items()]
            self.flush_births()
            for name in sorted(self._rows, key=_ORDER.__getitem__):
                self._connection.executemany(SQL[name], self._rows[name])
            self._flush_counts()
        # What is known of workflows is what was written: to read one again costs all its steps.
        flows = self.flows
        self.forget()
        self.flows = flows

    def _flush_counts(self) -> None:
        counts = [(*where, count) for where, count in self._counts.items() if count]
        self._connection.executemany(SQL["count"], counts)
        lanes = [(*lane, count) for lane, count in self._lanes.items() if count]
        self._connection.executemany(SQL["lane_count"], lanes)
        # There may be a lane for every customer: one that is empty leaves nothing behind.
        left = [lane for lane, count in self._lanes.items() if count < 0 and lane.key]
        self._connection.executemany(SQL["lane_drop"], left)

    def flush_leases(self) -> None:
        """Write everything, if anything that waits is about a lease: whoever asks needs no more."""
        if "lease_put" in self._rows or "lease_end" in self._rows:
            self.flush()

    def flush_records(self) -> None:
        """The same for small records."""
        if "record_put" in self._rows or "record_drop" in self._rows:
            self.flush()

    def forget(self) -> None:
        """Nothing is waiting any more; what was remembered about the tables may be outdated."""
        if self.size or self.tallies:
            self._rows.clear()
            self._births.clear()
        self._counts.clear()
        self._lanes.clear()
        self.heads.clear()
        self.absent.clear()
        self.flows = {}
        self.tallies.clear()
        self.cursors.clear()
        self._last_pos = None
        self._has_handed = None
        self._has_limits = None
        self.size = 0


def head_of(seq: int, job: Job, kind: str, is_unique: int, key: str | None) -> Head:
    """The head that a job will have once it is written."""
    return Head(
        seq,
        job.version,
        job.state,
        job.queue,
        kind,
        job.lease,
        job.wire,
        job.holder,
        is_unique,
        key,
        job.previous,
        job.attempt,
        job.step,
        job.erased_at,
        job.returned_by,
    )
