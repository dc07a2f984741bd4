"""A connection as uvicorn has it, which takes a whole reply at once and can be cut off.

Uvicorn looks at each header by itself and writes twice. Most replies are known when they begin:
they are written in one piece. Whatever is odd about a connection is left to uvicorn. All that is
known here of its insides is tried before it is relied upon (`uvicorn_fit.py`).

Uvicorn parses all that it has read into requests and reads on whenever one is answered, so a client
that pipelines and never reads would fill the memory. Here what was read is parsed in small pieces,
until `MAX_WAITING_REQUESTS` wait; the socket is not read while any of it is left.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections.abc import Mapping
from functools import cache, partial
from itertools import chain
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final, cast

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping, Request

from detent.surfaces.http.exchange import (
    ABORT,
    ADMITTED,
    ANSWER,
    ASGIApp,
    Headers,
    Scope,
    Settings,
    Take,
)

# Pipelined requests of one connection that wait behind the one that is being answered.
MAX_WAITING_REQUESTS: Final = 16
# How much of them is parsed at most. A parsed head takes many times its size on the wire.
_MAX_WAITING_BYTES: Final = 65_536
# So much is parsed at a time. Not more than some sixty of the smallest requests fit into it.
_PIECE_BYTES: Final = 1_024
# Larger heads end the connection; smaller ones are refused in the words of their surface.
_MAX_HEAD_BYTES: Final = 65_536
_HEAD_S: Final = 30.0
# How long the rest of a body may take after the request was answered without it.
_MAX_BODY_REST_S: Final = 5.0
_EMPTY: Final = memoryview(b"")
# Larger messages of a WebSocket end it, until whoever talks has shown a key.
_MAX_KEYLESS_MESSAGE_BYTES: Final = 16_384
# Uvicorn logs the path and the query of every WebSocket at INFO. There may be a key in them.
_socket_log = logging.getLogger("uvicorn.error.websocket")
_socket_log.setLevel(logging.WARNING)
_NONE: Final[Mapping[tuple[str, bytes], Take]] = {}


class _Flow(FlowControl):
    """Flow control that leaves the socket unread while `is_held`, whoever asks to resume.

    Uvloop raises when a connection that is closed is to be read or not.
    """

    is_held = False

    def pause_reading(self) -> None:
        """Leave what the client sends in its own buffers."""
        if not self._transport.is_closing():
            super().pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless there is still something to parse."""
        if not self.is_held and not self._transport.is_closing():
            super().resume_reading()


