"""No failure is silent: state, log line, event and count, in every category."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from detent import Detent, Handle
from detent.errors import BadOption
from detent.surfaces.http.exchange import Settings
from tests.surfaces.engines import Engine, Listener, Yard, fresh, held
from tests.surfaces.server import running
from tests.waiting import until

SCHEMA = {
    "type": "object",
    "required": ["asset"],
    "properties": {"asset": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
}


async def _fails(
    yard: Yard, log: pytest.LogCaptureFixture, name: str, listener: Listener
) -> tuple[str, dict[str, Any]]:
    """All four of a failure; its error and what was told."""
    found = await yard.comes_to(name, "failed")
    told = (await listener.end_of(name))[-1][1]
    assert told["error"] == found["error"]
    line = await until(lambda: _line(log, name), "no line in the log")
    assert line["error"] == found["error"]
    assert line["category"] == told["category"]
    return found["error"], told


def _line(log: pytest.LogCaptureFixture, name: str) -> dict[str, Any] | None:
    lines = [one.getMessage() for one in log.records if one.getMessage().startswith("job_failed ")]
    found = [json.loads(line.removeprefix("job_failed ")) for line in lines]
    mine = [one for one in found if one["jobId"] == name]
    assert len(mine) <= 1
    return mine[0] if mine else None


@pytest.mark.parametrize(
    ("code", "category", "ran"),
    [
        pytest.param("BAD_ASSET", "engine", True, id="engine failures: bad asset reference"),
        pytest.param("INVALID_ENTITY", "engine", True, id="engine failures: invalid entity data"),
        pytest.param("SCENE_BUILD", "engine", True, id="engine failures: scene build error"),
        pytest.param("MY_OWN", "engine", False, id="engine failures: a code of its own, refused"),
        pytest.param("OUT_OF_MEMORY", "system", True, id="system failures: out of memory"),
        pytest.param("NETWORK", "system", True, id="system failures: network timeout"),
    ],
)
async def test_all_failures_emit_events_and_are_categorised(
    yard: Yard, caplog: pytest.LogCaptureFixture, code: str, category: str, *, ran: bool
) -> None:
    caplog.set_level(logging.INFO)
    kind, metric = fresh(), f'detent_engine_failures_total{{category="{category}"}}'
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        count = yard.counted(metric)
        job = await engine.job(yard.submit(kind)["jobId"])
        if ran:
            await engine.ok("job_ack", held(job))
        await engine.fail(job, code, "corrupted_texture.png")
        error, told = await _fails(yard, caplog, job["jobId"], listener)
        assert error == f"{code}: corrupted_texture.png"
        assert told["category"] == category
        await until(lambda: yard.counted(metric) == count + 1, "it is not counted")


async def test_queue_failures_queue_timeout_and_engine_disconnected(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kind = fresh()
    async with Engine(yard.port, kind, capacity=1) as engine, Listener(yard.port) as listener:
        await listener.hear()
        offered = await engine.job(yard.submit(kind)["jobId"])
        stuck = yard.submit(kind, deadlines={"queued": 100})["jobId"]
        error, told = await _fails(yard, caplog, stuck, listener)
        assert (error.partition(":")[0], told["category"]) == ("QUEUE_TIMEOUT", "queue")
        # The network breaks, and the engine comes back without the job.
        await engine.drop()
        again = Engine(yard.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        await again.register()
        error, told = await _fails(yard, caplog, offered["jobId"], listener)
        assert (error.partition(":")[0], told["category"]) == ("ENGINE_DISCONNECTED", "queue")
        await again.leave()


async def test_system_failures_engine_crash_fails_all_running_jobs(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        names = [yard.submit(kind)["jobId"] for _ in range(3)]
        for job in await engine.jobs(3):
            await engine.ok("job_ack", held(job))
        await engine.drop()
        other = Engine(yard.port, kind, id=engine.id)
        await other.connect()
        await until(other.is_let_in)
        for name in names:
            error, told = await _fails(yard, caplog, name, listener)
            assert (error.partition(":")[0], told["category"]) == ("ENGINE_DISCONNECTED", "system")
            assert told["engineId"] == engine.id
        await other.leave()


# --- validation: never queued -------------------------------------------------------------------


def _program(url: str) -> Detent:
    app = Detent(url)
    app.engine_type("LOAD_ASSETS", SCHEMA)

    @app.job(name="SPAWN_ENTITY", secret=("token",))
    def spawn(kind: str, x: float = 0.0, token: str = "") -> None:
        """Engines do it."""

    _ = spawn
    return app


async def test_validation_failures_are_refused_before_queuing(
    yard: Yard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metric = 'detent_engine_failures_total{category="validation"}'
    app = _program(yard.url)
    with running(yard.url, Settings(), app) as other:
        here = Yard(yard.url, other.port)
        cases = {
            "invalid job type": ({"jobType": "NOPE"}, "UNKNOWN_JOB_TYPE", "jobType"),
            "missing required payload field": (
                {"jobType": "LOAD_ASSETS", "payload": {"size": 2}},
                "MISSING_FIELD",
                "payload.asset",
            ),
            "missing argument": ({"jobType": "SPAWN_ENTITY"}, "MISSING_FIELD", "payload.kind"),
            "schema validation failure": (
                {"jobType": "LOAD_ASSETS", "payload": {"asset": "a", "size": 0}},
                "SCHEMA_INVALID",
                "payload.size",
            ),
            "signature failure": (
                {"jobType": "SPAWN_ENTITY", "payload": {"kind": 1}},
                "SCHEMA_INVALID",
                "payload.kind",
            ),
            "no type at all": ({"payload": {}}, "MISSING_FIELD", "jobType"),
            "no object": ({"jobType": "LOAD_ASSETS", "payload": [1]}, "BAD_MESSAGE", "payload"),
            "a deadline of no state": (
                {"jobType": "LOAD_ASSETS", "deadlines": {"runningMs": 5}},
                "BAD_MESSAGE",
                "deadlines",
            ),
        }
        before = _jobs(here)
        for number, (body, code, field) in enumerate(cases.values(), start=1):
            answer = here.ask("POST", "/engine/jobs", body)
            error = answer.ok(400)["error"]
            assert (error["code"], error["field"]) == (code, field)
            assert here.counted(metric) == number
        assert sum("job_refused" in one.getMessage() for one in caplog.records) == len(cases)
        assert _jobs(here) == before
        good = here.submit("LOAD_ASSETS", payload={"asset": "a.png"})
        assert (good["status"], good["payload"]) == ("queued", {"asset": "a.png"})
        async with Engine(here.port, "LOAD_ASSETS", "SPAWN_ENTITY") as engine:
            assert (await engine.job(good["jobId"]))["payload"] == {"asset": "a.png"}
            error = await engine.refused("SCHEMA_INVALID", "submit", cases["signature failure"][0])
            assert error["field"] == "payload.kind"
    app.close()


def _jobs(yard: Yard) -> float:
    """How many jobs there are, in whatever state: those of other tests may time out meanwhile."""
    text = yard.ask("GET", "/metrics").text.decode()
    lines = [line for line in text.splitlines() if line.startswith("detent_jobs{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_secret_arguments_reach_the_engine_and_nobody_else(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETENT_SECRET_KEY", "A" * 43 + "=")
    app = _program(yard.url)
    with running(yard.url, Settings(), app) as other:
        here = Yard(yard.url, other.port)
        canary = fresh("canary")
        made = here.submit("SPAWN_ENTITY", payload={"kind": "orc", "token": canary})
        assert made["payload"] == {"kind": "orc", "token": "[secret]"}
        async with Engine(here.port, "SPAWN_ENTITY") as engine:
            job = await engine.job(made["jobId"])
            assert job["payload"] == {"kind": "orc", "token": canary}
        assert canary not in json.dumps(here.job(made["jobId"]))
    app.close()


async def _returns(job: Handle[Any]) -> int:
    """How often it went back."""
    return [event.name for event in await job.ahistory()].count("hand_back")


@pytest.mark.slow
async def test_a_server_without_the_key_leaves_jobs_to_one_that_has_it(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, kind = _program(yard.url), "SPAWN_ENTITY"
    monkeypatch.setenv("DETENT_SECRET_KEY", "A" * 43 + "=")
    with running(yard.url, Settings(), app) as with_key:
        there = Yard(yard.url, with_key.port)
        job = app.handle(there.submit(kind, payload={"kind": "orc", "token": "t"})["jobId"])
        monkeypatch.setenv("DETENT_SECRET_KEY", "B" * 42 + "A=")
        other = _program(yard.url)
        with running(yard.url, Settings(), other) as without:
            async with Engine(without.port, kind):
                await until(lambda: _returns(job))
                assert (await job.astatus()).state == "available"
        async with Engine(there.port, kind) as engine:
            assert (await engine.job(job.id))["payload"] == {"kind": "orc", "token": "t"}
        assert await _returns(job) <= 3, "it does not come and go"
        await other.aclose()
    await app.aclose()


def test_schemas_are_registered_over_http_and_by_programs(yard: Yard) -> None:
    kind = fresh()
    assert yard.ask("POST", "/engine/jobs", {"jobType": kind}).status == 400
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": SCHEMA}).ok()
    error = yard.ask("POST", "/engine/jobs", {"jobType": kind}).ok(400)["error"]
    assert error["code"] == "MISSING_FIELD"
    yard.submit(kind, payload={"asset": "x"}, deadlines={"queued": 50})
    listed = yard.ask("GET", "/engine/types").ok()["jobTypes"]
    assert {"jobType": kind, "schema": SCHEMA} in listed
    for bad, status, path in (
        ({"schema": {"properties": {"a": {"type": [{}]}}}}, 422, "$.properties.a.type"),
        ({"schema": 5}, 422, "$"),
        ({}, 400, None),
        (b"{", 400, None),
    ):
        error = yard.ask("PUT", f"/engine/types/{kind}", bad).ok(status)["error"]
        assert (error["field"], error.get("path")) == ("schema", path)
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": {"type": "object"}}).ok()
    yard.submit(kind, deadlines={"queued": 50})
    with pytest.raises(BadOption, match=r"X: .* \$.pattern: "):
        Detent("memory:").engine_type("X", {"pattern": "(a"})


def test_deadlines_of_a_queue_hold_where_the_job_names_none(yard: Yard) -> None:
    kind, queue = fresh(), fresh("queue").lower()
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": {}}).ok()
    with running(yard.url, Settings(engine_deadlines_ms={queue: (100, 200, 300)})) as other:
        here = Yard(yard.url, other.port)
        name = here.submit(kind, queue=queue)["jobId"]
        found = asyncio.run(here.comes_to(name, "failed"))
        assert found["error"].startswith("QUEUE_TIMEOUT")
        assert found["completedAt"] - found["queuedAt"] >= 100
        patient = here.submit(kind, queue=queue, deadlines={"queued": 60_000})["jobId"]
        assert here.job(patient)["status"] == "queued"


async def test_concurrent_jobs_are_all_done_once(yard: Yard) -> None:
    kind = fresh()
    async with (
        Engine(yard.port, kind, capacity=20) as first,
        Engine(yard.port, kind, capacity=20) as second,
    ):
        names = {yard.submit(kind)["jobId"] for _ in range(60)}

        async def work(engine: Engine) -> None:
            done = 0
            while len(first.pushed) + len(second.pushed) < 60 or done < len(engine.pushed):
                if done < len(engine.pushed):
                    await engine.run(engine.pushed[done])
                    done += 1
                else:
                    await asyncio.wait(
                        {asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.01
                    )

        await asyncio.wait_for(asyncio.gather(work(first), work(second)), 60)
        pushed = [one["jobId"] for one in first.pushed + second.pushed]
        assert len(pushed) == len(names)
        assert set(pushed) == names
        assert {yard.job(name)["status"] for name in names} == {"completed"}
