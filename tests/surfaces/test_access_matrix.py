"""Every route of every surface against every kind of key.

Each row of the tables says what a key of another tenant, a key bound to another queue, a key bound
to the right queue and an unbound key get. A route or a message without a row fails the build. Keys
without the scope, keys for several tenants and callers without a key are refused everywhere.

Everything that is not for a caller carries MARK in its contents and has a queue that begins with
`mail`: neither may be in an answer to somebody it is not for.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from socketio.exceptions import ConnectionError as Unconnected

from detent.engine.access import FRESH_US, Scope
from detent.engine.engine import Engine as Kept
from detent.surfaces.engines.surface import EnginesSurface
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.gate import RECHECK_S
from tests.surfaces.engines import Client, Engine, Listener, held
from tests.surfaces.server import Answer, Running, on, running
from tests.surfaces.streams import Stream

MARK = "only-for-acme-mail"
P, W, R, OP, A = Scope.PRODUCE, Scope.WORK, Scope.READ, Scope.OPERATE, Scope.ADMIN
_NUMBER = count(1)
_PATIENCE_S = 30


class Ask(NamedTuple):
    """One request: the values of the names in its path, its query and its body."""

    names: Mapping[str, str] = {}
    body: Any = None
    query: str = ""


class World:
    """A server with keys of every kind, and the way to make things in tenant `acme`."""

    def __init__(self, url: str, server: Running, keys: dict[str, str]) -> None:
        self.url = url
        self.server = server
        self.keys = keys
        self.leases: dict[str, str] = {}

    def ask(self, key: str | None, method: str, path: str, body: Any = None) -> Answer:
        """One request; of a stream the head and the first line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=_PATIENCE_S)
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        try:
            connection.request(method, path, data, headers)
            found = connection.getresponse()
            is_stream = found.getheader("content-type", "").startswith("text/event-stream")
            text = found.readline() if is_stream else found.read()
            return Answer(found.status, dict(found.getheaders()), text)
        finally:
            connection.close()

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """Something that must succeed, by a key of the tenant that may do everything."""
        answer = self.ask("all", method, path, body)
        assert answer.status < 300, (path, answer.text)
        return answer.body if answer.text else None

    def fresh_key(self, *scopes: Scope, expires_in_us: int | None = None) -> str:
        """A key of tenant `acme` that nobody else has."""

        async def make(engine: Kept) -> str:
            until = None if expires_in_us is None else engine.store.now() + expires_in_us
            made = await engine.access.create(scopes, tenants=("acme",), expires_at=until)
            return made[1]

        return str(on(self.url, make))

    def revoke(self, text: str) -> None:
        on(self.url, lambda engine: engine.access.revoke(text.split("_")[1]))

    # --- what rows are about --------------------------------------------------------------------

    def queue(self) -> str:
        """A queue of its own."""
        return f"mail.{next(_NUMBER)}"

    def job(self, queue: str | None = None, **options: Any) -> str:
        body = a_job(queue or self.queue(), MARK, **options)
        return str(self.do("POST", "/ojs/v1/jobs", body)["job"]["id"])

    def running(self) -> str:
        """A job that worker `w` holds."""
        queue = self.queue()
        name = self.job(queue)
        fetched = self.do("POST", "/ojs/v1/workers/fetch", {"queues": [queue], "worker_id": "w"})
        self.leases[name] = fetched["job"]["lease"]
        self.do("PUT", f"/ojs/v1/jobs/{name}/checkpoint", {"state": {"at": MARK}})
        return name

    def completed(self) -> str:
        name = self.running()
        self.do("POST", "/ojs/v1/workers/ack", {"job_id": name, "result": MARK})
        return name

    def letter(self, queue: str | None = None) -> str:
        """A dead letter."""
        queue = queue or self.queue()
        retry = {"max_attempts": 1, "on_exhaustion": "dead_letter"}
        name = self.job(queue, retry=retry)
        self.do("POST", "/ojs/v1/workers/fetch", {"queues": [queue], "worker_id": "w"})
        error = {"code": "boom", "message": MARK}
        self.do("POST", "/ojs/v1/workers/nack", {"job_id": name, "error": error})
        return name

    def cron(self) -> str:
        name = f"cron-{next(_NUMBER)}"
        job = a_job(self.queue(), MARK)
        self.do("POST", "/ojs/v1/cron", {"name": name, "expression": "@yearly", **job})
        return name

    def flow(self) -> str:
        body = {"type": "chain", "name": MARK, "steps": [a_job(self.queue(), MARK)]}
        return str(self.do("POST", "/ojs/v1/workflows", body)["workflow"]["id"])

    def hook(self) -> str:
        body = {"url": f"https://hooks.example/{MARK}", "events": ["job.completed"]}
        return str(self.do("POST", "/ojs/v1/webhooks/subscriptions", body)["id"])

    def delivery(self) -> str:
        path = f"/ojs/v1/webhooks/subscriptions/{self.hook()}/test"
        return str(self.do("POST", path, {})["delivery"]["id"])

    def schema(self) -> str:
        uri = f"schema-{next(_NUMBER)}"
        self.do("POST", "/ojs/v1/schemas", {"uri": uri, "type": "t", "schema": {"title": MARK}})
        return uri

    def version(self) -> dict[str, str]:
        """The version of a schema for a type."""
        names = {"type": f"type-{next(_NUMBER)}", "version": "1"}
        path = f"/ojs/v1/admin/schemas/{names['type']}/1"
        self.do("PUT", path, {"schema": {"title": MARK}})
        return names

    def limit(self) -> str:
        name = f"limit-{next(_NUMBER)}"
        self.do("PUT", f"/ojs/v1/rate-limits/{name}", {"concurrency": 3})
        return name

    def worker(self) -> str:
        name = f"worker-{next(_NUMBER)}"
        told = {"worker_id": name, "queues": [self.queue()], "labels": [MARK]}
        self.do("POST", "/ojs/v1/workers/heartbeat", told)
        return name

    def pool(self) -> str:
        name = f"pool-{next(_NUMBER)}"
        self.do("PUT", f"/ojs/v1/admin/pools/{name}", {"queues": [self.queue()], "note": MARK})
        return name

    def jobnik_job(self) -> str:
        told = {"name": MARK, "data": {"a": MARK}, "userMetadata": {"a": MARK}}
        name = str(self.do("POST", "/v1/jobs", told)["id"])
        self.jobnik_stage(name)
        return name

    def jobnik_stage(self, job: str | None = None, *, waits: bool = False) -> str:
        if job is None:
            job = str(self.do("POST", "/v1/jobs", {"name": MARK, "data": {}})["id"])
        told = {"type": self.queue(), "data": {"a": MARK}, "startAsWaiting": waits}
        return str(self.do("POST", f"/v1/jobs/{job}/stage", told)["id"])

    def jobnik_task(self) -> str:
        path = f"/v1/stages/{self.jobnik_stage()}/tasks"
        return str(self.do("POST", path, [{"data": {"a": MARK}}])[0]["id"])

    def jobnik_type(self) -> str:
        """The type of a stage that has a task to do."""
        task = self.do("GET", f"/v1/tasks/{self.jobnik_task()}")
        return str(self.do("GET", f"/v1/stages/{task['stageId']}")["type"])

    def jobnik_taken(self) -> str:
        """A task that somebody works on."""
        path = f"/v1/stages/{self.jobnik_type()}/tasks/dequeue"
        return str(self.do("PATCH", path)["id"])

    def action(self) -> str:
        """A job of the REST surface, whose queue is moved to where its keys are bound."""
        body = {"action": "act", "inputs": {"a": MARK}}
        return str(self.do("POST", "/api/jobs", body)["job"]["id"])

    def cancelled_action(self) -> str:
        name = self.action()
        self.do("POST", f"/api/jobs/{name}/cancel")
        return name

    def engine_type(self) -> str:
        name = f"engine-type-{next(_NUMBER)}"
        self.do("PUT", f"/engine/types/{name}", {"schema": {"title": MARK}})
        return name

    def engine_job(self) -> str:
        body = {"jobType": self.engine_type(), "queue": self.queue(), "payload": {"a": MARK}}
        return str(self.do("POST", "/engine/jobs", body)["jobId"])