class Protocol(HttpToolsProtocol):
    """Tells the application how to answer at once, and how to cut the connection off.

    Closing would wait until all is read, which is what does not happen. The head of a request must
    come soon and must not be endless: until it is whole, nobody else could refuse it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ws_protocol_class = SocketProtocol

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """There it is; whoever connects has something to say."""
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self._unparsed = _EMPTY
        self._waiting_bytes = 0
        self._answered: RequestResponseCycle | None = None
        self.app_state = {**self.app_state, ABORT: partial(_abort, transport)}
        self._head_bytes = self._body_bytes = 0
        self._is_in_head = True
        self._patience: asyncio.TimerHandle | None = None
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._wait_no_more()
        if self._answered is not None and not self._answered.response_complete:
            # Uvicorn tells only the last request that it has parsed.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)
        # They refer to this connection: the memory would stay until garbage is collected.
        self.pipeline.clear()
        self._unparsed = _EMPTY

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Its head is whole."""
        self._is_in_head, self._body_bytes = False, 0
        self._wait_no_more()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of its body came."""
        self._body_bytes += len(body)
        super().on_body(body)

    def data_received(self, data: bytes) -> None:
        """Parse what was read, as far as there is room for the requests in it."""
        if len(data) <= _PIECE_BYTES and not self._unparsed and not self.pipeline:
            self._parse(data)
        else:
            self._unparsed = memoryview(bytes(self._unparsed) + data)
            self._parse_pieces()

    def on_message_complete(self) -> None:
        """A request is whole; if it was answered before, the connection may rest now."""
        super().on_message_complete()
        if self._patience is not None:
            self._wait_no_more()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        """Start the next request, and parse on: there is room for one more.

        What is left of the body of the answered request is dropped as it comes, for a while.
        """
        if self.cycle.response_complete and self.cycle.more_body and self._patience is None:
            self._wait_for_client(_MAX_BODY_REST_S)
        super().on_response_complete()
        if self._unparsed:
            self._parse_pieces()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over; what the client sent before it was let in is dropped."""
        self._unparsed = _EMPTY
        super().handle_websocket_upgrade()

    def _unsupported_upgrade_warning(self) -> None:
        self._unparsed = _EMPTY
        super()._unsupported_upgrade_warning()

    def _parse_pieces(self) -> None:
        while self._unparsed and self._has_room() and not self.transport.is_closing():
            size = max(_PIECE_BYTES, self._known_body_bytes())
            piece, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            self._parse(bytes(piece))
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            self._unparsed = _EMPTY
            return
        self._flow.is_held = bool(self._unparsed)
        if self._flow.is_held:
            self._flow.pause_reading()
        else:
            self._flow.resume_reading()

    def _known_body_bytes(self) -> int:
        """How many bytes come that are no request: the rest of a body of known length."""
        if self._is_in_head or self._answered is None or not self.cycle.more_body:
            return 0
        headers = dict(self.cycle.scope["headers"])
        return int(headers.get(b"content-length", b"0")) - self._body_bytes

    def _has_room(self) -> bool:
        if not self.pipeline:
            self._waiting_bytes = 0
        is_full = len(self.pipeline) >= MAX_WAITING_REQUESTS
        return not is_full and self._waiting_bytes < _MAX_WAITING_BYTES

    def _parse(self, data: bytes) -> None:
        """Parse it; a head that is not whole by then is waited for, but not for ever."""
        super().data_received(data)
        if self.pipeline:
            self._waiting_bytes += len(data)
        if not self._is_in_head or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > _MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")
        elif self._patience is None and not self._unparsed:
            self._wait_for_client()

    def _wait_for_client(self, most_s: float = math.inf) -> None:
        """Close the connection if the rest of a head or body does not come in time."""
        settings: Settings | None = getattr(self.app, "settings", None)
        seconds = _HEAD_S if settings is None else settings.head_s
        self._patience = self.loop.call_later(min(seconds, most_s), self.transport.close)

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
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


class SocketProtocol(WSProtocol):
    """A WebSocket that is read no faster than the application takes its messages.

    Uvicorn parses all that it has read and answers every ping. Here small pieces are parsed while
    no message waits, and pings are answered only while the client reads. Before the application
    says through `ADMITTED` that it has seen a key, messages must be small.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = _socket_log
        self._unparsed = _EMPTY
        self._has_begun = False
        # How long the other end may take to close after we have said that we do.
        self.close_timeout = 1.0
        self.buffer.max_length = min(self.buffer.max_length, _MAX_KEYLESS_MESSAGE_BYTES)
        self.app_state = {**self.app_state, ADMITTED: self._admit}

    def _admit(self) -> None:
        self.buffer.max_length = self.config.ws_max_size

    def data_received(self, data: bytes) -> None:
        """Parse what was read, as far as nothing waits for the application."""
        if self._has_begun:
            self._unparsed = memoryview(bytes(self._unparsed) + data)
        else:
            # The head, which was whole before the connection became a WebSocket.
            super().data_received(data)
        self._parse_pieces()

    def handle_connect(self, event: Request) -> None:
        """Start the application, and read nothing until it lets the client in."""
        self._has_begun = True
        super().handle_connect(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop what was not parsed."""
        self._unparsed = _EMPTY
        super().connection_lost(exc)

    def handle_ping(self, event: Ping) -> None:
        """Answer it, unless the client does not read its answers."""
        if self.writable.is_set():
            super().handle_ping(event)

    async def send(self, message: Any) -> None:
        """Send something; what waited for the socket to be accepted or closed is parsed then."""
        await super().send(message)
        if message["type"] != "websocket.send":
            self._parse_pieces()

    async def receive(self) -> Any:
        """Return the next message, and parse on when no other waits."""
        message = await self.queue.get()
        if self.queue.empty():
            self._parse_pieces()
        return message

    def _parse_pieces(self) -> None:
        while self._unparsed and self._is_reading():
            piece, self._unparsed = self._unparsed[:_PIECE_BYTES], self._unparsed[_PIECE_BYTES:]
            super().data_received(bytes(piece))
        if self.transport.is_closing():
            self._unparsed = _EMPTY
            return
        self.read_paused = not self._is_reading()
        if self.read_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _is_reading(self) -> bool:
        if self.transport.is_closing() or not self.handshake_complete:
            return False
        return self.close_sent or self.queue.empty()


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
