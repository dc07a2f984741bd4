"""Engines that go away: what they go on with, what is lost, and who is let in."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from detent.surfaces.http.exchange import Settings
from tests.surfaces.engines import Engine, Listener, Yard, fresh, held
from tests.surfaces.server import running
from tests.waiting import until


async def test_engine_disconnect_and_resume_goes_on_with_the_same_lease(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        running_one = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(running_one))
        offered = await engine.job(yard.submit(kind)["jobId"])
        await engine.drop()
        again = Engine(yard.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        reply = await again.register(resume=[held(running_one), held(offered)])
        assert sorted(reply["resumed"]) == sorted([running_one["jobId"], offered["jobId"]])
        assert reply["lost"] == []
        await again.ok("job_complete", held(running_one, result=1))
        await again.run(offered)
        assert yard.job(offered["jobId"])["status"] == "completed"
        await again.leave()


async def test_jobs_that_are_not_presented_are_lost_at_once(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, Listener(yard.port) as listener:
        await listener.hear()
        running_one = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(running_one))
        offered = await engine.job(yard.submit(kind)["jobId"])
        kept = await engine.job(yard.submit(kind)["jobId"])
        await engine.drop()
        again = Engine(yard.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        stale = {"jobId": fresh(), "lease": "x"}
        reply = await again.register(resume=[held(kept), stale])
        assert (reply["resumed"], reply["lost"]) == ([kept["jobId"]], [stale["jobId"]])
        for job, category in ((running_one, "system"), (offered, "queue")):
            found = yard.job(job["jobId"])
            assert found["status"] == "failed"
            assert found["error"].startswith("ENGINE_DISCONNECTED: ")
            told = (await listener.end_of(job["jobId"]))[-1][1]
            assert told["category"] == category
        await again.leave()


async def test_another_boot_after_a_disconnect_loses_what_the_first_had(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        lost = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(lost))
        tried_again = await engine.job(yard.submit(kind, maxAttempts=2)["jobId"])
        await engine.ok("job_ack", held(tried_again))
        await engine.drop()
        async with aclosing(await _let_in(Engine(yard.port, kind, id=engine.id))) as other:
            found = await yard.comes_to(lost["jobId"], "failed")
            assert found["error"].startswith("ENGINE_DISCONNECTED")
            second = await other.job(tried_again["jobId"], attempt=2)
            # Whoever presents a lease of another boot presents nothing.
            await other.refused("LEASE_ENDED", "job_complete", held(tried_again))
            await other.run(second)


async def _let_in(engine: Engine) -> Engine:
    """As soon as the server has noticed that the one before it is gone."""
    await engine.connect()
    await until(engine.is_let_in, "it is not let in")
    return engine


async def test_a_second_live_boot_under_one_engine_id_is_refused(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        other = Engine(yard.port, kind, id=engine.id)
        await other.connect()
        await other.refused("ENGINE_IN_USE", "register", other.told)
        await other.refused("NOT_REGISTERED", "heartbeat", {"jobs": []})
        # The first goes on undisturbed, and nothing is pushed to the other.
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.run(job)
        assert other.pushed == []
        await other.leave()


async def test_the_same_boot_on_a_second_connection_takes_over(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        again = Engine(yard.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        await again.register(resume=[held(job)])
        await asyncio.wait_for(engine.gone.wait(), 30)
        await again.run(job)
        await again.leave()


async def test_a_cancel_while_it_was_away_is_told_when_it_is_back(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        await engine.drop()
        yard.ask("POST", f"/api/jobs/{job['jobId']}/cancel").ok(202)
        again = Engine(yard.port, kind, id=engine.id, boot=engine.boot)
        await again.connect()
        await again.register(resume=[held(job)])
        assert (await again.comes("cancel"))["jobId"] == job["jobId"]
        await again.fail(job, "CANCELLED")
        await again.leave()


async def test_a_heartbeat_hears_which_jobs_are_gone(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        reply = await engine.ok("heartbeat", {"jobs": [job["jobId"], "who"]})
        assert reply["gone"] == ["who"]
        await engine.run(job)
        assert (await engine.ok("heartbeat", {"jobs": [job["jobId"]]}))["gone"] == [job["jobId"]]


@pytest.mark.slow
async def test_silence_loses_an_engine_within_20_seconds_and_a_disconnect_too(yard: Yard) -> None:
    """Three heartbeats that do not come, and a clock that runs out: in real time, both at once."""
    silent, away, alive = fresh(), fresh(), fresh()
    async with (
        Engine(yard.port, silent) as quiet,
        Engine(yard.port, away) as gone,
        Engine(yard.port, alive) as living,
    ):
        jobs = []
        for engine, kind in ((quiet, silent), (gone, away), (living, alive)):
            job = await engine.job(yard.submit(kind)["jobId"])
            await engine.ok("job_ack", held(job))
            jobs.append(job)
        await gone.drop()
        beating = asyncio.create_task(_beat(living))
        found = [await yard.comes_to(job["jobId"], "failed") for job in jobs[:2]]
        for one in found:
            assert one["error"].startswith("ENGINE_DISCONNECTED")
            assert 13_000 <= one["completedAt"] - one["startedAt"] <= 20_000
        # The silent one is cut off, and must come in anew.
        await asyncio.wait_for(quiet.gone.wait(), 30)
        assert yard.job(jobs[2]["jobId"])["status"] == "running"
        beating.cancel()


async def _beat(engine: Engine) -> None:
    while True:
        await engine.ok("heartbeat")
        await asyncio.wait({asyncio.create_task(asyncio.Event().wait())}, timeout=5)


async def test_a_graceful_stop_hands_back_what_was_not_begun(yard: Yard) -> None:
    kind = fresh()
    with running(yard.url, Settings()) as other:
        async with Engine(other.port, kind) as engine:
            begun = await engine.job(yard.submit(kind)["jobId"])
            await engine.ok("job_ack", held(begun))
            offered = await engine.job(yard.submit(kind)["jobId"])
            received = await engine.job(yard.submit(kind)["jobId"])
            await engine.ok("job_ack", held(received, started=False))
            other.app.service.begin_stop()
            drain = await engine.comes("drain")
            back = sorted([offered["jobId"], received["jobId"]])
            assert sorted(drain["jobs"]) == back
            for name in back:
                found = yard.job(name)
                assert (found["status"], found["retryCount"]) == ("queued", 0)
            await engine.refused("INVALID_TRANSITION", "job_ack", held(offered))
            # Nothing new is offered by a server that stops; what runs may end there.
            late = yard.submit(kind)["jobId"]
            await engine.ok("job_complete", held(begun))
            async with Engine(yard.port, kind) as elsewhere:
                for name in (*back, late):
                    await elsewhere.run(await elsewhere.job(name))
            assert len(engine.pushed) == 3


async def test_engines_share_the_load_and_never_get_more_than_their_capacity(yard: Yard) -> None:
    kind = fresh()
    async with (
        Engine(yard.port, kind, capacity=3) as small,
        Engine(yard.port, kind, capacity=8) as large,
        Engine(yard.port, fresh()) as other,
    ):
        names = [yard.submit(kind)["jobId"] for _ in range(11)]
        await until(lambda: len(small.pushed) + len(large.pushed) >= 11)
        waiting = yard.submit(kind)["jobId"]
        assert (len(small.pushed), len(large.pushed), other.pushed) == (3, 8, [])
        assert yard.job(waiting)["status"] == "queued"
        await small.run(small.pushed[0])
        await small.job(waiting)
        assert len({one["jobId"] for one in small.pushed + large.pushed}) == len(names) + 1


async def test_two_engines_with_room_for_all_both_get_some(yard: Yard) -> None:
    kind = fresh()
    async with (
        Engine(yard.port, kind, capacity=100) as first,
        Engine(yard.port, kind, capacity=100) as second,
    ):
        for _ in range(10):
            yard.submit(kind)
        await until(lambda: len(first.pushed) + len(second.pushed) == 10)
        assert min(len(first.pushed), len(second.pushed)) >= 3


async def test_two_servers_on_one_store_each_push_to_their_own_engines(yard: Yard) -> None:
    kind = fresh()
    with running(yard.url, Settings()) as other:
        async with (
            Engine(yard.port, kind, capacity=2) as here,
            Engine(other.port, kind, capacity=2) as there,
            Listener(other.port) as listener,
        ):
            await listener.hear()
            for _ in range(4):
                yard.submit(kind)
            jobs = [*await here.jobs(2), *await there.jobs(2)]
            assert len({one["jobId"] for one in jobs}) == 4
            # A cancel on one server reaches the engine that is connected to the other.
            victim = there.pushed[0]
            await there.ok("job_ack", held(victim))
            yard.ask("POST", f"/api/jobs/{victim['jobId']}/cancel").ok(202)
            assert (await there.comes("cancel"))["jobId"] == victim["jobId"]
            # What an engine of the first server does is heard at the second.
            await here.run(here.pushed[0])
            told = await listener.end_of(here.pushed[0]["jobId"])
            assert [name for name, _ in told] == [
                "JOB_QUEUED",
                "JOB_DISPATCHED",
                "JOB_RUNNING",
                "JOB_COMPLETED",
            ]
            # An engine that comes back to the other server goes on there.
            await here.drop()
            again = Engine(other.port, kind, id=here.id, boot=here.boot)
            await again.connect()
            reply = await again.register(resume=[held(here.pushed[1])])
            assert reply["resumed"] == [here.pushed[1]["jobId"]]
            await again.run(here.pushed[1])
            await again.leave()


async def test_a_pushed_job_is_never_claimed_by_a_worker_of_another_protocol(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind, capacity=1) as engine:
        await engine.job(yard.submit(kind)["jobId"])
        name = yard.submit(kind)["jobId"]
        asked = {"queues": ["engines"], "worker_id": "w"}
        answer = yard.ask("POST", "/ojs/v1/workers/fetch", asked)
        assert json.loads(answer.text)["jobs"] == []
        assert yard.job(name)["status"] == "queued"
