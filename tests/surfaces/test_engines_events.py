"""Telemetry: what is told, to whom, from which cursor on, and once more."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.surfaces.engines import Engine, Listener, Yard, fresh, held
from tests.waiting import until

ENDS = ("JOB_COMPLETED", "JOB_FAILED")


async def test_guarantee_every_job_emits_job_queued_and_one_end_in_order(yard: Yard) -> None:
    """Also: no job can complete without telemetry, and durations are differences of instants."""
    kind, chance = fresh(), random.Random(4)
    async with Engine(yard.port, kind, capacity=50) as engine, Listener(yard.port) as listener:
        await listener.hear()
        names = [yard.submit(kind, maxAttempts=2, userId="u")["jobId"] for _ in range(20)]
        for job in await engine.jobs(20):
            await _treat(engine, job, chance)
        for name in names:
            if yard.job(name)["status"] == "queued":
                await engine.run(await engine.job(name, attempt=2))
        for name in names:
            _need_sound(await listener.end_of(name), yard.job(name))


async def _treat(engine: Engine, job: dict[str, Any], chance: random.Random) -> None:
    way = chance.choice(["complete", "fail", "refuse", "for good"])
    if way == "refuse":
        return await engine.fail(job, "INVALID_ENTITY")
    await engine.ok("job_ack", held(job))
    if way == "complete":
        await engine.ok("job_complete", held(job))
        await engine.refused("JOB_ENDED", "job_complete", held(job))
    elif way == "fail":
        await engine.fail(job, "BAD_ASSET")
    else:
        error = {"code": "BAD_ASSET", "retryable": False}
        await engine.ok("job_failed", held(job, error=error))
    return None


def _need_sound(told: list[tuple[str, dict[str, Any]]], job: dict[str, Any]) -> None:
    names = [name for name, _ in told]
    assert names.count("JOB_QUEUED") == 1
    assert sum(names.count(end) for end in ENDS) == 1
    assert names[0] == "JOB_QUEUED"
    assert names[-1] in ENDS
    cursors = [data["cursor"] for _, data in told]
    assert cursors == sorted(set(cursors))
    first, last = told[0][1], told[-1][1]
    at = last["completedAt"] if names[-1] == "JOB_COMPLETED" else last["failedAt"]
    begun = next((data["startedAt"] for name, data in reversed(told) if name == "JOB_RUNNING"), 0)
    ran = names[-2] == "JOB_RUNNING"
    assert last["duration"] == at - (begun if ran else first["queuedAt"])
    assert (last["engineId"] is not None) is ran
    assert at == job["completedAt"]
    assert job["status"] == ("completed" if names[-1] == "JOB_COMPLETED" else "failed")


async def test_each_event_has_exactly_its_fields(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        good = await engine.job(yard.submit(kind, userId="user_123")["jobId"])
        await engine.ok("job_ack", held(good))
        await engine.ok("job_progress", held(good, progress=42.5, message="half"))
        await engine.ok("job_complete", held(good))
        told = dict(await listener.end_of(good["jobId"]))
        name = good["jobId"]
        assert told["JOB_QUEUED"].keys() == {"jobId", "jobType", "userId", "queuedAt", "cursor"}
        assert told["JOB_QUEUED"]["userId"] == "user_123"
        assert told["JOB_DISPATCHED"].keys() == {"jobId", "engineId", "dispatchedAt", "cursor"}
        assert told["JOB_RUNNING"].keys() == {"jobId", "engineId", "startedAt", "cursor"}
        ended = {"jobId", "engineId", "completedAt", "duration", "cursor"}
        assert told["JOB_COMPLETED"].keys() == ended
        assert told["JOB_COMPLETED"]["engineId"] == engine.id
        assert await listener.comes("JOB_PROGRESS") == {"jobId": name, "progress": 42.5}
        bad = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(bad))
        await engine.fail(bad, "BAD_ASSET", "corrupted_texture.png")
        failed = (await listener.end_of(bad["jobId"]))[-1][1]
        fields = {"jobId", "engineId", "failedAt", "error", "duration", "category", "cursor"}
        assert failed.keys() == fields
        assert failed["error"] == "BAD_ASSET: corrupted_texture.png"
        # The same under the name that the rule about failures has for it.
        assert (
            await listener.comes("job_failed", lambda one: one["jobId"] == bad["jobId"]) == failed
        )


async def test_rooms_all_a_job_and_a_user(yard: Yard) -> None:
    kind, user = fresh(), fresh("user")
    async with (
        Engine(yard.port, kind) as engine,
        Listener(yard.port) as everything,
        Listener(yard.port) as of_job,
        Listener(yard.port) as of_user,
    ):
        await everything.hear()
        await of_user.hear(userId=user)
        mine = yard.submit(kind, userId=user)["jobId"]
        other = yard.submit(kind, userId=fresh("user"))["jobId"]
        await of_job.hear(jobId=other, after=0)
        for name in (mine, other):
            job = await engine.job(name)
            await engine.ok("job_ack", held(job))
            await engine.ok("job_progress", held(job, progress=1))
            await engine.ok("job_complete", held(job))
        for name in (mine, other):
            await everything.end_of(name)
        await of_user.end_of(mine)
        await of_job.end_of(other)
        assert {data["jobId"] for _, data in of_user.came} == {mine}
        assert {data["jobId"] for _, data in of_job.came} == {other}
        assert of_job.names(other)[0] == "JOB_QUEUED"
        assert "JOB_PROGRESS" in of_user.names(mine)


async def test_a_subscriber_resumes_from_a_cursor_and_misses_nothing(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=100) as engine, Listener(yard.port) as first:
        start = (await first.hear())["cursor"]
        names = [yard.submit(kind)["jobId"] for _ in range(15)]
        jobs = {job["jobId"]: job for job in await engine.jobs(15)}
        for name in names[:8]:
            await engine.run(jobs[name])
        await first.end_of(names[7])
        cursor = first.came[-1][1]["cursor"]
        await first.drop()
        # What happens while nobody listens, and while the second one catches up.
        for name in names[8:12]:
            await engine.run(jobs[name])
        async with Listener(yard.port) as second, Listener(yard.port) as whole:
            await second.hear(after=cursor)
            await whole.hear(after=start)
            for name in names[12:]:
                await engine.run(jobs[name])
            for name in names:
                await whole.end_of(name)
            await second.end_of(names[-1])
            before = [data["cursor"] for _, data in first.came]
            after = [data["cursor"] for _, data in second.came]
            assert before == [one for one in _cursors(whole) if one <= cursor]
            assert after == [one for one in _cursors(whole) if one > cursor]
            # Progress is live only: nobody hears of it later.
            assert "JOB_PROGRESS" not in {name for name, _ in whole.came}


def _cursors(listener: Listener) -> list[int]:
    return [data["cursor"] for _, data in listener.came]


async def test_replay_tells_a_range_once_more_at_a_multiple_of_its_speed(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.run(job)
        other = await engine.job(yard.submit(kind)["jobId"])
        await engine.run(other)
        live = await listener.end_of(job["jobId"])
        await listener.end_of(other["jobId"])
        since, until_ = live[0][1]["queuedAt"], live[-1][1]["completedAt"]
        asked = {"since": since, "until": until_, "jobId": job["jobId"]}
        for more in ({}, {"speed": 10}):
            listener.came.clear()
            await listener.ok("replay", {**asked, **more})
            end = await listener.comes("replay_end")
            assert end == {"events": len(live)}
            told = listener.of(job["jobId"])
            assert told == [(name, {**data, "replayed": True}) for name, data in live]
            assert {data.get("jobId") for _, data in listener.came} == {job["jobId"], None}
        await listener.refused("BAD_MESSAGE", "replay", {"since": 2, "until": 1})
        await listener.refused("MISSING_FIELD", "replay", {"since": 2})


async def test_replay_takes_the_pauses_as_they_were_divided(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        name = yard.submit(kind, deadlines={"dispatched": 600})["jobId"]
        await engine.job(name)
        told = await listener.end_of(name)
        span = (told[-1][1]["failedAt"] - told[0][1]["queuedAt"]) / 1_000
        loop = asyncio.get_running_loop()
        asked = {"since": told[0][1]["queuedAt"], "until": told[-1][1]["failedAt"], "jobId": name}
        began = loop.time()
        await listener.ok("replay", {**asked, "speed": 2})
        await listener.comes("replay_end")
        assert loop.time() - began >= span / 2 * 0.9


async def test_the_record_is_rebuilt_as_it_was_at_any_moment(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        name = yard.submit(kind, deadlines={"dispatched": 30, "queued": 60_000})["jobId"]
        await engine.job(name)
        told = await listener.end_of(name)
        dispatched = yard.job(name, at=told[1][1]["dispatchedAt"])
        assert (dispatched["status"], dispatched["error"]) == ("dispatched", None)
        assert dispatched["completedAt"] is None
        ended = yard.job(name, at=told[-1][1]["failedAt"])
        assert ended == yard.job(name)
        before = yard.ask("GET", f"/engine/jobs/{name}?at={told[0][1]['queuedAt'] - 1}")
        assert before.status == 404
        assert yard.ask("GET", f"/engine/jobs/{name}?at=soon").status == 400


async def test_old_names_come_beside_the_new_ones_until_nobody_needs_them(yard: Yard) -> None:
    kind, metric = fresh(), 'detent_event_subscribers{names="old"}'
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear(names="both")
        count = yard.counted(metric)
        assert count >= 1
        good = await engine.job(yard.submit(kind)["jobId"])
        await engine.run(good)
        bad = await engine.job(yard.submit(kind)["jobId"])
        await engine.fail(bad, "BAD_ASSET")
        await listener.comes("failed", lambda one: one["jobId"] == bad["jobId"])
        assert [name for name in listener.names(good["jobId"]) if name.islower()] == [
            "queued",
            "started",
            "finished",
        ]
        old = [name for name in listener.names(bad["jobId"]) if name.islower()]
        assert old == ["queued", "failed"]
        assert await listener.comes("finished") == dict(listener.of(good["jobId"]))["JOB_COMPLETED"]
        async with Listener(yard.port) as migrated:
            await migrated.hear(names="new")
            assert yard.counted(metric) == count
            await listener.hear(names="new")
            assert yard.counted(metric) == count - 1
        await listener.refused("BAD_MESSAGE", "subscribe", {"names": "ancient"})


async def test_unsubscribing_ends_it(yard: Yard) -> None:
    kind = fresh()
    async with Listener(yard.port) as gone, Listener(yard.port) as listener:
        await gone.hear()
        await listener.hear()
        await gone.ok("unsubscribe")
        async with Engine(yard.port, kind) as engine:
            job = await engine.job(yard.submit(kind)["jobId"])
            await engine.run(job)
            await listener.end_of(job["jobId"])
        assert gone.of(job["jobId"]) == []


async def test_dispatch_latency_from_queued_to_dispatched_is_measured(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=100) as engine:
        before = yard.counted("detent_dispatch_seconds_count")
        names = [yard.submit(kind)["jobId"] for _ in range(20)]
        await engine.jobs(20)
        found = [yard.job(name) for name in names]
        waits = sorted(one["dispatchedAt"] - one["queuedAt"] for one in found)
        await until(lambda: yard.counted("detent_dispatch_seconds_count") >= before + 20)
        assert waits[-1] < 5_000, waits
