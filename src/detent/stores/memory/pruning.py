"""Forgetting: ended jobs that a rule lets go, and workflows that have none left."""

from __future__ import annotations

from collections.abc import Sequence

from detent.lifecycle.job import Job
from detent.stores.api import Key, Retention, key_of
from detent.stores.memory.tables import Tables

__all__ = ["prune"]


def prune(tables: Tables, rules: Sequence[Retention], now: int, limit: int) -> int:
    """How many jobs went; the oldest ends first."""
    jobs = [stored.job for stored in tables.jobs.values()]
    over = [job for job in jobs if any(_lets_go(rule, job) for rule in rules)]
    ready = [job for job in over if _is_sealed(tables, key_of(job)) and _is_alone(tables, job)]
    ready.sort(key=lambda job: (job.ended_at, *key_of(job)))
    for job in ready[: max(limit, 0)]:
        _forget(tables, key_of(job))
    _prune_flows(tables, rules, limit)
    alive = {name: it for name, it in tables.promises.items() if it[0].expires_at > now}
    tables.promises = {name: it for name, it in alive.items() if it[1] in tables.jobs}
    return len(ready[: max(limit, 0)])


def _lets_go(rule: Retention, job: Job) -> bool:
    is_meant = rule.tenant in (None, job.tenant) and rule.queue in (None, job.queue)
    is_over = job.ended_at is not None and job.ended_at < rule.before
    return is_meant and is_over and job.state == rule.state


def _is_sealed(tables: Tables, key: Key) -> bool:
    """Whether all that happened to the record stands in a block."""
    sealed = tables.leaves[-1][0] if tables.leaves else 0
    newest = [fed for fed in tables.feed if (fed.event.tenant, fed.event.record) == key]
    return newest[-1].pos <= sealed


def _is_alone(tables: Tables, job: Job) -> bool:
    """In no workflow, or in one that has ended."""
    if job.workflow is None:
        return True
    return tables.flows[job.tenant, job.workflow].workflow.ended_at is not None


def _prune_flows(tables: Tables, rules: Sequence[Retention], limit: int) -> None:
    """An ended workflow goes when it has no jobs left and is older than some rule asks for."""
    used = {(stored.job.tenant, stored.job.workflow) for stored in tables.jobs.values()}
    gone = []
    for key, flow in sorted(tables.flows.items()):
        ended_at, steps = flow.workflow.ended_at, [(key[0], step) for step in flow.steps]
        befores = [rule.before for rule in rules if rule.tenant in (None, key[0])]
        is_old = ended_at is not None and ended_at < max(befores, default=0)
        if is_old and key not in used and all(_is_sealed(tables, one) for one in [key, *steps]):
            gone.append((key, steps))
    for key, steps in gone[: max(limit, 0)]:
        del tables.flows[key]
        tables.swept = {name for name in tables.swept if name[:2] != key}
        for one in [key, *steps]:
            _forget_events(tables, one)


def _forget(tables: Tables, key: Key) -> None:
    del tables.jobs[key]
    tables.lines = [one for one in tables.lines if one.key != key]
    tables.handed_out.pop(key, None)
    for keys in tables.fingerprints.values():
        if key in keys:
            keys.remove(key)
    _forget_events(tables, key)


def _forget_events(tables: Tables, key: Key) -> None:
    """The events go; the leaves that were made of them stay, so that every seal can be checked."""
    del tables.events[key]
    tables.feed = [f for f in tables.feed if (f.event.tenant, f.event.record) != key]
