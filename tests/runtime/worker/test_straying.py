"""A job that the store counts as a living worker's, and that this knows nothing of, goes back."""

from __future__ import annotations

import asyncio
from collections import Counter

from detent import Detent
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_a_job_whose_worker_does_not_have_it_is_run_after_all(app: Detent) -> None:
    @app.job
    async def work() -> str:
        return "done"

    handle, place = await work.aenqueue(), Place(app)
    await place.hold("w1")
    async with place.worker("w1"):
        assert await ended(handle) == ["completed"]
    assert await events(handle) == ["enqueue", "claim", "hand_back", "due", "claim", "complete"]
    assert (await place.stored(handle)).job.losses == 0


async def test_one_that_may_not_go_back_fails(app: Detent) -> None:
    @app.job
    async def work() -> None: ...

    place = Place(app)
    handle = await place.enqueue(work.name, profile="rest")
    await place.hold("w1")
    async with place.worker("w1"):
        assert await ended(handle) == ["discarded"]
    assert await events(handle) == ["enqueue", "claim", "fail"]


async def test_what_runs_and_what_others_have_stays_where_it_is(app: Detent) -> None:
    go, ran = asyncio.Event(), Counter[int]()

    @app.job
    async def work(number: int) -> None:
        ran[number] += 1
        if number == 0:
            await go.wait()

    place = Place(app)
    theirs = await work.aenqueue(-1)
    await place.hold("w2")
    async with place.worker("w1", slots=3):
        long = await work.aenqueue(0)
        handles = await app.aenqueue_many([work.bind(number) for number in range(1, 60)])
        await ended(*handles)
        stray = await work.aenqueue(60)
        # By now it was looked for strays many times.
        await until(lambda: ran[60] == 1)
        go.set()
        await ended(long, stray)
    assert set(ran.values()) == {1}
    assert await events(theirs) == ["enqueue", "claim"]
    assert await events(long) == ["enqueue", "claim", "complete"]
