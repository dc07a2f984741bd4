"""What a job says and where it stands: followed as it happens, or read page by page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

from detent.engine.telling import told_at
from detent.errors import StoreError
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.views import REST
from detent.stores.api import Key, Logged, Stored, key_of
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.sse import BEAT, RETRY, Places, frame, last_seen
from detent.surfaces.rest.channels import Channel, Channels
from detent.surfaces.rest.desk import Desk, number_in
from detent.surfaces.rest.shown import status_of

LIMIT_MAX: Final = 1_000
_CURSOR_MAX = 10**18 - 1


class Streams:
    """Tells lines and states."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._channels = Channels(desk.service)
        self._places = Places(desk.settings.readers_max)

    async def logs(self, call: Call) -> Reply:
        """The log of a job after a cursor."""
        query = call.query
        cursor = number_in(query, "cursor", 0, _CURSOR_MAX, least=0)
        limit = number_in(query, "limit", 100, LIMIT_MAX)
        stored = await self._desk.stored(call, is_head=True)
        page = await self._desk.engine.store.logs(key_of(stored.job), cursor, limit)
        after = page[-1].cursor if page else cursor
        return self._desk.reply(call, lines=[_line(one) for one in page], nextCursor=after)

    async def events(self, call: Call) -> Reply:
        """Follow a job until it ends: what it has said since a cursor, then what it says."""
        cursor = last_seen(call.header("last-event-id"), call.query.get("cursor"))
        head = await self._desk.stored(call, is_head=True)
        return self._places.reply(self._frames(key_of(head.job), cursor))

    async def _frames(self, key: Key, cursor: int) -> AsyncIterator[bytes]:
        yield RETRY
        try:
            channel = await self._channels.enter(key)
        except StoreError:
            # The reader comes back in a moment; perhaps the store is back by then.
            return
        if channel is None:
            return
        reader = _Reader(self._desk, self._channels, channel, cursor)
        try:
            async for piece in reader.pieces():
                yield piece
        except StoreError:
            return
        finally:
            self._channels.leave(channel)


class _Reader:
    """One who follows a job: all that is kept for them is a cursor and the state they know of."""

    def __init__(self, desk: Desk, channels: Channels, channel: Channel, cursor: int) -> None:
        self._desk = desk
        self._channels = channels
        self._channel = channel
        self._cursor = cursor
        self._told: str | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Lines and states until the end; a sign of life when there is nothing else."""
        while not self._desk.service.stopping.is_set():
            # Both before the look: whatever comes after it rings this very bell.
            bell, head = self._channel.bell, self._channel.head
            is_over = head.job.state in ENDED
            if self._told is not None and not is_over:
                for piece in await self._status(head):
                    yield piece
            async for piece in self._lines(is_over=is_over):
                yield piece
            for piece in await self._status(head):
                yield piece
            if is_over:
                return
            if not await _rung(bell, self._desk.settings.beat_s):
                yield BEAT

    async def _lines(self, *, is_over: bool) -> AsyncIterator[bytes]:
        """All lines there are. The last ones were committed with the end, so the store has them."""
        while True:
            page = await self._channels.lines(self._channel, self._cursor)
            if is_over and not page:
                page = await self._channels.stored_lines(self._channel, self._cursor)
            if not page:
                return
            self._cursor = page[-1].cursor
            yield b"".join(one.frame for one in page)

    async def _status(self, head: Stored) -> list[bytes]:
        state = REST.word(head.job)
        if state == self._told:
            return []
        self._told = state
        data = await self._channels.status(self._channel, head, self._rendered)
        return [frame("status", data, str(self._cursor))]

    async def _rendered(self, stored: Stored) -> dict[str, Any]:
        return status_of(stored, await self._desk.error(stored))


async def _rung(bell: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        return await asyncio.wait_for(bell.wait(), seconds)
    return False


def _line(one: Logged) -> dict[str, Any]:
    line = one.line
    return {"cursor": one.cursor, "line": line.text, "at": told_at(line.at), "level": line.level}
