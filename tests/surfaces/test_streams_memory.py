"""Readers of streams cost a server little, however large the jobs are that they follow."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from detent.stores.api import Key
from tests.surfaces.server import Client, Running, eventually, running
from tests.surfaces.streams import Stream

READERS, JOBS = 50, 400
ARGUMENT = "x" * 60_000
# It was several hundred MB when each reader loaded whole jobs.
GROWTH_MAX_MB = 100


# --- what is read from the store ------------------------------------------------------------------


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    """Two servers of one store: one is read from, the other does the work."""
    url = f"sqlite:///{tmp_path}/detent.db"
    with running(url) as first, running(url) as second:
        yield first, second


def counted(server: Running, monkeypatch: pytest.MonkeyPatch, name: str) -> Counter[str]:
    """How often a server asks its store for each job in this way, from now on."""
    store, asked = server.app.service.engine.store, Counter[str]()
    read = getattr(store, name)

    async def ask(keys: Sequence[Key]) -> Any:
        asked.update(job for _, job in keys)
        return await read(keys)

    monkeypatch.setattr(store, name, ask)
    return asked


def test_an_event_is_rendered_once_for_all_who_follow_it(
    servers: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, working = servers
    with closing(Client(working.port)) as client, ExitStack() as open_:
        streams = [Stream(reading, "/events/stream") for _ in range(10)]
        for one in streams:
            open_.callback(one.close)
            assert one.answer.readline() == b"retry: 3000\n"
        whole, heads = (counted(reading, monkeypatch, name) for name in ("get", "heads"))
        job = client.push("a", ARGUMENT)
        client.ack(client.fetch()[0], ARGUMENT)
        told = [[next(frames) for _ in range(6)] for frames in map(Stream.frames, streams)]
    assert [name for name, *_ in told[0]][1::2] == ["job.enqueued", "job.started", "job.completed"]
    assert told == [told[0]] * len(told)
    # There are three events; they may come in one page, or one by one.
    assert (whole[job["id"]], heads[job["id"]] <= 3) == (0, True)


def test_the_result_is_loaded_once_for_all_who_follow_the_job(
    servers: tuple[Running, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, working = servers
    with closing(Client(working.port)) as client, ExitStack() as open_:
        job = client.push("a", ARGUMENT)
        connections = [http.client.HTTPConnection("127.0.0.1", reading.port) for _ in range(10)]
        for one in connections:
            open_.callback(one.close)
            one.request("GET", f"/api/jobs/{job['id']}/events")
        answers = [one.getresponse() for one in connections]
        for answer in answers:
            assert answer.readline() == b"retry: 3000\n"
            assert (answer.readline(), answer.readline()[:7]) == (b"id: 0\n", b"event: ")
        whole, heads = (counted(reading, monkeypatch, name) for name in ("get", "heads"))
        client.ack(client.fetch()[0], ARGUMENT)
        for answer in answers:
            assert ARGUMENT in answer.read().decode()
    assert (whole[job["id"]], heads[job["id"]] <= 3) == (1, True)


# --- memory ---------------------------------------------------------------------------------------


class Serving:
    """A server in a process of its own."""

    def __init__(self, pid: int, port: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self.port = port

    def memory_mb(self, name: str) -> float:
        """How much memory it has (`VmRSS`), or has had at most (`VmHWM`)."""
        lines = self._status.read_text("ascii").splitlines()
        return next(int(one.split()[1]) / 1_024 for one in lines if one.startswith(name))


@contextmanager
def serving(folder: Path) -> Iterator[Serving]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    told = ["serve", "--store", f"sqlite:///{folder}/detent.db", "--port", str(port)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "detent", *told], cwd=folder, stderr=log
        ) as process,
    ):
        try:
            eventually(lambda: is_open(port))
            yield Serving(process.pid, port)
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Reader(threading.Thread):
    """Reads a stream until so many events have come."""

    def __init__(self, port: int, path: str, events: int) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.request("GET", path)
        self._answer = self._connection.getresponse()
        assert self._answer.readline() == b"retry: 3000\n"
        self._left = events
        self.start()

    def run(self) -> None:
        while self._left and (line := self._answer.readline()):
            self._left -= line.startswith(b"event: ")
        self._answer.close()
        self._connection.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="it reads /proc")
def test_readers_hold_no_arguments(tmp_path: Path) -> None:
    with serving(tmp_path) as server, closing(Client(server.port)) as client:
        client.push("a")
        path, events = "/ojs/v1/events/stream", 2 * JOBS
        readers = [Reader(server.port, path, events) for _ in range(READERS)]
        before = server.memory_mb("VmRSS")
        job = {"type": "a", "args": [ARGUMENT]}
        for _ in range(JOBS // 50):
            client.post("/jobs/batch", {"jobs": [job] * 50}).ok(201)
        for one in readers:
            one.join(60)
            assert not one.is_alive()
        growth = server.memory_mb("VmHWM") - before
        assert growth < GROWTH_MAX_MB, f"{growth:.0f} MB more than {before:.0f} MB"