def a_job(queue: str, mark: str = "", **options: Any) -> dict[str, Any]:
    return {"type": "a", "args": [mark], "options": {"queue": queue, **options}}


class Row(NamedTuple):
    """Who gets what: the scope, then the answers to four keys, then what is asked.

    `foreign` is a key of another tenant, `other` one that is bound to another queue, `bound` one
    that is bound to the right queue, `right` an unbound one.
    """

    scope: Scope
    foreign: int
    other: int
    bound: int
    right: int
    ask: Callable[[World], Ask] = lambda _: Ask()


# The usual answers. Things are found by an id; lists leave out what is not the caller's; what names
# a queue does so in its path or body; what is about a tenant is for unbound keys.
def thing(scope: Scope, ask: Callable[[World], Ask], status: int = 200) -> Row:
    return Row(scope, 404, 403, status, status, ask)


def list_(scope: Scope, ask: Callable[[World], Ask] = lambda _: Ask()) -> Row:
    return Row(scope, 200, 200, 200, 200, ask)


def queue(scope: Scope, ask: Callable[[World], Ask], status: int = 200) -> Row:
    return Row(scope, status, 403, status, status, ask)


def tenant(
    scope: Scope,
    ask: Callable[[World], Ask] = lambda _: Ask(),
    status: int = 200,
    foreign: int | None = None,
) -> Row:
    return Row(scope, status if foreign is None else foreign, 403, 403, status, ask)


def named(make: Callable[[World], str], body: Any = None, name: str = "id") -> Callable[..., Ask]:
    """Asks for a thing by its id."""
    return lambda world: Ask({name: make(world)}, body)


def said(make: Callable[[World], str], **more: Any) -> Callable[..., Ask]:
    """Names a job in the body."""
    return lambda world: Ask({}, {"job_id": make(world), **more})


def in_queue(body: Any = None) -> Callable[[World], Ask]:
    """Names a queue in the path."""
    return lambda world: Ask({"name": _used(world)}, body)


def _used(world: World) -> str:
    name = world.queue()
    world.job(name)
    return name


def many(world: World) -> Ask:
    return Ask({}, {"filter": {"queue": _used(world)}, "confirm": True})


def some(make: Callable[[World], str], name: str = "job_ids") -> Callable[[World], Ask]:
    return lambda world: Ask({}, {name: [make(world)]})


def report(world: World) -> Ask:
    name = world.running()
    one = {"job_id": name, "lease": world.leases[name], "event": "complete"}
    return Ask({}, {"worker_id": "w", "reports": [one]})


