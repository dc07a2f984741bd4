"""The feed: where it ends, what stands in it, and whether the histories say the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from itertools import pairwise

from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.records import Life, lives
from detent.engine.verify.sums import Sums
from detent.errors import StoreCorrupt
from detent.stores.api import Fed, Key, ReadStore

__all__ = ["differences", "end_of", "pages"]

_PAGE = 2_000


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


async def pages(
    store: ReadStore, after: int, end: int
) -> AsyncIterator[tuple[list[Fed], list[Finding]]]:
    """The feed up to a position, page by page, and what is wrong with the positions themselves."""
    while after < end:
        page, found = await _page(store, after, min(_PAGE, end - after))
        page = [fed for fed in page if fed.pos <= end]
        found += _gaps([after, *(fed.pos for fed in page)])
        if not page and not found:
            found.append(_gap(after + 1, end))
            after = end
        after = page[-1].pos if page else after + 1
        yield page, found


async def differences(
    store: ReadStore, sums: Sums, end: int, tenant: str | None
) -> AsyncIterator[Finding]:
    """What stands on one side only, found by a second look at the records whose sums differ."""
    listed: set[Key] = set()
    async for some, unreadable in lives(store, tenant):
        for life in some:
            if sums.differ_for(life.key):
                listed.add(life.key)
                for finding in await _not_in_feed(store, life, end):
                    yield finding
        listed.update(one.key for one in unreadable if one.key is not None)
    async for page, _ in pages(store, 0, end):
        doubted = [fed for fed in page if _is_doubted(fed, sums, tenant)]
        for finding in await _not_in_histories(store, doubted, listed):
            yield finding


async def _is_more(
    following: Callable[[int, int], Awaitable[Sequence[object]]], number: int
) -> bool:
    try:
        return bool(await following(number, 1))
    except StoreCorrupt:
        return True  # It cannot be read, so it is there.


async def _page(store: ReadStore, after: int, limit: int) -> tuple[list[Fed], list[Finding]]:
    try:
        return list(await store.feed(after, limit)), []
    except StoreCorrupt as error:
        if limit == 1:
            return [], [Finding(Check.ROW, error.message, pos=after + 1)]
    # The half before what cannot be read, and so on down to the one event.
    return await _page(store, after, limit // 2)


def _gaps(positions: Sequence[int]) -> list[Finding]:
    """Positions follow each other without a gap, and none is given twice."""
    return [_gap(one + 1, two - 1) for one, two in pairwise(positions) if two != one + 1]


def _gap(first: int, last: int) -> Finding:
    why = "no event stands there" if first == last else f"no event stands there up to {last}"
    return Finding(Check.FEED, why, pos=first)


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
        elif (fed.pos, fed.event) not in known:
            found.append(_on_one_side(fed, "the feed has it, but its history has not"))
    return found


async def _not_in_feed(store: ReadStore, life: Life, end: int) -> list[Finding]:
    return [
        _on_one_side(fed, "its history has it, but the feed has not")
        for fed in life.history
        if 0 < fed.pos <= end and fed not in await store.feed(fed.pos - 1, 1)
    ]


def _on_one_side(fed: Fed, why: str) -> Finding:
    return Finding(Check.FEED, why, _key(fed), fed.event.version, fed.pos)


def _key(fed: Fed) -> Key:
    return fed.event.tenant, fed.event.record
