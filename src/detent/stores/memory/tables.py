"""What the model holds: what the fences look up there, and how a unit is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import count

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import seal, worker
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job.table import PARKED
from detent.stores import api, fences, legal, siblings
from detent.stores.api import Key, Move, Named, New, Stored, Unit, key_of, name_of
from detent.stores.bell import Bell
from detent.stores.gates import behind
from detent.stores.judging import Judge
from detent.stores.writing import Writer


class Tables(Judge, Writer):
    """One dictionary for each kind of thing; what is looked for is found by looking through it."""

    def __init__(self, bell: Bell) -> None:
        self.jobs: dict[Key, Stored] = {}
        self.fingerprints: dict[Key, str | None] = {}
        self.promises: dict[Key, tuple[api.Idempotency, Key]] = {}
        self.results_until: dict[Key, int | None] = {}
        self.handed_out: dict[Key, int] = {}
        self.leases: dict[str, j.Lease] = {}
        self.flows: dict[Key, w.Flow] = {}
        self.swept: set[Named] = set()
        self.records: dict[Named, tuple[api.Record, str]] = {}
        self.gates: dict[Named, api.GateRow] = {}
        self.limits: dict[Named, api.LimitRow] = {}
        self.used: dict[Named, api.Used] = {}
        self.served: dict[Named, int] = {}
        self.workers: dict[str, api.WorkerRow] = {}
        self.instances: dict[Key, worker.Instance] = {}
        self.events: defaultdict[Key, list[api.Fed]] = defaultdict(list)
        self.leaves: list[tuple[int, bytes]] = []
        self.blocks: list[seal.Block] = []
        self.lines: list[api.Logged] = []
        self.bell = bell
        self._positions, self._cursors = count(1), count(1)

    def commit(self, unit: Unit, now: int) -> api.Outcome:
        """All of the unit, or none: everything is asked before anything is written."""
        refused = self.refused(unit, now)
        if refused is None:
            self.write(unit, now)
        return refused or api.Committed()

    def record(self, events: Sequence[Event]) -> None:
        """The feed is nothing but all histories: whatever is in one is in the other."""
        for event in events:
            self.events[event.tenant, event.record].append(api.Fed(next(self._positions), event))

    @property
    def sealed_until(self) -> int:
        """Up to which position of the feed everything stands in a block."""
        return self.leaves[-1][0] if self.leaves else 0

    def is_sealed(self, key: Key) -> bool:
        """Whether all that happened to the record stands in a block."""
        return self.events[key][-1].pos <= self.sealed_until

    def log(self, key: Key, line: api.Line) -> int:
        """The line's cursor among those of its job; none where nothing may be kept."""
        stored = self.jobs.get(key)
        if stored is None or stored.job.erased_at is not None or not legal.is_storable(line):
            return 0
        cursor = 1 + sum(one.key == key for one in self.lines)
        self.lines.append(api.Logged(key, cursor, line, next(self._cursors)))
        return cursor

    def forget(self, keys: Sequence[Key]) -> None:
        """All that there is about these records, of whatever kind they are."""
        gone = set(keys)
        self.lines = [line for line in self.lines if line.key not in gone]
        self.swept = {step for step in self.swept if step[:2] not in gone}
        of_jobs = (self.jobs, self.fingerprints, self.results_until, self.handed_out)
        for table in (*of_jobs, self.flows, self.instances, self.events):
            for key in gone & table.keys():
                del table[key]

    def gate_of(self, stored: Stored) -> j.Gate:
        """Its queue's, its type's and its step's gate as one."""
        job, kinds = stored.job, api.GateKind
        names = (job.tenant, kinds.QUEUE, job.queue), (job.tenant, kinds.TYPE, stored.body.type)
        gates = [self.gates[name].gate for name in names if name in self.gates]
        return behind(job, self.flows.get((job.tenant, job.workflow or "")), *gates)

    def lost_holder(self, job: j.Job) -> api.WorkerRow | None:
        """The row of the instance that has the job, if it is marked lost."""
        row = None if job.wire or job.lease is None else self.workers.get(job.holder or "")
        return row if row is not None and row.lost else None

    def is_swept(self, job: j.Job) -> bool:
        """Whether it waits in a step where nothing will ever run again."""
        return job.state in PARKED and (job.tenant, job.workflow, job.step) in self.swept

    def is_alone(self, job: j.Job) -> bool:
        """In no workflow, or in one that has ended."""
        flow = self.flows.get((job.tenant, job.workflow or ""))
        return flow is None or flow.workflow.ended_at is not None

    # --- what the fences ask ----------------------------------------------------------------------

    def head(self, key: Key) -> j.Job | None:
        return self.jobs[key].job if key in self.jobs else None

    def job(self, key: Key) -> j.Job:
        return self.jobs[key].job

    def is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self.events.get(key, ()))

    def wire_lease(self, lease: str) -> j.Lease:
        return self.leases.get(lease, fences.MISSING)

    def worker_lease(self, worker: str) -> j.Lease:
        row = self.workers.get(worker)
        return fences.MISSING if row is None else j.Lease(row.alive_until, row.lost)

    def flow(self, key: Key) -> w.Flow | None:
        return self.flows.get(key)

    def record_of(self, name: Named) -> tuple[api.Record | None, str]:
        return self.records.get(name, (None, ""))

    def promised(self, name: Key, now: int) -> tuple[str, j.Job] | None:
        promise, key = self.promises.get(name, (None, ("", "")))
        return (promise.digest, self.job(key)) if promise and promise.expires_at > now else None

    def oldest(self, unit: Unit, new: New, unique: api.Unique) -> j.Job | None:
        moved = {key_of(move.job): move.job for move in unit.moves}
        alike = [key for key, name in self.fingerprints.items() if name == unique.fingerprint]
        jobs = [self.job(key) for key in alike if key[0] == new.job.tenant]
        there = [job for job in jobs if siblings.counts(moved.get(key_of(job), job), unique)]
        return min(there, key=lambda job: job.created_at, default=None)

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """The rules of all stores, and what the keys of a table refuse: to hold a thing twice."""
        if self._is_told_twice(unit):
            return api.Rejected("a version of its history exists already")
        if self._is_held_twice(unit):
            return api.Rejected("its holder has that lease already, for another job")
        return super()._illegal(unit)

    def _is_told_twice(self, unit: Unit) -> bool:
        events = [event for new in unit.new for event in new.events]
        events += unit.flow.answer.events if unit.flow else ()
        return any(x.version <= len(self.events.get((x.tenant, x.record), ())) for x in events)

    def _is_held_twice(self, unit: Unit) -> bool:
        """A lease is made once per claim: its holder has it for one job and for no other."""
        jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
        given = {(job.holder, job.lease) for job in jobs if job.lease is not None}
        after = {key: one.job for key, one in self.jobs.items()} if given else {}
        after |= {key_of(job): job for job in jobs}
        return sum((job.holder, job.lease) in given for job in after.values()) > len(given)

    # --- writing ----------------------------------------------------------------------------------

    def write_move(self, move: Move, now: int) -> None:
        key, before = key_of(move.job), self.jobs[key_of(move.job)]
        after = replace(
            before,
            job=move.job if move.events else before.job,
            body=before.body if move.meta is None else replace(before.body, meta=move.meta),
            wake_at=self.in_time(before.job, move),
            result=before.result if move.result is None else move.result,
            failures=(*before.failures, move.failure) if move.failure else before.failures,
            checkpoint=before.checkpoint if move.checkpoint is None else move.checkpoint,
        )
        if move.result is not None:
            self.results_until[key] = move.result_until
        self._put(after if after.job.erased_at is None else self._erased(after), move.events, now)
        for line in move.lines:
            self.log(key, line)

    def _erased(self, stored: Stored) -> Stored:
        """Nothing is left of what the job was about or said, and no later move brings any."""
        self.lines = [one for one in self.lines if one.key != key_of(stored.job)]
        body = api.Body(stored.body.type, "null", key=stored.body.key, retry=stored.body.retry)
        return Stored(stored.job, body, stored.wake_at)

    def write_new(self, new: New, now: int) -> None:
        key = key_of(new.job)
        self.fingerprints[key] = new.unique.fingerprint if new.unique else None
        if new.idempotency is not None:
            self.promises[key[0], new.idempotency.key] = (new.idempotency, key)
        self._put(Stored(new.job, new.body, new.wake_at), new.events, now)

    def _put(self, stored: Stored, events: Sequence[Event], now: int) -> None:
        """A job as it is from now on, with its history and its lease. Who waits is woken."""
        job, before = stored.job, self.head(key_of(stored.job))
        self.jobs[key_of(job)] = stored
        self.handed_out.pop(key_of(job), None)
        self.record(events)
        had = None if before is None else before.lease
        if had != job.lease:
            self.leases.pop(had or "", None)
            if job.lease is not None and job.wire:
                self.leases[job.lease] = j.Lease(now + (job.lease_us or 0))
        makes_room = had not in (None, job.lease) and self.limits
        if makes_room or (events and job.state is j.JobState.AVAILABLE):
            self.bell.ring()

    def write_record(self, record: api.Record, command_id: str) -> None:
        self.records[name_of(record)] = (record, command_id)
        if record.data is None:
            del self.records[name_of(record)]

    def switch(self, gates: Sequence[api.GateRow], limits: Sequence[api.LimitRow]) -> None:
        """The newest word counts. What was used of a limit stays used until it is lifted."""
        self.gates |= {(row.tenant, row.kind, row.name): row for row in gates}
        named = self.limits | {(row.tenant, row.kind, row.name): row for row in limits}
        self.limits = {name: row for name, row in named.items() if row.limit is not None}
        self.used = {name: used for name, used in self.used.items() if name in self.limits}
        self.bell.ring()

    def write_flow(self, answer: w.Accepted, flow: w.Flow, _: Iterable[str]) -> None:
        key = key_of(flow.workflow)
        self.flows[key] = flow
        self.swept |= {(*key, step) for step in answer.sweep}
        self.record(answer.events)
        if answer.opened:
            self.bell.ring()