def results(world: World) -> Ask:
    name = world.running()
    return Ask({}, {"job_id": name, "lease": world.leases[name]})


def a_cron(world: World) -> Ask:
    body = {"name": f"cron-{next(_NUMBER)}", "expression": "@yearly", **a_job(world.queue())}
    return Ask({}, body)


ERROR = {"code": "boom", "message": "it broke"}
HOOK = {"url": "https://hooks.example/x", "events": ["job.completed"]}
FETCH = partial(lambda world: Ask({}, {"queues": [_used(world)], "worker_id": "w2"}))
OJS = "/ojs/v1"
OPEN = (
    "GET /",
    "GET /ojs/manifest",
    "GET /ojs/v1/health",
    "GET /health",
    "GET /ready",
    "GET /readyz",
    "GET /ojs/v1/openapi.json",
    "GET /livez",
    "GET /liveness",
    "GET /docs/api.json",
    "GET /docs/api.yaml",
    "GET /docs/api",
    "GET /api/manifest",
    "GET /api/openapi.json",
    "GET /engine/openapi.json",
    "GET /socket.io/",
)
TABLE: dict[str, Row] = {
    "GET /metrics": Row(R, 403, 403, 403, 403),
    # Jobs.
    f"POST {OJS}/jobs": queue(P, lambda w: Ask({}, a_job(w.queue())), 201),
    f"POST {OJS}/jobs/batch": queue(P, lambda w: Ask({}, {"jobs": [a_job(w.queue())]}), 201),
    f"POST {OJS}/jobs/bulk": Row(
        P, 200, 422, 200, 200, lambda w: Ask({}, {"jobs": [a_job(w.queue())]})
    ),
    f"POST {OJS}/jobs/results": list_(R, some(World.completed, "ids")),
    f"GET {OJS}/jobs/{{id}}": thing(R, named(World.job)),
    f"DELETE {OJS}/jobs/{{id}}": thing(P, named(World.job)),
    f"POST {OJS}/jobs/{{id}}/cancel": thing(P, named(World.job)),
    f"POST {OJS}/jobs/{{id}}/activate": thing(P, lambda w: Ask({"id": w.job(pending=True)}, None)),
    f"PATCH {OJS}/jobs/{{id}}": thing(OP, named(World.job, {"priority": 3})),
    f"GET {OJS}/jobs/{{id}}/result": thing(R, named(World.completed)),
    f"GET {OJS}/jobs/{{id}}/history": thing(R, named(World.job)),
    f"GET {OJS}/jobs/{{id}}/lineage": thing(R, named(World.job)),
    f"GET {OJS}/jobs/{{id}}/events": thing(R, named(World.job)),
    f"GET {OJS}/jobs/{{id}}/progress": thing(R, named(World.running)),
    f"GET {OJS}/jobs/{{id}}/progress/stream": thing(R, named(World.completed)),
    f"GET {OJS}/jobs/{{id}}/checkpoint": thing(R, named(World.running)),
    # Work.
    f"POST {OJS}/workers/fetch": queue(W, FETCH),
    f"POST {OJS}/jobs/fetch": queue(W, FETCH),
    f"POST {OJS}/workers/ack": thing(W, said(World.running)),
    f"POST {OJS}/jobs/{{id}}/ack": thing(W, named(World.running, {})),
    f"POST {OJS}/workers/nack": thing(W, said(World.running, error=ERROR)),
    f"POST {OJS}/jobs/{{id}}/nack": thing(W, named(World.running, {"error": ERROR})),
    f"POST {OJS}/workers/heartbeat": queue(
        W, lambda w: Ask({}, {"worker_id": w.worker(), "active_jobs": [w.running()]})
    ),
    f"POST {OJS}/workers/beat": queue(W, lambda w: Ask({}, {"worker_id": w.worker()})),
    f"POST {OJS}/workers/register": queue(W, lambda w: Ask({}, {"worker_id": w.worker()})),
    f"POST {OJS}/workers/report": Row(W, 200, 403, 200, 200, report),
    f"POST {OJS}/workers/wait": list_(W, lambda _: Ask({}, {"wait_ms": 0})),
    f"POST {OJS}/workers/results": thing(W, results),
    f"POST {OJS}/workers/gone": queue(W, lambda w: Ask({}, {"worker_id": w.worker()})),
    f"POST {OJS}/workers/progress": thing(W, said(World.running, progress=0.5)),
    f"PUT {OJS}/jobs/{{id}}/progress": thing(W, named(World.running, {"progress": 0.5})),
    f"PUT {OJS}/jobs/{{id}}/checkpoint": thing(W, named(World.running, {"state": 1})),
    f"POST {OJS}/jobs/{{id}}/checkpoint": thing(W, named(World.running, {"state": 1})),
    f"DELETE {OJS}/jobs/{{id}}/checkpoint": thing(W, named(World.running)),
    f"GET {OJS}/workers/{{id}}/health": tenant(R, named(World.worker), foreign=404),
    # Queues.
    f"GET {OJS}/queues": list_(R),
    f"GET {OJS}/queues/{{name}}": queue(R, in_queue()),
    f"DELETE {OJS}/queues/{{name}}": queue(OP, lambda w: Ask({"name": w.queue()})),
    f"GET {OJS}/queues/{{name}}/stats": queue(R, in_queue()),
    f"POST {OJS}/queues/{{name}}/pause": queue(OP, in_queue()),
    f"POST {OJS}/queues/{{name}}/resume": queue(OP, in_queue()),
    f"POST {OJS}/queues/{{name}}/drain": queue(OP, in_queue()),
    f"GET {OJS}/queues/{{name}}/events": Row(R, 404, 403, 200, 200, in_queue()),
    # Dead letters.
    f"GET {OJS}/dead-letter": list_(R),
    f"DELETE {OJS}/dead-letter": list_(OP, many),
    f"GET {OJS}/dead-letter/stats": list_(R),
    f"POST {OJS}/dead-letter/retry": list_(OP, many),
    f"GET {OJS}/dead-letter/{{id}}": thing(R, named(World.letter)),
    f"POST {OJS}/dead-letter/{{id}}/retry": thing(OP, named(World.letter)),
    f"DELETE {OJS}/dead-letter/{{id}}": thing(OP, named(World.letter)),
    # Schedules.
    f"POST {OJS}/cron": queue(OP, a_cron, 201),
    f"GET {OJS}/cron": list_(R),
    f"GET {OJS}/cron/{{name}}": thing(R, named(World.cron, name="name")),
    f"PATCH {OJS}/cron/{{name}}": thing(OP, named(World.cron, {"enabled": False}, "name")),
    f"DELETE {OJS}/cron/{{name}}": thing(OP, named(World.cron, name="name")),
    f"POST {OJS}/cron/{{name}}/trigger": thing(OP, named(World.cron, name="name")),
    # Workflows: their names are about all queues.
    f"POST {OJS}/workflows": queue(
        P, lambda w: Ask({}, {"type": "chain", "steps": [a_job(w.queue())]}), 201
    ),
    f"GET {OJS}/workflows": tenant(R),
    f"GET {OJS}/workflows/{{id}}": thing(R, named(World.flow)),
    f"GET {OJS}/workflows/{{id}}/progress": thing(R, named(World.flow)),
    f"DELETE {OJS}/workflows/{{id}}": thing(P, named(World.flow)),
    # Events.
    f"GET {OJS}/events": list_(R),
    f"GET {OJS}/events/stream": list_(R),
    # Webhooks, limits and schemas are the tenant's.
    f"POST {OJS}/webhooks/subscriptions": tenant(OP, lambda _: Ask({}, HOOK), 201),
    f"GET {OJS}/webhooks/subscriptions": tenant(R),
    f"GET {OJS}/webhooks/subscriptions/{{id}}": tenant(R, named(World.hook), foreign=404),
    f"PATCH {OJS}/webhooks/subscriptions/{{id}}": tenant(
        OP, named(World.hook, {"active": False}), foreign=404
    ),
    f"DELETE {OJS}/webhooks/subscriptions/{{id}}": tenant(OP, named(World.hook), foreign=404),
    f"POST {OJS}/webhooks/subscriptions/{{id}}/rotate-secret": tenant(
        OP, named(World.hook, {}), foreign=404
    ),
    f"POST {OJS}/webhooks/subscriptions/{{id}}/test": tenant(
        OP, named(World.hook, {}), 202, foreign=404
    ),
    f"GET {OJS}/webhooks/deliveries": tenant(R),
    f"GET {OJS}/webhooks/deliveries/{{id}}": tenant(R, named(World.delivery), foreign=404),
    f"POST {OJS}/webhooks/deliveries/{{id}}/retry": tenant(OP, named(World.delivery), foreign=404),
    f"GET {OJS}/rate-limits": tenant(R),
    f"GET {OJS}/rate-limits/{{key}}": tenant(R, named(World.limit, name="key"), foreign=404),
    f"PUT {OJS}/rate-limits/{{key}}": tenant(OP, named(World.limit, {"concurrency": 1}, "key")),
    f"DELETE {OJS}/rate-limits/{{key}}": tenant(OP, named(World.limit, name="key")),
    f"POST {OJS}/schemas": tenant(
        OP, lambda _: Ask({}, {"uri": f"new-{next(_NUMBER)}", "schema": {}}), 201
    ),
    f"GET {OJS}/schemas": tenant(R),
    f"GET {OJS}/schemas/{{uri}}": tenant(R, named(World.schema, name="uri"), foreign=404),
    f"DELETE {OJS}/schemas/{{uri}}": tenant(OP, named(World.schema, name="uri"), foreign=404),
    f"GET {OJS}/admin/schemas/{{type}}": tenant(R, lambda w: Ask(w.version()), foreign=404),
    f"GET {OJS}/admin/schemas/{{type}}/versions": tenant(
        R, lambda w: Ask(w.version()), foreign=404
    ),
    f"PUT {OJS}/admin/schemas/{{type}}/{{version}}": tenant(
        OP, lambda w: Ask({**w.version(), "version": "2"}, {"schema": {}}), 201
    ),
    f"GET {OJS}/admin/schemas/{{type}}/{{version}}": tenant(
        R, lambda w: Ask(w.version()), foreign=404
    ),
    f"DELETE {OJS}/admin/schemas/{{type}}/{{version}}": tenant(
        OP, lambda w: Ask(w.version()), foreign=404
    ),
    # The admin API.
    f"GET {OJS}/admin/stats": tenant(R),
    f"GET {OJS}/admin/queues": list_(R),
    f"GET {OJS}/admin/queues/{{name}}": queue(R, in_queue()),
    f"POST {OJS}/admin/queues/{{name}}/pause": queue(OP, in_queue()),
    f"POST {OJS}/admin/queues/{{name}}/resume": queue(OP, in_queue()),
    f"POST {OJS}/admin/queues/{{name}}/drain": queue(OP, in_queue()),
    f"GET {OJS}/admin/queues/{{name}}/config": queue(R, in_queue()),
    f"PUT {OJS}/admin/queues/{{name}}/config": queue(OP, in_queue({"concurrency": 3})),
    f"PUT {OJS}/admin/queues/{{name}}/rate-limit": queue(
        OP, in_queue({"limit": 3, "period": "PT1S"})
    ),
    f"DELETE {OJS}/admin/queues/{{name}}/jobs": list_(
        OP, in_queue({"states": ["available"], "confirm": True})
    ),
    f"GET {OJS}/admin/jobs": list_(R),
    f"POST {OJS}/admin/jobs/bulk/retry": list_(OP, many),
    f"POST {OJS}/admin/jobs/bulk/cancel": list_(OP, many),
    f"POST {OJS}/admin/jobs/bulk/delete": list_(OP, many),
    f"POST {OJS}/jobs/bulk/retry": list_(OP, some(World.letter)),
    f"POST {OJS}/jobs/bulk/cancel": list_(OP, some(World.job)),
    f"POST {OJS}/jobs/bulk/delete": list_(OP, some(World.completed)),
    f"GET {OJS}/admin/jobs/{{id}}": thing(R, named(World.job)),
    f"POST {OJS}/admin/jobs/{{id}}/cancel": thing(OP, named(World.job)),
    f"POST {OJS}/admin/jobs/{{id}}/retry": thing(OP, named(World.letter)),
    f"GET {OJS}/admin/workers": tenant(R),
    f"POST {OJS}/admin/workers/{{id}}/quiet": tenant(OP, named(World.worker), foreign=404),
    f"POST {OJS}/admin/workers/{{id}}/resume": tenant(OP, named(World.worker), foreign=404),
    f"POST {OJS}/admin/workers/{{id}}/terminate": tenant(OP, named(World.worker), foreign=404),
    f"DELETE {OJS}/admin/workers/{{id}}": tenant(OP, named(World.worker), 204, foreign=404),
    f"GET {OJS}/admin/dead-letter": list_(R),
    f"GET {OJS}/admin/dead-letter/stats": list_(R),
    f"POST {OJS}/admin/dead-letter/{{id}}/retry": thing(OP, named(World.letter)),
    f"DELETE {OJS}/admin/dead-letter/{{id}}": thing(OP, named(World.letter), 204),
    f"GET {OJS}/admin/tenants/{{id}}/stats": tenant(R, lambda _: Ask({"id": "acme"}), foreign=403),
    f"GET {OJS}/admin/system/config": tenant(R),
    f"GET {OJS}/admin/pools": list_(R),
    f"PUT {OJS}/admin/pools/{{name}}": queue(OP, lambda w: Ask({"name": w.pool()}, {"queues": []})),
    f"GET {OJS}/admin/pools/{{name}}": thing(R, named(World.pool, name="name")),
    f"DELETE {OJS}/admin/pools/{{name}}": thing(OP, named(World.pool, name="name")),
    f"GET {OJS}/admin/scheduling/stats": list_(R),
    f"POST {OJS}/admin/reset": Row(A, 403, 403, 403, 403),
    # Jobnik: a stage type is a queue. A job belongs to all of its stages.
    "GET /v1/jobs": tenant(R),
    "POST /v1/jobs": Row(P, 201, 201, 201, 201, lambda _: Ask({}, {"name": "ab", "data": {}})),
    "GET /v1/jobs/{jobId}": thing(R, named(World.jobnik_job, name="jobId")),
    "DELETE /v1/jobs/{jobId}": Row(OP, 404, 403, 400, 400, named(World.jobnik_job, name="jobId")),
    "PATCH /v1/jobs/{jobId}/user-metadata": thing(R, named(World.jobnik_job, {}, "jobId")),
    "PATCH /v1/jobs/{jobId}/priority": thing(
        P, named(World.jobnik_job, {"priority": "HIGH"}, "jobId")
    ),
    "PUT /v1/jobs/{jobId}/status": thing(
        P, named(World.jobnik_job, {"status": "ABORTED"}, "jobId")
    ),
    "GET /v1/jobs/{jobId}/stages": thing(R, named(World.jobnik_job, name="jobId")),
    "POST /v1/jobs/{jobId}/stage": thing(
        P, lambda w: Ask({"jobId": w.jobnik_job()}, {"type": w.queue(), "data": {}}), 201
    ),
    "GET /v1/stages": list_(R),
    "GET /v1/stages/{stageId}": thing(R, named(World.jobnik_stage, name="stageId")),
    "GET /v1/stages/{stageId}/summary": thing(R, named(World.jobnik_stage, name="stageId")),
    "PATCH /v1/stages/{stageId}/user-metadata": thing(R, named(World.jobnik_stage, {}, "stageId")),
    "PUT /v1/stages/{stageId}/status": thing(
        P,
        lambda w: Ask({"stageId": w.jobnik_stage(waits=True)}, {"status": "PENDING"}),
    ),
    "GET /v1/stages/{stageId}/tasks": thing(R, named(World.jobnik_stage, name="stageId")),
    "POST /v1/stages/{stageId}/tasks": thing(
        P, named(World.jobnik_stage, [{"data": {}}], "stageId"), 201
    ),
    "PATCH /v1/stages/{stageId}/tasks/dequeue": thing(W, named(World.jobnik_type, name="stageId")),
    "GET /v1/tasks": list_(R),
    "GET /v1/tasks/{taskId}": thing(R, named(World.jobnik_task, name="taskId")),
    "PATCH /v1/tasks/{taskId}/user-metadata": thing(R, named(World.jobnik_task, {}, "taskId")),
    "PUT /v1/tasks/{taskId}/status": thing(
        W, named(World.jobnik_taken, {"status": "COMPLETED"}, "taskId")
    ),
    "GET /service-metrics": tenant(R),
    # REST: its jobs are in the queue `default`, which the right keys are for as well.
    "POST /api/jobs": queue(P, lambda _: Ask({}, {"action": "act"}), 202),
    "GET /api/jobs": list_(R),
    "GET /api/jobs/{id}": thing(R, named(World.action)),
    "POST /api/jobs/{id}/cancel": thing(P, named(World.action)),
    "POST /api/jobs/{id}/retry": thing(P, named(World.cancelled_action), 202),
    "GET /api/jobs/{id}/logs": thing(R, named(World.action)),
    "GET /api/jobs/{id}/events": thing(R, named(World.action)),
    # Engines.
    "POST /engine/jobs": Row(
        P,
        400,
        403,
        202,
        202,
        lambda w: Ask({}, {"jobType": w.engine_type(), "queue": w.queue()}),
    ),
    "GET /engine/jobs/{id}": thing(R, named(World.engine_job)),
    "GET /engine/types": tenant(R),
    "PUT /engine/types/{jobType}": tenant(OP, named(World.engine_type, {"schema": {}}, "jobType")),
}
# What needs another scope as well.
ALSO: dict[str, tuple[Scope, ...]] = {
    "PATCH /v1/jobs/{jobId}/user-metadata": (W,),
    "PATCH /v1/stages/{stageId}/user-metadata": (W,),
    "PATCH /v1/tasks/{taskId}/user-metadata": (W,),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    url = f"sqlite:///{tmp_path_factory.mktemp('matrix')}/detent.db"
    queues = ("mail.*", "default")
    made: dict[str, dict[str, Any]] = {
        "all": {"scopes": (A,), "tenants": ("acme",)},
        "foreign": {"scopes": (A,), "tenants": ("other",)},
        "several": {"scopes": (A,), "tenants": ("acme", "beta")},
        "pattern": {"scopes": (A,), "tenants": ("ac*",)},
        "other": {"scopes": (A,), "tenants": ("acme",), "queues": ("pay",)},
    }
    sets = {(row.scope, *ALSO.get(name, ())) for name, row in TABLE.items()} | {(W, P)}
    for scopes in sets:
        word = "+".join(scopes)
        made[f"right {word}"] = {"scopes": scopes, "tenants": ("acme",)}
        made[f"bound {word}"] = {"scopes": scopes, "tenants": ("acme",), "queues": queues}
    for scope in Scope:
        rest = tuple(one for one in (P, W, R, OP) if one is not scope)
        made[f"without {scope}"] = {"scopes": rest, "tenants": ("acme",)}

    async def keys(engine: Kept) -> dict[str, str]:
        return {name: (await engine.access.create(**one))[1] for name, one in made.items()}

    found = on(url, keys)
    with running(url, Settings(test_mode=True)) as server:
        yield World(url, server, found)


def test_every_route_has_a_row(world: World) -> None:
    routes = [f"{route.method} {route.path}" for route in world.server.app.routes]
    assert sorted(routes) == sorted([*TABLE, *OPEN])


@pytest.mark.parametrize("route", OPEN)
def test_an_open_route(world: World, route: str) -> None:
    answer = world.ask(None, *route.split(" "))
    assert answer.status == (400 if route == "GET /socket.io/" else 200)


@pytest.mark.parametrize("route", TABLE)
def test_a_route(world: World, route: str) -> None:
    row = TABLE[route]
    made = row.ask(world)
    for key in ("several", "pattern"):
        assert _asked(world, key, route, made).status == 403, key
    assert _asked(world, None, route, made).status == 401
    assert _asked(world, f"without {row.scope}", route, made).status == 403
    for key, status in (("foreign", row.foreign), ("other", row.other)):
        answer = _asked(world, key, route, made)
        assert answer.status == status, (key, answer.text)
        assert MARK.encode() not in answer.text, key
        if key == "other" and answer.status < 300:
            assert b"mail." not in answer.text
    word = "+".join((row.scope, *ALSO.get(route, ())))
    # What was refused has changed nothing: whoever may do it finds everything as it was.
    for key, status in ((f"bound {word}", row.bound), (f"right {word}", row.right)):
        answer = _asked(world, key, route, made)
        assert answer.status == status, (key, answer.text)
        if answer.status < 300:
            made = row.ask(world)


def test_what_is_about_the_whole_store_is_for_keys_of_all_of_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    text = on(url, lambda engine: engine.access.create([A]))[1]
    with running(url, Settings(test_mode=True)) as server:
        world = World(url, server, {"everything": text})
        for route in ("GET /metrics", f"POST {OJS}/admin/reset"):
            assert world.ask("everything", *route.split(" ")).status == 200


def _asked(world: World, key: str | None, route: str, ask: Ask) -> Answer:
    method, path = route.split(" ")
    return world.ask(key, method, path.format(**ask.names) + ask.query, ask.body)


# --- what a key bound to queues could do behind the table's back --------------------------------


def test_a_bound_key_replaces_nothing_of_other_queues(world: World) -> None:
    cron, pool = world.cron(), world.pool()
    told = {"name": cron, "expression": "@daily", **a_job("pay")}
    assert world.ask("other", "POST", f"{OJS}/cron", told).status == 403
    body = {"queues": ["pay"]}
    assert world.ask("other", "PUT", f"{OJS}/admin/pools/{pool}", body).status == 403
    assert world.do("GET", f"{OJS}/cron/{cron}")["cron"]["expression"] == "@yearly"
    assert world.do("GET", f"{OJS}/admin/pools/{pool}")["pool"]["queues"] != ["pay"]


def test_a_bound_key_speaks_for_no_worker_of_other_queues(world: World) -> None:
    job, worker = world.running(), world.worker()
    for told in ({"worker_id": "w"}, {"worker_id": worker, "queues": ["pay"]}):
        for path in ("gone", "heartbeat", "register"):
            assert world.ask("other", "POST", f"{OJS}/workers/{path}", told).status == 403
    # Its own workers cannot hold on to jobs of others.
    mine = {"worker_id": "mine", "active_jobs": [job], "leases": {job: world.leases[job]}}
    answer = world.ask("other", "POST", f"{OJS}/workers/heartbeat", mine)
    assert answer.ok()["jobs_extended"] == []
    assert world.do("GET", f"{OJS}/jobs/{job}")["job"]["state"] == "active"


def test_a_bound_key_sees_no_workflow_of_other_surfaces(world: World) -> None:
    flow = world.jobnik_job()
    assert world.ask("all", "GET", f"{OJS}/workflows/{flow}").status == 200
    for method, path in (("GET", ""), ("GET", "/progress"), ("DELETE", "")):
        answer = world.ask("bound produce", method, f"{OJS}/workflows/{flow}{path}")
        assert answer.status == 403, answer.text
        answer = world.ask("other", method, f"{OJS}/workflows/{flow}{path}")
        assert answer.status == 403, answer.text


@pytest.mark.parametrize("key", ["other", "all"])
def test_a_bound_key_hears_nothing_of_workflows(world: World, key: str) -> None:
    first = world.do("GET", f"{OJS}/events?limit=1")["events"][0]["id"]
    flow = world.flow()
    world.do("DELETE", f"{OJS}/workflows/{flow}")
    mine = a_job("pay")
    world.do("POST", f"{OJS}/jobs", mine)
    headers = {"Authorization": f"Bearer {world.keys[key]}", "Last-Event-ID": first}
    stream = Stream(world.server, "/events/stream", **headers)
    heard = set()
    for name, data, _ in stream.frames():
        heard.add(name.partition(".")[0])
        if data.get("queue") == "pay":
            break
    stream.close()
    assert ("workflow" in heard) == (key == "all")


# --- Socket.IO ----------------------------------------------------------------------------------


class Said(NamedTuple):
    """A message: who hears which error, or nothing. All of them are registered engines.

    `foreign` is one of another tenant, `other` one whose key is bound to another queue.
    """

    foreign: str | None
    other: str | None
    data: Mapping[str, Any] = MappingProxyType({})
    is_report: bool = True


FAILED = {"error": {"code": "boom"}}
# In an order in which the engine that holds the job may say them.
MESSAGES: dict[str, Said] = {
    "register": Said(None, "FORBIDDEN", is_report=False),
    "submit": Said(None, "FORBIDDEN", is_report=False),
    "heartbeat": Said(None, None, is_report=False),
    "job_ack": Said("UNKNOWN_JOB", "NOT_HOLDER", {"started": False}),
    "job_started": Said("UNKNOWN_JOB", "NOT_HOLDER"),
    "job_progress": Said("UNKNOWN_JOB", "NOT_HOLDER", {"progress": 50}),
    "job_log": Said("UNKNOWN_JOB", "NOT_HOLDER", {"lines": ["a"]}),
    "job_failed": Said("UNKNOWN_JOB", "NOT_HOLDER", FAILED),
    "job_complete": Said("UNKNOWN_JOB", "JOB_ENDED"),
    "drain": Said(None, None, is_report=False),
}
HEARD = ("subscribe", "unsubscribe", "replay", "submit")


def test_every_message_has_a_row(world: World) -> None:
    [surface] = [
        one
        for _, one in world.server.app._surfaces  # noqa: SLF001 - nobody else knows
        if isinstance(one, EnginesSurface) and one.prefixes[0] == "/engine"
    ][:1]
    assert sorted(surface._engine_answers()) == sorted(MESSAGES)  # noqa: SLF001
    assert sorted(surface._event_answers()) == sorted(HEARD)  # noqa: SLF001


async def test_messages_of_engines(world: World) -> None:
    port, keys, queue = world.server.port, world.keys, world.queue()
    for key in (None, "several", "pattern", "right read"):
        with pytest.raises(Unconnected):
            await Client(port, None if key is None else keys[key]).connect()
    kind = world.engine_type()
    job_of = {"jobType": kind, "queue": queue}
    async with (
        Engine(port, kind, key=keys["bound work+produce"], queues=[queue]) as holder,
        Engine(port, kind, key=keys["foreign"], queues=[queue]) as foreign,
        Engine(port, kind, key=keys["other"], queues=["pay"]) as other,
        Client(port, keys["right work"]) as worker,
    ):
        await worker.refused("FORBIDDEN", "submit", job_of)
        async with Client(port, keys["right produce"]) as producer:
            await producer.refused("FORBIDDEN", "register", holder.told)
        # An engine that is away is nobody else's to come back as.
        gone = Engine(port, kind, key=keys["all"], queues=[queue])
        async with gone:
            pass
        again = {**other.told, "engineId": gone.id, "queues": ["pay"]}
        async with Client(port, keys["other"]) as thief:
            await thief.refused("FORBIDDEN", "register", again)
        await holder.ok("submit", job_of)
        job = await holder.job()
        for name, said in MESSAGES.items():
            data = {**(held(job) if said.is_report else {}), **said.data}
            if name == "submit":
                data = job_of
            for peer, code in ((foreign, said.foreign), (other, said.other)):
                mine = {**peer.told, "queues": [queue]} if name == "register" else data
                answer = await peer.call(name, mine)
                assert (answer.get("error") or {}).get("code") == code, (name, answer)
            mine = {**holder.told, "resume": [held(job)]} if name == "register" else data
            answer = await holder.call(name, mine)
            # It has failed and cannot complete any more: nobody's word but its own ended it.
            assert answer["ok"] or name == "job_complete", (name, answer)


async def test_messages_of_subscribers(world: World) -> None:
    port, keys, queue = world.server.port, world.keys, world.queue()
    for key in (None, "several", "pattern", "right work"):
        with pytest.raises(Unconnected):
            await Listener(port, None if key is None else keys[key]).connect()
    kind = world.engine_type()
    since = {"since": 0, "until": 10**14}
    async with (
        Listener(port, keys["right read"]) as right,
        Listener(port, keys["foreign"]) as foreign,
        Listener(port, keys["other"]) as other,
    ):
        for one in (right, foreign, other):
            await one.hear()
        await right.refused("FORBIDDEN", "submit", {"jobType": kind, "queue": queue})
        await other.refused("FORBIDDEN", "submit", {"jobType": kind, "queue": queue})
        made = world.do("POST", "/engine/jobs", {"jobType": kind, "queue": queue})
        await right.comes("JOB_QUEUED", lambda data: bool(data["jobId"] == made["jobId"]))
        for one in (right, foreign, other):
            await one.ok("replay", since)
            await one.comes("replay_end")
            await one.ok("unsubscribe")
        assert right.of(made["jobId"])
        for one in (foreign, other):
            assert one.of(made["jobId"]) == []


# --- keys that end ------------------------------------------------------------------------------


def test_checks_of_open_connections_are_soon_enough() -> None:
    """The docs promise two seconds: an answer that is believed, and one look after it."""
    assert FRESH_US / 1e6 + RECHECK_S <= 1.5


@pytest.mark.parametrize("path", [f"{OJS}/events/stream", "/api/jobs/{}/events"])
@pytest.mark.parametrize("way", ["revoked", "expired"])
@pytest.mark.slow
def test_a_stream_ends_with_its_key(world: World, path: str, way: str) -> None:
    text = world.fresh_key(R, expires_in_us=2_000_000 if way == "expired" else None)
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=10)
    headers = {"Authorization": f"Bearer {text}"}
    connection.request("GET", path.format(world.action()), headers=headers)
    stream = connection.getresponse()
    assert stream.status == 200
    assert stream.readline()
    if way == "revoked":
        world.revoke(text)
    # Signs of life come every 15 seconds, so only the end of the stream ends this in time.
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        stream.read()
    connection.close()


