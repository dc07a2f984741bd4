"""The surface as a whole: its routes, its namespaces, its loops, and how it tells problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any, Final, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from starlette.websockets import WebSocket

from detent.engine.access import Scope
from detent.errors import StoreError
from detent.surfaces.engines import messages as m
from detent.surfaces.engines.desk import ENGINE, EVENTS, Desk
from detent.surfaces.engines.dispatching import Dispatching
from detent.surfaces.engines.failing import Failing
from detent.surfaces.engines.faults import BAD, CODES, Fault, problem_reply
from detent.surfaces.engines.following import Following
from detent.surfaces.engines.kinds import Declared, Kinds
from detent.surfaces.engines.links import Link, Links, Peer
from detent.surfaces.engines.registering import Registering
from detent.surfaces.engines.reporting import Reporting
from detent.surfaces.engines.schemas import SCHEMAS
from detent.surfaces.engines.sockets import Answers, Room, SocketServer
from detent.surfaces.engines.submitting import Submitting
from detent.surfaces.engines.subscribers import Subscribers
from detent.surfaces.http.caller import Admit, CallerRules, Reach
from detent.surfaces.http.exchange import Call, Reply, Settings
from detent.surfaces.http.openapi import document
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Handler, Route
from detent.surfaces.http.service import Service

_JSON: Final = b"application/json"
T = TypeVar("T", bound=msgspec.Struct)


class EnginesSurface:
    """`/engine` and the namespaces `/engine` and `/events` on one engine."""

    prefixes: Sequence[str] = ("/engine", "/socket.io")

    def __init__(
        self, service: Service, settings: Settings, declared: Declared | None = None
    ) -> None:
        self.desk = Desk(service, settings)
        self.caller_rules = self.desk.caller_rules = CallerRules("engines")
        self.links = Links()
        self.subscribers = Subscribers(self.desk)
        self.following = Following(self.desk, self.links, self.subscribers)
        self.registering = Registering(self.desk, self.links)
        self.dispatching = Dispatching(self.desk, self.links)
        self.reporting = Reporting(self.desk, self.links, self.subscribers)
        self.kinds = Kinds(self.desk, declared)
        self.submitting = Submitting(self.desk, self.kinds)
        self.failing = Failing(self.desk)
        self.sockets = self.desk.sockets = SocketServer(self.desk)
        engine = Room((Scope.WORK, Scope.PRODUCE), self._engine_answers(), self.registering.leave)
        self.sockets.add(ENGINE, engine)
        events = Room((Scope.READ,), self._event_answers(), self.subscribers.leave)
        self.sockets.add(EVENTS, events)
        told = self.subscribers.counted
        self.desk.gauges.watch(
            lambda: len(self.links), lambda: told(old=True), lambda: told(old=False)
        )
        self.routes: Sequence[Route] = list(self._routes())

    @property
    def registry(self) -> CollectorRegistry:
        """What is counted here."""
        return self.desk.gauges.registry

    def opened(self) -> None:
        """Begin with all that goes on by itself; the engine is there now."""
        self.failing.opened()
        service = self.desk.service
        loops = {
            "dispatch": self.dispatching.run,
            "heartbeats": self.registering.run,
            "feed": self.following.run,
            "failures": self.failing.run,
        }
        for name, work in loops.items():
            service.keep(name, self._watched(name, work))
        service.before_stop(self.dispatching.drain)

    def _watched(
        self, name: str, work: Callable[[], Awaitable[None]]
    ) -> Callable[[], Awaitable[None]]:
        async def watched() -> None:
            try:
                await work()
            except StoreError:
                raise
            except Exception:
                self.desk.gauges.faulted(name)
                raise

        return watched

    # --- HTTP -----------------------------------------------------------------------------------

    def problem(self, problem: Problem, call: Call) -> Reply:  # noqa: ARG002 - others need the call
        """An error of the table."""
        return problem_reply(problem)

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:  # noqa: ARG002
        """JSON."""
        yield b"content-type", _JSON if reply.type is None else reply.type.encode()

    async def socket(self, socket: WebSocket, admit: Admit) -> None:
        """Socket.IO; each namespace may bring a key of its own."""
        await self.sockets.talk(socket, admit)

    def _routes(self) -> Iterable[Route]:
        submitting, kinds = self.submitting, self.kinds
        queue, tenant = Reach.QUEUE, Reach.TENANT
        post = {"takes": "Submit", "gives": "Job", "needs_body": True}
        yield self._route(
            "POST", "/jobs", submitting.post, Scope.PRODUCE, queue, statuses=(202,), **post
        )
        at = {"at": {"type": "integer", "minimum": 0}}
        yield self._route(
            "GET", "/jobs/{id}", submitting.get, Scope.READ, queue, gives="Job", query=at
        )
        yield self._route("GET", "/types", kinds.listed, Scope.READ, tenant, gives="JobTypes")
        put = {"takes": "Schema", "needs_body": True}
        yield self._route("PUT", "/types/{jobType}", kinds.put, Scope.OPERATE, tenant, **put)
        yield Route("GET", "/engine/openapi.json", self.openapi, None, Reach.OPEN, "This document.")
        yield Route(
            "GET", "/socket.io/", self.polling, None, Reach.OPEN, "There is no long polling."
        )

    def _route(
        self, method: str, path: str, handler: Handler, scope: Scope, reach: Reach, **more: Any
    ) -> Route:
        async def faulted(call: Call) -> Reply:
            try:
                if more.get("needs_body"):
                    _need_json(call)
                if method == "POST":
                    await self._awake()
                return await handler(call)
            except Fault as fault:
                raise Problem(CODES[fault.code], fault.code, fault.message, **fault.facts) from None

        says = (handler.__doc__ or "").strip().split("\n")[0]
        return Route(method, f"/engine{path}", faulted, scope, reach, says, **more)

    async def openapi(self, _: Call) -> Reply:
        """What may be asked here."""
        routes = [route for route in self.routes if route.path.startswith("/engine/")]
        told = document(routes, SCHEMAS, _JSON.decode(), version("detent"))
        return Reply(200, msgspec.json.encode(told))

    async def polling(self, _: Call) -> Reply:
        """There is no long polling."""
        why = "connect with the WebSocket transport alone: transports: ['websocket']"
        raise Problem(400, "BAD_MESSAGE", why)

    # --- Socket.IO ------------------------------------------------------------------------------

    def _engine_answers(self) -> Answers:
        reporting = self.reporting
        return {
            "register": (m.Register, self._register),
            "job_ack": (m.Acked, self._of_engine(reporting.acked)),
            "job_started": (m.Started, self._of_engine(reporting.started)),
            "job_progress": (m.Progress, self._of_engine(reporting.progress)),
            "job_log": (m.Log, self._of_engine(reporting.log)),
            "job_complete": (m.Complete, self._of_engine(reporting.complete)),
            "job_failed": (m.Failed, self._of_engine(reporting.failed)),
            "heartbeat": (m.Heartbeat, self._of_engine(self.registering.heartbeat)),
            "drain": (m.Drain, self._of_engine(self.dispatching.drained)),
            "submit": (m.Submit, self._submit),
        }

    def _event_answers(self) -> Answers:
        return {
            "subscribe": (m.Subscribe, self._subscribe),
            "unsubscribe": (m.Unsubscribe, self.subscribers.unsubscribe),
            "replay": (m.Replay, self._replay),
            "submit": (m.Submit, self._submit),
        }

    def _of_engine(
        self, answer: Callable[[Link, T], Awaitable[dict[str, Any]]]
    ) -> Callable[[Peer, T], Awaitable[dict[str, Any]]]:
        async def of_engine(peer: Peer, told: T) -> dict[str, Any]:
            link = self.links.of(peer.sid)
            if link is None:
                raise Fault("NOT_REGISTERED", "register first; an engine that was lost does anew")
            link.hear()
            return await answer(link, told)

        return of_engine

    async def _register(self, peer: Peer, asked: m.Register) -> dict[str, Any]:
        await self._awake()
        reply = await self.registering.register(peer, asked)
        self.kinds.forget()
        return reply

    async def _submit(self, peer: Peer, wanted: m.Submit) -> dict[str, Any]:
        link = self.links.of(peer.sid)
        if link is not None:
            link.hear()
        await self._awake()
        return await self.submitting.submit(peer, wanted)

    async def _subscribe(self, peer: Peer, asked: m.Subscribe) -> dict[str, Any]:
        await self.following.begin()
        return await self.subscribers.subscribe(peer, asked)

    async def _replay(self, peer: Peer, asked: m.Replay) -> dict[str, Any]:
        await self.following.begin()
        return await self.subscribers.replay(peer, asked)

    async def _awake(self) -> None:
        """Before the first job and the first engine somebody must look."""
        await self.following.begin()
        await self.failing.begin()


def _need_json(call: Call) -> None:
    if call.media_type != _JSON.decode():
        raise Fault(BAD, f"the Content-Type must be {_JSON.decode()}")
