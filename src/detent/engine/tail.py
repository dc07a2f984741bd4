"""The end of the feed, for whoever listens in this process: read once, told to all.

Nobody is waited for. Whoever listens gets events from the moment they begin to listen, and looks up
what was before by themselves.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from detent.engine.subscribers import end_of
from detent.errors import StoreError
from detent.stores.api import Fed, Store

PAUSE_S: Final = 0.1
PAGE: Final = 1_000
BUFFER_MAX: Final = 1_000
"""How many events wait for a slow listener; then the oldest are dropped, and it is told so."""


class Dropped(msgspec.Struct, frozen=True):
    """How many events were too many for somebody who listens, and between which they were."""

    count: int
    oldest: Fed
    newest: Fed


class Listener:
    """What has come for one of those who listen, and how much of it was dropped."""

    def __init__(self, wants: Callable[[Fed], bool]) -> None:
        self._wants = wants
        self._waiting: deque[Fed] = deque()
        self._bell = asyncio.Event()
        self.dropped: Dropped | None = None
        self.is_open = False

    def offer(self, page: Sequence[Fed]) -> None:
        """Keep what is wanted, as far as there is room."""
        for fed in page:
            if self.is_open and self._wants(fed):
                if len(self._waiting) >= BUFFER_MAX:
                    self._drop(self._waiting.popleft())
                self._waiting.append(fed)
                self._bell.set()

    def _drop(self, fed: Fed) -> None:
        # They are counted, not kept: whoever does not listen at all would fill the memory.
        before = self.dropped
        told = (0, fed) if before is None else (before.count, before.oldest)
        self.dropped = Dropped(told[0] + 1, told[1], fed)

    async def take(self, seconds: float) -> list[Fed]:
        """What has come, as soon as something has; nothing if the time is over before."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), seconds)
        taken = list(self._waiting)
        self._waiting.clear()
        self._bell.clear()
        return taken


class Tail:
    """Reads the feed while somebody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: set[Listener] = set()
        self._after = 0
        self._is_reading = asyncio.Event()
        self._turn = asyncio.Lock()
        self._working: asyncio.Task[None] | None = None

    async def listen(self, wants: Callable[[Fed], bool] = lambda _: True) -> Listener:
        """Begin to listen: whatever is committed from now on is told.

        Whoever has heard enough says so by `leave`.
        """
        listener = Listener(wants)
        self._listeners.add(listener)
        if self._working is None or self._working.done():
            self._is_reading.clear()
            self._working = asyncio.ensure_future(self._work())
        try:
            await self._is_reading.wait()
            # What is not read yet is older than this call, and for the others alone.
            await self._read()
        except BaseException:
            self.leave(listener)
            raise
        listener.is_open = True
        return listener

    def leave(self, listener: Listener) -> None:
        """Tell no more."""
        self._listeners.discard(listener)

    async def end(self) -> int:
        """The last position there is."""
        return await end_of(self._store)

    async def since(self, after: int) -> AsyncIterator[Sequence[Fed]]:
        """What is there after a position, page by page."""
        while page := await self._store.feed(after, PAGE):
            yield page
            after = page[-1].pos

    async def close(self) -> None:
        """Stop reading."""
        self._listeners.clear()
        if self._working is not None:
            self._working.cancel()
            with suppress(asyncio.CancelledError):
                await self._working

    async def _work(self) -> None:
        try:
            self._after = await self.end()
        finally:
            self._is_reading.set()
        while self._listeners:
            with suppress(StoreError):
                # The store is away, perhaps; whoever listens hears of it all when it is back.
                await self._read()
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> None:
        async with self._turn:
            async for page in self.since(self._after):
                for listener in self._listeners:
                    listener.offer(page)
                self._after = page[-1].pos
