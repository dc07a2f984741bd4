"""What the hardened lifecycle is to be judged by: its six criteria, each as one test."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from detent.surfaces.http.exchange import Settings
from tests.surfaces.engines import Engine, Listener, Yard, fresh, held
from tests.surfaces.server import running
from tests.waiting import eventually, until

WAYS = ("complete", "fail", "refuse", "unacknowledged", "cancelled", "stuck")
QUICK = {"dispatched": 3_000}


async def _play(yard: Yard, engine: Engine, kind: str, way: str) -> str:
    """One job that ends in this way; its id."""
    name: str = yard.submit(kind, deadlines={"dispatched": 100} if way[0] == "u" else QUICK)[
        "jobId"
    ]
    job = await engine.job(name)
    if way == "refuse":
        await engine.fail(job, "INVALID_ENTITY")
    elif way in ("complete", "fail", "cancelled"):
        await engine.ok("job_ack", held(job))
    if way == "complete":
        await engine.ok("job_complete", held(job, result=1))
    elif way == "fail":
        await engine.fail(job, "SCENE_BUILD")
    elif way == "cancelled":
        yard.ask("POST", f"/api/jobs/{name}/cancel").ok(202)
        await engine.comes("cancel", lambda one: one["jobId"] == name)
        await engine.fail(job, "CANCELLED")
    return name


async def _stuck(yard: Yard) -> str:
    kind = fresh()
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": {}}).ok()
    name: str = yard.submit(kind, deadlines={"queued": 100})["jobId"]
    return name


async def _played(yard: Yard, listener: Listener) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """One job of every way, and all that was told of each."""
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        names = {way: await _play(yard, engine, kind, way) for way in WAYS[:-1]}
        names["stuck"] = await _stuck(yard)
        return {way: await listener.end_of(name) for way, name in names.items()}


async def test_criteria_1_to_4_and_6(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Listener(yard.port) as listener:
        await listener.hear()
        told = await _played(yard, listener)
        failed = {way: events[-1][1] for way, events in told.items() if way != "complete"}
        # 1. Zero silent failures: state, line, event and telemetry of each.
        for one in failed.values():
            assert yard.job(one["jobId"])["status"] == "failed"
            await until(partial(_has_line, caplog, one["jobId"]))
            await until(partial(listener.came.count, ("job_failed", one)))
            assert listener.came.count(("job_failed", one)) == 1
        # 2. All jobs have complete telemetry.
        for events in told.values():
            names = [name for name, _ in events]
            assert names[0] == "JOB_QUEUED"
            assert sum(name in ("JOB_COMPLETED", "JOB_FAILED") for name in names) == 1
        # 3. State transitions are deterministic: the same messages lead to the same moves.
        again = await _played(yard, listener)
        assert _moves(again) == _moves(told)
        # 4. Failures are categorised and logged.
        assert {way: one["category"] for way, one in failed.items()} == {
            "fail": "engine",
            "refuse": "engine",
            "unacknowledged": "system",
            "cancelled": "cancelled",
            "stuck": "queue",
        }
        # 6. Job history is replayable: the record at each moment says what was told last by then.
        moments = [(name, _moment(data)) for name, data in told["complete"]]
        for _, at in moments:
            status = yard.job(told["complete"][0][1]["jobId"], at=at)["status"]
            assert f"JOB_{status.upper()}" == [name for name, when in moments if when <= at][-1]


def _moment(data: dict[str, Any]) -> int:
    moment: int = next(data[key] for key in data if key.endswith("At"))
    return moment


def _has_line(log: pytest.LogCaptureFixture, name: str) -> bool:
    texts = [record.getMessage() for record in log.records]
    return any(text.startswith("job_failed ") and name in text for text in texts)


def _moves(told: dict[str, list[tuple[str, dict[str, Any]]]]) -> dict[str, list[str]]:
    return {
        way: [f"{name} {str(data.get('error')).partition(':')[0]}" for name, data in events]
        for way, events in told.items()
    }


async def test_criterion_5_engine_integration_is_bidirectional(yard: Yard) -> None:
    """The engine says: come, begun, so far, said, done. It hears: jobs, cancels, what is gone."""
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        assert (await engine.ok("job_ack", held(job, started=False)))["status"] == "dispatched"
        assert (await engine.ok("job_started", held(job)))["status"] == "running"
        await engine.ok("job_progress", held(job, progress=50))
        await engine.ok("job_log", held(job, lines=["half"]))
        yard.ask("POST", f"/api/jobs/{job['jobId']}/cancel").ok(202)
        await engine.comes("cancel")
        assert (await engine.ok("heartbeat", {"jobs": [job["jobId"]]}))["gone"] == []
        assert (await engine.ok("job_complete", held(job)))["status"] == "completed"


async def test_a_deadline_fires_also_across_a_server_restart(yard: Yard) -> None:
    kind = fresh()
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": {}}).ok()
    with running(yard.url, Settings()) as other:
        name = Yard(yard.url, other.port).submit(kind, deadlines={"queued": 500})["jobId"]
    with running(yard.url, Settings()) as again:
        found = await Yard(yard.url, again.port).comes_to(name, "failed")
        assert found["error"].startswith("QUEUE_TIMEOUT")


async def test_a_server_that_is_killed_loses_nothing_that_it_has_confirmed(tmp_path: Path) -> None:
    """kill -9 of a real process: the engine comes back to the next one with its lease."""
    url, kind = f"sqlite:///{tmp_path}/detent.db", fresh()
    with _process(url, tmp_path) as first:
        engine = Engine(first.port, kind)
        await engine.connect()
        await engine.register()
        job = await engine.job(Yard(url, first.port).submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        first.kill()
    with running(url, Settings()) as server:
        again = Engine(server.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        assert (await again.register(resume=[held(job)]))["resumed"] == [job["jobId"]]
        await again.ok("job_complete", held(job, result="kept"))
        assert Yard(url, server.port).job(job["jobId"])["result"] == "kept"
        await again.leave()
    await engine.leave()


class _process:  # noqa: N801 - it is used as a word of the language
    """`detent serve` as a process of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        command = [sys.executable, "-m", "detent", "serve", "--port", "0"]
        self._log = (folder / "log").open("wb")
        self._child = subprocess.Popen(  # noqa: S603
            command, env={**os.environ, "DETENT_STORE": url}, stderr=self._log, stdout=self._log
        )
        self._path = folder / "log"
        self.port = 0

    def __enter__(self) -> _process:
        mark = "http://127.0.0.1:"
        text = eventually(lambda: found if mark in (found := self._path.read_text()) else "")
        self.port = int(text.partition(mark)[2].split()[0].rstrip("/"))
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def kill(self) -> None:
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
