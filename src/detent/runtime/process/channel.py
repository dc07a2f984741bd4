"""The parent's end of a channel: it never waits for the child, whatever the child does."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from detent.errors import ChannelBroken
from detent.runtime.process.frames import FRAME_BYTES_MAX, Frames, Message, frame

UNSENT_BYTES_MAX: Final = 2 * FRAME_BYTES_MAX
"""So much may wait for a child that does not read; then it is not worth talking to."""
UNREAD_MAX: Final = 1024
"""Once so many messages wait for whoever reads them here, no more are taken from the child."""


class Channel(asyncio.Protocol):
    """Messages to and from one child.

    Whatever is wrong with it closes it, and `fault` says what was wrong. Its child then sees the
    end of its parent, and ends itself. A child that talks faster than it is heard has to wait.
    """

    def __init__(self, *, unsent: int = UNSENT_BYTES_MAX, unread: int = UNREAD_MAX) -> None:
        self.fault: ChannelBroken | None = None
        self._unsent = unsent
        self._unread = unread
        self._frames = Frames()
        self._waiting: deque[Message] = deque()
        self._news = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def over(cls, end: socket.socket) -> Channel:
        """A channel over our end of a pair of sockets, which it owns from now on."""
        end.setblocking(False)
        _, channel = await asyncio.get_running_loop().create_connection(cls, sock=end)
        return channel

    @property
    def is_open(self) -> bool:
        """Whether anything can still be said."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, message: Message) -> None:
        """Say something, without waiting for it to be heard; refused once the channel is closed."""
        data = frame(message)
        if self._transport is None or self._transport.is_closing():
            raise self.fault or ChannelBroken("The other end of the channel is gone")
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._unsent:
            self._break(
                ChannelBroken(
                    f"More than {self._unsent} bytes wait for a child that does not read them",
                    limit=self._unsent,
                )
            )

    def close(self) -> None:
        """End it; what was not sent yet is dropped."""
        if self._transport is not None:
            self._transport.abort()
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """What the child says, until it is gone or the channel is broken."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self._transport is None or self._transport.is_closing():
                return
            self._news.clear()
            self._transport.resume_reading()
            await self._news.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 (a socket's always is)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        try:
            self._waiting.extend(self._frames.feed(data))
        except ChannelBroken as fault:
            self._break(fault)
        if len(self._waiting) > self._unread and self._transport is not None:
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        del exc  # A child that is gone is no error.
        self._transport = None
        self._news.set()

    def _break(self, fault: ChannelBroken) -> None:
        self.fault = self.fault or fault
        self.close()
