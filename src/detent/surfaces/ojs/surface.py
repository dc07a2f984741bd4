"""The surface as a whole: its routes, its headers, and how it tells problems."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from starlette.websockets import WebSocket

from detent.engine.access import Scope
from detent.surfaces.http.caller import Admit, Reach
from detent.surfaces.http.exchange import Call, Reply, Settings
from detent.surfaces.http.openapi import document
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.routing import Handler, Hear, Prompt, Route
from detent.surfaces.http.service import Service
from detent.surfaces.ojs.admin import Admin
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.crons import Crons
from detent.surfaces.ojs.dead_letters import Letters
from detent.surfaces.ojs.deleting import Deleting
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.events import Events
from detent.surfaces.ojs.faults import problem_reply, unsupported
from detent.surfaces.ojs.flows import Flows
from detent.surfaces.ojs.jobs import Jobs
from detent.surfaces.ojs.limiting import KIND as LIMIT
from detent.surfaces.ojs.limiting import Limiting
from detent.surfaces.ojs.manifest import Manifest
from detent.surfaces.ojs.progress import Progress
from detent.surfaces.ojs.queues import Queues
from detent.surfaces.ojs.registry import Registry
from detent.surfaces.ojs.remote import Remote
from detent.surfaces.ojs.resetting import Resetting
from detent.surfaces.ojs.retention import Keeping
from detent.surfaces.ojs.schemas import PAGES, SCHEMAS
from detent.surfaces.ojs.silence import KIND as STALL
from detent.surfaces.ojs.silence import Stalls
from detent.surfaces.ojs.streams import Streams
from detent.surfaces.ojs.system import System
from detent.surfaces.ojs.webhooks import Hooks
from detent.surfaces.ojs.workers import KIND as WORKER
from detent.surfaces.ojs.workers import Workers
from detent.surfaces.ojs.working import Working

BASE: Final = "/ojs/v1"
_TYPE: Final = b"application/openjobspec+json"
_TYPE_SDK: Final = b'application/openjobspec+json; alt="application/json"'
_SPOKEN: Final = (b"ojs-version", b"1.0")
_FOR_ALL: Final = ((b"content-type", _TYPE), _SPOKEN)
_FOR_SDK: Final = ((b"content-type", _TYPE_SDK), _SPOKEN)
_VERSIONS: Final = ("1.0", "1", "1.0.0", "1.0.0-rc.1")
_BODIES: Final = ("application/openjobspec+json", "application/json")
_P, _W, _R, _O = Scope.PRODUCE, Scope.WORK, Scope.READ, Scope.OPERATE
_QUEUE, _TENANT, _OPEN = Reach.QUEUE, Reach.TENANT, Reach.OPEN


class OjsSurface:
    """Open Job Spec 1.0 on one engine."""

    prefixes: Sequence[str] = ("/ojs", "/")

    def __init__(self, service: Service, settings: Settings) -> None:
        self.desk = Desk(service, settings)
        self.caller_rules = self.desk.caller_rules
        self.queues = Queues(self.desk)
        self.system = System(self.desk, self.queues)
        self.stalls = Stalls(self.desk)
        self.workers = Workers(self.desk, self.stalls)
        self.letters = Letters(self.desk, self.queues.setting)
        self.keeping = Keeping(self.desk, self.queues.setting, self.letters)
        self.limiting = Limiting(self.desk)
        self.events = Events(self.desk)
        self.streams = Streams(self.desk, self.events)
        self.registry = Registry(self.desk)
        self.admission = Admission(self.desk, self.queues, self.registry)
        self.jobs = Jobs(self.desk, self.admission)
        self.flows = Flows(self.desk, self.admission)
        self.routes: Sequence[Route] = [
            *self._job_routes(),
            *self._worker_routes(),
            *self._other_routes(),
            *self._hook_routes(),
            *self._schema_routes(),
            *self._admin_routes(),
        ]
        self.routes = [*self.routes, *self._open_routes()]

    def opened(self) -> None:
        """Say who answers what is due; the engine is there now."""
        self.desk.engine.answers[WORKER] = self.workers.answer
        self.desk.engine.answers[STALL] = self.stalls.answer
        self.desk.engine.answers[LIMIT] = self.limiting.answer
        self.desk.service.keep("retention", self.keeping.run)

    async def openapi(self, _: Call) -> Reply:
        """What may be asked here, for programs that write clients."""
        told = document(self.routes, SCHEMAS, _TYPE.decode(), version("detent"))
        return self.desk.reply(told)

    def problem(self, problem: Problem, call: Call) -> Reply:
        """An error of the specification."""
        return problem_reply(problem, call.request_id)

    def dressed(self, reply: Reply, call: Call) -> Iterable[tuple[bytes, bytes]]:
        """The type that strict readers want, or the one that the official SDK can read."""
        if reply.type is not None:
            return (b"content-type", reply.type.encode()), _SPOKEN
        return _FOR_SDK if b"ojs-version" in call.headers else _FOR_ALL

    async def socket(self, socket: WebSocket, admit: Admit) -> None:  # noqa: ARG002
        """Refuse WebSockets: this surface streams events over SSE alone."""
        raise Problem(404, "not_found", "there are no WebSockets here; use /ojs/v1/events/stream")

    # --- routes ---------------------------------------------------------------------------------

    def _job_routes(self) -> Iterable[Route]:
        jobs = self.jobs
        yield _route(
            "POST",
            "/jobs",
            "jobs_push",
            jobs.push,
            _P,
            _QUEUE,
            (201, 200),
            takes="JobRequest",
            gives="JobReply",
            prompt=_checked(jobs.moulding.press),
        )
        yield _route(
            "POST",
            "/jobs/batch",
            "jobs_push_many",
            jobs.push_many,
            _P,
            _QUEUE,
            (201,),
            takes="JobsRequest",
            gives="JobsReply",
        )
        yield _route(
            "POST", "/jobs/bulk", "jobs_push_bulk", jobs.push_bulk, _P, _QUEUE, (200, 207, 422)
        )
        yield _route("POST", "/jobs/results", "jobs_results", jobs.results, _R, _QUEUE)
        yield _route("GET", "/jobs/{id}", "jobs_get", jobs.get, _R, _QUEUE, gives="JobReply")
        yield _route(
            "DELETE", "/jobs/{id}", "jobs_cancel", jobs.cancel, _P, _QUEUE, gives="JobReply"
        )
        yield _route("POST", "/jobs/{id}/cancel", "jobs_cancel", jobs.cancel, _P, _QUEUE)
        yield _route("POST", "/jobs/{id}/activate", "jobs_activate", jobs.activate, _P, _QUEUE)
        yield _route("PATCH", "/jobs/{id}", "jobs_patch", jobs.patch, _O, _QUEUE)
        yield _route("GET", "/jobs/{id}/result", "jobs_result", jobs.result, _R, _QUEUE)
        yield _route("GET", "/jobs/{id}/history", "jobs_history", jobs.history, _R, _QUEUE)
        yield _route("GET", "/jobs/{id}/lineage", "jobs_lineage", jobs.lineage, _R, _QUEUE)

    def _worker_routes(self) -> Iterable[Route]:
        working = Working(self.desk, self.workers, self.flows, self.system)
        for path in ("/workers/fetch", "/jobs/fetch"):
            yield _route(
                "POST",
                path,
                "working_fetch",
                working.fetch,
                _W,
                _QUEUE,
                takes="FetchRequest",
                gives="JobsReply",
            )
        for path in ("/workers/ack", "/jobs/{id}/ack"):
            yield _route(
                "POST",
                path,
                "working_ack",
                working.ack,
                _W,
                _QUEUE,
                takes="AckRequest",
                gives="ReportReply",
            )
        for path in ("/workers/nack", "/jobs/{id}/nack"):
            yield _route(
                "POST",
                path,
                "working_nack",
                working.nack,
                _W,
                _QUEUE,
                takes="NackRequest",
                gives="ReportReply",
            )
        for path in ("/workers/heartbeat", "/workers/beat"):
            yield _route(
                "POST",
                path,
                "workers_heartbeat",
                self.workers.heartbeat,
                _W,
                _QUEUE,
                takes="BeatRequest",
            )
        yield _route(
            "POST", "/workers/register", "workers_register", self.workers.register, _W, _QUEUE
        )
        remote = Remote(self.desk, self.workers)
        yield _route("POST", "/workers/report", "remote_report", remote.report, _W, _QUEUE)
        yield _route("POST", "/workers/wait", "remote_wait", remote.wait, _W, _QUEUE)
        yield _route("POST", "/workers/results", "remote_results", remote.results, _W, _QUEUE)
        yield _route("POST", "/workers/gone", "remote_gone", remote.gone, _W, _QUEUE)
        yield _route(
            "GET",
            "/workers/{id}/health",
            "workers_health",
            self.workers.health,
            _R,
            _TENANT,
            (200, 503),
        )

    def _other_routes(self) -> Iterable[Route]:
        queues, letters, crons, flows = (
            self.queues,
            self.letters,
            Crons(self.desk, self.admission),
            self.flows,
        )
        yield _route("GET", "/queues", "queues_listed", queues.listed, _R, _QUEUE, query=PAGES)
        yield _route("GET", "/queues/{name}", "queues_get", queues.get, _R, _QUEUE)
        yield _route(
            "DELETE",
            "/queues/{name}",
            "deleting_delete",
            Deleting(self.desk, queues).delete,
            _O,
            _QUEUE,
        )
        yield _route("GET", "/queues/{name}/stats", "queues_stats", queues.stats, _R, _QUEUE)
        yield _route("POST", "/queues/{name}/pause", "queues_pause", queues.pause, _O, _QUEUE)
        yield _route("POST", "/queues/{name}/resume", "queues_resume", queues.resume, _O, _QUEUE)
        yield _route("POST", "/queues/{name}/drain", "queues_drain", queues.drain, _O, _QUEUE)
        yield _route(
            "GET",
            "/dead-letter",
            "letters_listed",
            letters.listed,
            _R,
            _QUEUE,
            query=PAGES,
            gives="JobsReply",
        )
        yield _route("DELETE", "/dead-letter", "letters_purge", letters.purge, _O, _QUEUE)
        yield _route("GET", "/dead-letter/stats", "letters_stats", letters.stats, _R, _QUEUE)
        yield _route(
            "POST", "/dead-letter/retry", "letters_retry_many", letters.retry_many, _O, _QUEUE
        )
        yield _route("GET", "/dead-letter/{id}", "letters_get", letters.get, _R, _QUEUE)
        yield _route("POST", "/dead-letter/{id}/retry", "letters_retry", letters.retry, _O, _QUEUE)
        yield _route("DELETE", "/dead-letter/{id}", "letters_delete", letters.delete, _O, _QUEUE)
        yield _route(
            "POST", "/cron", "crons_put", crons.put, _O, _QUEUE, (201, 200), takes="CronRequest"
        )
        yield _route("GET", "/cron", "crons_listed", crons.listed, _R, _QUEUE, query=PAGES)
        yield _route("GET", "/cron/{name}", "crons_get", crons.get, _R, _QUEUE)
        yield _route("PATCH", "/cron/{name}", "crons_patch", crons.patch, _O, _QUEUE)
        yield _route("DELETE", "/cron/{name}", "crons_delete", crons.delete, _O, _QUEUE)
        yield _route("POST", "/cron/{name}/trigger", "crons_trigger", crons.trigger, _O, _QUEUE)
        yield _route(
            "POST",
            "/workflows",
            "flows_create",
            flows.create,
            _P,
            _QUEUE,
            (201,),
            takes="WorkflowRequest",
            gives="WorkflowReply",
        )
        yield _route("GET", "/workflows", "flows_listed", flows.listed, _R, _TENANT)
        yield _route(
            "GET", "/workflows/{id}", "flows_get", flows.get, _R, _QUEUE, gives="WorkflowReply"
        )
        yield _route(
            "GET", "/workflows/{id}/progress", "flows_progress", flows.progress, _R, _QUEUE
        )
        yield _route("DELETE", "/workflows/{id}", "flows_cancel", flows.cancel, _P, _QUEUE)
        yield _route("GET", "/events", "events_listed", self.events.listed, _R, _QUEUE)
        streams = self.streams
        yield _route(
            "GET",
            "/events/stream",
            "streams_any",
            streams.any,
            _R,
            _QUEUE,
            type="text/event-stream",
        )
        yield _route(
            "GET",
            "/jobs/{id}/events",
            "streams_job",
            streams.job,
            _R,
            _QUEUE,
            type="text/event-stream",
        )
        yield _route(
            "GET",
            "/queues/{name}/events",
            "streams_queue",
            streams.queue,
            _R,
            _QUEUE,
            type="text/event-stream",
        )
        progress = Progress(self.desk, self.stalls)
        yield _route("PUT", "/jobs/{id}/progress", "progress_put", progress.put, _W, _QUEUE)
        yield _route("GET", "/jobs/{id}/progress", "progress_get", progress.get, _R, _QUEUE)
        yield _route("POST", "/workers/progress", "progress_put", progress.put, _W, _QUEUE)
        yield _route(
            "GET",
            "/jobs/{id}/progress/stream",
            "streams_progress",
            streams.progress,
            _R,
            _QUEUE,
            type="text/event-stream",
        )
        for method in ("PUT", "POST"):
            yield _route(
                method, "/jobs/{id}/checkpoint", "progress_save", progress.save, _W, _QUEUE
            )
        yield _route("GET", "/jobs/{id}/checkpoint", "progress_load", progress.load, _R, _QUEUE)
        yield _route(
            "DELETE", "/jobs/{id}/checkpoint", "progress_forget", progress.forget, _W, _QUEUE
        )

    def _hook_routes(self) -> Iterable[Route]:
        hooks, limiting = Hooks(self.desk), self.limiting
        base = "/webhooks/subscriptions"
        yield _route("POST", base, "hooks_create", hooks.create, _O, _TENANT, (201,))
        yield _route("GET", base, "hooks_listed", hooks.listed, _R, _TENANT)
        yield _route("GET", f"{base}/{{id}}", "hooks_get", hooks.get, _R, _TENANT)
        yield _route("PATCH", f"{base}/{{id}}", "hooks_patch", hooks.patch, _O, _TENANT)
        yield _route("DELETE", f"{base}/{{id}}", "hooks_delete", hooks.delete, _O, _TENANT)
        yield _route(
            "POST", f"{base}/{{id}}/rotate-secret", "hooks_rotate", hooks.rotate, _O, _TENANT
        )
        yield _route("POST", f"{base}/{{id}}/test", "hooks_test", hooks.test, _O, _TENANT, (202,))
        yield _route(
            "GET", "/webhooks/deliveries", "hooks_deliveries", hooks.deliveries, _R, _TENANT
        )
        yield _route(
            "GET", "/webhooks/deliveries/{id}", "hooks_delivery", hooks.delivery, _R, _TENANT
        )
        yield _route(
            "POST", "/webhooks/deliveries/{id}/retry", "hooks_retry", hooks.retry, _O, _TENANT
        )
        yield _route("GET", "/rate-limits", "limiting_listed", limiting.listed, _R, _TENANT)
        yield _route("GET", "/rate-limits/{key}", "limiting_get", limiting.get, _R, _TENANT)
        yield _route("PUT", "/rate-limits/{key}", "limiting_put", limiting.put, _O, _TENANT)
        yield _route(
            "DELETE", "/rate-limits/{key}", "limiting_delete", limiting.delete, _O, _TENANT
        )

    def _schema_routes(self) -> Iterable[Route]:
        registry = self.registry
        yield _route("POST", "/schemas", "registry_post", registry.post, _O, _TENANT, (201,))
        yield _route("GET", "/schemas", "registry_listed", registry.listed, _R, _TENANT)
        yield _route("GET", "/schemas/{uri}", "registry_get", registry.get, _R, _TENANT)
        yield _route("DELETE", "/schemas/{uri}", "registry_delete", registry.delete, _O, _TENANT)
        base = "/admin/schemas/{type}"
        yield _route("GET", base, "registry_newest", registry.newest, _R, _TENANT)
        yield _route("GET", f"{base}/versions", "registry_versions", registry.versions, _R, _TENANT)
        yield _route(
            "PUT",
            f"{base}/{{version}}",
            "registry_put_version",
            registry.put_version,
            _O,
            _TENANT,
            (201,),
        )
        yield _route(
            "GET", f"{base}/{{version}}", "registry_version", registry.version, _R, _TENANT
        )
        yield _route(
            "DELETE",
            f"{base}/{{version}}",
            "registry_delete_version",
            registry.delete_version,
            _O,
            _TENANT,
        )

    def _admin_routes(self) -> Iterable[Route]:
        admin = Admin(self.desk, self.queues, self.letters, self.workers)
        yield _route("GET", "/admin/stats", "admin_stats", admin.stats, _R, _TENANT)
        yield _route("GET", "/admin/queues", "admin_queues", admin.queues, _R, _QUEUE)
        yield _route(
            "GET", "/admin/queues/{name}", "queues_detailed", self.queues.detailed, _R, _QUEUE
        )
        yield _route("POST", "/admin/queues/{name}/pause", "admin_pause", admin.pause, _O, _QUEUE)
        yield _route(
            "POST", "/admin/queues/{name}/resume", "admin_resume", admin.resume, _O, _QUEUE
        )
        yield _route(
            "POST", "/admin/queues/{name}/drain", "queues_drain", self.queues.drain, _O, _QUEUE
        )
        yield _route(
            "GET",
            "/admin/queues/{name}/config",
            "queues_configuration",
            self.queues.configuration,
            _R,
            _QUEUE,
        )
        yield _route(
            "PUT",
            "/admin/queues/{name}/config",
            "queues_configure",
            self.queues.configure,
            _O,
            _QUEUE,
        )
        yield _route(
            "PUT", "/admin/queues/{name}/rate-limit", "queues_limit", self.queues.limit, _O, _QUEUE
        )
        yield _route("DELETE", "/admin/queues/{name}/jobs", "admin_purge", admin.purge, _O, _QUEUE)
        yield _route("GET", "/admin/jobs", "admin_jobs", admin.jobs, _R, _QUEUE)
        for base in ("/admin/jobs/bulk", "/jobs/bulk"):
            yield _route("POST", f"{base}/retry", "admin_retry_many", admin.retry_many, _O, _QUEUE)
            yield _route(
                "POST", f"{base}/cancel", "admin_cancel_many", admin.cancel_many, _O, _QUEUE
            )
            yield _route(
                "POST", f"{base}/delete", "admin_delete_many", admin.delete_many, _O, _QUEUE
            )
        yield _route("GET", "/admin/jobs/{id}", "admin_job", admin.job, _R, _QUEUE)
        yield _route("POST", "/admin/jobs/{id}/cancel", "jobs_cancel", self.jobs.cancel, _O, _QUEUE)
        yield _route("POST", "/admin/jobs/{id}/retry", "admin_retry", admin.retry, _O, _QUEUE)
        yield _route("GET", "/admin/workers", "admin_workers", admin.workers, _R, _TENANT)
        yield _route("POST", "/admin/workers/{id}/quiet", "admin_quiet", admin.quiet, _O, _TENANT)
        yield _route("POST", "/admin/workers/{id}/resume", "admin_wake", admin.wake, _O, _TENANT)
        yield _route(
            "POST", "/admin/workers/{id}/terminate", "admin_terminate", admin.terminate, _O, _TENANT
        )
        yield _route(
            "DELETE",
            "/admin/workers/{id}",
            "admin_remove_worker",
            admin.remove_worker,
            _O,
            _TENANT,
            (204,),
        )
        yield _route("GET", "/admin/dead-letter", "admin_letters", admin.letters, _R, _QUEUE)
        yield _route(
            "GET", "/admin/dead-letter/stats", "letters_stats", self.letters.stats, _R, _QUEUE
        )
        yield _route(
            "POST", "/admin/dead-letter/{id}/retry", "letters_retry", self.letters.retry, _O, _QUEUE
        )
        yield _route(
            "DELETE",
            "/admin/dead-letter/{id}",
            "admin_delete_letter",
            admin.delete_letter,
            _O,
            _QUEUE,
            (204,),
        )
        yield _route(
            "GET",
            "/admin/tenants/{id}/stats",
            "admin_tenant_stats",
            admin.tenant_stats,
            _R,
            _TENANT,
        )
        yield from self._system_routes()
        if self.desk.settings.test_mode:
            yield _route(
                "POST",
                "/admin/reset",
                "resetting_reset",
                Resetting(self.desk).reset,
                Scope.ADMIN,
                Reach.STORE,
            )

    def _system_routes(self) -> Iterable[Route]:
        system = self.system
        yield _route("GET", "/admin/system/config", "system_config", system.config, _R, _TENANT)
        yield _route("GET", "/admin/pools", "system_pools", system.pools, _R, _QUEUE)
        yield _route("PUT", "/admin/pools/{name}", "system_put_pool", system.put_pool, _O, _QUEUE)
        yield _route("GET", "/admin/pools/{name}", "system_get_pool", system.get_pool, _R, _QUEUE)
        yield _route(
            "DELETE", "/admin/pools/{name}", "system_delete_pool", system.delete_pool, _O, _QUEUE
        )
        yield _route(
            "GET", "/admin/scheduling/stats", "system_scheduling", system.scheduling, _R, _QUEUE
        )

    def _open_routes(self) -> Iterable[Route]:
        paths = {route.name: route.path for route in self.routes}
        manifest = Manifest(self.desk, paths)
        yield Route(
            "GET", "/ojs/manifest", manifest.manifest, None, _OPEN, _says(manifest.manifest)
        )
        for path in (f"{BASE}/health", "/health"):
            yield Route(
                "GET", path, manifest.health, None, _OPEN, _says(manifest.health), (200, 503)
            )
        for path in ("/ready", "/readyz"):
            yield Route("GET", path, manifest.ready, None, _OPEN, _says(manifest.ready), (200, 503))
        yield Route("GET", f"{BASE}/openapi.json", self.openapi, None, _OPEN, "This document.")
        yield Route("GET", "/livez", manifest.live, None, _OPEN, _says(manifest.live))


def _route(
    method: str,
    path: str,
    name: str,
    handler: Handler,
    scope: Scope,
    reach: Reach,
    statuses: tuple[int, ...] = (200,),
    **told: Any,
) -> Route:
    """An operation; the manifest shows it under this name, which is part of the wire."""

    def checked(call: Call) -> Awaitable[Reply]:
        _check(call)
        return handler(call)

    if "takes" not in told and method in ("POST", "PUT", "PATCH", "DELETE"):
        told["takes"] = "Anything"
    return Route(
        method, f"{BASE}{path}", checked, scope, reach, _says(handler), statuses, name=name, **told
    )


def _checked(prompt: Prompt) -> Prompt:
    def checked(call: Call, hear: Hear) -> bool:
        _check(call)
        return prompt(call, hear)

    return checked


def _says(handler: Handler) -> str:
    return (handler.__doc__ or "").strip().split("\n")[0]


@lru_cache(100)
def _is_json(kind: bytes) -> bool:
    return kind.decode("latin-1").split(";")[0].strip().lower() in _BODIES


def _check(call: Call) -> None:
    """A body must say that it is JSON, and the version must be one that we speak."""
    version = call.headers.get(b"ojs-version")
    if version is not None and version.decode("latin-1") not in _VERSIONS:
        told = version[:20].decode("latin-1")
        raise unsupported(f"OJS-Version {told} is not spoken here; 1.0 is")
    kind = call.headers.get(b"content-type")
    if call.body and kind is not None and not _is_json(kind):
        raise Problem(400, "invalid_request", f"a body must be {' or '.join(_BODIES)}")
