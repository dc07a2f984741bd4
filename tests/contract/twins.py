"""Two stores that are asked the same things and must give the same answers, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.replay import audit
from detent.stores.api import Key, Rejected, StaleFlow, Stepped, Store, Stored, key_of
from detent.stores.select import Filter, Page
from tests.contract.making import Clock, Maker

T = TypeVar("T")
HOLDERS = ("w0", "w1", "w2", "remote")
TENANTS = ("", "t2")
KINDS = ("schedule", "webhook")
Triple = tuple[str, str | None, str, str | None]


class Twins:
    """A model and another store, under one clock."""

    def __init__(self, model: Store, other: Store, clock: Clock) -> None:
        self.model = model
        self.other = other
        self.clock = clock
        self.make = Maker(clock)
        self.used: Counter[Triple] = Counter()
        self._events: list[Event] = []
        self._fed = 0
        self._lines = 0

    async def both(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        """The answer of both, which is the same."""
        answer, twin = await ask(self.model), await ask(self.other)
        assert plain(answer) == plain(twin)
        return answer

    async def everything(self) -> dict[Key, Stored]:
        """All records of the model by key."""
        keys = await self.model.keys(limit=100_000)
        found = await self.model.get(keys)
        return {key: stored for key, stored in zip(keys, found, strict=True) if stored is not None}

    async def compare(self) -> None:
        """Both hold the same, to the last field, and every history is a legal life."""
        records = await self.everything()
        keys = await self.other.keys(limit=100_000)
        assert sorted(keys) == sorted(records), "the twins know different records"
        await self.both(lambda store: store.get(list(records)))
        await self.both(lambda store: store.counts())
        flows = await self._compare_flows(records)
        new = await self.both(lambda store: store.feed(self._fed, 10_000))
        self._fed = new[-1].pos if new else self._fed
        self._events += [fed.event for fed in new]
        # How workers live is another machine's business; here they are only written down.
        moved = [x.event for x in new if x.event.kind != "worker"]
        self.used.update((event.kind, *_edge(event)) for event in moved)
        lines = await self.both(lambda store: store.log_tail(self._lines, 10_000))
        self._lines = lines[-1].pos if lines else self._lines
        lives = {key: stored.job for key, stored in records.items()} | flows
        instances = await self.both(lambda store: store.find_instances())
        lives |= {(one.tenant, one.id): one for one in instances}
        await self._compare_histories(lives, {(x.event.tenant, x.event.record) for x in new})
        for tenant in sorted(set(TENANTS)):
            await self.both(lambda store, t=tenant: store.limits(t))  # type: ignore[misc]
            for kind in KINDS:
                await self.both(lambda store, t=tenant, k=kind: store.records(k, t))  # type: ignore[misc]

    async def _compare_flows(self, records: dict[Key, Stored]) -> dict[Key, Any]:
        """Workflows and steps by key; what goes on is counted again from its jobs."""
        found = await self.both(lambda store: store.find_workflows(page=Page(10_000)))
        flows = await self.both(lambda store: store.flows([key_of(one) for one in found]))
        lives: dict[Key, Any] = {key_of(one): one for one in found}
        for flow in flows:
            assert flow is not None
            for step in flow.steps.values():
                lives[step.tenant, step.id] = step
                mine = [x.job for x in records.values() if _is_of(x, step)]
                assert flow.workflow.ended_at or flow.tally(step.id) == w.recount(mine)
        return lives

    async def _compare_histories(self, lives: dict[Key, Any], moved: set[Key]) -> None:
        self._events = [one for one in self._events if (one.tenant, one.record) in lives]
        histories = await self.both(lambda store: store.histories(sorted(moved)))
        for key, told in zip(sorted(moved), histories, strict=True):
            history = [one.event for one in told]
            assert (fault := audit(history, lives[key])) is None, fault
            fed = [one for one in self._events if (one.tenant, one.record) == key]
            assert fed == history, "the feed and the history differ"

    async def compare_views(self) -> None:
        """What is asked less often: pages, holders, blocks."""
        for state, tenant in ((None, None), (None, "t2"), ("available", None), ("active", "")):
            chosen = Filter(tenant, state=state)
            await self.both(lambda store, c=chosen: pages(store, c))  # type: ignore[misc]
        for chosen in (Filter(key="other"), Filter(tag="re"), Filter(tag="blue", tenant="")):
            await self.both(lambda store, c=chosen: pages(store, c))  # type: ignore[misc]
        for holder in HOLDERS:
            await self.both(lambda store, h=holder: held(store, h))  # type: ignore[misc]
        await self.both(lambda store: store.overdue(now=self.clock.now))
        await self.both(lambda store: store.workers())
        await self.both(lambda store: store.workers(gone=True))
        await self.both(lambda store: store.find_instances("x", ("", "i0"), 2))
        for tenant in ("", "t2"):
            await self.both(lambda store, t=tenant: store.gates(t))  # type: ignore[misc]
        await self.both(lambda store: store.seal(limit=7))
        await self.both(lambda store: store.blocks())
        await self.both(lambda store: store.leaves())
        await self.both(lambda store: store.feed(0, 10_000))
        await self.both(lambda store: store.log_tail(0, 10_000))
        for kind in KINDS:
            await self.both(lambda store, k=kind: store.records(k, "", "a", 2))  # type: ignore[misc]


def _edge(event: Event) -> tuple[str | None, str, str | None]:
    return event.source, event.name, event.target


def _is_of(stored: Stored, step: w.Step) -> bool:
    return (stored.job.tenant, stored.job.step) == (step.tenant, step.id)


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
        case w.Flow():
            return answer.workflow, list(answer.steps.items()), answer.tallies
        case StaleFlow():
            return answer.key, plain(answer.now)
        case str():
            return answer
        case Sequence():
            return [plain(one) for one in answer]
        case _:
            return answer
