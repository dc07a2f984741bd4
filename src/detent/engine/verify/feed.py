"""The feed: where it ends, what stands in it, and whether the histories say the same."""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Sequence,
)
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.records import Life
from detent.engine.verify.sums import Sums
from detent.errors import StoreCorrupt
from detent.stores.api import Fed, Key, ReadStore

_PAGE = 2_000
Gap: TypeAlias = tuple[int, int]
"""The first and the last of some positions where no event stands."""
Lives: TypeAlias = tuple[Sequence[Life], Sequence[Finding]]
"""Some records, and what is wrong with those that cannot be read."""


class FeedPage(NamedTuple):
    """The events at the positions after `after` up to `last`, and what is wrong with some."""

    after: int
    last: int
    events: Sequence[Fed]
    found: Sequence[Finding]

    def gaps(self) -> list[Gap]:
        """Where no event stands: each is forgotten, or missing."""
        there = {fed.pos for fed in self.events} | {one.pos or 0 for one in self.found}
        bounds = sorted({self.after, *there, self.last + 1})
        return [(one + 1, two - 1) for one, two in pairwise(bounds) if two > one + 1]


async def end_of(following: Callable[[int, int], Awaitable[Sequence[object]]], low: int = 0) -> int:
    """The last number of something that is read on from a number, by doubling and halving."""
    if not await _is_more(following, low):
        return low
    high = low + 1
    while await _is_more(following, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if await _is_more(following, middle) else (low, middle)
    return high


async def pages(store: ReadStore, after: int, end: int) -> AsyncIterator[FeedPage]:
    """The feed up to a position, so many positions at a time."""
    while after < end:
        last = min(after + _PAGE, end)
        events, found = await _read(store, after, last)
        yield FeedPage(after, last, events, found)
        after = last


async def differences(
    store: ReadStore, again: AsyncIterable[Lives], sums: Sums, end: int, tenant: str | None
) -> AsyncIterator[Finding]:
    """What stands on one side only, found by a second look at the records whose sums differ."""
    listed: set[Key] = set()
    async for some, unreadable in again:
        for life in some:
            if sums.differ_for(life.key):
                listed.add(life.key)
                for finding in await _not_in_feed(store, life, end):
                    yield finding
        listed.update(one.key for one in unreadable if one.key is not None)
    async for page in pages(store, 0, end):
        doubted = [fed for fed in page.events if _is_doubted(fed, sums, tenant)]
        for finding in await _not_in_histories(store, doubted, listed):
            yield finding


async def _is_more(
    following: Callable[[int, int], Awaitable[Sequence[object]]], number: int
) -> bool:
    try:
        return bool(await following(number, 1))
    except StoreCorrupt:
        return True  # It cannot be read, so it is there.


async def _read(store: ReadStore, after: int, last: int) -> tuple[list[Fed], list[Finding]]:
    """The events up to a position, and those of them that cannot be read."""
    try:
        return [fed for fed in await store.feed(after, last - after) if fed.pos <= last], []
    except StoreCorrupt as error:
        if last - after == 1:
            return [], await _unreadable(store, last, error)
    # The halves before and after what cannot be read, and so on down to the one event.
    middle = (after + last) // 2
    first, second = await _read(store, after, middle), await _read(store, middle, last)
    return first[0] + second[0], first[1] + second[1]


async def _unreadable(store: ReadStore, pos: int, error: StoreCorrupt) -> list[Finding]:
    """What cannot be read may as well stand after this position, where none is any more."""
    try:
        await store.feed(pos, 1)
    except StoreCorrupt as next_error:
        if next_error.message == error.message:
            return []
    return [Finding(Check.ROW, error.message, pos=pos)]


def _is_doubted(fed: Fed, sums: Sums, tenant: str | None) -> bool:
    event = fed.event
    return tenant in (None, event.tenant) and sums.differ_for((event.tenant, event.record))


async def _not_in_histories(
    store: ReadStore, doubted: Sequence[Fed], listed: Collection[Key]
) -> list[Finding]:
    keys = list(dict.fromkeys(_key(fed) for fed in doubted))
    try:
        histories = await store.histories(keys)
    except StoreCorrupt:
        return []  # Whatever cannot be read was found already.
    known = {(one.pos, one.event) for history in histories for one in history}
    found = []
    for fed in doubted:
        if _key(fed) not in listed:
            found.append(_on_one_side(fed, "the feed has it, but there is no such record"))
        elif (fed.pos, fed.event) not in known and await _is_fed(store, fed):
            found.append(_on_one_side(fed, "the feed has it, but its history has not"))
    return found


async def _not_in_feed(store: ReadStore, life: Life, end: int) -> list[Finding]:
    missing = [fed for fed in life.history if 0 < fed.pos <= end and not await _is_fed(store, fed)]
    # A record that was forgotten between two looks has taken its history with it.
    [history] = await store.histories([life.key]) if missing else [()]
    why = "its history has it, but the feed has not"
    return [_on_one_side(fed, why) for fed in missing if fed in history]


async def _is_fed(store: ReadStore, fed: Fed) -> bool:
    return fed in await store.feed(fed.pos - 1, 1)


def _on_one_side(fed: Fed, why: str) -> Finding:
    return Finding(Check.FEED, why, _key(fed), fed.event.version, fed.pos)


def _key(fed: Fed) -> Key:
    return fed.event.tenant, fed.event.record
