"""Who is trusted and what is forgotten: worker instances, ended jobs and workflows."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow
from detent.stores.api import Death, Key, Life, Retention, WorkerRow, key_of
from detent.stores.bounds import AGAIN_US, TURNS_US
from detent.stores.memory.claims import Claims
from detent.stores.workers import LATE_US, is_believed, need_legal, newest

__all__ = ["Keeping"]


class Keeping(Claims):
    """Trusts workers, and lets go of what need not be kept."""

    # --- worker instances ------------------------------------------------------------------------

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        self._check(now, workers)
        alive = {row.id for row in newest(workers).values() if self._beat(row, now)}
        return [row.id in alive for row in workers]

    def _beat(self, row: WorkerRow, now: int) -> bool:
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

    async def bury(self, deaths: Sequence[Death], *, now: int) -> Sequence[bool]:
        self._check(now, deaths)
        return [self._bury(death, now) for death in deaths]

    def _bury(self, death: Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        if row is not None and not row.lost and is_believed(row.who, death):
            self._end(row, now, death)
        return self._all.worker_lease(death.id).lost

    def _end(self, row: WorkerRow, now: int, death: Death | None) -> None:
        self._all.workers[row.id] = replace(row, lost=True, ended_at=now, death=death)

    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[WorkerRow]:
        self._check(now)
        over = [
            row for row in self._all.workers.values() if row.alive_until <= now and not row.lost
        ]
        return sorted(over, key=lambda row: (row.alive_until, row.id))[: max(limit, 0)]

    async def ship(self, lives: Sequence[Life], *, now: int) -> Sequence[bool]:
        self._check(now, lives)
        need_legal(lives)
        return [self._ship(life) for life in lives]

    def _ship(self, life: Life) -> bool:
        key = (life.instance.tenant, life.instance.id)
        known = len(self._all.events.get(key, ()))
        if life.version != known or (known and key not in self._all.instances):
            return False  # It is at another version, or the name is somebody else's.
        self._all.instances[key] = life.instance
        self._all.record(life.events)
        return True

    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        self._check(now)
        rows, keys = self._over(before)[: max(limit, 0)], self._told(before)[: max(limit, 0)]
        for row in rows:
            del self._all.workers[row.id]
        for key in keys:
            del self._all.instances[key]
            del self._all.events[key]
        return len(rows) + len(keys)

    def _over(self, before: int) -> list[WorkerRow]:
        """Those that are gone since before then and have no job in hands, the oldest ends first."""
        jobs = [stored.job for stored in self._all.jobs.values()]
        held = {job.holder for job in jobs if job.lease is not None and not job.wire}
        over = [(row.ended_at, row.id) for row in self._all.workers.values() if row.id not in held]
        ended = sorted((at, name) for at, name in over if at is not None and at < before)
        return [self._all.workers[name] for _, name in ended]

    def _told(self, before: int) -> list[Key]:
        """The instances that ended before then and whose histories are sealed."""
        ended = [(one.ended_at, key) for key, one in self._all.instances.items()]
        over = sorted((at, key) for at, key in ended if at is not None and at < before)
        return [key for _, key in over if self._all.is_sealed(key)]

    # --- ended jobs and workflows ----------------------------------------------------------------

    async def prune(self, rules: Sequence[Retention], *, now: int, limit: int = 1_000) -> int:
        self._check(now)
        gone = self._ready(rules)[: max(limit, 0)]
        for job in gone:
            self._forget(key_of(job))
        for flow in self._ready_flows(rules)[: max(limit, 0)]:
            self._forget_flow(flow)
        self._forget_promises(now)
        self._forget_turns(now - TURNS_US, limit)
        return len(gone)

    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        self._check(now)
        has = [key for key, stored in self._all.jobs.items() if stored.result is not None]
        ends = [(self._all.results_until[key], key) for key in has]
        over = sorted((end, key) for end, key in ends if end is not None and end <= now)
        due = [key for _, key in over[: max(limit, 0)]]
        gone = [key for key in due if self._is_alone(self._all.jobs[key].job)]
        self._all.results_until |= dict.fromkeys(due, now + AGAIN_US)
        self._all.jobs |= {key: replace(self._all.jobs[key], result=None) for key in gone}
        return len(gone)

    def _ready(self, rules: Sequence[Retention]) -> list[Job]:
        """The jobs that may go, the oldest end first."""
        jobs = [stored.job for stored in self._all.jobs.values()]
        over = [job for job in jobs if any(self._lets_go(rule, job) for rule in rules)]
        ready = [job for job in over if self._all.is_sealed(key_of(job)) and self._is_alone(job)]
        return sorted(ready, key=lambda job: (job.ended_at or 0, *key_of(job)))

    def _lets_go(self, rule: Retention, job: Job) -> bool:
        is_meant = rule.tenant in (None, job.tenant) and rule.queue in (None, job.queue)
        is_over = job.ended_at is not None and job.ended_at < rule.before
        return is_meant and is_over and job.state == rule.state

    def _is_alone(self, job: Job) -> bool:
        """In no workflow, or in one that has ended."""
        flow = self._all.flows.get((job.tenant, job.workflow or ""))
        return flow is None or flow.workflow.ended_at is not None

    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        """Ended workflows that have no jobs left and are older than some rule asks for."""
        used = {(stored.job.tenant, stored.job.workflow) for stored in self._all.jobs.values()}
        ready = []
        for key, flow in sorted(self._all.flows.items()):
            befores = [rule.before for rule in rules if rule.tenant in (None, key[0])]
            ended_at = flow.workflow.ended_at
            is_old = ended_at is not None and ended_at < max(befores, default=0)
            if is_old and key not in used and all(map(self._all.is_sealed, _keys(flow))):
                ready.append(flow)
        return ready

    def _forget(self, key: Key) -> None:
        del self._all.jobs[key]
        self._all.handed_out.pop(key, None)
        self._all.fingerprints.pop(key, None)
        self._all.lines = [one for one in self._all.lines if one.key != key]
        del self._all.events[key]

    def _forget_flow(self, flow: Flow) -> None:
        key = key_of(flow.workflow)
        del self._all.flows[key]
        self._all.swept = {name for name in self._all.swept if name[:2] != key}
        for one in _keys(flow):
            del self._all.events[one]

    def _forget_turns(self, before: int, limit: int) -> None:
        """Who was served longest ago goes first."""
        old = sorted((at, name) for name, at in self._all.served.items() if at < before)
        for _, name in old[: max(limit, 0)]:
            del self._all.served[name]

    def _forget_promises(self, now: int) -> None:
        """Idempotency keys go when they have run out, and with their job."""
        kept = [(name, it) for name, it in self._all.promises.items() if it[0].expires_at > now]
        self._all.promises = {name: it for name, it in kept if it[1] in self._all.jobs}


def _keys(flow: Flow) -> list[Key]:
    """Workflow and steps, by which their histories are found."""
    return [(flow.workflow.tenant, name) for name in (flow.workflow.id, *flow.steps)]
