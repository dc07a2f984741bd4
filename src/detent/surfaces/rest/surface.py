"""The surface as a whole: its routes, its headers, and how it tells problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.websockets import WebSocket

from detent.engine.access import Scope
from detent.engine.identity import Identity
from detent.surfaces.http.caller import Admit, CallerRules, Reach
from detent.surfaces.http.exchange import Call, Reply, Settings
from detent.surfaces.http.openapi import document
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Handler, Route
from detent.surfaces.http.service import Service
from detent.surfaces.http.sse import TYPE
from detent.surfaces.rest.desk import Desk, with_uuid
from detent.surfaces.rest.faults import problem_reply
from detent.surfaces.rest.jobs import Actions, Jobs, manifest_of
from detent.surfaces.rest.schemas import CURSOR, KEY, LIST, LOGS, SCHEMAS, SEEN
from detent.surfaces.rest.streams import Streams

BASE: Final = "/api/jobs"
_JSON = b"application/json"


class RestSurface:
    """`/api/jobs` on one engine; with `actions` it knows what may be started."""

    prefixes: Sequence[str] = ("/api",)

    def __init__(
        self, service: Service, settings: Settings, actions: Actions | None = None
    ) -> None:
        self.desk = Desk(service, settings)
        self.caller_rules = self.desk.caller_rules = CallerRules("rest")
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

    async def socket(self, socket: WebSocket, admit: Admit) -> None:  # noqa: ARG002
        """There is none here."""
        raise Problem(404, "NOT_FOUND", "there are no WebSockets here; follow /events")

    def _routes(self) -> Iterable[Route]:
        jobs, streams = Jobs(self.desk, self._actions), Streams(self.desk)
        produce, read = Scope.PRODUCE, Scope.READ
        start = self._route("POST", "", jobs.start, produce, statuses=(202,), gives="JobReply")
        yield replace(start, takes="StartRequest", needs_body=True, headers=KEY)
        listed = self._route("GET", "", jobs.listed, read, gives="JobsReply")
        yield replace(listed, query=LIST)
        yield self._route("GET", "/{id}", jobs.get, read, gives="JobReply")
        ends = (200, 202)
        yield self._route(
            "POST", "/{id}/cancel", jobs.cancel, produce, statuses=ends, gives="JobReply"
        )
        yield self._route(
            "POST", "/{id}/retry", jobs.retry, produce, statuses=(202,), gives="JobReply"
        )
        logs = self._route("GET", "/{id}/logs", streams.logs, read, gives="LogsReply")
        yield replace(logs, query=LOGS)
        events = self._route("GET", "/{id}/events", streams.events, read)
        yield replace(events, query=CURSOR, headers=SEEN, type=TYPE)
        yield _open("/api/manifest", self.manifest, "Manifest")
        yield _open("/api/openapi.json", self.openapi, "Document")

    async def manifest(self, call: Call) -> Reply:
        """What may be started here."""
        self._name(call)
        return self.desk.reply(call, **manifest_of(self._actions))

    async def openapi(self, call: Call) -> Reply:
        """What may be asked here, for programs that write clients."""
        self._name(call)
        told = document(self.routes, SCHEMAS, _JSON.decode(), version("detent"))
        return Reply(200, msgspec.json.encode(told))

    def _route(
        self,
        method: str,
        path: str,
        handler: Handler,
        scope: Scope,
        *,
        statuses: tuple[int, ...] = (200,),
        gives: str = "",
    ) -> Route:
        async def named(call: Call) -> Reply:
            self._name(call)
            return await handler(call)

        says = _says(handler)
        path, reach = f"{BASE}{path}", Reach.QUEUE
        return Route(method, path, named, scope, reach, says, statuses, gives=gives)

    def _name(self, call: Call) -> None:
        if self._identity is None:
            self._identity = Identity(self.desk.engine.store.now)
        with_uuid(call, self._identity.id())


def _open(path: str, handler: Handler, gives: str) -> Route:
    """What anybody may ask."""
    return Route("GET", path, handler, None, Reach.OPEN, _says(handler), gives=gives)


def _says(handler: Handler) -> str:
    return (handler.__doc__ or "").strip().split("\n")[0]
