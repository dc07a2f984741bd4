"""Requests to one server over connections that stay open, in one event loop.

A request is JSON and so is its answer. HTTP is read by the parser that the server has, too; what is
around it is so little that a client of somebody else's would be more to know than this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import SplitResult, urlsplit

import httptools
import msgspec

from detent.errors import ServerAway, ServerRefused
from detent.runtime.remote.address import Server, authority

T = TypeVar("T")
TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_IDLE_MAX: Final = 8
_TYPE: Final = "application/openjobspec+json"
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""What a server or something before it answers when another time may be better."""
_OK: Final = range(200, 300)


class _Request(NamedTuple):
    place: SplitResult
    text: bytes


class _Refusal(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Problem(msgspec.Struct, frozen=True):
    error: _Refusal = _Refusal()


class _Line(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.was_idle = False
        """Whether it has lain idle since its last request: the other side may have left."""
        self.is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = 0
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Those of uvloop are of no class of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._fail(exc or ConnectionResetError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP came back: {error}"))

    def on_body(self, body: bytes) -> None:
        """A piece of the answer."""
        self._size += len(body)
        if self._size > ANSWER_BYTES_MAX:
            self._fail(ConnectionError("the answer has no end"))
            return
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The whole of it."""
        status, is_kept = self._parser.get_status_code(), self._parser.should_keep_alive()
        if status < _OK.start:
            self._pieces = []  # The answer is still to come.
        elif self.answer is not None and not self.answer.done():
            self.answer.set_result((status, b"".join(self._pieces)))
            if not is_kept:
                self.close()

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        self._begin()
        self.answer = asyncio.get_running_loop().create_future()
        if self.is_closed or self._transport is None:
            raise ConnectionResetError("the connection was closed")
        self._transport.write(request)
        try:
            return await self.answer
        finally:
            if not self.answer.done() or self.answer.cancelled():
                # Its answer may still come, and would be taken for that of the next.
                self.close()

    def close(self) -> None:
        """Let it go."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
        self.close()


class Client:
    """Asks one server; whatever is wrong is `ServerAway`, or `ServerRefused` for good.

    Of several addresses one is used until it fails, and then the next.
    """

    def __init__(self, server: Server, *, trust: ssl.SSLContext | None = None) -> None:
        self._places = deque(urlsplit(url) for url in server.urls)
        self._key = server.key
        self._trust = trust
        self._idle: deque[_Line] = deque()

    async def post(
        self, path: str, body: Any, kind: type[T], *, tenant: str = "", timeout_s: float = TIMEOUT_S
    ) -> T:
        """The answer to a request, as that type.

        It is sent once more at once if the connection had been left to itself: nothing here does
        harm when it arrives twice.
        """
        request = self._request(path, body, tenant)
        try:
            return await self._answer(request, kind, timeout_s)
        except ServerAway:
            self._turn_from(request.place)
            raise

    def close(self) -> None:
        """Let all connections go."""
        while self._idle:
            self._idle.pop().close()

    def _turn_from(self, place: SplitResult) -> None:
        """Others may have turned already."""
        if place is self._places[0]:
            self._places.rotate(-1)
            self.close()

    async def _answer(self, request: _Request, kind: type[T], timeout_s: float) -> T:
        name = authority(request.place)
        try:
            async with asyncio.timeout(timeout_s):
                status, text = await self._asked(request)
        except TimeoutError:
            raise ServerAway(f"{name} did not answer in time", why="timeout") from None
        except ssl.SSLCertVerificationError as error:
            raise ServerRefused(f"{name}: {error.verify_message}", why="tls") from None
        except OSError as error:
            why = str(error) or type(error).__name__
            raise ServerAway(f"{name} cannot be reached: {why}", why="connect") from None
        return _read(status, text, kind)

    async def _asked(self, request: _Request) -> tuple[int, bytes]:
        while True:
            line = await self._line(request.place)
            was_idle, line.was_idle = line.was_idle, True
            try:
                answer = await line.ask(request.text)
            except OSError:
                if was_idle:
                    continue
                raise
            is_good = not line.is_closed and request.place is self._places[0]
            if is_good and len(self._idle) < _IDLE_MAX:
                self._idle.append(line)
            else:
                line.close()
            return answer

    async def _line(self, place: SplitResult) -> _Line:
        while self._idle and place is self._places[0]:
            line = self._idle.pop()
            if not line.is_closed:
                return line
        is_safe = place.scheme == "https"
        port = place.port or (443 if is_safe else 80)
        _, line = await asyncio.get_running_loop().create_connection(
            _Line, place.hostname or "", port, ssl=self._trusted if is_safe else None
        )
        return line

    @cached_property
    def _trusted(self) -> ssl.SSLContext:
        return self._trust or ssl.create_default_context()

    def _request(self, path: str, body: Any, tenant: str) -> _Request:
        place, text = self._places[0], msgspec.json.encode(body)
        lines = [
            f"POST {place.path.rstrip('/')}/ojs/v1{path} HTTP/1.1",
            f"Host: {authority(place)}",
            f"Content-Type: {_TYPE}",
            f"Content-Length: {len(text)}",
        ]
        if self._key:
            lines.append(f"Authorization: Bearer {self._key}")
        if tenant:
            lines.append(f"X-OJS-Tenant: {tenant}")
        return _Request(place, "\r\n".join((*lines, "", "")).encode() + text)


def _read(status: int, text: bytes, kind: type[T]) -> T:
    if status in _OK:
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            why = f"The server answers what no Detent server does: {error}"
            raise ServerRefused(why, why="answer") from None
    try:
        told = msgspec.json.decode(text, type=_Problem).error
    except msgspec.DecodeError:
        told = _Refusal()
    fault = ServerAway if status in _LATER else ServerRefused
    why = told.message or "without a reason"
    raise fault(f"The server answers {status}: {why}", why=told.code or str(status))
