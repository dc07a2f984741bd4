"""Engines and subscribers on real sockets, each a client that is not ours."""

from __future__ import annotations

import asyncio
import http.client
import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import socketio

from detent.engine_client import EngineClient
from tests.surfaces.server import Answer
from tests.waiting import until

PATIENCE_S = 30.0
ENGINE, EVENTS = "/engine", "/events"


class Yard(NamedTuple):
    """A server with its store."""

    url: str
    port: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; what is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = {"content-type": "application/json"} if body is not None else {}
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, data, told)
            found = connection.getresponse()
            names = {name.lower(): value for name, value in found.getheaders()}
            return Answer(found.status, names, found.read())
        finally:
            connection.close()

    def submit(self, job_type: str, **more: Any) -> dict[str, Any]:
        """A new job."""
        body = {"jobType": job_type, **more}
        found: dict[str, Any] = self.ask("POST", "/engine/jobs", body).ok(202)
        return found

    def job(self, name: str, at: int | None = None) -> dict[str, Any]:
        """The job object."""
        query = "" if at is None else f"?at={at}"
        found: dict[str, Any] = self.ask("GET", f"/engine/jobs/{name}{query}").ok()
        return found

    async def comes_to(self, name: str, status: str) -> dict[str, Any]:
        """The job as soon as it has this status."""

        def look() -> dict[str, Any]:
            found = self.job(name)
            return found if found["status"] == status else {}

        found: dict[str, Any] = await until(look, f"{name} is not {status}: {self.job(name)}")
        return found

    def counted(self, name: str) -> float:
        """A number of the metrics."""
        text = self.ask("GET", "/metrics").text.decode()
        found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name)]
        return float(found[0]) if found else 0.0


def fresh(word: str = "T") -> str:
    """A name that no other test has."""
    return f"{word}-{uuid.uuid4().hex[:12]}"


class Client:
    """A connection to one namespace; what comes is kept in the order it came."""

    namespace = ENGINE

    def __init__(self, port: int, key: str | None = None) -> None:
        self._port = port
        self._auth = None if key is None else {"key": key}
        self.came: list[tuple[str, dict[str, Any]]] = []
        self.sio = socketio.AsyncClient(reconnection=False)
        self.sio.on("*", self._came, namespace=self.namespace)
        self.gone = asyncio.Event()
        self.sio.on("disconnect", self._gone, namespace=self.namespace)

    async def _came(self, name: str, data: dict[str, Any]) -> None:
        self.came.append((name, data))

    async def _gone(self, *_: object) -> None:
        self.gone.set()

    async def connect(self) -> None:
        await self.sio.connect(
            f"http://127.0.0.1:{self._port}",
            namespaces=[self.namespace],
            transports=["websocket"],
            auth=self._auth,
            wait_timeout=PATIENCE_S,
        )

    async def __aenter__(self) -> Any:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Disconnect as one should."""
        with suppress(Exception):
            await self.sio.disconnect()

    async def drop(self) -> None:
        """Be gone without a word, as when the network breaks."""
        websocket = self.sio.eio.ws
        websocket._response.connection.transport.abort()  # noqa: SLF001
        await asyncio.wait_for(self.sio.eio.wait(), PATIENCE_S)

    async def call(self, name: str, data: Any = None) -> dict[str, Any]:
        """Say something and hear the answer."""
        found: dict[str, Any] = await self.sio.call(
            name, {} if data is None else data, namespace=self.namespace, timeout=PATIENCE_S
        )
        return found

    async def ok(self, name: str, data: Any = None) -> dict[str, Any]:
        """The same if it is taken."""
        found = await self.call(name, data)
        assert found["ok"] is True, found
        return found

    async def refused(self, code: str, name: str, data: Any = None) -> dict[str, Any]:
        """The error, if it is the expected one."""
        found = await self.call(name, data)
        assert found["ok"] is False, found
        error: dict[str, Any] = found["error"]
        assert error["code"] == code, error
        assert error["message"]
        return error

    async def comes(self, name: str, fits: Callable[[dict[str, Any]], bool] = bool) -> Any:
        """The first message of that name that fits, as soon as it is there."""
        return await until(
            lambda: next((data for one, data in self.came if one == name and fits(data)), None),
            f"{name} does not come; there are {[one for one, _ in self.came]}",
        )


class Engine(Client):
    """An engine under a name of its own."""

    def __init__(self, port: int, *types: str, capacity: int = 10, **more: Any) -> None:
        super().__init__(port, more.pop("key", None))
        self.id: str = more.pop("id", None) or fresh("engine")
        self.boot: str = more.pop("boot", None) or fresh("boot")
        self.told: dict[str, Any] = {
            "engineId": self.id,
            "bootId": self.boot,
            "jobTypes": list(types),
            "capacity": capacity,
            **more,
        }

    async def __aenter__(self) -> Engine:
        await self.connect()
        await self.register()
        return self

    async def register(self, **more: Any) -> dict[str, Any]:
        return await self.ok("register", {**self.told, **more})

    async def is_let_in(self) -> bool:
        """Whether it is registered, once it is asked again."""
        return bool((await self.call("register", self.told))["ok"])

    async def job(self, name: str | None = None, attempt: int = 1) -> dict[str, Any]:
        """A job that was pushed: the first, or this one."""
        found: dict[str, Any] = await self.comes(
            "job", lambda one: name in (None, one["jobId"]) and one["attempt"] == attempt
        )
        return found

    async def jobs(self, count: int) -> list[dict[str, Any]]:
        """So many jobs."""
        await until(lambda: len(self.pushed) >= count, f"only {len(self.pushed)} jobs")
        return self.pushed

    @property
    def pushed(self) -> list[dict[str, Any]]:
        return [data for name, data in self.came if name == "job"]

    async def run(self, job: dict[str, Any], **result: Any) -> None:
        """Do it, and say so."""
        await self.ok("job_ack", held(job))
        await self.ok("job_complete", held(job, result=result))

    async def fail(self, job: dict[str, Any], code: str, message: str = "it broke") -> None:
        await self.ok("job_failed", held(job, error={"code": code, "message": message}))


class Listener(Client):
    """Somebody who hears what happens."""

    namespace = EVENTS

    async def hear(self, **asked: Any) -> dict[str, Any]:
        return await self.ok("subscribe", {"names": "new", **asked})

    def of(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """What was told of a job, without the second name of a failure."""
        return [one for one in self.came if one[1].get("jobId") == name and one[0] != "job_failed"]

    def names(self, job: str) -> list[str]:
        return [name for name, _ in self.of(job)]

    async def end_of(self, job: str) -> list[tuple[str, dict[str, Any]]]:
        """All that is told of a job, as soon as it has ended."""
        ends = ("JOB_COMPLETED", "JOB_FAILED")
        await until(lambda: set(ends) & set(self.names(job)), f"no end of {job}: {self.of(job)}")
        return self.of(job)


def held(job: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What every report names."""
    return {"jobId": job["jobId"], "lease": job["lease"], **more}


async def sever(engine: EngineClient) -> None:
    """Cut the connection of an engine, without a word to the other side."""
    await engine._sio.eio.disconnect(abort=True)  # noqa: SLF001 - nobody else does that
