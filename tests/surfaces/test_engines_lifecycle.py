"""The strict path of a pushed job: every row of its rules, over a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.surfaces.engines import Engine, Listener, Yard, fresh, held

LIMIT_MS, LATE_MS = 300, 5_000
"""A limit fires within a second; a busy machine may take longer to notice."""


# --- valid transitions --------------------------------------------------------------------------


async def test_valid_transitions_succeed_queued_dispatched_running_completed(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        made = yard.submit(kind, payload={"scene": "harbour"}, userId="user_123")
        assert made["status"] in ("queued", "dispatched")
        job = await engine.job(made["jobId"])
        assert (job["jobType"], job["payload"], job["attempt"]) == (kind, {"scene": "harbour"}, 1)
        found = yard.job(made["jobId"])
        assert found["status"] == "dispatched"
        assert job["deadlineAt"] == found["dispatchedAt"] + 10_000
        reply = await engine.ok("job_ack", held(job))
        found = yard.job(made["jobId"])
        assert (reply["status"], found["status"]) == ("running", "running")
        assert reply["deadlineAt"] == found["startedAt"] + 60_000
        assert (await engine.ok("job_complete", held(job, result={"n": 1})))[
            "status"
        ] == "completed"
        found = yard.job(made["jobId"])
        assert (found["status"], found["result"], found["error"]) == ("completed", {"n": 1}, None)
        assert (found["engineId"], found["userId"]) == (engine.id, "user_123")
        instants = ["submittedAt", "queuedAt", "dispatchedAt", "startedAt", "completedAt"]
        assert sorted(found[name] for name in instants) == [found[name] for name in instants]
        # The seed says v4; ours are time-ordered.
        assert found["jobId"][14] == "7"


async def test_valid_transition_running_to_failed(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        await engine.fail(job, "SCENE_BUILD", "no floor")
        found = yard.job(job["jobId"])
        assert (found["status"], found["error"]) == ("failed", "SCENE_BUILD: no floor")
        assert (found["engineId"], found["retryCount"]) == (engine.id, 0)


# --- invalid transitions are rejected -----------------------------------------------------------


async def test_invalid_queued_to_running_must_dispatch_first(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, fresh()) as other, Engine(yard.port, kind, capacity=1) as engine:
        first = await engine.job(yard.submit(kind)["jobId"])
        name = yard.submit(kind)["jobId"]
        forged = {"jobId": name, "lease": first["lease"]}
        for one in (engine, other):
            error = await one.refused("INVALID_TRANSITION", "job_ack", forged)
            assert error["status"] == "queued"
        assert yard.job(name)["status"] == "queued"


async def test_invalid_queued_to_completed_must_run_first(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=1) as engine:
        first = await engine.job(yard.submit(kind)["jobId"])
        name = yard.submit(kind)["jobId"]
        forged = {"jobId": name, "lease": first["lease"], "result": 1}
        await engine.refused("INVALID_TRANSITION", "job_complete", forged)
        assert yard.job(name)["status"] == "queued"


async def test_invalid_dispatched_to_completed_must_run_first(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        for name, more in (("job_complete", {"result": 1}), ("job_progress", {"progress": 1})):
            error = await engine.refused("INVALID_TRANSITION", name, held(job, **more))
            assert error["status"] == "dispatched"
        found = yard.job(job["jobId"])
        assert (found["status"], found["result"]) == ("dispatched", None)
        # The refusal has changed nothing: the job goes on as if it had not been.
        await engine.run(job)


@pytest.mark.parametrize("end", ["completed", "failed"])
async def test_invalid_completed_or_failed_to_anything_terminal_state(yard: Yard, end: str) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        if end == "completed":
            await engine.ok("job_complete", held(job, result="first"))
        else:
            await engine.fail(job, "BAD_ASSET")
        before = yard.job(job["jobId"])
        for name, more in _MESSAGES.items():
            error = await engine.refused("JOB_ENDED", name, held(job, **more))
            assert error["status"] == end
        assert yard.job(job["jobId"]) == before


_MESSAGES: dict[str, dict[str, Any]] = {
    "job_ack": {},
    "job_started": {},
    "job_progress": {"progress": 5},
    "job_log": {"lines": ["late"]},
    "job_complete": {"result": "second"},
    "job_failed": {"error": {"code": "LATE"}},
}


async def test_another_engine_cannot_speak_for_a_job_even_with_its_lease(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Engine(yard.port, fresh()) as thief:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        for name, more in _MESSAGES.items():
            await thief.refused("NOT_HOLDER", name, held(job, **more))
        stale = {**job, "lease": fresh()}
        for name, more in _MESSAGES.items():
            await engine.refused("LEASE_ENDED", name, held(stale, **more))
        await engine.refused("UNKNOWN_JOB", "job_ack", {"jobId": fresh(), "lease": "x"})
        assert yard.job(job["jobId"])["status"] == "running"


async def test_messages_about_one_job_are_answered_in_order_without_waiting(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        said = [
            engine.ok("job_ack", held(job)),
            engine.ok("job_progress", held(job, progress=10)),
            engine.ok("job_log", held(job, lines=["one", "two"])),
            engine.ok("job_complete", held(job, result=1)),
        ]
        replies = await asyncio.gather(*said)
        assert [one.get("status") for one in replies] == ["running", None, None, "completed"]


# --- timeouts trigger failures ------------------------------------------------------------------


async def test_timeout_queued_queue_stuck(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=1) as engine, Listener(yard.port) as listener:
        await listener.hear()
        await engine.job(yard.submit(kind)["jobId"])
        name = yard.submit(kind, deadlines={"queued": LIMIT_MS})["jobId"]
        found = await yard.comes_to(name, "failed")
        assert found["error"].startswith("QUEUE_TIMEOUT: ")
        assert LIMIT_MS <= found["completedAt"] - found["queuedAt"] < LATE_MS
        [_, (_, told)] = await listener.end_of(name)
        assert (told["category"], told["engineId"]) == ("queue", None)
        assert told["duration"] == told["failedAt"] - found["queuedAt"]


async def test_timeout_dispatched_engine_not_responding(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        job = await engine.job(yard.submit(kind, deadlines={"dispatched": LIMIT_MS})["jobId"])
        found = await yard.comes_to(job["jobId"], "failed")
        assert found["error"].startswith("ENGINE_NOT_RESPONDING: ")
        assert LIMIT_MS <= found["completedAt"] - found["dispatchedAt"] < LATE_MS
        told = (await listener.end_of(job["jobId"]))[-1][1]
        assert (told["category"], told["engineId"]) == ("system", None)
        # The engine is told, and whatever it says later is refused.
        cancel = await engine.comes("cancel", lambda one: one["jobId"] == job["jobId"])
        assert cancel["reason"].startswith("ENGINE_NOT_RESPONDING")
        await engine.refused("JOB_ENDED", "job_ack", held(job))


async def test_timeout_running_job_timeout(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        deadlines = {"running": LIMIT_MS}
        job = await engine.job(yard.submit(kind, deadlines=deadlines)["jobId"])
        await engine.ok("job_ack", held(job))
        found = await yard.comes_to(job["jobId"], "failed")
        assert found["error"].startswith("JOB_TIMEOUT: ")
        assert LIMIT_MS <= found["completedAt"] - found["startedAt"] < LATE_MS
        told = (await listener.end_of(job["jobId"]))[-1][1]
        assert (told["category"], told["engineId"]) == ("system", engine.id)
        assert (await engine.comes("cancel"))["reason"].startswith("JOB_TIMEOUT")


async def test_the_limits_are_30_10_and_60_seconds_unless_somebody_says_otherwise(
    yard: Yard,
) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        found = yard.job(job["jobId"])
        assert job["deadlineAt"] - found["dispatchedAt"] == 10_000
        reply = await engine.ok("job_ack", held(job))
        assert reply["deadlineAt"] - yard.job(job["jobId"])["startedAt"] == 60_000


async def test_a_receipt_meets_the_ten_seconds_and_another_minute_begins(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        deadlines = {"dispatched": 1_500}
        job = await engine.job(yard.submit(kind, deadlines=deadlines)["jobId"])
        reply = await engine.ok("job_ack", held(job, started=False))
        assert reply["status"] == "dispatched"
        assert reply["deadlineAt"] > job["deadlineAt"] + 50_000
        again = await engine.ok("job_ack", held(job, started=False))
        assert again["deadlineAt"] == reply["deadlineAt"]
        late = await engine.job(yard.submit(kind, deadlines=deadlines)["jobId"])
        await yard.comes_to(late["jobId"], "failed")
        assert yard.job(job["jobId"])["status"] == "dispatched"
        assert (await engine.ok("job_started", held(job)))["status"] == "running"
        await engine.ok("job_complete", held(job))


async def test_with_attempts_left_a_missed_limit_is_a_failed_attempt(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        deadlines = {"dispatched": 200}
        job = await engine.job(yard.submit(kind, maxAttempts=2, deadlines=deadlines)["jobId"])
        again = await engine.job(job["jobId"], attempt=2)
        assert again["lease"] != job["lease"]
        await engine.refused("LEASE_ENDED", "job_ack", held(job))
        await engine.run(again)
        told = await listener.end_of(job["jobId"])
        assert [name for name, _ in told] == [
            "JOB_QUEUED",
            "JOB_DISPATCHED",
            "JOB_RETRYING",
            "JOB_DISPATCHED",
            "JOB_RUNNING",
            "JOB_COMPLETED",
        ]
        assert told[2][1]["error"].startswith("ENGINE_NOT_RESPONDING")
        assert yard.job(job["jobId"])["retryCount"] == 1


# --- cancelling ---------------------------------------------------------------------------------


async def test_a_running_job_is_asked_to_stop_and_confirms(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        yard.ask("POST", f"/api/jobs/{job['jobId']}/cancel").ok(202)
        cancel = await engine.comes("cancel")
        assert (cancel["jobId"], cancel["lease"]) == (job["jobId"], job["lease"])
        assert cancel["reason"].startswith("CANCELLED")
        await engine.fail(job, "CANCELLED")
        found = yard.job(job["jobId"])
        assert found["status"] == "failed"
        assert found["error"].startswith("CANCELLED")
        assert (await listener.end_of(job["jobId"]))[-1][1]["category"] == "cancelled"


async def test_a_success_that_comes_first_beats_the_cancel(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        yard.ask("POST", f"/api/jobs/{job['jobId']}/cancel").ok(202)
        await engine.comes("cancel")
        assert (await engine.ok("job_complete", held(job)))["status"] == "completed"


async def test_a_dispatched_job_is_called_off_at_once_and_makes_room(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=1) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        following = yard.submit(kind)["jobId"]
        yard.ask("POST", f"/api/jobs/{job['jobId']}/cancel").ok()
        assert (await engine.comes("cancel"))["jobId"] == job["jobId"]
        await engine.job(following)
