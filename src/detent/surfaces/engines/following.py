"""The feed, followed once for all: engines are told what happens to their jobs without them, and
subscribers are told of everything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from detent.lifecycle.event import Event
from detent.lifecycle.job.table import IN_HANDS, JobEvent, JobState
from detent.lifecycle.views import CANCELLED_CODE
from detent.stores.api import Fed
from detent.surfaces.engines.desk import ENGINE, Desk
from detent.surfaces.engines.links import Held, Link, Links, cancel_of
from detent.surfaces.engines.subscribers import Subscribers

PAGE: Final = 500
_PAUSE_S: Final = 0.1
_STILL: Final = frozenset(state.value for state in IN_HANDS)


class Following:
    """Reads the feed from the moment that somebody here wants to know."""

    def __init__(self, desk: Desk, links: Links, subscribers: Subscribers) -> None:
        self._desk = desk
        self._links = links
        self._subscribers = subscribers
        self._begun = asyncio.Event()
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        """From now on nothing is missed."""
        async with self._turn:
            if not self._begun.is_set():
                self._subscribers.pos = await self._desk.engine.tail.end()
                self._begun.set()

    async def run(self) -> None:
        """Until the server stops."""
        await self._begun.wait()
        while not self._desk.service.stopping.is_set():
            page = await self._desk.engine.store.feed(self._subscribers.pos, PAGE)
            if page:
                await self._tell_engines(page)
                await self._subscribers.tell(page)
                await self._settle(page)
            elif not await self._desk.service.pause(_PAUSE_S):
                return

    async def _settle(self, page: Sequence[Fed]) -> None:
        for fed in page:
            key = (fed.event.tenant, fed.event.record)
            for link in self._links.holding(key):
                held = link.held.get(key[1])
                if held is not None:
                    held.told = max(held.told, fed.event.version)
            if fed.event.target == JobState.ACTIVE:
                await self._subscribers.settle(key)

    async def _tell_engines(self, page: Sequence[Fed]) -> None:
        for fed in page:
            event = fed.event
            for link in self._links.holding((event.tenant, event.record)):
                held = link.held.get(event.record)
                if held is not None and event.version > held.job.version:
                    await self._tell(link, held, event)

    async def _tell(self, link: Link, held: Held, event: Event) -> None:
        """What the engine has said itself it knows."""
        is_over = event.target is not None and event.target not in _STILL
        if event.actor_id == link.holder or not (is_over or _is_asked(event)):
            return
        if is_over:
            self._links.drop(link, event.record)
        told = cancel_of(held, event.code or CANCELLED_CODE, event.reason)
        await self._desk.sockets.tell(ENGINE, link.peer.sid, "cancel", told)


def _is_asked(event: Event) -> bool:
    return event.name == JobEvent.CANCEL_REQUESTED
