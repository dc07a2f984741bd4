"""A server on a real socket, in a thread of this process, and a client that speaks to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn

from detent import Detent, stores
from detent.app.serving import web_app
from detent.engine.engine import Engine
from detent.surfaces.http.app import WebApp
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.server import Bind, config_of

T = TypeVar("T")
JSON = "application/openjobspec+json"
_PATIENCE_S = 20.0
_PAUSE = threading.Event()


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], text: bytes) -> None:
        self.status = status
        self.headers = headers
        self.text = text

    @property
    def body(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)

    def ok(self, status: int = 200) -> Any:
        """The body, if the status is the expected one."""
        assert self.status == status, self.text
        return self.body

    def error(self, status: int, code: str) -> Any:
        """The error, if it is the expected one; every error is whole."""
        assert self.status == status, self.text
        found = self.body["error"]
        assert found["code"] == code, found
        assert found["message"]
        assert found["request_id"] == self.headers["x-request-id"]
        assert isinstance(found["hint"], str)
        assert isinstance(found["docs_url"], str)
        return found


class Client:
    """Speaks HTTP on one connection that stays open."""

    def __init__(self, port: int, **headers: str) -> None:
        self.port = port
        self.headers = headers
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; what is no bytes is sent as JSON. `under_score` names a header."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {} if body is None else {"Content-Type": JSON}
        told |= {name.replace("_", "-"): v for name, v in {**self.headers, **headers}.items()}
        whole = (
            path
            if path.startswith(("/ojs", "/k/", "/metrics", "/livez", "/ready", "/health"))
            else f"/ojs/v1{path}"
        )
        self._connection.request(method, whole, data, told)
        found = self._connection.getresponse()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def put(self, path: str, body: Any = None) -> Answer:
        return self.ask("PUT", path, body)

    def delete(self, path: str, body: Any = None) -> Answer:
        return self.ask("DELETE", path, body)

    def close(self) -> None:
        self._connection.close()

    # --- what tests do all the time -------------------------------------------------------------

    def push(self, type_: str = "mail.send", *args: Any, **options: Any) -> dict[str, Any]:
        """A new job."""
        found: dict[str, Any] = self.post(
            "/jobs", {"type": type_, "args": list(args), "options": options}
        ).ok(201)["job"]
        return found

    def fetch(
        self, queue: str = "default", worker: str = "w1", **more: Any
    ) -> list[dict[str, Any]]:
        """Jobs for a worker."""
        asked = {"queues": [queue], "worker_id": worker, **more}
        found: list[dict[str, Any]] = self.post("/workers/fetch", asked).ok()["jobs"]
        return found

    def ack(self, job: dict[str, Any], result: Any = None) -> dict[str, Any]:
        """A success."""
        told = {"job_id": job["id"], "result": result}
        found: dict[str, Any] = self.post("/workers/ack", told).ok()
        return found

    def nack(self, job: dict[str, Any], code: str = "boom", **error: Any) -> dict[str, Any]:
        """A failure."""
        told = {"job_id": job["id"], "error": {"code": code, "message": "it broke", **error}}
        found: dict[str, Any] = self.post("/workers/nack", told).ok()
        return found

    def job(self, name: str) -> dict[str, Any]:
        """A job as it is."""
        found: dict[str, Any] = self.get(f"/jobs/{name}").ok()["job"]
        return found


def eventually(look: Callable[[], T], patience_s: float = _PATIENCE_S) -> T:
    """What is found as soon as it is something; an assertion that fails is tried again."""
    until = time.monotonic() + patience_s
    while True:
        try:
            found = look()
        except AssertionError:
            if time.monotonic() > until:
                raise
            found = None
        if found:
            return found
        assert time.monotonic() < until, "it did not come in time"
        _PAUSE.wait(0.02)


class Running:
    """A server that runs."""

    def __init__(self, app: WebApp, server: uvicorn.Server) -> None:
        self.app = app
        self._server = server

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    @property
    def is_up(self) -> bool:
        return self._server.started

    def begin_stop(self) -> None:
        """Take nobody more, and finish with those who are there."""
        self._server.should_exit = True


def on(url: str, work: Callable[[Engine], Awaitable[Any]]) -> Any:
    """What comes of some work on the store, from outside of the server."""

    async def done() -> Any:
        async with stores.open(url) as store, Engine(store) as engine:
            return await work(engine)

    return asyncio.run(done())


@contextmanager
def running(
    url: str,
    settings: Settings | None = None,
    program: Detent | None = None,
    bind: Bind = Bind(port=0),  # noqa: B008 - it is frozen
) -> Iterator[Running]:
    """A server on a port of its own, until the end of the block."""
    app = web_app(url, settings or Settings(test_mode=True), program)
    server = uvicorn.Server(config_of(app, bind))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    found = Running(app, server)
    try:
        eventually(lambda: found.is_up or not thread.is_alive())
        yield found
    finally:
        app.service.begin_stop()
        server.should_exit = True
        thread.join()