@pytest.mark.slow
def test_a_fetch_that_waits_ends_with_its_key(world: World) -> None:
    queue, text = world.queue(), world.fresh_key(W)
    connection = http.client.HTTPConnection("127.0.0.1", world.server.port, timeout=10)
    body = json.dumps({"queues": [queue], "wait_ms": 25_000})
    headers = {"Authorization": f"Bearer {text}", "Content-Type": "application/json"}
    connection.request("POST", f"{OJS}/workers/fetch", body, headers)
    world.revoke(text)
    assert json.loads(connection.getresponse().read())["jobs"] == []
    connection.close()
    assert world.ask("all", "GET", f"{OJS}/jobs/{world.job(queue)}").ok()["job"]["attempt"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("namespace", [Client, Listener])
async def test_a_socket_ends_with_its_key(world: World, namespace: type[Client]) -> None:
    text = await asyncio.to_thread(world.fresh_key, P, R)
    async with namespace(world.server.port, text) as client:
        await asyncio.to_thread(world.revoke, text)
        await asyncio.wait_for(client.gone.wait(), 10)


@pytest.mark.slow
async def test_the_first_key_of_a_store_ends_what_has_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    with running(url, Settings()) as server:
        stream = Stream(server, "/events/stream")
        async with Listener(server.port) as listener:
            await asyncio.to_thread(on, url, lambda engine: engine.access.create([A]))
            await asyncio.wait_for(listener.gone.wait(), 10)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            await asyncio.to_thread(stream.answer.read)
        stream.close()
