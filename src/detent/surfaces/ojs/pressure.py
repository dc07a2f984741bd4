"""Bounded queues: jobs that find no room are refused with `QUEUE_FULL`.

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
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.machine import Refusal
from detent.stores.api import Key, Record
from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.configs import REJECT, Config
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.weighing import MARK, Weighing, marked

T = TypeVar("T")
Headers: TypeAlias = tuple[tuple[str, str], ...]
Enter: TypeAlias = Callable[[Entry | None], Awaitable[T | Refusal]]
"""Stores jobs, under an entry if one is needed; a refusal is that others were faster."""
# How long a push that others outrun is tried again.
_RETRY_S: Final = 10.0


class _Load(NamedTuple):
    """So many jobs, of so many bytes."""

    number: int = 0
    weight: int = 0


class _Room(NamedTuple):
    """A bounded queue, what is in it, and what is to come in."""

    key: Key
    config: Config
    held: _Load
    added: _Load
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
    def is_full(self) -> bool:
        """Whether the new jobs do not fit."""
        return any(held + added > most for held, added, most in self.bounds)


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
        tenant, until = call.caller.tenant, time.monotonic() + _RETRY_S
        loads = _loads(tenant, asks)
        if not await self._bounds(loads):
            return _entered(await enter(None)), ()
        async with AsyncExitStack() as lines:
            for key in sorted(loads):
                await lines.enter_async_context(self._lines.setdefault(key, asyncio.Lock()))
            while True:
                rooms = await self._rooms(loads)
                full = next((room for room in rooms if room.is_full), None)
                if full is not None:
                    raise _full(full)
                answer = await enter(Entry(tuple(room.mark for room in rooms)))
                if answer is not OUTRUN or time.monotonic() >= until:
                    return _entered(answer), _told(rooms)

    async def _bounds(self, keys: Iterable[Key]) -> dict[Key, Config]:
        """What is set about those of these queues that have a bound."""
        found = {key: await self._known.get(key) for key in keys}
        return {key: one for key, one in found.items() if one is not None and one.is_bounded}

    async def _rooms(self, loads: Mapping[Key, _Load]) -> list[_Room]:
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
            weight = None if weighed is None else weighed + loads[key].weight
            after = marked(key, mark, config, weight, store.now())
            rooms.append(_Room(key, config, held, loads[key], after))
        return rooms

    async def _depths(self, tenant: str) -> Counter[str]:
        depths: Counter[str] = Counter()
        for one in await self._desk.engine.store.counts(tenant):
            if JobState(one.state) not in ENDED:
                depths[one.queue] += one.count
        return depths


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
    told: dict[str, Any] = {"queue": queue, "strategy": REJECT, "room": room.number}
    if _over(config.max_bytes, room.held.weight + room.added.weight):
        why += f" of {room.held.weight} bytes; {config.max_bytes} bytes is its bound"
        told |= {"size_bytes": room.held.weight, "max_size_bytes": config.max_bytes}
    else:
        why += f"; {config.max_depth} is its bound"
    if config.max_depth is not None:
        more = [("x-ojs-queue-bound", str(config.max_depth))]
    found = Problem(429, "QUEUE_FULL", why, retryable=True, **told)
    return found.with_headers(("retry-after", "1"), ("x-ojs-queue-depth", str(depth)), *more)
