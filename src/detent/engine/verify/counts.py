"""The counts of a store against a count of our own, on a store that may move all the time.

A count is read between two looks at the end of the feed. It must be true at one of the positions
between: from the histories we know how many jobs stood where at the first, and the events after it
lead to all the others. A quiet store has one such position, a busy one a few.

Jobs that are forgotten meanwhile leave no event. So a lane that differs is counted once more by
itself before it is accused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from detent.engine.verify.feed import end_of, pages
from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.lanes import Lane, is_possible
from detent.stores.api import Fed, ReadStore

_ATTEMPTS, _PAUSE_S = 5, 0.1


class Said(NamedTuple):
    """What a store said it counts, and the ends of its feed before and after it said so."""

    before: int
    counts: dict[Lane, int]
    after: int


async def ask(store: ReadStore, tenant: str | None, known_end: int = 0) -> Said:
    """The counts, between two looks at the feed."""
    before = await end_of(store.feed, known_end)
    counts = {(one.tenant, one.queue, one.state): one.count for one in await store.counts(tenant)}
    return Said(before, counts, await end_of(store.feed, before))


class Recount:
    """How many jobs stand where, as the events tell it, at a position of the feed."""

    def __init__(self, store: ReadStore, said: Said, tenant: str | None) -> None:
        self._store, self._said, self._tenant = store, said, tenant
        self._pos = said.before
        self._counts: Counter[Lane] = Counter()
        self._newest: Counter[Lane] = Counter()

    def take(self, history: Sequence[Fed]) -> None:
        """A job, where it stood at the position that the recount is for, and where it stands."""
        for counts, events in ((self._counts, _until(history, self._pos)), (self._newest, history)):
            lane = _lane(events)
            if lane is not None:
                counts[lane] += 1

    async def findings(self) -> list[Finding]:
        """The lanes that are counted wrong. A feed that lags behind gets time to catch up."""
        for _ in range(_ATTEMPTS):
            if await self._is_right():
                return []
            await asyncio.sleep(_PAUSE_S)
            self._said = await ask(self._store, self._tenant, self._pos)
        differing = sorted(self._differing())
        return [self._wrong(one) for one in differing if not await is_possible(self._store, one)]

    async def _is_right(self) -> bool:
        """Whether what was said is true at any position from its `before` to its `after`.

        Or true of everything there is, where nobody takes events into the feed just now.
        """
        if self._said.counts == self._newest:
            return True
        await self._advance(self._said.before)
        is_right = not self._differing()
        while not is_right and self._pos < self._said.after:
            await self._advance(self._pos + 1)
            is_right = not self._differing()
        return is_right

    async def _advance(self, pos: int) -> None:
        async for page in pages(self._store, self._pos, pos):
            for fed in page.events:
                await self._follow(fed)
        self._pos = pos

    async def _follow(self, fed: Fed) -> None:
        key = (fed.event.tenant, fed.event.record)
        if self._tenant not in (None, key[0]):
            return
        [history] = await self._store.histories([key])
        for pos, change in ((fed.pos - 1, -1), (fed.pos, 1)):
            lane = _lane(_until(history, pos))
            if lane is not None:
                self._counts[lane] += change

    def _differing(self) -> set[Lane]:
        said = self._said.counts
        return {one for one in {*said, *self._counts} if said.get(one, 0) != self._counts[one]}

    def _wrong(self, lane: Lane) -> Finding:
        tenant, queue, state = lane
        said, counted = self._said.counts.get(lane, 0), self._counts[lane]
        where = f"queue {queue!r} of tenant {tenant!r}" if tenant else f"queue {queue!r}"
        return Finding(Check.COUNT, f"{where} has {counted} jobs {state}, but {said} are counted")


def _until(history: Sequence[Fed], pos: int) -> list[Fed]:
    return [fed for fed in history if 0 < fed.pos <= pos]


def _lane(events: Sequence[Fed]) -> Lane | None:
    """Tenant, queue and state after these events, by what the events say alone."""
    queue = state = None
    for fed in events:
        queue, state = fed.event.queue or queue, fed.event.target or state
    if queue is None or state is None:
        return None
    return events[0].event.tenant, queue, state
