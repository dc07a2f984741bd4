"""Forgetting: ended jobs that a rule lets go, and workflows that have none left."""

from __future__ import annotations

from collections.abc import Sequence

from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow
from detent.stores.api import Key, Retention, key_of
from detent.stores.bounds import TURNS_US
from detent.stores.memory.tables import Tables

__all__ = ["Pruning"]


class Pruning:
    """Lets go of what need not be kept."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def prune(self, rules: Sequence[Retention], now: int, limit: int) -> int:
        """How many jobs went; the oldest ends first."""
        gone = self._ready(rules)[: max(limit, 0)]
        for job in gone:
            self._forget(key_of(job))
        for flow in self._ready_flows(rules)[: max(limit, 0)]:
            self._forget_flow(flow)
        self._forget_promises(now)
        self._forget_turns(now - TURNS_US, limit)
        return len(gone)

    def _ready(self, rules: Sequence[Retention]) -> list[Job]:
        """The jobs that may go, the oldest end first."""
        jobs = [stored.job for stored in self._tables.jobs.values()]
        over = [job for job in jobs if any(self._lets_go(rule, job) for rule in rules)]
        ready = [job for job in over if self._is_sealed(key_of(job)) and self._is_alone(job)]
        return sorted(ready, key=lambda job: (job.ended_at or 0, *key_of(job)))

    def _lets_go(self, rule: Retention, job: Job) -> bool:
        is_meant = rule.tenant in (None, job.tenant) and rule.queue in (None, job.queue)
        is_over = job.ended_at is not None and job.ended_at < rule.before
        return is_meant and is_over and job.state == rule.state

    def _is_sealed(self, key: Key) -> bool:
        return self._tables.is_sealed(key)

    def _is_alone(self, job: Job) -> bool:
        """In no workflow, or in one that has ended."""
        if job.workflow is None:
            return True
        return self._tables.flows[job.tenant, job.workflow].workflow.ended_at is not None

    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        """Ended workflows that have no jobs left and are older than some rule asks for."""
        used = {(stored.job.tenant, stored.job.workflow) for stored in self._tables.jobs.values()}
        ready = []
        for key, flow in sorted(self._tables.flows.items()):
            befores = [rule.before for rule in rules if rule.tenant in (None, key[0])]
            ended_at = flow.workflow.ended_at
            is_old = ended_at is not None and ended_at < max(befores, default=0)
            if is_old and key not in used and all(map(self._is_sealed, _keys(flow))):
                ready.append(flow)
        return ready

    def _forget(self, key: Key) -> None:
        tables = self._tables
        del tables.jobs[key]
        tables.lines = [one for one in tables.lines if one.key != key]
        tables.handed_out.pop(key, None)
        for keys in tables.fingerprints.values():
            if key in keys:
                keys.remove(key)
        self._forget_events(key)

    def _forget_flow(self, flow: Flow) -> None:
        key = key_of(flow.workflow)
        del self._tables.flows[key]
        self._tables.swept = {name for name in self._tables.swept if name[:2] != key}
        for one in _keys(flow):
            self._forget_events(one)

    def _forget_events(self, key: Key) -> None:
        self._tables.forget_events(key)

    def _forget_turns(self, before: int, limit: int) -> None:
        """Who was served longest ago goes first."""
        served = self._tables.served
        old = sorted((turn, name) for name, turn in served.items() if turn < before)
        for _, name in old[: max(limit, 0)]:
            del served[name]

    def _forget_promises(self, now: int) -> None:
        """Idempotency keys go when they have run out, and with their job."""
        tables = self._tables
        alive = {name: it for name, it in tables.promises.items() if it[0].expires_at > now}
        tables.promises = {name: it for name, it in alive.items() if it[1] in tables.jobs}


def _keys(flow: Flow) -> list[Key]:
    """Workflow and steps, by which their histories are found."""
    tenant = flow.workflow.tenant
    return [(tenant, flow.workflow.id), *((tenant, step) for step in flow.steps)]
