"""Forgetting ended jobs: seal first, then let go, in bounded commits.

A job goes only when every event of it is sealed, so the proof that it was there outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from detent.stores.api import Key, Retention, Store, Stored, key_of
from detent.stores.select import Filter, Page

__all__ = ["BATCH", "Forgetting", "Forgotten"]

BATCH = 1_000
"""How many jobs go at a time; others get their turn in between."""


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
            done = msgspec.structs.replace(done, jobs=done.jobs + number)
            self._watch(done)
        return done

    async def foresee(self, rules: Sequence[Retention]) -> Forgotten:
        """The same, only counted: what is not sealed yet would be."""
        gone: set[Key] = set()
        for rule in rules:
            await self._count(rule, gone)
        return Forgotten(jobs=len(gone))

    async def _seal(self) -> int:
        blocks = 0
        while await self._store.seal() is not None:
            blocks += 1
            self._watch(Forgotten(blocks))
        return blocks

    async def _count(self, rule: Retention, gone: set[Key]) -> None:
        chosen = Filter(tenant=rule.tenant, queue=rule.queue, state=rule.state)
        after: Key | None = None
        while page := await self._store.find(chosen, Page(BATCH, after)):
            old = [one for one in page if (one.job.ended_at or 0) < rule.before]
            gone |= {key_of(one.job) for one in await self._alone(old)}
            after = key_of(page[-1].job)
            self._watch(Forgotten(jobs=len(gone)))

    async def _alone(self, found: Sequence[Stored]) -> list[Stored]:
        """Those in no workflow, or in one that has ended."""
        keys = [(one.job.tenant, one.job.workflow or "") for one in found]
        flows = await self._store.flows(keys) if keys else []
        return [
            one
            for one, flow in zip(found, flows, strict=True)
            if flow is None or flow.workflow.ended_at is not None
        ]
