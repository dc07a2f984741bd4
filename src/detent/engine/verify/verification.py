"""One run through a whole store: records first, for they can be named; then what is above them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

import msgspec

from detent.engine.verify import counts, feed, flows, records, workers
from detent.engine.verify.counts import Recount
from detent.engine.verify.feed import FeedPage, Gap, Lives
from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.records import Life
from detent.engine.verify.seals import Seals
from detent.engine.verify.sums import Sums
from detent.engine.verify.tallies import Tallies
from detent.lifecycle.seal import leaf
from detent.stores.api import Fed, ReadStore


class Seen(msgspec.Struct):
    """How far it has come. `end` is how far the feed went at the start; each event is read twice.

    `forgotten` counts the positions of the feed whose events retention has taken.
    """

    end: int = 0
    records: int = 0
    workflows: int = 0
    workers: int = 0
    events: int = 0
    fed: int = 0
    forgotten: int = 0
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
        self._has_unreadable = False
        self._tallies = Tallies(store)
        self._sealed = 0
        self.seen = Seen()

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Everything that is wrong, one by one; leave it when you have seen enough."""
        # The order matters: what is sealed has leaves, and what is counted was in the feed before.
        last = await feed.end_of(self._store.blocks)
        self._sealed = await feed.end_of(self._store.leaves)
        said = await counts.ask(self._store, self._tenant)
        self.seen.end = max(said.before, self._sealed)
        recount = Recount(self._store, said, self._tenant)
        for part in (
            self._records(recount),
            self._flows(),
            self._workers(),
            self._feed(Seals(self._store, last=last, end=self._sealed)),
        ):
            async for finding in part:
                yield finding
        for finding in await recount.findings():
            yield finding

    async def _records(self, recount: Recount) -> AsyncIterator[Finding]:
        async for page, unreadable in records.lives(self._store, self._tenant):
            misfits = await records.misfits(self._store, page)
            for finding in [*unreadable, *misfits, *await flows.homeless(self._store, page)]:
                yield finding
            for life in page:
                recount.take(life.history)
            self._sum_up(page)
            self._has_unreadable |= bool(unreadable)
            self.seen.records += len(page) + len(unreadable)
            self._watch(self.seen)

    async def _flows(self) -> AsyncIterator[Finding]:
        async for page, unreadable in flows.wholes(self._store, self._tenant):
            for finding in unreadable:
                yield finding
            for whole in page:
                misfits = await flows.misfits(self._store, whole)
                for finding in [*misfits, *await self._tallies.misfits(whole.flow)]:
                    yield finding
                self._sum_up(whole.lives)
            self._has_unreadable |= bool(unreadable)
            self.seen.workflows += len(page) + len(unreadable)
            self._watch(self.seen)

    async def _workers(self) -> AsyncIterator[Finding]:
        async for page, unreadable in workers.lives(self._store, self._tenant):
            for finding in [*unreadable, *await workers.misfits(self._store, page)]:
                yield finding
            self._sum_up(page)
            self._has_unreadable |= bool(unreadable)
            self.seen.workers += len(page) + len(unreadable)
            self._watch(self.seen)

    def _sum_up(self, lives: Iterable[Life]) -> None:
        for life in lives:
            for fed in life.history:
                if 0 < fed.pos <= self.seen.end:
                    self._sums.from_history(fed)
                    self.seen.events += 1

    async def _feed(self, seals: Seals) -> AsyncIterator[Finding]:
        async for page in feed.pages(self._store, 0, self.seen.end):
            leaves = dict(await self._store.leaves(page.after, page.last - page.after))
            sealed = [(pos, leaf) for pos, leaf in leaves.items() if pos <= page.last]
            for finding in [*page.found, *await seals.take(sealed), *self._unlike(page, leaves)]:
                yield finding
            for gap in page.gaps():
                for finding in await self._lack(gap):
                    yield finding
            self.seen.fed += len(page.events)
            self._watch(self.seen)
        for finding in [*await seals.finish(), *self._tallies.findings(self.seen.forgotten)]:
            yield finding
        self.seen.blocks, self.seen.head = seals.checked, seals.head
        async for finding in self._differences():
            yield finding

    async def _differences(self) -> AsyncIterator[Finding]:
        if not self._sums.differ():
            return
        is_explained = self._has_unreadable
        async for finding in feed.differences(
            self._store, self._again(), self._sums, self.seen.end, self._tenant
        ):
            is_explained = True
            yield finding
        if not is_explained and not self.seen.forgotten:
            # Each event has its twin, so one of them was handed out more than once. Where retention
            # is at work a record may have gone between the two looks, and nothing is told by that.
            why = "the feed and the histories do not hold the same events: some are listed twice"
            yield Finding(Check.FEED, why, pos=1)

    def _unlike(self, page: FeedPage, leaves: dict[int, bytes]) -> list[Finding]:
        """Events that are not what was sealed at their positions."""
        found = []
        for fed in page.events:
            hashed = leaf(fed.event)
            is_asked = self._tenant in (None, fed.event.tenant)
            if is_asked:
                self._sums.from_feed(fed, hashed)
            if leaves.get(fed.pos, hashed) != hashed:
                found.append(_changed(fed, is_named=is_asked))
        return found

    async def _lack(self, gap: Gap) -> list[Finding]:
        """Retention leaves gaps, and only where everything was sealed before."""
        first, last = gap
        if last > self._sealed:
            self._sealed = await feed.end_of(self._store.leaves, self._sealed)
        if last <= self._sealed:
            self.seen.forgotten += last - first + 1
            return []
        first = max(first, self._sealed + 1)
        why = "no event stands there" if first == last else f"no event stands there up to {last}"
        return [Finding(Check.FEED, why, pos=first)]

    async def _again(self) -> AsyncIterator[Lives]:
        """All records once more, of every kind."""
        async for some, unreadable in records.lives(self._store, self._tenant):
            yield some, unreadable
        async for wholes, unreadable in flows.wholes(self._store, self._tenant):
            yield [life for whole in wholes for life in whole.lives], unreadable
        async for staff, unreadable in workers.lives(self._store, self._tenant):
            yield staff, unreadable


def _changed(fed: Fed, *, is_named: bool) -> Finding:
    """An event of a tenant that was not asked about is told by its position alone."""
    why = f"it is not the event that was sealed at position {fed.pos} of the feed"
    if not is_named:
        return Finding(Check.SEAL, why, pos=fed.pos)
    key = (fed.event.tenant, fed.event.record)
    return Finding(Check.SEAL, why, key, fed.event.version, fed.pos)
