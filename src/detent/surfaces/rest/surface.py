"""The surface as a whole: its routes, its headers, and how it tells problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from starlette.websockets import WebSocket

from detent.engine.access import Principal, Scope
from detent.engine.identity import Identity
from detent.surfaces.http.exchange import Call, Reply, Settings
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Handler, Route
from detent.surfaces.http.service import Service
from detent.surfaces.http.sse import TYPE
from detent.surfaces.rest.desk import Desk, with_uuid
from detent.surfaces.rest.faults import problem_reply
from detent.surfaces.rest.jobs import Actions, Jobs, manifest_of
from detent.surfaces.rest.streams import Streams

__all__ = ["RestSurface"]

BASE: Final = "/api/jobs"
_JSON = b"application/json"


class RestSurface:
    """`/api/jobs` on one engine; with `actions` it knows what may be started."""

    prefixes: Sequence[str] = ("/api",)
    admits_sockets = False

    def __init__(
        self, service: Service, settings: Settings, actions: Actions | None = None
    ) -> None:
        self.desk = Desk(service, settings)
        self._actions = actions
        self._identity: Identity | None = None
        self.routes: Sequence[Route] = list(self._routes())

    def problem(self, problem: Problem, call: Call) -> Reply:
        """An error of the table."""
        self._name(call)
        return problem_reply(problem, call.request_id)

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:
        """JSON, unless it is a stream."""
        self._name(call)
        yield b"content-type", _JSON if reply.type is None else reply.type.encode()

    async def socket(self, socket: WebSocket, who: Principal) -> None:  # noqa: ARG002
        """There is none here."""
        raise Problem(404, "NOT_FOUND", "there are no WebSockets here; follow /events")

    def _routes(self) -> Iterable[Route]:
        jobs, streams = Jobs(self.desk, self._actions), Streams(self.desk)
        produce, read = Scope.PRODUCE, Scope.READ
        yield self._route("POST", "", jobs.start, produce, statuses=(202,))
        yield self._route("GET", "", jobs.listed, read)
        yield self._route("GET", "/{id}", jobs.get, read)
        yield self._route("POST", "/{id}/cancel", jobs.cancel, produce, statuses=(200, 202))
        yield self._route("POST", "/{id}/retry", jobs.retry, produce, statuses=(202,))
        yield self._route("GET", "/{id}/logs", streams.logs, read)
        yield self._route("GET", "/{id}/events", streams.events, read, type_=TYPE)
        yield Route("GET", "/api/manifest", self.manifest, None, "What may be started here.")

    async def manifest(self, call: Call) -> Reply:
        """What may be started here."""
        self._name(call)
        return self.desk.reply(call, **manifest_of(self._actions))

    def _route(  # noqa: PLR0913 - a row of the table above
        self,
        method: str,
        path: str,
        handler: Handler,
        scope: Scope,
        *,
        statuses: tuple[int, ...] = (200,),
        type_: str | None = None,
    ) -> Route:
        async def named(call: Call) -> Reply:
            self._name(call)
            return await handler(call)

        says = (handler.__doc__ or "").strip().split("\n")[0]
        return Route(method, f"{BASE}{path}", named, scope, says, statuses, type=type_)

    def _name(self, call: Call) -> None:
        if self._identity is None:
            self._identity = Identity(self.desk.engine.store.now)
        with_uuid(call, self._identity.id())
