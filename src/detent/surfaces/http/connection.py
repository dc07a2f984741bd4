"""A connection as uvicorn has it, which takes a whole reply at once and can be cut off.

Uvicorn looks at each header by itself and writes twice. Most replies are known when they begin:
they are written in one piece. Whatever is odd about a connection is left to uvicorn.
"""

from __future__ import annotations

import asyncio
import struct
from functools import cache, partial
from itertools import chain
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from detent.surfaces.http.exchange import ANSWER, Headers

__all__ = ["ABORT", "Protocol"]

ABORT: Final = "detent.abort"


class Protocol(HttpToolsProtocol):
    """Tells the application how to answer at once, and how to cut the connection off.

    Closing would wait until all is read, which is what does not happen.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There it is."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: partial(_abort, transport)}

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope["state"][ANSWER] = _Answer(cycle)
        super()._start_asgi_task(cycle, app)


class _Answer:
    """How one request is answered; it lets go of it then, as they would hold each other for ever.

    Until somebody looks for garbage, that is, which is a tenth of a small request.
    """

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle: RequestResponseCycle | None = cycle

    @property
    def is_gone(self) -> bool:
        """Whether whoever asked has gone."""
        return self._cycle is not None and self._cycle.disconnected

    def __call__(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write the whole reply, if that is possible."""
        cycle = self._cycle
        if cycle is None or cycle.response_started or cycle.disconnected:
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
        cycle.on_response()
        return True


@cache
def _line_of_each(number: int) -> bytes:
    return b"%b: %b\r\n" * number


def _abort(transport: asyncio.Transport) -> None:
    """End it now; otherwise the kernel would go on offering what is left."""
    socket = transport.get_extra_info("socket")
    if socket is not None:
        socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
