"""Two stores that are asked the same things and must give the same answers, step by step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from detent.lifecycle.event import Event
from detent.lifecycle.replay import audit
from detent.stores.api import Due, Key, Rejected, Stepped, Store, Stored
from detent.stores.select import Filter, Page
from tests.contract.making import Clock, Maker

T = TypeVar("T")
HOLDERS = ("w0", "w1", "w2", "remote")


class Twins:
    """A model and another store, under one clock."""

    def __init__(self, model: Store, other: Store, clock: Clock) -> None:
        self.model = model
        self.other = other
        self.clock = clock
        self.make = Maker(clock)
        self.events: list[Event] = []
        self._lines = 0

    async def both(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """The answer of both, which is the same."""
        answer, twin = await ask(self.model), await ask(self.other)
        assert plain(answer) == plain(twin)
        return answer

    async def everything(self) -> dict[Key, Stored]:
        """All records of the model by key."""
        keys = [key async for key in self.model.keys()]  # noqa: SIM118 - no dictionary
        found = await self.model.get(keys)
        return {key: stored for key, stored in zip(keys, found, strict=True) if stored is not None}

    async def compare(self) -> None:
        """Both hold the same, to the last field, and every history is a legal life."""
        records = await self.everything()
        keys = [key async for key in self.other.keys()]  # noqa: SIM118 - no dictionary
        assert sorted(keys) == sorted(records), "the twins know different records"
        await self.both(lambda store: store.get(list(records)))
        await self.both(lambda store: store.counts())
        new = await self.both(lambda store: store.feed(len(self.events), 10_000))
        self.events += [fed.event for fed in new]
        lines = await self.both(lambda store: store.log_tail(self._lines, 10_000))
        self._lines = lines[-1].pos if lines else self._lines
        await self._compare_histories(records, {(x.event.tenant, x.event.record) for x in new})

    async def _compare_histories(self, records: dict[Key, Stored], moved: set[Key]) -> None:
        for key in moved:
            history = await self.both(lambda store, key=key: store.history(key))  # type: ignore[misc]
            assert (fault := audit(history, records[key].job)) is None, fault
            fed = [one for one in self.events if (one.tenant, one.record) == key]
            assert fed == list(history), "the feed and the history differ"

    async def compare_views(self) -> None:
        """What is asked less often: pages, holders, blocks."""
        for state, tenant in ((None, None), (None, "t2"), ("available", None), ("active", "")):
            chosen = Filter(tenant, state=state)
            await self.both(lambda store, c=chosen: pages(store, c))  # type: ignore[misc]
        for holder in HOLDERS:
            await self.both(lambda store, h=holder: held(store, h))  # type: ignore[misc]
        await self.both(lambda store: store.seal(limit=7))
        await self.both(lambda store: store.blocks())


async def pages(store: Store, chosen: Filter) -> list[Stored]:
    """Two pages, one after the other."""
    first = list(await store.find(chosen, Page(2)))
    after = (first[-1].job.tenant, first[-1].job.id) if first else None
    return first + list(await store.find(chosen, Page(3, after)))


async def held(store: Store, holder: str) -> list[Key]:
    """Who is in the hands of that holder, in no order."""
    return sorted((one.job.tenant, one.job.id) for one in await store.held_by(holder, 1_000))


def plain(answer: object) -> Any:
    """What must be equal about an answer: not the words of a rejection, nor the kind of list."""
    match answer:
        case Stepped():
            return plain(answer.outcomes), replace(answer.claimed, seen=0)
        case Rejected():
            return Rejected
        case Due():
            return answer
        case str():
            return answer
        case Sequence():
            return [plain(one) for one in answer]
        case _:
            return answer
