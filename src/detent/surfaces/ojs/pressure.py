"""Jobs for a queue that is full: refused, kept waiting, or let in instead of older ones.

Those who come to a queue by this server stand in line for it; those who come by others are met at
the mark of the queue (`engine/entering.py`). So a queue never holds more than its bound lets in,
and nobody is refused because others came at the same time. Queues without a bound have no line.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from detent.engine.asks import Ask
from detent.engine.caching import Remembered
from detent.engine.entering import OUTRUN, Entry
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Key, Record, Stored
from detent.stores.select import Filter, Only, Page
from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import BLOCK, DROP, DROPPED_FROM_MAX, Config
from detent.surfaces.ojs.desk import CLAIMABLE, Desk
from detent.surfaces.ojs.weighing import MARK, Weighing, marked

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[str, str], ...]
Enter: TypeAlias = Callable[[Entry | None], Awaitable[T | Refusal]]
"""Stores jobs, under an entry if one is needed; a refusal is that others were faster."""
BLOCK_S: Final = 10.0
"""How long somebody is kept waiting for room."""
_LOOK_S: Final = 0.1
_BY: Final = By(Actor.SYSTEM, "ojs backpressure")


class _Load(NamedTuple):
    """So many jobs, of so many bytes."""

    number: int = 0
    weight: int = 0


class _Room(NamedTuple):
    """A queue as it would be with so much more; `drops` of `None`: that does not fit."""

    key: Key
    config: Config
    held: _Load
    added: _Load
    drops: Sequence[Job] | None
    mark: Record

    @property
    def bounds(self) -> list[tuple[int, int, int]]:
        """What it holds, what comes, and how much of it may be there."""
        told = (self.config.max_depth, self.config.max_bytes)
        found = zip(self.held, self.added, told, strict=True)
        return [(held, added, most) for held, added, most in found if most is not None]

    @property
    def share(self) -> float:
        """How full the queue is once the new jobs are in, from 0 to 1."""
        return max(min(held + added, most) / most for held, added, most in self.bounds)

    @property
    def number(self) -> int:
        """How many of those who come there may be room for; of bytes, half of them if any."""
        depth, most, heavy = self.held.number, self.config.max_depth, self.config.max_bytes
        number = self.added.number if most is None else max(most - depth, 0)
        if _over(heavy, self.held.weight + self.added.weight):
            some = self.added.number // 2 if heavy is not None and self.held.weight < heavy else 0
            return min(number, some)
        return number

    @property
    def is_worth_waiting(self) -> bool:
        """Whether they may fit later, and are to wait for it."""
        can_fit = all(added <= most for _, added, most in self.bounds)
        return self.config.strategy == BLOCK and can_fit


class Pressure:
    """Lets jobs into queues."""

    def __init__(self, desk: Desk, known: Remembered[Key, Config | None]) -> None:
        self._desk = desk
        self._known = known
        self._weighing = Weighing()
        self._lines: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def let_in(self, call: Call, asks: Iterable[Ask], enter: Enter[T]) -> tuple[T, Headers]:
        """What came of storing these jobs, and headers that tell how full their queues are.

        `QUEUE_FULL` if there is no room for them. Whoever was outrun enters again.
        """
        tenant, until = self._desk.tenant(call), time.monotonic() + BLOCK_S
        loads = _loads(tenant, asks)
        if not await self._bounds(loads):
            return _entered(await enter(None)), ()
        async with AsyncExitStack() as lines:
            for key in sorted(loads):
                await lines.enter_async_context(self._lines.setdefault(key, asyncio.Lock()))
            while True:
                rooms = await self._rooms(call, loads, until)
                answer = await enter(_entry(rooms))
                if answer is not OUTRUN or time.monotonic() >= until:
                    return _entered(answer), _told(rooms)

    async def _bounds(self, keys: Iterable[Key]) -> dict[Key, Config]:
        """What is set about those of these queues that have a bound."""
        found = {key: await self._known.get(key) for key in keys}
        return {key: one for key, one in found.items() if one is not None and one.is_bounded}

    async def _rooms(self, call: Call, loads: Mapping[Key, _Load], until: float) -> list[_Room]:
        """Room for so many in each queue that has a bound, as soon as there is some."""
        while True:
            rooms = await self._looked(loads)
            full = [room for room in rooms if room.drops is None]
            if not full:
                return rooms
            is_patient = time.monotonic() < until and not call.has_left
            if not is_patient or not all(room.is_worth_waiting for room in full):
                raise _full(full[0])
            if not await self._desk.service.pause(_LOOK_S):
                raise _full(full[0])

    async def _looked(self, loads: Mapping[Key, _Load]) -> list[_Room]:
        """The marks first: what comes in after they were read moves them."""
        bounds = await self._bounds(loads)
        if not bounds:
            return []
        store, rooms = self._desk.engine.store, list[_Room]()
        marks = await store.record([(MARK, *key) for key in bounds])
        depths = await self._depths(next(iter(bounds))[0])
        for (key, config), mark in zip(bounds.items(), marks, strict=True):
            weighed = await self._weighing.weight(store, key, mark, config, loads[key].weight)
            held = _Load(depths[key[1]], weighed or 0)
            drops = await self._drops(key, config, held, loads[key])
            dropped = sum(_weight_of(one.body.payload) for one in drops or ())
            left = None if weighed is None else weighed - dropped + loads[key].weight
            jobs = None if drops is None else [one.job for one in drops]
            after = marked(key, mark, config, left, store.now())
            rooms.append(_Room(key, config, held, loads[key], jobs, after))
        return rooms

    async def _drops(
        self, key: Key, config: Config, held: _Load, added: _Load
    ) -> Sequence[Stored] | None:
        """Who must go for them to fit: the oldest; `None` if that cannot be."""
        over = _over(config.max_depth, held.number + added.number)
        heavy = _over(config.max_bytes, held.weight + added.weight)
        if not over and not heavy:
            return ()
        chosen: list[Stored] = []
        for one in await self._oldest(key) if config.strategy == DROP else ():
            if len(chosen) >= over and heavy <= 0:
                break
            chosen.append(one)
            heavy -= _weight_of(one.body.payload)
        return chosen if len(chosen) >= over and heavy <= 0 else None

    async def _depths(self, tenant: str) -> Counter[str]:
        depths: Counter[str] = Counter()
        for one in await self._desk.engine.store.counts(tenant):
            if JobState(one.state) not in ENDED:
                depths[one.queue] += one.count
        return depths

    async def _oldest(self, key: Key) -> list[Stored]:
        """Those that are ready, for longest first; tasks of others are not ours to drop."""
        chosen = Filter(tenant=key[0], queue=key[1], only=Only.READY)
        found = await self._desk.engine.store.find(chosen, Page(DROPPED_FROM_MAX))
        mine = [one for one in found if one.job.profile in CLAIMABLE]
        return sorted(mine, key=lambda one: (one.job.place or 0, one.job.id))


def _loads(tenant: str, asks: Iterable[Ask]) -> dict[Key, _Load]:
    """What comes into each queue."""
    loads: defaultdict[Key, _Load] = defaultdict(_Load)
    for ask in asks:
        number, weight = loads[tenant, ask.queue]
        loads[tenant, ask.queue] = _Load(number + 1, weight + _weight_of(ask.payload))
    return dict(loads)


def _weight_of(payload: str) -> int:
    return len(payload) if payload.isascii() else len(payload.encode())


def _over(bound: int | None, number: int) -> int:
    return 0 if bound is None else max(number - bound, 0)


def _entry(rooms: Sequence[_Room]) -> Entry:
    drops = tuple(job for room in rooms for job in room.drops or ())
    # Who is replaced by one that comes may have been smaller than who would be spared for it.
    is_sparing = all(room.config.max_bytes is None for room in rooms)
    return Entry(_BY, tuple(room.mark for room in rooms), drops, is_sparing=is_sparing)


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
    queue, depth, config = room.key[1], room.held.number, room.config
    why, more = f"queue {queue} holds {depth} jobs", list[tuple[str, str]]()
    told: dict[str, Any] = {"queue": queue, "strategy": config.strategy, "room": room.number}
    if _over(config.max_bytes, room.held.weight + room.added.weight):
        why += f" of {room.held.weight} bytes; {config.max_bytes} bytes is its bound"
        told |= {"size_bytes": room.held.weight, "max_size_bytes": config.max_bytes}
    else:
        why += f"; {config.max_depth} is its bound"
    if config.max_depth is not None:
        more = [("x-ojs-queue-bound", str(config.max_depth))]
    found = Problem(429, "QUEUE_FULL", why, retryable=True, **told)
    return found.with_headers(("retry-after", "1"), ("x-ojs-queue-depth", str(depth)), *more)
