"""One tailer for all readers: it reads the ends of the feed and of all logs once, and rings.

A channel is a job that somebody follows. It keeps the newest lines and the newest record for all of
its readers together, rendered once: of the record only its head, and the result once the job has
ended. What is older they read from the store. Each reader goes by its own cursor,
which is all that is kept for it: however lines come, from the channel or from the store, the next
one is that after the cursor, so none is lost or doubled where the one ends and the other begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import Raw
from msgspec.json import encode

from detent.engine.tail import Listener
from detent.engine.verify.feed import end_of
from detent.errors import StoreError
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.views import REST
from detent.stores.api import Fed, Key, Logged, Store, Stored
from detent.surfaces.http.service import Service
from detent.surfaces.http.sse import frame

_log = logging.getLogger(__name__)

LINES_MAX: Final = 1_000
"""The newest lines of a job that are kept for all who follow it."""
PAGE: Final = 250
"""How many lines a reader is told at once: what is read and not yet sent is in memory."""
_TAIL_PAGE: Final = 2_000
_TURN_S: Final = 0.1
_AGAIN_S: Final = 1.0


class LogFrame(NamedTuple):
    """A line of a log as its readers get it."""

    cursor: int
    frame: bytes


class Channel:
    """A job that is followed; `bell` rings when there is news, and is another one afterwards.

    `head` is the newest version of the job without arguments and result (`ReadStore.heads`).
    """

    def __init__(self, key: Key, head: Stored) -> None:
        self.key = key
        self.head = head
        self.readers = 0
        self.bell = asyncio.Event()
        self.status: tuple[int, Raw] | None = None
        self.rendering = asyncio.Lock()
        self._lines: deque[LogFrame] = deque(maxlen=LINES_MAX)

    def add(self, logged: Logged) -> None:
        """The next line; after a gap those before it are of no use."""
        if self._lines and logged.cursor != self._lines[-1].cursor + 1:
            self._lines.clear()
        self._lines.append(log_frame(logged))

    def hear(self, head: Stored) -> None:
        """The record as somebody has read it; who reads first need not be heard first."""
        if head.job.version >= self.head.job.version:
            self.head = head

    def after(self, cursor: int) -> list[LogFrame] | None:
        """The lines after a cursor as far as there are any; `None` if only the store can tell."""
        if not self._lines or cursor + 1 < self._lines[0].cursor:
            return None
        skipped = cursor + 1 - self._lines[0].cursor
        return list(islice(self._lines, skipped, skipped + PAGE))

    def ring(self) -> None:
        """Wake everybody who waits."""
        rung, self.bell = self.bell, asyncio.Event()
        rung.set()


class Channels:
    """All jobs that are followed on this server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[Key, Channel] = {}
        self._turn = asyncio.Lock()
        self._tailing: asyncio.Task[None] | None = None
        self._listener: Listener | None = None
        self._pos = 0
        self._is_unsure = False

    @property
    def _store(self) -> Store:
        return self._service.engine.store

    async def enter(self, key: Key) -> Channel | None:
        """Follow a job: from now on nothing about it is missed; `None` if there is none."""
        async with self._turn:
            await self._begin()
            channel = self._open.get(key) or await self._opened(key)
            if channel is not None:
                channel.readers += 1
            return channel

    async def _opened(self, key: Key) -> Channel | None:
        for _ in range(2):
            [head] = await self._store.heads([key])
            if head is None:
                return None
            # Read once more when it is there: what happens from then on is told to it.
            self._open.setdefault(key, Channel(key, head)).hear(head)
        return self._open[key]

    def leave(self, channel: Channel) -> None:
        """Follow it no more."""
        channel.readers -= 1
        if not channel.readers:
            self._open.pop(channel.key, None)

    async def lines(self, channel: Channel, cursor: int) -> Sequence[LogFrame]:
        """The next lines after a cursor."""
        found = channel.after(cursor)
        return await self.stored_lines(channel, cursor) if found is None else found

    async def stored_lines(self, channel: Channel, cursor: int) -> Sequence[LogFrame]:
        """The same from the store."""
        return [log_frame(one) for one in await self._store.logs(channel.key, cursor, PAGE)]

    async def status(
        self, channel: Channel, head: Stored, render: Callable[[Stored], Awaitable[dict[str, Any]]]
    ) -> Raw:
        """Where the job stands, rendered once for all readers; an ended one with its result."""
        async with channel.rendering:
            if channel.status is None or channel.status[0] != head.job.version:
                [stored] = await self._store.get([channel.key]) if _is_over(head) else [head]
                channel.status = (head.job.version, Raw(encode(await render(stored or head))))
            return channel.status[1]

    # --- the tailer -----------------------------------------------------------------------------

    async def _begin(self) -> None:
        if self._tailing is not None and not self._tailing.done():
            return
        self._listener = await self._service.engine.tail.listen(self._wants)
        try:
            self._pos = await end_of(self._store.log_tail, self._pos)
        except StoreError:
            self._service.engine.tail.leave(self._listener)
            raise
        self._tailing = asyncio.create_task(self._tail(self._listener))

    def _wants(self, fed: Fed) -> bool:
        return (fed.event.tenant, fed.event.record) in self._open

    async def _tail(self, listener: Listener) -> None:
        """Until the server stops, or nobody follows anything."""
        tail, pause = self._service.engine.tail, _TURN_S
        try:
            while not self._service.stopping.is_set() and (self._open or self._turn.locked()):
                try:
                    pause = 0 if await self._look(listener, pause) else _TURN_S
                except Exception as error:
                    # What was heard and not told is lost: all are looked at when the store is back.
                    self._is_unsure = True
                    _log.warning("following jobs: %r", error)
                    await asyncio.sleep(_AGAIN_S)
        finally:
            tail.leave(listener)
            for channel in self._open.values():
                channel.ring()

    async def _look(self, listener: Listener, pause: float) -> bool:
        """Tell what is new; whether there is more."""
        moved = {(fed.event.tenant, fed.event.record) for fed in await listener.take(pause)}
        if listener.dropped or self._is_unsure:
            listener.dropped = None
            moved = set(self._open)
        page = await self._store.log_tail(self._pos, _TAIL_PAGE)
        spoken = {one.key for one in page}
        # Who speaks has begun, whether the feed has told so yet or not.
        begun = {key for key in spoken if self._is_pending(key)}
        await self._refresh([key for key in moved | begun if key in self._open])
        self._tell(page)
        for key in moved | spoken:
            if key in self._open:
                self._open[key].ring()
        self._is_unsure = False
        return len(page) == _TAIL_PAGE

    def _is_pending(self, key: Key) -> bool:
        channel = self._open.get(key)
        return channel is not None and REST.word(channel.head.job) == "pending"

    async def _refresh(self, keys: Sequence[Key]) -> None:
        found = await self._store.heads(keys) if keys else []
        for key, head in zip(keys, found, strict=True):
            if head is not None and key in self._open:
                self._open[key].hear(head)

    def _tell(self, page: Iterable[Logged]) -> None:
        for logged in page:
            self._pos = logged.pos
            channel = self._open.get(logged.key)
            if channel is not None:
                channel.add(logged)


def log_frame(one: Logged) -> LogFrame:
    """A line of a log as a frame."""
    data = {"line": one.line.text, "cursor": one.cursor}
    return LogFrame(one.cursor, frame("log", data, str(one.cursor)))


def _is_over(head: Stored) -> bool:
    return head.job.state in ENDED
