"""Forgetting ended jobs: seal first, then let go, in bounded commits.

A job goes only when every event of it is sealed, so the proof that it was there outlives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from msgspec.structs import replace

from detent.engine.paging import job_pages
from detent.lifecycle.job import Job
from detent.stores.api import Retention, Store, Stored
from detent.stores.select import Filter

BATCH = 1_000
"""How many jobs go at a time; others get their turn in between."""


_PAGE = 200
"""How many are read at a time to be counted; they come with all that they carry."""


class Forgotten(msgspec.Struct, frozen=True):
    """How many blocks were sealed, and how many jobs went, or would go."""

    blocks: int = 0
    jobs: int = 0


Watch = Callable[[Forgotten], None]


class Forgetting:
    """Applies rules of retention."""

    def __init__(self, store: Store, watch: Watch = lambda _: None) -> None:
        self._store = store
        self._watch = watch

    async def forget(self, rules: Sequence[Retention]) -> Forgotten:
        """Let go of everything that the rules let go."""
        done = Forgotten(await self._seal())
        while number := await self._store.prune(rules, now=self._store.now(), limit=BATCH):
            done = replace(done, jobs=done.jobs + number)
            self._watch(done)
        return done

    async def foresee(self, rules: Sequence[Retention]) -> Forgotten:
        """The same, only counted: what is not sealed yet would be."""
        done = Forgotten()
        for number, rule in enumerate(rules):
            for tenant in await self._tenants(rule):
                async for old in self._old(replace(rule, tenant=tenant)):
                    alone = await self._alone(old)
                    # What an earlier rule lets go as well is counted there.
                    new = [one for one in alone if not _is_old(one.job, rules[:number])]
                    done = Forgotten(jobs=done.jobs + len(new))
                    self._watch(done)
        return done

    async def _tenants(self, rule: Retention) -> list[str]:
        """Whose jobs it is about, one after the other: a page of all tenants reads one of each."""
        if rule.tenant is not None:
            return [rule.tenant]
        return sorted({one.tenant for one in await self._store.counts()})

    async def _seal(self) -> int:
        blocks = 0
        while await self._store.seal() is not None:
            blocks += 1
            self._watch(Forgotten(blocks))
        return blocks

    async def _old(self, rule: Retention) -> AsyncIterator[list[Stored]]:
        chosen = Filter(tenant=rule.tenant, queue=rule.queue, state=rule.state)
        async for page in job_pages(self._store, chosen, _PAGE):
            yield [one for one in page if _is_old(one.job, [rule])]

    async def _alone(self, found: Sequence[Stored]) -> list[Stored]:
        """Those in no workflow, or in one that has ended."""
        keys = [(one.job.tenant, one.job.workflow or "") for one in found]
        flows = await self._store.flows(keys) if keys else []
        return [
            one
            for one, flow in zip(found, flows, strict=True)
            if flow is None or flow.workflow.ended_at is not None
        ]


def _is_old(job: Job, rules: Sequence[Retention]) -> bool:
    """Whether one of the rules would let it go."""
    return any(
        job.state == rule.state
        and (job.ended_at or 0) < rule.before
        and rule.tenant in (None, job.tenant)
        and rule.queue in (None, job.queue)
        for rule in rules
    )
