"""The ASGI application: every request gets an id, passes the gate, and is answered in the words of
the surface that its path belongs to. Any method on any path gets an answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Protocol

from starlette.websockets import WebSocket

from detent.engine.access import OPEN_TO_ALL, Principal
from detent.engine.access import Scope as AccessScope
from detent.engine.identity import Identity
from detent.engine.limits import need_numbers
from detent.surfaces.http.exchange import (
    ANSWER,
    Answering,
    Call,
    Receive,
    Reply,
    Scope,
    Send,
    Settings,
    body_of,
)
from detent.surfaces.http.gate import Gate, split_key
from detent.surfaces.http.logs import REQUEST
from detent.surfaces.http.metrics import Metrics
from detent.surfaces.http.pouring import pour
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.http.routing import Route, Routes
from detent.surfaces.http.service import Service

__all__ = ["Surface", "WebApp"]

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")
_SECURE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_BODILESS = frozenset({204, 304})


class Surface(Protocol):
    """One protocol: its routes, and how it tells problems."""

    @property
    def prefixes(self) -> Sequence[str]:
        """What its paths begin with; the longest that fits decides."""
        ...

    @property
    def routes(self) -> Sequence[Route]:
        """Its operations."""
        ...

    @property
    def admits_sockets(self) -> bool:
        """Whether it asks those who come by a WebSocket for their key itself."""
        ...

    def problem(self, problem: Problem, call: Call) -> Reply:
        """The problem in its own words."""
        ...

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:
        """The headers that every reply of it has."""
        ...

    async def socket(self, socket: WebSocket, who: Principal) -> None:
        """Talk over a WebSocket; whoever does not closes it."""
        ...


class _Requests:
    """Names requests that bring no name: each is one more of this process."""

    def __init__(self) -> None:
        self._process = Identity(lambda: time.time_ns() // 1_000).id()
        self._count = count(1)

    def name(self, offered: bytes | None) -> str:
        """What the request is called."""
        told = "" if offered is None else offered.decode("latin-1")
        return told if _REQUEST_ID.fullmatch(told) else f"req_{self._process}-{next(self._count)}"


class WebApp:
    """Surfaces on one engine, as one ASGI application."""

    def __init__(self, service: Service, surfaces: Sequence[Surface], settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self.metrics = Metrics()
        self._gate = Gate(settings)
        self._surfaces = sorted(
            ((prefix, one) for one in surfaces for prefix in one.prefixes),
            key=lambda found: -len(found[0]),
        )
        own = Route("GET", "/metrics", self._metrics, AccessScope.READ, "Counters for Prometheus.")
        self.routes: Sequence[Route] = [
            own,
            *(route for one in surfaces for route in one.routes),
        ]
        self._routes = Routes(self.routes)
        self._owners = {id(route): one for one in surfaces for route in one.routes}
        self._requests = _Requests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, a WebSocket, or the beginning and end of everything."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.service.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _metrics(self, call: Call) -> Reply:
        """Counters for Prometheus; strict readers want the type without parameters."""
        if not call.who.is_boundless:
            raise Problem(403, "forbidden", "counters are about all tenants and queues")
        return Reply(200, await self.metrics.text(self.service.engine), "text/plain")

    # --- HTTP -----------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path, key = split_key(_path_of(scope))
        call = Call(scope, path, "")
        call.request_id = self._requests.name(call.headers.get(b"x-request-id"))
        REQUEST.set(call.request_id)
        method = "GET" if call.method == "HEAD" else call.method
        route, call.params = self._routes.find(method, path)
        surface = self._owners.get(id(route)) or self._surface(path)
        try:
            reply = await self._answered(route, call, key, scope, receive)
        except Exception as error:
            reply = surface.problem(problem_of(error, call.request_id), call)
        headers = [*surface.dressed(reply, call), (b"x-request-id", call.request_id.encode())]
        headers += _encoded(call.allowance)
        is_head = call.method == "HEAD"
        if is_head or not _is_answered(scope, reply, headers):
            await _send(send, reply, headers, is_head=is_head)
        if reply.stream is not None and not is_head:
            await pour(scope, receive, send, reply.stream, self.settings.stall_s)
        name = None if route is None else route.path
        self.metrics.saw(call.method, name, reply.status, time.perf_counter() - began)

    async def _answered(
        self, route: Route | None, call: Call, key: str | None, scope: Scope, receive: Receive
    ) -> Reply:
        self._check_head(scope, call)
        if route is None:
            raise self._missing(call)
        if route.scope is not None:
            gate, access = self._gate, self.service.engine.access
            call.who = gate.known(access, call, key) or await gate.admit(access, call, key)
            gate.need(call.who, route.scope)
            call.allowance = self._gate.throttle(call.who, (scope.get("client") or ("",))[0])
        length = call.headers.get(b"content-length")
        if length != b"0" and (length or b"transfer-encoding" in call.headers):
            call.body = await body_of(receive, self.settings, length)
            need_numbers("body", call.body.decode("latin-1"))
        call.receive = receive
        return await route.handler(call)

    def _check_head(self, scope: Scope, call: Call) -> None:
        size = sum(map(len, chain.from_iterable(scope["headers"])))
        if size + len(call.path) + len(call.query_string) > self.settings.header_bytes_max:
            raise Problem(431, "headers_too_large", "the head of the request is too large")
        self._gate.check_place(call)

    def _missing(self, call: Call) -> Problem:
        methods = self._routes.methods(call.path)
        if not methods:
            return Problem(404, "not_found", f"there is nothing at {call.path[:200]}")
        allowed = ", ".join(methods)
        found = Problem(405, "method_not_allowed", f"{call.path[:200]} takes {allowed}")
        return found.with_headers(("allow", allowed))

    def _surface(self, path: str) -> Surface:
        for prefix, one in self._surfaces:
            if path.startswith(prefix):
                return one
        return self._surfaces[-1][1]

    # --- WebSockets -----------------------------------------------------------------------------

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, key = split_key(scope["path"])
        call = Call({**scope, "method": "WEBSOCKET"}, path, "")
        socket = WebSocket({**scope, "path": path}, receive, send)
        try:
            self._check_head(scope, call)
            surface, who = self._surface(path), OPEN_TO_ALL
            if not surface.admits_sockets:
                who = await self._gate.admit(self.service.engine.access, call, key)
            await surface.socket(socket, who)
        except Problem as problem:
            await socket.close(code=1008, reason=problem.message)


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def _path_of(scope: Scope) -> str:
    """The path as it was sent: what stands for something is decoded when it is asked for."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")


def _is_answered(scope: Scope, reply: Reply, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether the reply was written at once: a server of ours can do that with most of them."""
    answer: Answering | None = scope.get("state", {}).get(ANSWER)
    if answer is None or reply.stream is not None or reply.status in _BODILESS:
        return False
    length = (b"content-length", b"%d" % len(reply.body))
    told = (*headers, *_SECURE, *_encoded(reply.headers), length)
    return answer(reply.status, told, reply.body)


async def _send(
    send: Send, reply: Reply, headers: Sequence[tuple[bytes, bytes]], *, is_head: bool
) -> None:
    """The reply; of a stream its head, unless nobody wants more."""
    told = [*headers, *_SECURE]
    told += _encoded(reply.headers)
    if reply.stream is None:
        if reply.status not in _BODILESS:
            told.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": told})
        await send({"type": "http.response.body", "body": b"" if is_head else reply.body})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": told})
    if is_head:
        await send({"type": "http.response.body", "body": b""})
