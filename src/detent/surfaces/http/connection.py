"""A connection as uvicorn has it, which takes a whole reply at once and can be cut off.

Uvicorn looks at each header by itself and writes twice. Most replies are known when they begin:
they are written in one piece. Whatever is odd about a connection is left to uvicorn. All that is
known here of its insides is tried before it is relied upon (`fitting.py`).
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

from detent.surfaces.http.exchange import ABORT, ANSWER, ASGIApp, Headers, Scope, Take

__all__ = ["Protocol"]

_NONE: Final[Mapping[tuple[str, bytes], Take]] = {}


class Protocol(HttpToolsProtocol):
    """Tells the application how to answer at once, and how to cut the connection off.

    Closing would wait until all is read, which is what does not happen.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There it is."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: partial(_abort, transport)}

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
