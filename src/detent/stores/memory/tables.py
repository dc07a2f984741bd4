"""What the model holds, and what the fences and the rest of it look up or write down there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import OPEN, Gate, Job, Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.worker import Instance
from detent.stores import api
from detent.stores.api import Fed, Key, New, Stored, Unit, key_of
from detent.stores.bell import Bell
from detent.stores.fences import MISSING
from detent.stores.gates import joined
from detent.stores.judging import Judge
from detent.stores.legal import is_storable
from detent.stores.limits import Used
from detent.stores.quotas import Named
from detent.stores.siblings import counts

__all__ = ["Tables"]


class Tables(Judge):
    """One dictionary for each kind of thing; what is looked for is found by looking through it."""

    def __init__(self) -> None:
        self.jobs: dict[Key, Stored] = {}
        self.fingerprints: dict[Key, str] = {}
        self.promises: dict[Key, tuple[api.Idempotency, Key]] = {}
        self.results_until: dict[Key, int | None] = {}
        self.handed_out: dict[Key, int] = {}
        self.leases: dict[str, Lease] = {}
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

    def forget(self, keys: Sequence[Key]) -> None:
        """All that there is about these records, of whatever kind they are."""
        gone = set(keys)
        self.lines = [line for line in self.lines if line.key not in gone]
        self.swept = {step for step in self.swept if step[:2] not in gone}
        of_jobs = (self.jobs, self.fingerprints, self.results_until, self.handed_out)
        tables: tuple[dict[Key, Any], ...] = (*of_jobs, self.flows, self.instances, self.events)
        for table in tables:
            for key in gone & table.keys():
                del table[key]

    def gate_of(self, stored: Stored) -> Gate:
        """Its queue's, its type's and its step's gate as one."""
        job, step = stored.job, OPEN
        queue = self.gates.get((job.tenant, api.GateKind.QUEUE, job.queue))
        kind = self.gates.get((job.tenant, api.GateKind.TYPE, stored.body.type))
        if job.workflow is not None:
            flow = self.flows[job.tenant, job.workflow]
            step = w.gate_of(flow.workflow, flow.steps[job.step or ""])
        return joined(*(row.gate for row in (queue, kind) if row), step)

    # --- what the fences ask ----------------------------------------------------------------------

    def head(self, key: Key) -> Job | None:
        return self.jobs[key].job if key in self.jobs else None

    def job(self, key: Key) -> Job:
        return self.jobs[key].job

    def is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self.events.get(key, ()))

    def row_behind(self, key: Key) -> Lease | None:
        job = self.jobs[key].job
        if job.lease is None or not job.wire:
            return None if job.lease is None else self.worker_lease(job.holder or "")
        return self.leases.get(job.lease, MISSING)

    def worker_lease(self, worker: str) -> Lease:
        row = self.workers.get(worker)
        return MISSING if row is None else Lease(row.alive_until, row.lost)

    def flow(self, key: Key) -> w.Flow | None:
        return self.flows.get(key)

    def record_of(self, name: Named) -> tuple[api.Record | None, str]:
        return self.records.get(name, (None, ""))

    def promised(self, name: Key, now: int) -> tuple[str, Job] | None:
        promise, key = self.promises.get(name, (None, ("", "")))
        return (promise.digest, self.job(key)) if promise and promise.expires_at > now else None

    def oldest(self, unit: Unit, new: New, unique: api.Unique) -> Job | None:
        moved = {key_of(move.job): move.job for move in unit.moves}
        alike = [key for key, name in self.fingerprints.items() if name == unique.fingerprint]
        jobs = [self.job(key) for key in alike if key[0] == new.job.tenant]
        there = [job for job in jobs if counts(moved.get(key_of(job), job), unique)]
        return min(there, key=lambda job: job.created_at, default=None)

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """The rules of all stores, and what the keys of a table refuse: to hold a thing twice."""
        found = super()._illegal(unit)
        if found is None and self._is_told_twice(unit):
            found = api.Rejected("a version of its history exists already")
        if found is None and self._is_held_twice(unit):
            found = api.Rejected("its holder has that lease already, for another job")
        return found

    def _is_told_twice(self, unit: Unit) -> bool:
        events = [event for new in unit.new for event in new.events]
        events += unit.flow.answer.events if unit.flow else ()
        known = [len(self.events.get((event.tenant, event.record), ())) for event in events]
        return any(event.version <= last for event, last in zip(events, known, strict=True))

    def _is_held_twice(self, unit: Unit) -> bool:
        """A lease is made once per claim: its holder has it for one job and for no other."""
        jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
        given = [(job.holder, job.lease) for job in jobs if job.lease is not None]
        after = {key_of(job) for job in jobs}
        others = [one.job for key, one in self.jobs.items() if key not in after] if given else []
        held = {(job.holder, job.lease) for job in others}
        return len(given) != len(set(given)) or not held.isdisjoint(given)
