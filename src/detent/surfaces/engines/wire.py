"""One connection: it may speak so fast, must read what it is sent, and speaks JSON in text.

Whoever speaks too fast is simply not listened to for a while: what they send waits in their own
buffers, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from detent.surfaces.http.caller import Admit
from detent.surfaces.http.exchange import ADMITTED, Message, Settings

MESSAGES_S_MAX: Final = 2_000
"""Messages a second that one connection is listened to."""
IN_FLIGHT_MAX: Final = 256
"""Messages of one connection that are being answered at the same time."""
# How long a client may be connected without having shown a key for any namespace.
KEYLESS_S_MAX: Final = 5.0
_GONE: Final[Message] = {"type": "websocket.disconnect", "code": 1003}
_PACKETS: Final = frozenset("0123456")
_BINARY: Final = ("45", "46")
_encode = msgspec.json.Encoder().encode


class Wire:
    """What a Socket.IO server is given instead of the socket."""

    def __init__(self, socket: WebSocket, settings: Settings, admit: Admit) -> None:
        self._socket = socket
        self.admit = admit
        self._stall_s = settings.stall_s
        self._keyless_s = min(settings.head_s, KEYLESS_S_MAX)
        self._namespaces = 0
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None
        self._tokens = float(MESSAGES_S_MAX)
        self._at = time.monotonic()
        self._in_flight = 0
        self._room = asyncio.Event()

    async def receive(self) -> Message:
        """The next message, in time; what is none of Socket.IO in text ends the connection."""
        await self._pace()
        while self._in_flight >= IN_FLIGHT_MAX:
            self._room.clear()
            await self._room.wait()
        message = await self._socket.receive()
        if message["type"] != "websocket.receive" or _is_sound(message.get("text")):
            return message
        return _GONE

    async def send(self, message: Message) -> None:
        """Send it; whoever does not read is cut off."""
        async with asyncio.timeout(self._stall_s):
            await self._socket.send(message)

    def start(self) -> None:
        """Close the connection in a while, unless its client is admitted to a namespace."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._keyless_s, self._start_close)

    def stop(self) -> None:
        """Wait for nothing more: the connection is over."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def enter(self) -> None:
        """Count a namespace that the client was admitted to; its messages may be large now."""
        self._namespaces += 1
        if self._timer is not None:
            self._timer.cancel()
        lift: Callable[[], None] | None = self._socket.scope.get("state", {}).get(ADMITTED)
        if lift is not None:
            lift()

    def leave(self) -> None:
        """Forget a namespace; after the last one the client must come back or is closed."""
        self._namespaces -= 1
        if not self._namespaces and not self._is_over:
            self.start()

    def _start_close(self) -> None:
        self._closing = asyncio.ensure_future(self._close())

    async def _close(self) -> None:
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._socket.close(1008, "connect to a namespace, with a key if one is needed")

    def __enter__(self) -> None:
        self._in_flight += 1

    def __exit__(self, *_: object) -> None:
        self._in_flight -= 1
        self._room.set()

    async def _pace(self) -> None:
        now = time.monotonic()
        earned = (now - self._at) * MESSAGES_S_MAX
        self._tokens, self._at = min(self._tokens + earned, float(MESSAGES_S_MAX)) - 1, now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / MESSAGES_S_MAX)


class Codec:
    """JSON as Socket.IO asks for it; what cannot be read is nothing, and told so."""

    @staticmethod
    def dumps(value: Any, **_: Any) -> str:
        """The text."""
        return _encode(value).decode()

    @staticmethod
    def loads(text: str | bytes, **_: Any) -> Any:
        """The value."""
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return [""]


def _is_sound(text: str | None) -> bool:
    return text is not None and text[:1] in _PACKETS and not text.startswith(_BINARY)
