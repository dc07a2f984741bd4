"""No failure is silent: each is one line of the log and one count of its category.

They are taken from the feed by a cursor of their own in the store, so that of many servers one
tells of each, and none is left out while no server runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from detent.engine.subscribers import KIND, Subscriber
from detent.lifecycle.event import Event
from detent.lifecycle.profile import Delivery
from detent.lifecycle.views import TELEMETRY, Category
from detent.stores.api import Fed
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.projecting import Item, page_of

_log = logging.getLogger(__name__)

NAME: Final = "engine-failures"
_LOOK_S: Final = 2.0


class Failing:
    """Tells of failures of jobs that were pushed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._begun = asyncio.Event()
        self._turn = asyncio.Lock()

    def opened(self) -> None:
        """The engine is there."""
        self._begun.clear()
        self._desk.engine.subscribers.add(Subscriber(NAME, _is_failure, self._tell))

    async def begin(self) -> None:
        """From now on there may be failures: the cursor stands before the first of them."""
        async with self._turn:
            if not self._begun.is_set():
                await self._desk.engine.subscribers.begin()
                self._begun.set()

    async def run(self) -> None:
        """Until called off; the feed is not followed where engines were never heard of."""
        [record] = await self._desk.engine.store.record([(KIND, "", NAME)])
        if record is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._begun.wait(), _LOOK_S)
        if record is not None or self._begun.is_set():
            await self._desk.engine.subscribers.run()

    async def _tell(self, batch: Sequence[Fed]) -> None:
        for item in await page_of(self._desk.engine.store, batch):
            if item.stored.job.delivery is Delivery.PUSH:
                self._note(item)

    def _note(self, item: Item) -> None:
        told = {"jobType": item.stored.body.type, "userId": item.user, **item.told}
        _log.warning("job_failed %s", msgspec.json.encode(told).decode())
        self._desk.gauges.failed(Category(item.data["category"]))


def _is_failure(event: Event) -> bool:
    return event.kind == "job" and TELEMETRY.get((event.name, event.target or "")) == "JOB_FAILED"
