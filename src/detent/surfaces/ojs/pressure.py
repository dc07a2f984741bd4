"""Jobs for a queue that is full: refused, kept waiting, or let in instead of older ones.

Those who come to a queue by this server stand in line for it; those who come by others are met at
the mark of the queue (`engine/entering.py`). So a queue never holds more than its bound lets in,
and nobody is refused because others came at the same time. Queues without a bound have no line.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from detent.engine.entering import OUTRUN, Entry
from detent.engine.remembering import Remembered
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Key, Record
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import BLOCK, DROP, DROPPED_FROM_MAX, Config
from detent.surfaces.ojs.desk import CLAIMABLE, Desk

__all__ = ["Enter", "Headers", "Pressure"]

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[str, str], ...]
Enter: TypeAlias = Callable[[Entry | None], Awaitable[T | Refusal]]
"""Stores jobs, under an entry if one is needed; a refusal is that others were faster."""
BLOCK_S: Final = 10.0
"""How long somebody is kept waiting for room."""
_LOOK_S: Final = 0.1
_MARK: Final = "ojs-mark"
_BY: Final = By(Actor.SYSTEM, "ojs backpressure")


class _Room(NamedTuple):
    """A queue as it would be with so many more jobs; `drops` of `None`: they do not fit."""

    key: Key
    mark: Record
    config: Config
    depth: int
    number: int
    drops: Sequence[Job] | None

    @property
    def bound(self) -> int:
        return self.config.max_depth or 0

    @property
    def share(self) -> float:
        """How full it is then."""
        return min(self.depth + self.number, self.bound) / self.bound

    @property
    def is_worth_waiting(self) -> bool:
        """Whether they may fit later, and are to wait for it."""
        return self.config.strategy == BLOCK and self.number <= self.bound


class Pressure:
    """Lets jobs into queues."""

    def __init__(self, desk: Desk, known: Remembered[Key, Config | None]) -> None:
        self._desk = desk
        self._known = known
        self._lines: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def let_in(self, call: Call, queues: Iterable[str], enter: Enter[T]) -> tuple[T, Headers]:
        """What came of storing jobs for these queues, and headers that tell how full these are.

        `QUEUE_FULL` if there is no room for them. Whoever was outrun enters again.
        """
        tenant, until = self._desk.tenant(call), time.monotonic() + BLOCK_S
        numbers = Counter((tenant, queue) for queue in queues)
        if not await self._bounds(numbers):
            return _entered(await enter(None)), ()
        async with AsyncExitStack() as lines:
            for key in sorted(numbers):
                await lines.enter_async_context(self._lines.setdefault(key, asyncio.Lock()))
            while True:
                rooms = await self._rooms(call, numbers, until)
                answer = await enter(_entry(rooms))
                if answer is not OUTRUN or time.monotonic() >= until:
                    return _entered(answer), _told(rooms)

    async def _bounds(self, keys: Iterable[Key]) -> dict[Key, Config]:
        """What is set about those of these queues that have a bound."""
        found = {key: await self._known.get(key) for key in keys}
        return {key: one for key, one in found.items() if one is not None and one.max_depth}

    async def _rooms(self, call: Call, numbers: Mapping[Key, int], until: float) -> list[_Room]:
        """Room for so many in each queue that has a bound, as soon as there is some."""
        while True:
            rooms = await self._looked(numbers)
            full = [room for room in rooms if room.drops is None]
            if not full:
                return rooms
            is_patient = time.monotonic() < until and not call.has_left
            if not is_patient or not all(room.is_worth_waiting for room in full):
                raise _full(full[0])
            if not await self._desk.service.pause(_LOOK_S):
                raise _full(full[0])

    async def _looked(self, numbers: Mapping[Key, int]) -> list[_Room]:
        """The marks first: what comes in after they were read moves them."""
        bounds = await self._bounds(numbers)
        if not bounds:
            return []
        store = self._desk.engine.store
        marks = await store.record([(_MARK, *key) for key in bounds])
        depths = await self._depths(next(iter(bounds))[0])
        return [
            await self._room(_next(key, mark), bounds[key], depths[key[1]], numbers[key])
            for key, mark in zip(bounds, marks, strict=True)
        ]

    async def _room(self, mark: Record, config: Config, depth: int, number: int) -> _Room:
        key, over = (mark.tenant, mark.id), depth + number - (config.max_depth or 0)
        drops: Sequence[Job] | None = () if over <= 0 else None
        if over > 0 and config.strategy == DROP:
            oldest = await self._oldest(key)
            drops = oldest[:over] if len(oldest) >= over else None
        return _Room(key, mark, config, depth, number, drops)

    async def _depths(self, tenant: str) -> Counter[str]:
        depths: Counter[str] = Counter()
        for one in await self._desk.engine.store.counts(tenant):
            if JobState(one.state) not in ENDED:
                depths[one.queue] += one.count
        return depths

    async def _oldest(self, key: Key) -> list[Job]:
        """Those that are ready, for longest first; tasks of others are not ours to drop."""
        chosen = Filter(tenant=key[0], queue=key[1], state="available")
        found = await self._desk.engine.store.find(chosen, Page(DROPPED_FROM_MAX))
        mine = [one.job for one in found if one.job.profile in CLAIMABLE]
        return sorted(mine, key=lambda job: (job.place or 0, job.id))


def _next(key: Key, mark: Record | None) -> Record:
    """The mark as it is when somebody has come in."""
    return Record(_MARK, key[1], 1 if mark is None else mark.version + 1, "{}", tenant=key[0])


def _entry(rooms: Sequence[_Room]) -> Entry:
    drops = tuple(job for room in rooms for job in room.drops or ())
    return Entry(_BY, tuple(room.mark for room in rooms), drops)


def _entered(answer: T | Refusal) -> T:
    if isinstance(answer, Refusal):
        why = "the queue is entered by too many at once"
        raise Problem(503, "unavailable", why, retryable=True).with_headers(("retry-after", "1"))
    return answer


def _told(rooms: Sequence[_Room]) -> Headers:
    """How full the fullest of those is that are nearly full."""
    shares = [room.share for room in rooms if room.share >= room.config.warning]
    return (("x-ojs-queue-pressure", f"{max(shares):.2f}"),) if shares else ()


def _full(room: _Room) -> Problem:
    queue = room.key[1]
    why = f"queue {queue} holds {room.depth} jobs; {room.bound} is its bound"
    told = {"queue": queue, "strategy": room.config.strategy}
    found = Problem(429, "QUEUE_FULL", why, retryable=True, **told)
    return found.with_headers(
        ("retry-after", "1"),
        ("x-ojs-queue-depth", str(room.depth)),
        ("x-ojs-queue-bound", str(room.bound)),
    )
