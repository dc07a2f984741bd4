"""A connection as uvicorn has it, which takes a whole reply at once and can be cut off.

Uvicorn looks at each header by itself and writes twice. Most replies are known when they begin:
they are written in one piece. Whatever is odd about a connection is left to uvicorn. All that is
known here of its insides is tried before it is relied upon (`uvicorn_fit.py`).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from functools import cache, partial
from itertools import chain
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from detent.surfaces.http.exchange import ABORT, ANSWER, ASGIApp, Headers, Scope, Settings, Take

_HEAD_BYTES_MAX: Final = 262_144
"""As much as is read at once: smaller ones are refused in the words of their surface."""
_HEAD_S: Final = 30.0
_NONE: Final[Mapping[tuple[str, bytes], Take]] = {}


class Protocol(HttpToolsProtocol):
    """Tells the application how to answer at once, and how to cut the connection off.

    Closing would wait until all is read, which is what does not happen. The head of a request must
    come soon and must not be endless: until it is whole, nobody else could refuse it.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There it is; whoever connects has something to say."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: partial(_abort, transport)}
        self._head_bytes = 0
        self._is_in_head = True
        self._patience: asyncio.TimerHandle | None = None
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._is_in_head = False
        self._wait_no_more()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Something came; a head that is not whole by then is waited for, but not for ever."""
        super().data_received(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too large.")
        elif self._patience is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        settings: Settings | None = getattr(self.app, "settings", None)
        seconds = _HEAD_S if settings is None else settings.head_s
        self._patience = self.loop.call_later(seconds, self.transport.close)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        answer = _Answer(self, cycle)
        scope, prompts = cycle.scope, getattr(app, "prompts", _NONE)
        take = prompts.get((scope["method"], scope["raw_path"]))
        if take is None or cycle.waiting_for_100_continue:
            answer.leave_to(app)
        else:
            # By the next turn of the loop most requests are whole.
            self.loop.call_soon(_begin, cycle, answer, take, app)

    def start_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Let the application answer as uvicorn would."""
        super()._start_asgi_task(cycle, app)


def _begin(cycle: RequestResponseCycle, answer: _Answer, take: Take, app: ASGIApp) -> None:
    scope = cast("Scope", cycle.scope)
    if cycle.more_body or not take(scope, bytes(cycle.body), answer):
        answer.leave_to(app)


class _Answer:
    """How one request is answered; it lets go of it then, as they would hold each other for ever.

    Until somebody looks for garbage, that is, which is a tenth of a small request.
    """

    __slots__ = ("_cycle", "_protocol")

    def __init__(self, protocol: Protocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle: RequestResponseCycle | None = cycle

    @property
    def is_gone(self) -> bool:
        """Whether whoever asked has gone."""
        return self._cycle is not None and self._cycle.disconnected

    def leave_to(self, app: Any) -> None:
        """Let this application answer, in a task of its own."""
        if self._cycle is not None:
            self._cycle.scope["state"][ANSWER] = self
            self._protocol.start_task(self._cycle, app)

    def __call__(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write the whole reply, if that is possible."""
        cycle = self._cycle
        if cycle is None or cycle.response_started:
            return False
        if cycle.transport.is_closing():
            # Of those that wait behind another on a connection nobody else says so.
            cycle.disconnected = True
        if cycle.disconnected:
            return False
        if cycle.flow.write_paused or not cycle.keep_alive:
            return False
        told = (*cycle.default_headers, *headers)
        head = _line_of_each(len(told)) % tuple(chain.from_iterable(told))
        if head.count(b"\n") != len(told) or b"\0" in head:
            return False
        self._cycle = None
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(b"".join((STATUS_LINE[status], head, b"\r\n", body)))
        cycle.message_event.set()
        over, cycle.on_response = cycle.on_response, _nothing
        over()
        return True


def _nothing() -> None:
    """What is left to do when a request is over: it would hold its connection otherwise."""


@cache
def _line_of_each(number: int) -> bytes:
    return b"%b: %b\r\n" * number


def _abort(transport: asyncio.Transport) -> None:
    """End it now; otherwise the kernel would go on offering what is left."""
    socket = transport.get_extra_info("socket")
    if socket is not None:
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
