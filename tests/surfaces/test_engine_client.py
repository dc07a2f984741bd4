"""The client for engine authors, against a real server on a real socket."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from detent.engine_client import EngineClient, JobFault, PushedJob
from detent.errors import EngineRefused
from tests.surfaces.engines import sever
from tests.surfaces.rest import Rest
from tests.surfaces.server import Running, running
from tests.waiting import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("engines")
    with running(f"sqlite:///{folder}/detent.db") as found:
        yield found


class Shop:
    """Somebody who submits, and looks."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._rest = Rest(port)

    def submit(self, job_type: str, **more: Any) -> str:
        found: str = self._rest.post("/engine/jobs", {"jobType": job_type, **more}).ok(202)["jobId"]
        return found

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._rest.get(f"/engine/jobs/{name}").ok()
        return found

    async def in_status(self, name: str, *wanted: str) -> dict[str, Any]:
        found: dict[str, Any] = await until(
            lambda: job if (job := self.job(name))["status"] in wanted else None
        )
        return found

    async def ended(self, name: str) -> dict[str, Any]:
        return await self.in_status(name, "completed", "failed")

    def close(self) -> None:
        self._rest.close()


@pytest.fixture
def shop(served: Running) -> Iterator[Shop]:
    found = Shop(served.port)
    yield found
    found.close()


@asynccontextmanager
async def at_work(engine: EngineClient) -> AsyncIterator[asyncio.Task[None]]:
    """An engine that runs until the end of the block, and stops as it should."""
    running = asyncio.create_task(engine.run())
    await until(lambda: engine.is_connected)
    yield running
    await engine.stop()
    await running


async def test_what_a_handler_does_is_the_end_of_the_job(shop: Shop) -> None:
    engine = EngineClient(shop.url, "plain", capacity=10)

    @engine.handles("DOUBLE")
    async def double(job: PushedJob) -> dict[str, int]:
        await job.log("one", "two")
        await job.progress(50, "half")
        return {"number": job.payload["number"] * 2}

    @engine.handles("BREAK")
    async def break_(job: PushedJob) -> None:
        if job.payload.get("code"):
            raise JobFault(job.payload["code"], "texture.png", details={"at": 3})
        raise ValueError("it broke")

    @engine.handles("ODD")
    async def odd(job: PushedJob) -> Any:
        return {1, 2} if job.payload["is_set"] else math.nan

    async with at_work(engine):
        names = [
            shop.submit("DOUBLE", payload={"number": 4}),
            shop.submit("BREAK", payload={"code": "BAD_ASSET"}),
            shop.submit("BREAK"),
            shop.submit("ODD", payload={"is_set": True}),
            shop.submit("ODD", payload={"is_set": False}),
        ]
        done, faulty, broken, *odds = [await shop.ended(name) for name in names]
    assert (done["status"], done["result"], done["engineId"]) == (
        "completed",
        {"number": 8},
        "plain",
    )
    assert faulty["error"] == "BAD_ASSET: texture.png"
    assert broken["error"] == "HANDLER_ERROR: ValueError: it broke"
    for one in odds:
        assert one["error"].startswith("BAD_RESULT: ")
    assert engine.jobs == {}


async def test_more_than_it_has_slots_for_waits_in_the_engine(shop: Shop) -> None:
    engine, door, seen = EngineClient(shop.url, "queue", capacity=3, slots=1), asyncio.Event(), []

    @engine.handles("SLOW")
    async def slow(job: PushedJob) -> None:
        seen.append(job.id)
        await door.wait()

    async with at_work(engine):
        names = [shop.submit("SLOW") for _ in range(3)]
        await until(lambda: len(engine.jobs) == 3 and seen)
        states = [shop.job(name)["status"] for name in names]
        assert sorted(states) == ["dispatched", "dispatched", "running"]
        door.set()
        assert [(await shop.ended(name))["status"] for name in names] == ["completed"] * 3


async def test_a_cancel_ends_the_handler_where_it_waits(shop: Shop) -> None:
    engine, stopped = EngineClient(shop.url, "heeds"), list[str]()

    @engine.handles("ENDLESS")
    async def endless(job: PushedJob) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(job.stopping or "")

    async with at_work(engine):
        name = shop.submit("ENDLESS")
        await shop.in_status(name, "running")
        shop._rest.post(f"/{name}/cancel")  # noqa: SLF001 - every surface sees all jobs
        job = await shop.ended(name)
        assert job["error"].startswith("CANCELLED")
        assert stopped
        assert stopped[0].startswith("CANCELLED")
        late = shop.submit("ENDLESS", deadlines={"running": 300})
        assert (await shop.ended(late))["error"].startswith("JOB_TIMEOUT")
        await until(lambda: not engine.jobs)


async def test_a_broken_connection_goes_on_where_it_was(shop: Shop) -> None:
    engine, door = EngineClient(shop.url, "back", capacity=5), asyncio.Event()

    @engine.handles("LONG")
    async def long(job: PushedJob) -> str:
        await door.wait()
        await job.log("still here")
        return "same run"

    async with at_work(engine):
        names = [shop.submit("LONG") for _ in range(3)]
        for name in names:
            await shop.in_status(name, "running")
        for _ in range(2):
            await sever(engine)
            await until(lambda: not engine.is_connected)
            await until(lambda: engine.is_connected)
        await sever(engine)
        # What is said while there is no connection is said when there is one.
        door.set()
        ended = [await shop.ended(name) for name in names]
    assert [one["result"] for one in ended] == ["same run"] * 3
    assert [one["retryCount"] for one in ended] == [0] * 3


async def test_a_drain_finishes_what_runs_and_gives_up_what_waits(shop: Shop) -> None:
    engine, door = EngineClient(shop.url, "first", capacity=2, slots=1), asyncio.Event()
    other = EngineClient(shop.url, "second", capacity=2)

    @engine.handles("DRAINED")
    async def drained(_: PushedJob) -> str:
        await door.wait()
        return "first"

    @other.handles("DRAINED")
    async def elsewhere(_: PushedJob) -> str:
        return "second"

    async with at_work(engine) as work:
        names = [shop.submit("DRAINED") for _ in range(2)]
        await until(lambda: len(engine.jobs) == 2)
        await until(lambda: {shop.job(name)["status"] for name in names} >= {"running"})
        stopping = asyncio.create_task(engine.stop())
        async with at_work(other):
            await until(lambda: "completed" in {shop.job(name)["status"] for name in names})
            assert not work.done()
            door.set()
            ended = [await shop.ended(name) for name in names]
        await stopping
    assert sorted(one["result"] for one in ended) == ["first", "second"]


async def test_whoever_is_not_let_in_is_told_why(shop: Shop) -> None:
    engine, second = EngineClient(shop.url, "twice"), EngineClient(shop.url, "twice")
    for one in (engine, second):
        one.handles("NOTHING")(lambda _: asyncio.sleep(0))
    async with at_work(engine):
        with pytest.raises(EngineRefused, match="ENGINE_IN_USE") as caught:
            await second.run()
        assert caught.value.fields["code"] == "ENGINE_IN_USE"
    with pytest.raises(EngineRefused, match="BAD_MESSAGE"):
        await EngineClient(shop.url, "no types").run()
