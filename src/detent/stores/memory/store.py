"""The store in memory: what is due, what is said, who is trusted and what is forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from detent.errors import BadUrl
from detent.lifecycle import seal
from detent.lifecycle.job import Job, Lease
from detent.lifecycle.job.table import PARKED
from detent.stores import api
from detent.stores.api import Key, Retention, Stored, WorkerRow, key_of
from detent.stores.bounds import AGAIN_US, TURNS_US
from detent.stores.memory.reading import due, first
from detent.stores.memory.units import Units
from detent.stores.workers import LATE_US, is_believed, need_legal, newest

__all__ = ["MemoryStore", "connect"]


def connect(
    url: str,
    clock: Callable[[], int] | None = None,
    patience_s: float | None = None,  # noqa: ARG001 - memory is never away
) -> api.Store:
    """A new, empty store; its address is `memory:` and nothing more."""
    if url != "memory:":
        raise BadUrl(f"A store in memory has no path: write memory: instead of {url}", url=url)
    return MemoryStore(clock or (lambda: time.time_ns() // 1_000))


class MemoryStore(Units):
    """Everything in dictionaries; gone with the object, not with its closing."""

    has_transactions = False

    async def __aenter__(self) -> api.Store:
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._tables.bell.stop()

    # --- time, and what is said -------------------------------------------------------------------

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[api.Due]:
        jobs, handed_out = self._check(now).jobs.items(), self._all.handed_out
        # Whatever is written to a job that was handed out frees it.
        free = ((self._due_since(one), key) for key, one in jobs if handed_out.get(key, now) <= now)
        return [self._hand_out(key, now + hold_us) for key in due(now, limit, free)]

    def _due_since(self, stored: Stored) -> int | None:
        """Its `wake_at`; a job in lost hands or in a dead step has been due since ever."""
        return 0 if self._lost_holder(stored.job) or self._is_swept(stored.job) else stored.wake_at

    def _lost_holder(self, job: Job) -> WorkerRow | None:
        is_held = job.lease is not None and not job.wire
        row = self._all.workers.get(job.holder or "") if is_held else None
        return row if row is not None and row.lost else None

    def _is_swept(self, job: Job) -> bool:
        if job.workflow is None or job.step is None or job.state not in PARKED:
            return False
        return (job.tenant, job.workflow, job.step) in self._all.swept

    def _hand_out(self, key: Key, until: int) -> api.Due:
        self._all.handed_out[key] = until
        stored = self._all.jobs[key] = replace(self._all.jobs[key], wake_at=until)
        lease, gate = self._all.row_behind(key), self._all.gate_of(stored)
        is_swept, holder = self._is_swept(stored.job), self._lost_holder(stored.job)
        return api.Due(stored, lease, gate, is_swept, holder)

    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[api.Record]:
        records = self._check(now).records
        waking = ((record.wake_at, name) for name, (record, _) in records.items())
        taken = due(now, limit, waking)
        for name in taken:
            record, command_id = records[name]
            records[name] = (replace(record, wake_at=now + hold_us), command_id)
        return [records[name][0] for name in taken]

    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        jobs = self._check(now).jobs
        held = [key in jobs and jobs[key].job.lease == lease for key, lease, _ in notes]
        for (key, _, note), is_held in zip(notes, held, strict=True):
            if is_held:
                jobs[key] = replace(jobs[key], note=note)
        return held

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        self._check(now)
        return [self._extend(lease, until) for lease, until in leases]

    def _extend(self, lease: str, until: int) -> bool:
        """An end that comes earlier than anybody would look makes the job due earlier."""
        if lease not in self._all.leases:
            return False
        self._all.leases[lease] = Lease(until)
        for key, one in self._all.jobs.items():
            is_later = one.wake_at is None or until < one.wake_at
            if is_later and one.job.wire and one.job.lease == lease:
                self._all.jobs[key] = replace(one, wake_at=until)
                self._all.handed_out.pop(key, None)
        return True

    async def set_gates(self, gates: Sequence[api.GateRow], *, now: int) -> None:
        self._check(now, gates).switch(gates, ())

    async def set_limits(self, limits: Sequence[api.LimitRow], *, now: int) -> None:
        self._check(now, limits).switch((), limits)

    async def seal(self, *, limit: int = 10_000) -> seal.Block | None:
        done = self._all.leaves[-1][0] if self._all.leaves else 0
        chosen = [(fed.pos, seal.leaf(fed.event)) for fed in await self.feed(done, limit)]
        if not chosen:
            return None
        blocks = [None, *self._all.blocks]
        before, skip = blocks[-1], blocks[seal.skip_of(len(blocks))]
        self._all.blocks.append(seal.seal([leaf for _, leaf in chosen], before, skip))
        self._all.leaves += chosen
        return self._all.blocks[-1]

    async def append_logs(self, lines: Sequence[tuple[Key, api.Line]]) -> Sequence[int]:
        tables = self._all
        return [tables.log(key, line) for key, line in lines]

    # --- worker instances -------------------------------------------------------------------------

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        self._check(now, workers)
        alive = {row.id for row in newest(workers).values() if self._beat(row, now)}
        return [row.id in alive for row in workers]

    def _beat(self, row: WorkerRow, now: int) -> bool:
        """Whoever says that it was here before and is not known was forgotten as gone."""
        known = self._all.workers.get(row.id)
        if known is None and row.renews:
            return False
        known = known or WorkerRow(row.id, row.alive_until, who=row.who)
        if not known.lost:
            self._all.workers[row.id] = self._renewed(known, row, now)
        return not known.lost

    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        if 0 < known.beat_at - now <= LATE_US:
            return known
        return replace(known, alive_until=row.alive_until, state=row.state, beat_at=now)

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        self._check(now, workers)
        for row in await self.overdue(now=now, limit=len(self._all.workers)):
            if row.id in workers:
                self._end(row, now, None)
        return [self._all.worker_lease(one).lost for one in workers]

    async def bury(self, deaths: Sequence[api.Death], *, now: int) -> Sequence[bool]:
        self._check(now, deaths)
        return [self._bury(death, now) for death in deaths]

    def _bury(self, death: api.Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        if row is not None and not row.lost and is_believed(row.who, death):
            self._end(row, now, death)
        return self._all.worker_lease(death.id).lost

    def _end(self, row: WorkerRow, now: int, death: api.Death | None) -> None:
        self._all.workers[row.id] = replace(row, lost=True, ended_at=now, death=death)

    async def ship(self, lives: Sequence[api.Life], *, now: int) -> Sequence[bool]:
        self._check(now, lives)
        need_legal(lives)
        return [self._ship(life) for life in lives]

    def _ship(self, life: api.Life) -> bool:
        key = (life.instance.tenant, life.instance.id)
        known = len(self._all.events.get(key, ()))
        if life.version != known or (known and key not in self._all.instances):
            return False  # It is at another version, or the name is somebody else's.
        self._all.instances[key] = life.instance
        self._all.record(life.events)
        return True

    # --- forgetting: whatever has been over for longest goes first --------------------------------

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        jobs = [stored.job for stored in self._check(now).jobs.values()]
        held = {job.holder for job in jobs if job.lease is not None and not job.wire}
        rows, lives = self._all.workers, self._all.instances
        over = [(row.ended_at, name) for name, row in rows.items() if name not in held]
        told = [(one.ended_at, key) for key, one in lives.items() if self._all.is_sealed(key)]
        names, keys = due(before - 1, limit, over), due(before - 1, limit, told)
        for name in names:
            del rows[name]
        self._all.forget(keys)
        return len(names) + len(keys)

    async def prune(self, rules: Sequence[Retention], *, now: int, limit: int = 1_000) -> int:
        self._check(now)
        gone = first(limit, self._ready(rules))
        self._all.forget(gone)
        for keys in first(limit, self._ready_flows(rules)):
            self._all.forget(keys)
        self._forget_promises(now)
        self._forget_turns(now - TURNS_US, limit)
        return len(gone)

    def _ready(self, rules: Sequence[Retention]) -> list[Key]:
        """The jobs that may go."""
        jobs = [one.job for one in self._all.jobs.values()]
        over = [job for job in jobs if any(self._lets_go(rule, job) for rule in rules)]
        ready = [job for job in over if self._all.is_sealed(key_of(job)) and self._is_alone(job)]
        return [key_of(job) for job in sorted(ready, key=lambda job: (job.ended_at, *key_of(job)))]

    def _lets_go(self, rule: Retention, job: Job) -> bool:
        is_meant = rule.tenant in (None, job.tenant) and rule.queue in (None, job.queue)
        is_over = job.ended_at is not None and job.ended_at < rule.before
        return is_meant and is_over and job.state == rule.state

    def _is_alone(self, job: Job) -> bool:
        """In no workflow, or in one that has ended."""
        flow = self._all.flows.get((job.tenant, job.workflow or ""))
        return flow is None or flow.workflow.ended_at is not None

    def _ready_flows(self, rules: Sequence[Retention]) -> Iterator[list[Key]]:
        """Ended workflows with their steps, without jobs and older than some rule asks for."""
        used = {(one.job.tenant, one.job.workflow) for one in self._all.jobs.values()}
        for key, flow in sorted(self._all.flows.items()):
            befores = [rule.before for rule in rules if rule.tenant in (None, key[0])]
            ended_at, keys = flow.workflow.ended_at, [key, *((key[0], step) for step in flow.steps)]
            is_old = ended_at is not None and ended_at < max(befores, default=0)
            if is_old and key not in used and all(map(self._all.is_sealed, keys)):
                yield keys

    def _forget_promises(self, now: int) -> None:
        """Idempotency keys go when they have run out, and with their job."""
        kept = [(name, it) for name, it in self._all.promises.items() if it[0].expires_at > now]
        self._all.promises = {name: it for name, it in kept if it[1] in self._all.jobs}

    def _forget_turns(self, before: int, limit: int) -> None:
        served = self._all.served
        for name in due(before - 1, limit, ((at, name) for name, at in served.items())):
            del served[name]

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        jobs, until = self._check(now).jobs, self._all.results_until
        kept = ((until[key], key) for key, stored in jobs.items() if stored.result is not None)
        over = due(now, limit, kept)
        gone = [key for key in over if self._is_alone(jobs[key].job)]
        until |= dict.fromkeys(over, now + AGAIN_US)
        jobs |= {key: replace(jobs[key], result=None) for key in gone}
        return len(gone)
