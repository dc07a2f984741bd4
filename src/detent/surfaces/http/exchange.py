"""A request as handlers see it, and the reply that they make of it."""

from __future__ import annotations

import asyncio
import hashlib
import types
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    MutableMapping,
    Sequence,
)
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from detent.engine.limits import need_numbers
from detent.surfaces.http.caller import Caller
from detent.surfaces.http.problems import Problem

ABORT: Final = "detent.abort"
"""Where a connection of ours puts the way to cut it off."""
# Where a WebSocket of ours puts what to call when its client has shown a key.
ADMITTED: Final = "detent.admitted"
ANSWER: Final = "detent.answer"
"""Where a connection of ours puts the way to answer at once."""
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Answering(Protocol):
    """How a connection of ours is answered."""

    @property
    def is_gone(self) -> bool:
        """Whether its other end has gone."""
        ...

    def __call__(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write a whole reply; if it cannot, it says so: it is to be sent piece by piece."""
        ...

    def leave_to(self, app: ASGIApp) -> None:
        """Let this application answer, in a task of its own."""
        ...


Take: TypeAlias = Callable[[Scope, bytes, Answering], bool]
"""Answers a whole request sooner or later, without a task; if it cannot, nothing has happened."""


@lru_cache(1_000)
def _wire_name(name: str) -> bytes:
    return name.lower().encode("latin-1")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What whoever starts a server may choose. Times are seconds."""

    body_bytes_max: int = 10 * 1024 * 1024
    body_s: float = 30.0
    head_s: float = 30.0
    header_bytes_max: int = 32 * 1024
    poll_s_max: float = 30.0
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    rate: int | None = None
    streams_max: int = 100
    readers_max: int = 5_000
    stall_s: float = 30.0
    beat_s: float = 15.0
    keep_s: float = 60.0
    test_mode: bool = False
    jobnik_lease_s: float = 1_800.0
    jobnik_leases_s: Mapping[str, float] = {}
    socket_bytes_max: int = 2 * 1024 * 1024
    legacy_events: bool = False
    engine_deadlines_ms: Mapping[str, tuple[int, int, int]] = {}
    jobnik_pages: bool = False


class Reply(msgspec.Struct, frozen=True, gc=False):
    """What goes back: a body, or a stream of pieces that goes on until it ends."""

    status: int = 200
    body: bytes = b""
    type: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncIterator[bytes] | None = None


class Call:
    """One request on its way. What it brings is read when it is asked for."""

    __slots__ = (
        "allowance",
        "body",
        "caller",
        "headers",
        "key",
        "method",
        "params",
        "path",
        "query_string",
        "receive",
        "request_id",
        "state",
    )

    caller: Caller
    """Who calls; only the handlers of open routes do without."""

    def __init__(self, scope: Scope, path: str, request_id: str) -> None:
        self.method: str = scope["method"]
        self.path = path
        self.query_string: bytes = scope.get("query_string", b"")
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.request_id = request_id
        self.params: Mapping[str, str] = {}
        self.body = b""
        self.receive: Receive | None = None
        """Tells, once the body is read, when the client has left or its key was revoked."""
        self.state: Mapping[str, Any] = scope.get("state") or {}
        self.key: str | None = None
        """The API key in front of the path, if there is one."""
        self.allowance: tuple[tuple[str, str], ...] = ()
        """The headers that tell how often whoever calls may do so."""

    def header(self, name: str) -> str | None:
        """The value of a header; of several the last."""
        found = self.headers.get(_wire_name(name))
        return None if found is None else found.decode("latin-1")

    @property
    def media_type(self) -> str:
        """The Content-Type of the body without its parameters, in lower case."""
        return (self.header("content-type") or "").split(";")[0].strip().lower()

    @property
    def has_left(self) -> bool:
        """Whether whoever calls has gone, so that no answer reaches them; if anybody can tell."""
        answering: Answering | None = self.state.get(ANSWER)
        return answering is not None and answering.is_gone

    @property
    def query(self) -> dict[str, str]:
        """The question behind the path; of a name that comes twice the last counts."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    def param(self, name: str) -> str:
        """A part of the path that stands for something."""
        return unquote(self.params[name])


async def body_of(receive: Receive, settings: Settings, length: bytes | None) -> bytes:
    """All of the body, if it comes in time and is not too long."""
    if length is not None and length.isdigit() and int(length) > settings.body_bytes_max:
        raise _too_large(settings)
    reading = _read(receive, settings)
    try:
        waits = reading.send(None)
    except StopIteration as done:
        # Mostly all of it is there already, and nobody needs to look at the clock.
        found: bytes = done.value
        return found
    try:
        async with asyncio.timeout(settings.body_s):
            return await _rest(reading, waits)
    except TimeoutError:
        why = f"the body did not come within {settings.body_s:g} s"
        raise Problem(408, "request_timeout", why, retryable=True) from None


@types.coroutine
def _rest(reading: Coroutine[Any, None, bytes], waits: Any) -> Generator[Any, None, bytes]:
    """Go on with what waits for this."""
    while True:
        error: BaseException | None = None
        try:
            yield waits
        except BaseException as thrown:
            error = thrown
        try:
            waits = reading.send(None) if error is None else reading.throw(error)
        except StopIteration as done:
            found: bytes = done.value
            return found


async def _read(receive: Receive, settings: Settings) -> bytes:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > settings.body_bytes_max:
            raise _too_large(settings)
        return body
    pieces, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "invalid_request", "the client went away in the middle of its body")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > settings.body_bytes_max:
            raise _too_large(settings)
    return b"".join(pieces)


def check_body(body: bytes) -> None:
    """Refuse a body that is not UTF-8, or that has a number which others would read as infinite.

    JSON is UTF-8, but msgspec looks into a string only when the string itself is asked for.
    """
    try:
        _ = body.isascii() or body.decode()
    except UnicodeDecodeError as error:
        why = f"the body is not UTF-8: see byte {error.start}"
        raise Problem(400, "invalid_request", why) from None
    need_numbers("body", body)


async def left(receive: Receive) -> None:
    """Until whoever is at the other end has gone; nothing else comes from there now."""
    message: Mapping[str, object] = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


async def gone(call: Call) -> None:
    """Wait until the client of a request that is answered later has left, or its key is revoked.

    Where nobody can tell, that is never.
    """
    await (asyncio.Event().wait() if call.receive is None else left(call.receive))


def _too_large(settings: Settings) -> Problem:
    most = settings.body_bytes_max
    return Problem(
        413, "envelope_too_large", f"a request body has at most {most} bytes", limit=most
    )


def digest_of(text: str) -> str:
    """What the history keeps of a result."""
    return hashlib.sha256(text.encode()).hexdigest()
