"""One run through a whole store: records first, for they can be named; then what is above them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from detent.engine.verify import counts, feed, records
from detent.engine.verify.counts import Recount
from detent.engine.verify.finding import Finding
from detent.engine.verify.seals import Seals
from detent.engine.verify.sums import Sums
from detent.lifecycle.seal import leaf
from detent.stores.api import Fed, ReadStore

__all__ = ["Seen", "Verification"]


class Seen(msgspec.Struct):
    """How far it has come. `end` is how many events there were at the start; each is read twice."""

    end: int = 0
    records: int = 0
    events: int = 0
    fed: int = 0
    blocks: int = 0
    head: str | None = None


class Verification:
    """Checks a store; `watch` is called after each page. Seals are those of all tenants."""

    def __init__(
        self,
        store: ReadStore,
        *,
        tenant: str | None = None,
        watch: Callable[[Seen], None] = lambda _: None,
    ) -> None:
        self._store, self._tenant, self._watch = store, tenant, watch
        self._sums = Sums()
        self.seen = Seen()

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Everything that is wrong, one by one; leave it when you have seen enough."""
        # The order matters: what is sealed or counted was in the feed before.
        last = await feed.end_of(self._store.blocks)
        said = await counts.ask(self._store, self._tenant)
        self.seen.end = said.before
        recount = Recount(self._store, said, self._tenant)
        async for finding in self._records(recount):
            yield finding
        async for finding in self._feed(Seals(self._store, last=last, end=said.before)):
            yield finding
        for finding in await recount.findings():
            yield finding

    async def _records(self, recount: Recount) -> AsyncIterator[Finding]:
        async for page, unreadable in records.lives(self._store, self._tenant):
            for finding in [*unreadable, *await records.misfits(self._store, page)]:
                yield finding
            for life in page:
                recount.take(life.history)
                for fed in life.history:
                    if 0 < fed.pos <= self.seen.end:
                        self._sums.from_history(fed)
                        self.seen.events += 1
            self.seen.records += len(page) + len(unreadable)
            self._watch(self.seen)

    async def _feed(self, seals: Seals) -> AsyncIterator[Finding]:
        async for page, found in feed.pages(self._store, 0, self.seen.end):
            leaves = [(fed.pos, self._leaf(fed)) for fed in page]
            for finding in [*found, *await seals.take(leaves)]:
                yield finding
            self.seen.fed += len(page)
            self._watch(self.seen)
        for finding in await seals.finish():
            yield finding
        self.seen.blocks, self.seen.head = seals.checked, seals.head
        if self._sums.differ():
            async for finding in feed.differences(
                self._store, self._sums, self.seen.end, self._tenant
            ):
                yield finding

    def _leaf(self, fed: Fed) -> bytes:
        hashed = leaf(fed.event)
        if self._tenant in (None, fed.event.tenant):
            self._sums.from_feed(fed, hashed)
        return hashed
