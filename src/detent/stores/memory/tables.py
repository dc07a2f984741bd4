"""Everything the model holds, and what more than one part of it looks up or writes down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import OPEN, Gate, Job, Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.stores import api
from detent.stores.api import Fed, Key, Stored
from detent.stores.bell import Bell
from detent.stores.gates import joined
from detent.stores.legal import is_storable
from detent.stores.limits import Used

__all__ = ["Named", "Tables"]

Named: TypeAlias = tuple[str, str, str]
"""A tenant, what kind of thing is meant, and its name."""
_MISSING = Lease(0, lost=True)
"""A row that is not there counts as lost."""


class Tables:
    """Dictionaries; what a database has in tables."""

    def __init__(self) -> None:
        self.jobs: dict[Key, Stored] = {}
        self.fingerprints: dict[Key, str] = {}
        self.promises: dict[Key, tuple[api.Idempotency, Key]] = {}
        self.results_until: dict[Key, int | None] = {}
        self.handed_out: dict[Key, int] = {}
        self.leases: dict[str, int] = {}
        self.flows: dict[Key, w.Flow] = {}
        self.swept: set[Named] = set()
        self.records: dict[Named, tuple[api.Record, str]] = {}
        self.gates: dict[Named, api.GateRow] = {}
        self.limits: dict[Named, api.LimitRow] = {}
        self.used: dict[Named, Used] = {}
        self.served: dict[Named, int] = {}
        self.workers: dict[str, api.WorkerRow] = {}
        self.instances: dict[Key, Instance] = {}
        self.events: defaultdict[Key, list[Fed]] = defaultdict(list)
        self.leaves: list[tuple[int, bytes]] = []
        self.blocks: list[Block] = []
        self.lines: list[api.Logged] = []
        self.bell = Bell()
        self._positions, self._cursors = count(1), count(1)

    def record(self, events: Sequence[Event]) -> None:
        """The feed is nothing but all histories: whatever is in one is in the other."""
        for event in events:
            self.events[event.tenant, event.record].append(Fed(next(self._positions), event))

    def is_sealed(self, key: Key) -> bool:
        """Whether all that happened to the record stands in a block."""
        return self.events[key][-1].pos <= (self.leaves[-1][0] if self.leaves else 0)

    def log(self, key: Key, line: api.Line) -> int:
        """The line's cursor among those of its job; none where nothing may be kept."""
        stored = self.jobs.get(key)
        if stored is None or stored.job.erased_at is not None or not is_storable(line):
            return 0
        cursor = 1 + sum(one.key == key for one in self.lines)
        self.lines.append(api.Logged(key, cursor, line, next(self._cursors)))
        return cursor

    def switch(self, gates: Sequence[api.GateRow], limits: Sequence[api.LimitRow]) -> None:
        """The newest word counts. What was used of a limit stays used until it is lifted."""
        self.gates |= {(row.tenant, row.kind, row.name): row for row in gates}
        named = self.limits | {(row.tenant, row.kind, row.name): row for row in limits}
        self.limits = {name: row for name, row in named.items() if row.limit is not None}
        self.used = {name: used for name, used in self.used.items() if name in self.limits}
        self.bell.ring()

    def gate_of(self, stored: Stored) -> Gate:
        """Its queue's, its type's and its step's gate as one."""
        job, step = stored.job, OPEN
        queue = self.gates.get((job.tenant, api.GateKind.QUEUE, job.queue))
        kind = self.gates.get((job.tenant, api.GateKind.TYPE, stored.body.type))
        if job.workflow is not None:
            flow = self.flows[job.tenant, job.workflow]
            step = w.gate_of(flow.workflow, flow.steps[job.step or ""])
        return joined(*(row.gate for row in (queue, kind) if row), step)

    def lease_of(self, job: Job) -> Lease | None:
        """The row behind a job's lease."""
        if job.lease is None or not job.wire:
            return None if job.lease is None else self.worker_lease(job.holder or "")
        until = self.leases.get(job.lease)
        return _MISSING if until is None else Lease(until)

    def worker_lease(self, worker: str) -> Lease:
        """The row of a worker instance."""
        row = self.workers.get(worker)
        return _MISSING if row is None else Lease(row.alive_until, row.lost)
