"""One lane counted again by itself: what the jobs that are in it say about its count.

Jobs come into a lane with an event, and leave it with one or because they are forgotten. So a lane
holds at least the jobs that were in it before it was asked about and are still; and at most those
that are found in it and those that came meanwhile. Where nothing moves both are one number.
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from detent.engine.paging import job_pages
from detent.engine.verify.feed import end_of, pages
from detent.errors import StoreCorrupt
from detent.lifecycle.job.table import JobEvent
from detent.stores.api import ReadStore, key_of
from detent.stores.select import Filter

_PAGE, _ATTEMPTS, _PAUSE_S = 500, 3, 0.1
Lane: TypeAlias = tuple[str, str, str]
"""A tenant, a queue of it, and a state."""


async def is_possible(store: ReadStore, lane: Lane) -> bool:
    """Whether the store may count this lane as it does. A lagging feed gets time to catch up."""
    for _ in range(_ATTEMPTS):
        try:
            if await _is_within(store, lane):
                return True
        except StoreCorrupt:
            return False  # Somebody was at work here.
        await asyncio.sleep(_PAUSE_S)
    return False


async def _is_within(store: ReadStore, lane: Lane) -> bool:
    before = await end_of(store.feed)
    first = await _said(store, lane)
    surely, found = await _counted(store, lane, before)
    last = await _said(store, lane)
    came = await _came(store, lane[2], before)
    return surely <= first and last <= found + came


async def _said(store: ReadStore, lane: Lane) -> int:
    counts = await store.counts(lane[0])
    return sum(one.count for one in counts if (one.tenant, one.queue, one.state) == lane)


async def _counted(store: ReadStore, lane: Lane, before: int) -> tuple[int, int]:
    """Those that were there before that position and did not move since, and all."""
    tenant, queue, state = lane
    chosen = Filter(tenant=tenant, queue=queue, state=state)
    surely = found = 0
    async for page in job_pages(store, chosen, _PAGE):
        histories = await store.histories([key_of(one.job) for one in page])
        surely += sum(bool(one) and 0 < one[-1].pos <= before for one in histories)
        found += len(page)
    return surely, found


async def _came(store: ReadStore, state: str, before: int) -> int:
    """How often a job may have come into the lane; events do not always tell the queue."""
    came = 0
    async for page in pages(store, before, await end_of(store.feed, before)):
        events = (fed.event for fed in page.events)
        came += sum(event.target == state or event.name == JobEvent.MOVED for event in events)
    return came
