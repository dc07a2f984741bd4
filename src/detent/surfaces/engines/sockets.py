"""Socket.IO: who connects, what they say, and how they are answered.

Every message is read into its shape, answered by one function and acknowledged with `{ok: true}`
or with `{ok: false, error}`. Nothing that somebody sends reaches further than that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import socketio
from socketio.exceptions import ConnectionRefusedError as Refused
from starlette.websockets import WebSocket

from detent.engine.access import Scope
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.faults import BAD, Fault, fault_of, misheard, of_problem
from detent.surfaces.engines.links import Peer
from detent.surfaces.engines.wire import Codec, Wire
from detent.surfaces.http.caller import Admit
from detent.surfaces.http.problems import Problem

_log = logging.getLogger(__name__)

WIRE: Final = "detent.wire"
CONNECTIONS_MAX: Final = 5_000
_ANY: Final = "*"
"""What a handler of all messages is registered under: no message is called that."""
_PING_S: Final = 10
_SILENT: Final = logging.CRITICAL + 1
Answers: TypeAlias = Mapping[
    str, tuple[type[msgspec.Struct], Callable[[Peer, Any], Awaitable[dict[str, Any]]]]
]
"""By name of message its shape, and who answers it."""


class Room(msgspec.Struct, frozen=True):
    """A namespace: what may be said there, with a key that opens one of these scopes."""

    scopes: tuple[Scope, ...]
    answers: Answers
    left: Callable[[Peer], Awaitable[None]]


class _Server(socketio.AsyncServer):  # type: ignore[misc]
    """The same, which takes anything for the name of a message."""

    async def _handle_event(self, eio_sid: str, namespace: str, number: Any, data: Any) -> None:
        if not isinstance(data[0], str) or data[0] == _ANY:
            data = ["", *data[1:]]
        await super()._handle_event(eio_sid, namespace, number, data)


class SocketServer:
    """One Socket.IO server for all namespaces."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._rooms: dict[str, Room] = {}
        self._peers: dict[tuple[str, str], Peer] = {}
        self._parting: set[asyncio.Future[None]] = set()
        # What others send is not worth a traceback; what we do wrong is logged by ourselves.
        quiet = logging.getLogger(f"{__name__}.wire")
        quiet.setLevel(_SILENT)
        self._sio = _Server(
            async_mode="asgi",
            transports=["websocket"],
            cors_allowed_origins=[],
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
            max_http_buffer_size=desk.settings.socket_bytes_max,
            json=Codec,
            logger=quiet,
            engineio_logger=quiet,
        )

    def add(self, namespace: str, room: Room) -> None:
        """Open a namespace."""

        async def connect(sid: str, environ: Any, auth: Any = None) -> None:
            await self._connect(namespace, sid, environ, auth)

        async def disconnect(sid: str, _: Any = None) -> None:
            await self._disconnect(namespace, sid)

        async def heard(event: str, sid: str, *args: Any) -> dict[str, Any]:
            return await self._heard(namespace, event, sid, args)

        self._rooms[namespace] = room
        self._sio.on("connect", connect, namespace=namespace)
        self._sio.on("disconnect", disconnect, namespace=namespace)
        self._sio.on(_ANY, heard, namespace=namespace)

    async def talk(self, socket: WebSocket, admit: Admit) -> None:
        """One connection, from its beginning to its end."""
        wire = Wire(socket, self._desk.settings, admit)
        scope = {**socket.scope, WIRE: wire}
        wire.start()
        try:
            await self._sio.handle_request(scope, wire.receive, wire.send)
        finally:
            wire.stop()

    # --- the way out ----------------------------------------------------------------------------

    async def tell(self, namespace: str, sid: str, event: str, data: Any) -> None:
        """Send one of them an event; whoever is gone hears nothing."""
        if (namespace, sid) in self._peers:
            await self._sio.emit(event, data, to=sid, namespace=namespace)

    async def part(self, namespace: str, sid: str) -> None:
        """Let go of one of them."""
        if (namespace, sid) in self._peers:
            socket = self._socket(namespace, sid)
            await self._sio.disconnect(sid, namespace=namespace)
            if socket is not None:
                # Not by the usual way, which waits until all is read: that may be never.
                await socket.close(wait=False)

    def waiting(self, namespace: str, sid: str) -> int:
        """How much of what was sent to it is not on its way yet."""
        socket = self._socket(namespace, sid)
        return 0 if socket is None else int(socket.queue.qsize())

    def _socket(self, namespace: str, sid: str) -> Any:
        eio_sid = self._sio.manager.eio_sid_from_sid(sid, namespace)
        return self._sio.eio.sockets.get(eio_sid)

    def _cut(self, wire: Wire) -> None:
        """Let go of all who speak on a connection, whose key opens nothing any more."""
        for (namespace, sid), peer in tuple(self._peers.items()):
            if peer.wire is wire:
                parting = asyncio.ensure_future(self.part(namespace, sid))
                self._parting.add(parting)
                parting.add_done_callback(self._parting.discard)

    # --- the way in -----------------------------------------------------------------------------

    async def _connect(self, namespace: str, sid: str, environ: Any, auth: Any) -> None:
        scope = environ.get("asgi.scope") if isinstance(environ, dict) else None
        wire = scope.get(WIRE) if isinstance(scope, dict) else None
        if not isinstance(wire, Wire) or (namespace, sid) in self._peers:
            # An event that is called like this, and no connection.
            return
        try:
            self._peers[namespace, sid] = await self._admitted(namespace, sid, wire, auth)
        except Exception as error:
            fault = self._fault(error, "connect")
            raise Refused({"code": fault.code, "message": fault.message}) from None
        wire.enter()

    async def _admitted(self, namespace: str, sid: str, wire: Wire, auth: Any) -> Peer:
        if self._desk.service.stopping.is_set() or len(self._peers) >= CONNECTIONS_MAX:
            raise Fault("UNAVAILABLE", "this server takes no more connections; try another")
        key = auth.get("key") or auth.get("token") if isinstance(auth, dict) else None
        caller = await wire.admit(None if key is None else str(key), partial(self._cut, wire))
        caller.need_scope(*self._rooms[namespace].scopes)
        return Peer(sid, caller, wire)

    async def _disconnect(self, namespace: str, sid: str) -> None:
        peer = self._peers.pop((namespace, sid), None)
        if peer is None:
            return
        peer.is_open = False
        peer.wire.leave()
        try:
            await self._rooms[namespace].left(peer)
        except Exception as error:
            self._fault(error, "disconnect")

    async def _heard(
        self, namespace: str, event: str, sid: str, args: tuple[Any, ...]
    ) -> dict[str, Any]:
        peer = self._peers.get((namespace, sid))
        if peer is None:
            return Fault("NOT_REGISTERED", "this connection is closed").reply
        with peer.wire:
            try:
                return {"ok": True, **await self._answered(namespace, event, peer, args)}
            except Exception as error:
                return self._fault(error, str(event)).reply

    async def _answered(
        self, namespace: str, event: str, peer: Peer, args: tuple[Any, ...]
    ) -> dict[str, Any]:
        answers = self._rooms[namespace].answers
        if event not in answers:
            known = ", ".join(answers)
            raise Fault(BAD, f"there is no such message here; there are {known}", field="event")
        shape, answer = answers[event]
        try:
            told = msgspec.convert(args[0] if args else {}, shape)
        except msgspec.ValidationError as error:
            raise misheard(error) from None
        return await answer(peer, told)

    def _fault(self, error: Exception, what: str) -> Fault:
        """What is told; what nobody foresaw is told nowhere but in the log."""
        found = of_problem(error) if isinstance(error, Problem) else fault_of(error)
        if found is None:
            _log.error("a message %s could not be answered", what[:50], exc_info=error)
            self._desk.gauges.faulted("sockets")
            found = Fault("INTERNAL", "something went wrong inside; the log has more")
        return found
