"""The ASGI application: every request gets an id, passes the gate, and is answered in the words of
the surface that its path belongs to. Any method on any path gets an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Protocol

from starlette.websockets import WebSocket

from detent.engine.access import Scope as AccessScope
from detent.surfaces.http.caller import Admit, Caller, CallerRules, Reach
from detent.surfaces.http.exchange import (
    ANSWER,
    Answering,
    Call,
    Receive,
    Reply,
    Scope,
    Send,
    Settings,
    Take,
    body_of,
    check_body,
)
from detent.surfaces.http.gate import Gate, KeyWatch, split_key
from detent.surfaces.http.logs import REQUEST
from detent.surfaces.http.metrics import Metrics
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.http.routing import Route, Routes
from detent.surfaces.http.service import Service
from detent.surfaces.http.streaming import pour
from detent.surfaces.http.turn import BODILESS, Requests, Turn, headers_of, send_reply

_PROMPT_BYTES_MAX = 65_536
"""Longer bodies are not read twice for being odd."""


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
    def caller_rules(self) -> CallerRules:
        """What it adds to its callers."""
        ...

    def problem(self, problem: Problem, call: Call) -> Reply:
        """The problem in its own words."""
        ...

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:
        """The headers that every reply of it has."""
        ...

    async def socket(self, socket: WebSocket, admit: Admit) -> None:
        """Talk over a WebSocket; whoever does not closes it."""
        ...


class WebApp:
    """Surfaces on one engine, as one ASGI application."""

    def __init__(
        self, service: Service, surfaces: Sequence[Surface], settings: Settings, front: str = ""
    ) -> None:
        self.service = service
        self._front = front
        self.settings = settings
        self.metrics = Metrics()
        self._gate = Gate(settings)
        self._keys = KeyWatch(self._gate, service)
        self._surfaces = sorted(
            ((prefix, one) for one in surfaces for prefix in one.prefixes),
            key=lambda found: -len(found[0]),
        )
        counters = "Counters for Prometheus."
        self.routes: Sequence[Route] = [
            Route("GET", "/", self._door, None, Reach.OPEN, "What is served here."),
            Route("GET", "/metrics", self._metrics, AccessScope.READ, Reach.STORE, counters),
            *(route for one in surfaces for route in one.routes),
        ]
        self._routes = Routes(self.routes)
        self._owners = {id(route): one for one in surfaces for route in one.routes}
        self._requests = Requests()
        self._prompt_bytes_max = min(settings.body_bytes_max, _PROMPT_BYTES_MAX)
        self.prompts: Mapping[tuple[str, bytes], Take] = {
            (route.method, route.path.encode()): partial(self._take, route)
            for route in self.routes
            if route.prompt is not None
        }

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
        self.service.keep("keys", self._keys.run)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.service.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _door(self, call: Call) -> Reply:  # noqa: ARG002 - everybody is told the same
        """What is served here, for whoever opens the address that was printed."""
        return Reply(200, self._front.encode(), "text/plain; charset=utf-8")

    async def _metrics(self, call: Call) -> Reply:  # noqa: ARG002 - they are about everybody
        """Counters for Prometheus; strict readers want the type without parameters."""
        return Reply(200, await self.metrics.text(self.service.engine), "text/plain")

    # --- HTTP -----------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        path, key = split_key(_path_of(scope))
        call = Call(scope, path, "")
        call.key = key
        call.request_id = self._requests.name(call.headers.get(b"x-request-id"))
        REQUEST.set(call.request_id)
        method = "GET" if call.method == "HEAD" else call.method
        route, call.params = self._routes.find(method, path)
        turn = Turn(route, call, scope.get("state", {}).get(ANSWER), began)
        try:
            found: Reply | Exception = await self._answered(route, call, scope, receive)
        except Exception as error:
            found = error
        await self._tell(turn, found, (scope, receive, send))

    async def _tell(
        self, turn: Turn, found: Reply | Exception, wire: tuple[Scope, Receive, Send]
    ) -> None:
        scope, receive, send = wire
        call, surface = turn.call, self._owner(turn)
        if isinstance(found, Exception):
            found = surface.problem(problem_of(found, call.request_id), call)
        if self._is_told(turn, found):
            return
        is_head = call.method == "HEAD"
        await send_reply(
            send, found, headers_of(found, call, surface.dressed(found, call)), is_head=is_head
        )
        if found.stream is not None and not is_head:
            receive = partial(self._keys.receive, self._gate.key_of(call), receive)
            await pour(scope, receive, send, found.stream, self.settings.stall_s)
        self._saw(turn, found)

    def _is_told(self, turn: Turn, reply: Reply) -> bool:
        """Whether the reply was written at once: a server of ours can do that with most of them."""
        call, answer = turn.call, turn.answer
        if answer is None or reply.stream is not None or reply.status in BODILESS:
            return False
        headers = headers_of(reply, call, self._owner(turn).dressed(reply, call))
        headers.append((b"content-length", b"%d" % len(reply.body)))
        if call.method == "HEAD" or not answer(reply.status, headers, reply.body):
            return False
        self._saw(turn, reply)
        return True

    def _saw(self, turn: Turn, reply: Reply) -> None:
        name = None if turn.route is None else turn.route.path
        self.metrics.saw(turn.call.method, name, reply.status, time.perf_counter() - turn.began)

    def _owner(self, turn: Turn) -> Surface:
        return self._owners.get(id(turn.route)) or self._surface(turn.call.path)

    async def _answered(
        self, route: Route | None, call: Call, scope: Scope, receive: Receive
    ) -> Reply:
        self._check_head(scope, call)
        if route is None:
            raise self._missing(call)
        if route.scope is not None:
            gate, access, key = self._gate, self.service.engine.access, self._gate.key_of(call)
            principal = gate.known(access, key) or await gate.admit(access, key)
            call.caller = gate.caller(principal, call, route, self._caller_rules(route))
            call.receive = partial(self._keys.receive, key, receive)
            call.allowance = gate.throttle(principal, (scope.get("client") or ("",))[0])
        length = call.headers.get(b"content-length")
        has_body = length != b"0" and (length or b"transfer-encoding" in call.headers)
        # What is sent with a GET is never read: the connection drops it.
        if has_body and route.method != "GET":
            call.body = await body_of(receive, self.settings, length)
            check_body(call.body)
        return await route.handler(call)

    def _caller_rules(self, route: Route) -> CallerRules:
        owner = self._owners.get(id(route))
        return CallerRules() if owner is None else owner.caller_rules

    def _take(self, route: Route, scope: Scope, body: bytes, answer: Answering) -> bool:
        """Answer without a task, if nothing about the request is odd.

        What is wrong with it is said on the long way, so nothing may have happened by then.
        """
        if route.prompt is None or len(body) > self._prompt_bytes_max:
            return False
        call = Call(scope, route.path, "")
        call.body = body
        turn = Turn(route, call, answer, time.perf_counter())
        try:
            is_let_in = self._is_let_in(route, scope, call)
            return is_let_in and route.prompt(call, partial(self._hear, turn, answer))
        except Exception:
            return False

    def _is_let_in(self, route: Route, scope: Scope, call: Call) -> bool:
        """Whether whoever calls may do so, as far as that can be said without asking anybody."""
        self._check_head(scope, call)
        principal = self._gate.known(self.service.engine.access, self._gate.key_of(call))
        if principal is None or route.scope is None or self.settings.rate is not None:
            return False
        call.caller = self._gate.caller(principal, call, route, self._caller_rules(route))
        check_body(call.body)
        call.request_id = self._requests.name(call.headers.get(b"x-request-id"))
        return True

    def _hear(self, turn: Turn, answer: Answering, found: Reply | Exception) -> None:
        if isinstance(found, Exception) or not self._is_told(turn, found):
            # There is a problem, or the other end reads slowly or has gone: others do not wait.
            answer.leave_to(partial(self._tell_late, turn, found))

    async def _tell_late(
        self, turn: Turn, found: Reply | Exception, scope: Scope, receive: Receive, send: Send
    ) -> None:
        REQUEST.set(turn.call.request_id)
        await self._tell(turn, found, (scope, receive, send))

    def _check_head(self, scope: Scope, call: Call) -> None:
        size = sum(map(len, chain.from_iterable(scope["headers"])))
        if size + len(call.path) + len(call.query_string) > self.settings.header_bytes_max:
            raise Problem(431, "headers_too_large", "the head of the request is too large")
        self._gate.check_place(call)

    def _missing(self, call: Call) -> Problem:
        methods = self._routes.methods(call.path)
        if not methods:
            why = f"there is nothing at {call.path[:200]}"
            return Problem(404, "not_found", why, hint="GET / tells what is served here")
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
        call.key = key
        socket = WebSocket({**scope, "path": path}, receive, send)
        watched: dict[str | None, Callable[[], None]] = {}

        async def admit(offered: str | None, cut: Callable[[], None]) -> Caller:
            key = offered or self._gate.key_of(call)
            principal = await self._gate.admit(self.service.engine.access, key)
            if key not in watched:
                watched[key] = cut
                self._keys.watch(key, cut)
            return self._gate.caller_in(principal, call, surface.caller_rules)

        try:
            self._check_head(scope, call)
            surface = self._surface(path)
            await surface.socket(socket, admit)
        except Problem as problem:
            await socket.close(code=1008, reason=problem.message)
        finally:
            for key, cut in watched.items():
                self._keys.forget(key, cut)


def _path_of(scope: Scope) -> str:
    """The path as it was sent: what stands for something is decoded when it is asked for."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw.partition(b"?")[0].decode("latin-1")
