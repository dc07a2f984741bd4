"""Somebody who speaks Jobnik to a server, as its SDK does: always with a JSON content type."""

from __future__ import annotations

import http.client
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.surfaces.server import Answer

NIL = "00000000-0000-0000-0000-000000000000"
ZEROS = f"00-{'0' * 32}-{'0' * 16}-00"
_NUMBERS = itertools.count()


def fresh(word: str = "type") -> str:
    """A name that no other test has: the server and its store are shared."""
    return f"{word}-{next(_NUMBERS)}"


def problem(answer: Answer, status: int, code: str, message: str | None = None) -> None:
    """The answer is this problem, and whole."""
    assert answer.status == status, answer.text
    assert answer.body.keys() == {"message", "code"}
    assert answer.body["code"] == code, answer.text
    assert answer.body["message"]
    if message is not None:
        assert answer.body["message"] == message


class Jobnik:
    """Speaks on one connection that stays open."""

    def __init__(self, port: int, prefix: str = "", **headers: str) -> None:
        self.port = port
        self._prefix = prefix
        self._headers = {"Content-Type": "application/json", **headers}
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request; `under_score` names a header, and an empty value leaves it out."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        told = self._headers | {name.replace("_", "-"): v for name, v in headers.items()}
        told = {name: value for name, value in told.items() if value}
        whole = (
            path if path.startswith(("/liveness", "/service", "/docs", "/ojs")) else f"/v1{path}"
        )
        self._connection.request(method, f"{self._prefix}{whole}", data, told)
        found = self._connection.getresponse()
        return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())

    def get(self, path: str) -> Any:
        return self.ask("GET", path).ok()

    def close(self) -> None:
        self._connection.close()

    # --- what tests do all the time -------------------------------------------------------------

    def job(self, **fields: Any) -> str:
        """A new job."""
        told = {"name": "a job", "data": {}, **fields}
        return str(self.ask("POST", "/jobs", told).ok(201)["id"])

    def stage(self, job: str, type_: str, **fields: Any) -> str:
        """One more stage."""
        told = {"type": type_, "data": {}, **fields}
        return str(self.ask("POST", f"/jobs/{job}/stage", told).ok(201)["id"])

    def tasks(self, stage: str, count: int = 1, **fields: Any) -> list[str]:
        """More tasks."""
        told = [{"data": {"n": n}, **fields} for n in range(count)]
        return [one["id"] for one in self.ask("POST", f"/stages/{stage}/tasks", told).ok(201)]

    def take(self, type_: str) -> str:
        """The next task of a type, which must be there."""
        return str(self.ask("PATCH", f"/stages/{type_}/tasks/dequeue").ok()["id"])

    def nothing(self, type_: str) -> None:
        """There is nothing to do."""
        problem(self.ask("PATCH", f"/stages/{type_}/tasks/dequeue"), 404, "TASK_NOT_FOUND")

    def tell(self, task: str, status: str, **headers: str) -> Answer:
        """A report."""
        return self.ask("PUT", f"/tasks/{task}/status", {"status": status}, **headers)

    def work(self, type_: str, status: str = "COMPLETED") -> str:
        """Take a task and report on it; what has become of it."""
        return str(self.tell(self.take(type_), status).ok()["status"])

    def steer(self, job: str, status: str) -> Answer:
        """What a user asks of a job."""
        return self.ask("PUT", f"/jobs/{job}/status", {"status": status})

    def release(self, stage: str) -> Answer:
        """What a user asks of a stage."""
        return self.ask("PUT", f"/stages/{stage}/status", {"status": "PENDING"})

    def states(self, job: str) -> tuple[str, list[str]]:
        """The status of a job, and of its stages in order."""
        found = self.get(f"/jobs/{job}?should_return_stages=true")
        return found["status"], [one["status"] for one in found["stages"]]

    def status(self, task: str) -> str:
        """The status of a task."""
        return str(self.get(f"/tasks/{task}")["status"])

    def counts(self, stage: str) -> dict[str, int]:
        """The counters of a stage that are not zero."""
        found: dict[str, int] = self.get(f"/stages/{stage}/summary")
        assert sum(found.values()) == 2 * found["total"]
        return {name: count for name, count in found.items() if count and name != "total"}


def at_once(port: int, asks: list[tuple[Any, ...]]) -> list[Answer]:
    """The answers to requests that come in the same moment, each on its own connection."""

    def one(asked: tuple[Any, ...]) -> Answer:
        client = Jobnik(port)
        try:
            return client.ask(*asked)
        finally:
            client.close()

    with ThreadPoolExecutor(len(asks)) as pool:
        return list(pool.map(one, asks))
