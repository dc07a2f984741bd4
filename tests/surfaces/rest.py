"""Somebody who speaks `/api/jobs`, somebody who follows a stream, and a worker that is real."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from httpx_sse import connect_sse

from detent import Context, Detent, UpstreamError
from detent.app.working import WorkingOptions
from tests.surfaces.server import Answer, eventually

PATIENCE_S = 30.0
SECRET_KEY = base64.b64encode(b"detent detent detent detent 1234").decode()
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Made once: reading all authorities for every connection takes longer than the tests."""
ENDS = ("success", "failed", "cancelled")


class Rest:
    """Speaks HTTP on one connection that stays open."""

    def __init__(self, port: int, key: str = "", **headers: str) -> None:
        self.port = port
        self.key = key
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def ask(self, method: str, path: str = "", body: Any = None, **headers: str) -> Answer:
        """One request below `/api/jobs`; what is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {} if body is None else {"Content-Type": "application/json"}
        told |= self._headers | {name.replace("_", "-"): v for name, v in headers.items()}
        whole = (
            path
            if path.startswith(("/api", "/k/", "/ojs", "/metrics", "/engine"))
            else f"/api/jobs{path}"
        )
        self._connection.request(method, whole, data, told)
        found = self._connection.getresponse()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())

    def get(self, path: str = "", **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str = "", body: Any = None, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def start(self, action: str, **inputs: Any) -> dict[str, Any]:
        """A new job."""
        found: dict[str, Any] = self.post("", {"action": action, "inputs": inputs}).ok(202)["job"]
        return found

    def job(self, name: str) -> dict[str, Any]:
        """A job as it is."""
        found: dict[str, Any] = self.get(f"/{name}").ok()["job"]
        return found

    def ended(self, name: str) -> dict[str, Any]:
        """The same as soon as it has ended."""
        return eventually(lambda: found if (found := self.job(name))["state"] in ENDS else {})

    def in_state(self, name: str, state: str) -> dict[str, Any]:
        """The same as soon as it is there."""
        return eventually(lambda: found if (found := self.job(name))["state"] == state else {})

    def fetch(self, queue: str, **more: Any) -> dict[str, Any]:
        """A job for a worker in another language."""
        asked = {"queues": [queue], "worker_id": "w", "wait_ms": 5_000, **more}
        found: dict[str, Any] = self.post("/ojs/v1/workers/fetch", asked).ok()["jobs"][0]
        return found

    def refused(self, answer: Answer, status: int, code: str) -> dict[str, Any]:
        """The error, if it is the expected one; every error is whole."""
        assert answer.status == status, answer.text
        found: dict[str, Any] = answer.body
        assert found.keys() == {"requestId", "error"}
        assert found["requestId"] == answer.headers["x-request-id"]
        assert str(uuid.UUID(found["requestId"])) == found["requestId"]
        error: dict[str, Any] = found["error"]
        assert error.keys() - {"details"} == {"code", "message"}
        assert error["code"] == code, error
        assert error["message"]
        return error

    def close(self) -> None:
        self._connection.close()


class Site(NamedTuple):
    """A server with its store."""

    url: str
    port: int
    folder: Path


class Frame(NamedTuple):
    """One event of a stream."""

    event: str
    data: dict[str, Any]
    id: str


def follow(
    port: int, name: str, cursor: int | None = None, most: int | None = None, **headers: str
) -> list[Frame]:
    """The frames of a stream by a client that is not ours, until the server closes it."""
    return list(following(port, name, cursor, most, **headers))


def following(
    port: int, name: str, cursor: int | None = None, most: int | None = None, **headers: str
) -> Generator[Frame, None, None]:
    """The same one by one; after `most` of them the client hangs up."""
    url = f"http://127.0.0.1:{port}/api/jobs/{name}/events"
    told = {key.replace("_", "-"): value for key, value in headers.items()}
    params = {} if cursor is None else {"cursor": str(cursor)}
    with (
        httpx.Client(timeout=PATIENCE_S, verify=_NO_TLS) as client,
        connect_sse(client, "GET", url, params=params, headers=told) as source,
    ):
        assert source.response.status_code == 200, source.response.read()
        for number, one in enumerate(source.iter_sse(), start=1):
            yield Frame(one.event, one.json(), one.id)
            if number == most:
                return


def lines_of(frames: list[Frame]) -> list[str]:
    return [one.data["line"] for one in frames if one.event == "log"]


def states_of(frames: list[Frame]) -> list[str]:
    return [one.data["state"] for one in frames if one.event == "status"]


# --- the program --------------------------------------------------------------------------------


class Door:
    """Opened in one thread, waited for in the loops of others."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def set(self) -> None:
        """Let everybody through."""
        with self._turn:
            self._is_open = True
            for loop, bell in self._waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(bell.set)

    async def wait(self) -> None:
        """Until it is open."""
        bell = asyncio.Event()
        with self._turn:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), bell))
        await bell.wait()


