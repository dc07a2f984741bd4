"""Everything the model holds, and the two things that are kept in order: events and log lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Gate, Job, Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Flow
from detent.stores import api
from detent.stores.api import Key, Record, Stored
from detent.stores.bell import Bell
from detent.stores.gates import joined
from detent.stores.legal import is_storable
from detent.stores.limits import Used

__all__ = ["MISSING", "Named", "Tables"]

MISSING = Lease(0, lost=True)
"""A row that is not there counts as lost."""
Named: TypeAlias = tuple[str, str, str]
"""A tenant, what kind of thing is meant, and its name."""


class Tables:
    """Dictionaries; what a database has in tables."""

    def __init__(self) -> None:
        self.jobs: dict[Key, Stored] = {}
        self.flows: dict[Key, Flow] = {}
        self.swept: set[Named] = set()
        self.records: dict[Named, tuple[Record, str]] = {}
        self.events: defaultdict[Key, list[Event]] = defaultdict(list)
        self.feed: list[api.Fed] = []
        self.blocks: list[Block] = []
        self.leaves: list[tuple[int, bytes]] = []
        self.workers: dict[str, api.WorkerRow] = {}
        self.instances: dict[Key, Instance] = {}
        self.leases: dict[str, int] = {}
        self.gates: dict[Named, Gate] = {}
        self.limits: dict[Named, api.LimitRow] = {}
        self.used: dict[Named, Used] = {}
        self.served: dict[Named, int] = {}
        self.fingerprints: defaultdict[Key, list[Key]] = defaultdict(list)
        self.promises: dict[Key, tuple[api.Idempotency, Key]] = {}
        self.handed_out: dict[Key, int] = {}
        self.lines: list[api.Logged] = []
        self.bell = Bell()
        self._fed = 0
        self._logged = 0

    def record(self, events: Sequence[Event]) -> None:
        """The history and the feed are one: whatever is in one is in the other."""
        for event in events:
            self._fed += 1
            self.events[event.tenant, event.record].append(event)
            self.feed.append(api.Fed(self._fed, event))

    def is_sealed(self, key: Key) -> bool:
        """Whether all that happened to the record stands in a block."""
        sealed = self.leaves[-1][0] if self.leaves else 0
        newest = [fed for fed in self.feed if (fed.event.tenant, fed.event.record) == key]
        return newest[-1].pos <= sealed

    def forget_events(self, key: Key) -> None:
        """The events go; the leaves made of them stay, so that every seal can be checked."""
        del self.events[key]
        self.feed = [f for f in self.feed if (f.event.tenant, f.event.record) != key]

    def log(self, key: Key, line: api.Line) -> int:
        """The line's cursor among those of its job; none where nothing may be kept."""
        stored = self.jobs.get(key)
        if stored is None or stored.job.erased_at is not None or not is_storable(line):
            return 0
        self._logged += 1
        cursor = 1 + sum(one.key == key for one in self.lines)
        self.lines.append(api.Logged(key, cursor, line, self._logged))
        return cursor

    def set_gates(self, rows: Sequence[api.GateRow]) -> None:
        """The newest word about each gate; whoever waits for jobs looks again."""
        for row in rows:
            self.gates[row.tenant, row.kind, row.name] = row.gate
        self.bell.ring()

    def set_limits(self, rows: Sequence[api.LimitRow]) -> None:
        """The newest word about each limit; what was used of it stays used."""
        for row in rows:
            name = (row.tenant, row.kind, row.name)
            self.limits[name] = row
            if row.limit is None:
                del self.limits[name]
                self.used.pop(name, None)
        self.bell.ring()

    def lease_of(self, job: Job) -> Lease | None:
        """The row behind a job's lease."""
        if job.lease is None:
            return None
        if job.wire:
            return Lease(self.leases[job.lease]) if job.lease in self.leases else MISSING
        return self.worker_lease(job.holder or "")

    def worker_lease(self, worker: str) -> Lease:
        """The row of a worker instance."""
        row = self.workers.get(worker)
        return MISSING if row is None else Lease(row.alive_until, row.lost)

    def gate_of(self, stored: Stored) -> Gate:
        """Its queue's, its type's and its step's gate as one."""
        job, step = stored.job, j.OPEN
        queue = self.gates.get((job.tenant, api.GateKind.QUEUE, job.queue), j.OPEN)
        kind = self.gates.get((job.tenant, api.GateKind.TYPE, stored.body.type), j.OPEN)
        if job.workflow is not None:
            flow = self.flows[job.tenant, job.workflow]
            step = w.gate_of(flow.workflow, flow.steps[job.step or ""])
        return joined(queue, kind, step)
