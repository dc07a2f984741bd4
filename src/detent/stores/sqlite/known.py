"""What a transaction sees: the tables, with its own changes that are not written yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from detent.lifecycle.job import Job, Lease
from detent.lifecycle.workflow import Flow
from detent.stores.api import Key, Named, Record
from detent.stores.fences import MISSING
from detent.stores.sqlite import rows
from detent.stores.sqlite.pending import Head, Pending
from detent.stores.sqlite.statements import SQL


class Known:
    """Reads through what waits to be written."""

    def __init__(self, connection: sqlite3.Connection, pending: Pending) -> None:
        self._connection = connection
        self._pending = pending

    @property
    def has_limits(self) -> bool:
        """Whether there is any limit at all: mostly not."""
        return self._pending.has_limits

    def look_up(self, keys: Iterable[Key]) -> None:
        """Read the heads of all these jobs at once: whoever asks for one of them finds it read."""
        self._pending.flush_births()
        by_tenant: dict[str, list[str]] = {}
        for tenant, job_id in keys:
            if (tenant, job_id) not in self._pending.heads:
                by_tenant.setdefault(tenant, []).append(job_id)
        for tenant, ids in by_tenant.items():
            asked = (tenant, msgspec.json.encode(ids).decode())
            found = {row[0]: row[1:] for row in self._connection.execute(SQL["heads"], asked)}
            for job_id in ids:
                if job_id in found:
                    self._pending.heads[tenant, job_id] = Head._make(found[job_id])
                else:
                    self._pending.absent.add((tenant, job_id))

    def head(self, key: Key) -> Head | None:
        """The head of a job, if there is one."""
        found = self._pending.heads.get(key)
        if found is None and key not in self._pending.absent:
            self._pending.flush_births()
            row = self._connection.execute(SQL["head"], key).fetchone()
            if row is None:
                return None
            found = self._pending.heads[key] = Head._make(row)
        return found

    def must(self, key: Key) -> Head:
        """The head of a job that has passed the first fence."""
        head = self.head(key)
        if head is None:
            raise LookupError(key)
        return head

    def job(self, seq: int) -> Job:
        """The whole record as it stands in the table."""
        self._pending.flush()
        return rows.job_of(self._connection.execute(SQL["stored_seq"], (seq,)).fetchone())

    def has_moved(self, key: Key, command_id: str) -> bool:
        """Whether that command has moved this record before."""
        self._pending.flush()
        return self._connection.execute(SQL["is_own"], (*key, command_id)).fetchone() is not None

    def wire_lease(self, lease: str) -> Lease:
        """The row of a wire lease."""
        self._pending.flush_leases()
        found = self._connection.execute(SQL["lease"], (lease,)).fetchone()
        return MISSING if found is None else Lease(found[0])

    def worker_lease(self, worker: str) -> Lease:
        """The row of a worker instance."""
        found = self._connection.execute(SQL["worker"], (worker,)).fetchone()
        return MISSING if found is None else Lease(found[0], bool(found[1]))

    def flow(self, key: Key) -> Flow | None:
        """A workflow with its steps and tallies, read once for the whole transaction."""
        flows = self._pending.flows
        if key not in flows:
            flows[key] = read_flow(self._connection, key)
        return flows[key]

    def flow_of(self, tenant: str, workflow: str) -> Flow:
        """The workflow of a job that is stored, or about to be."""
        flow = self.flow((tenant, workflow))
        if flow is None:
            raise LookupError(workflow)
        return flow

    def record(self, name: Named) -> tuple[Record | None, str]:
        """A small record, and the command that wrote it."""
        self._pending.flush_records()
        row = self._connection.execute(SQL["record"], name).fetchone()
        return (None, "") if row is None else (Record(*row[:-1]), row[-1])

    def tags(self, seq: int) -> tuple[str, ...]:
        """The tags of a job."""
        [found] = self._connection.execute(SQL["tags_of"], (seq,)).fetchone()
        return msgspec.json.decode(found, type=tuple[str, ...]) if found else ()

    def run(self, statement: str, *values: Any) -> None:
        """Something that cannot wait, after all that does."""
        self._pending.flush()
        self._connection.execute(SQL[statement], values)


def read_flow(connection: sqlite3.Connection, key: Key) -> Flow | None:
    """The workflow of that key as it stands in the tables."""
    found = connection.execute(SQL["workflow"], key).fetchone()
    if found is None:
        return None
    workflow = rows.workflow_of(*key, found[0])
    read = [rows.step_of(*key, *row) for row in connection.execute(SQL["steps"], key)]
    tallies = {step.id: tally for step, tally in read if tally is not None}
    return Flow.of(workflow, (step for step, _ in read), tallies)