DOORS: dict[str, Door] = {}
"""What jobs wait for, by name."""


def door() -> str:
    """A door that is closed."""
    name = uuid.uuid4().hex
    DOORS[name] = Door()
    return name


def program(url: str) -> Detent:
    """The actions that the tests start."""
    app = Detent(url)
    _declare_plain(app)
    _declare_long(app)
    return app


def _redact(inputs: dict[str, Any]) -> dict[str, Any]:
    """What `secret` says about the other one, said by a function."""
    inputs["login"].pop("token", None)
    return {**inputs, "pat": f"...{inputs['pat'][-2:]}"}


def _declare_plain(app: Detent) -> None:
    @app.job(name="greet")
    async def greet(ctx: Context, name: str, times: int = 1) -> dict[str, Any]:
        for number in range(times):
            ctx.log(f"hello {name} {number + 1}")
        return {"greeted": name}

    @app.job(name="idle", queue="elsewhere")
    async def idle() -> None:
        """Nobody serves its queue."""

    async def deploy(ctx: Context, pat: str, login: dict[str, str], door: str = "") -> str:
        ctx.log(f"the token is {pat}")
        if door:
            await DOORS[door].wait()
        raise UpstreamError("GITHUB_DOWN", f"no answer for {login['token']}")

    app.job(name="deploy", secret=("pat", "login.token"))(deploy)
    app.job(name="redeploy", redact=_redact)(deploy)

    @app.job(name="break")
    async def break_(ctx: Context) -> None:
        ctx.log("now")
        raise ValueError("it broke")

    _ = (greet, idle, break_)


def _declare_long(app: Detent) -> None:
    @app.job(name="deployed", queue="deploys")
    async def deployed(ctx: Context, door: str) -> None:
        ctx.log("begun")
        await DOORS[door].wait()

    @app.job(name="wait")
    async def wait(ctx: Context, door: str, before: int = 0, after: int = 0) -> int:
        for number in range(before):
            ctx.log(f"line {number + 1}")
        await DOORS[door].wait()
        for number in range(after):
            ctx.log(f"line {before + number + 1}")
        return before + after

    @app.job(name="heed", grace=0.05)
    async def heed(ctx: Context) -> None:
        ctx.log("I am here")
        await asyncio.Event().wait()

    _ = (deployed, wait, heed)


@contextmanager
def worker(url: str, **options: Any) -> Iterator[None]:
    """A worker of that program in a thread, until the end of the block."""
    begun, stop, app = threading.Event(), Door(), program(url)

    async def work() -> None:
        usual = {"slots": 20, "upkeep": False, "queues": ("default",)}
        told: WorkingOptions = {**usual, **options}  # type: ignore[typeddict-item]
        async with app.working(**told):
            begun.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        begun.wait(PATIENCE_S)
        yield
    finally:
        stop.set()
        thread.join()
        app.close()
