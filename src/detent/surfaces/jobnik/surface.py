"""The surface as a whole: its routes, and how it tells problems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any, Final

from starlette.websockets import WebSocket

from detent.engine.access import Scope
from detent.surfaces.http.caller import Admit, CallerRules, Reach
from detent.surfaces.http.exchange import Call, Reply, Settings
from detent.surfaces.http.openapi import document
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Handler, Route
from detent.surfaces.http.service import Service
from detent.surfaces.jobnik.api_page import CLOSED, page_of
from detent.surfaces.jobnik.checking import query_of
from detent.surfaces.jobnik.compressing import squeezed
from detent.surfaces.jobnik.desk import Desk
from detent.surfaces.jobnik.faults import UNKNOWN, problem_reply
from detent.surfaces.jobnik.gauges import Gauges
from detent.surfaces.jobnik.jobs import PRIORITY, Jobs
from detent.surfaces.jobnik.keeping import KIND
from detent.surfaces.jobnik.stages import Stages
from detent.surfaces.jobnik.tasks import Tasks

BASE: Final = "/v1"
_TYPE: Final = b"application/json; charset=utf-8"
_P, _W, _R, _O = Scope.PRODUCE, Scope.WORK, Scope.READ, Scope.OPERATE
_QUEUE, _TENANT, _OPEN = Reach.QUEUE, Reach.TENANT, Reach.OPEN
_SCHEMAS: Final = {
    "Anything": {},
    "Error": {
        "type": "object",
        "required": ["message", "code"],
        "properties": {"message": {"type": "string"}, "code": {"type": "string"}},
    },
}


class JobnikSurface:
    """Jobnik's manager on one engine."""

    prefixes: Sequence[str] = (BASE, "/liveness", "/service-metrics", "/docs/api")

    def __init__(self, service: Service, settings: Settings) -> None:
        self.desk = Desk(service, settings)
        self.caller_rules = self.desk.caller_rules = CallerRules("jobnik")
        self.jobs = Jobs(self.desk)
        self.stages = Stages(self.desk)
        self.tasks = Tasks(self.desk, self.jobs)
        self.routes: Sequence[Route] = [
            *self._job_routes(),
            *self._stage_routes(),
            *self._task_routes(),
            *self._other_routes(),
        ]

    def opened(self) -> None:
        """Say who answers what is due; the engine is there now."""
        self.desk.engine.answers[KIND] = self.stages.answer
        self.desk.engine.answers[PRIORITY] = self.jobs.answer

    def problem(self, problem: Problem, call: Call) -> Reply:  # noqa: ARG002 - others need the call
        """A message and a code."""
        return problem_reply(problem)

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:  # noqa: ARG002
        """The type of everything."""
        yield b"content-type", _TYPE if reply.type is None else reply.type.encode()

    async def socket(self, socket: WebSocket, admit: Admit) -> None:  # noqa: ARG002
        """Nobody talks over WebSockets here."""
        raise Problem(404, UNKNOWN, "Not Found")

    # --- routes ---------------------------------------------------------------------------------

    def _job_routes(self) -> Iterable[Route]:
        jobs, stages = self.jobs, self.stages
        yield _route("GET", "/jobs", jobs.listed, _R, _TENANT, asks=True)
        yield _route("POST", "/jobs", jobs.create, _P, _QUEUE, (201,))
        yield _route("GET", "/jobs/{jobId}", jobs.get, _R, _QUEUE, asks=True)
        yield _route("DELETE", "/jobs/{jobId}", jobs.delete, _O, _QUEUE)
        yield _route("PATCH", "/jobs/{jobId}/user-metadata", jobs.annotate, _R, _QUEUE)
        yield _route("PATCH", "/jobs/{jobId}/priority", jobs.reprioritise, _P, _QUEUE, (200, 204))
        yield _route("PUT", "/jobs/{jobId}/status", jobs.steer, _P, _QUEUE)
        yield _route("GET", "/jobs/{jobId}/stages", stages.of_job, _R, _QUEUE, asks=True)
        yield _route("POST", "/jobs/{jobId}/stage", stages.create, _P, _QUEUE, (201,))

    def _stage_routes(self) -> Iterable[Route]:
        stages, tasks = self.stages, self.tasks
        yield _route("GET", "/stages", stages.listed, _R, _QUEUE, asks=True)
        yield _route("GET", "/stages/{stageId}", stages.get, _R, _QUEUE, asks=True)
        yield _route("GET", "/stages/{stageId}/summary", stages.summary, _R, _QUEUE)
        yield _route("PATCH", "/stages/{stageId}/user-metadata", stages.annotate, _R, _QUEUE)
        yield _route("PUT", "/stages/{stageId}/status", stages.release, _P, _QUEUE)
        yield _route("GET", "/stages/{stageId}/tasks", tasks.of_stage, _R, _QUEUE, asks=True)
        yield _route("POST", "/stages/{stageId}/tasks", tasks.create, _P, _QUEUE, (201,))

    def _task_routes(self) -> Iterable[Route]:
        tasks = self.tasks
        # What stands here for the id of a stage is the type of it.
        yield _route("PATCH", "/stages/{stageId}/tasks/dequeue", tasks.dequeue, _W, _QUEUE)
        yield _route("GET", "/tasks", tasks.listed, _R, _QUEUE, asks=True)
        yield _route("GET", "/tasks/{taskId}", tasks.get, _R, _QUEUE)
        yield _route("PATCH", "/tasks/{taskId}/user-metadata", tasks.annotate, _R, _QUEUE)
        yield _route("PUT", "/tasks/{taskId}/status", tasks.report, _W, _QUEUE)

    def _other_routes(self) -> Iterable[Route]:
        gauges = Gauges(self.desk)
        yield Route("GET", "/liveness", self.liveness, None, _OPEN, "Whether the store answers.")
        says = "Jobs, stages and tasks by status."
        yield Route("GET", "/service-metrics", gauges.text, _R, _TENANT, says, type="text/plain")
        for path in ("/docs/api.json", "/docs/api.yaml"):
            yield Route("GET", path, self.openapi, None, _OPEN, "This document.")
        says = "This document, for people."
        yield Route("GET", "/docs/api", self.viewer, None, _OPEN, says, type="text/html")

    async def liveness(self, _: Call) -> Reply:
        """Whether the store answers."""
        await self.desk.engine.store.record([(KIND, "", "")])
        return self.desk.reply({"status": "ok"})

    async def openapi(self, _: Call) -> Reply:
        """What may be asked here; JSON is YAML too."""
        media = "application/json"
        return self.desk.reply(document(self.routes, _SCHEMAS, media, version("detent")))

    async def viewer(self, _: Call) -> Reply:
        """The same as a page."""
        return Reply(200, page_of(self.routes), "text/html; charset=utf-8", headers=(CLOSED,))


def _route(
    method: str,
    path: str,
    handler: Handler,
    scope: Scope,
    reach: Reach,
    statuses: tuple[int, ...] = (200,),
    *,
    asks: bool = False,
) -> Route:
    """An operation; one that asks nothing behind its path takes nothing there."""

    async def checked(call: Call) -> Reply:
        if call.method == "HEAD":
            raise Problem(405, UNKNOWN, "HEAD method not allowed")
        if not asks:
            query_of(call, {})
        return squeezed(await handler(call), call)

    says = (handler.__doc__ or "").strip().split("\n")[0]
    told: dict[str, Any] = {"takes": "Anything"} if method in ("POST", "PUT", "PATCH") else {}
    return Route(method, f"{BASE}{path}", checked, scope, reach, says, statuses, **told)
