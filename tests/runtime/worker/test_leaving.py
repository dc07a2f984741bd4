"""A worker that stops lets jobs finish, gives the others back, and is quiet when it says so."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

from detent import Context, Detent
from detent.errors import NotQuiet
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_what_can_finish_in_time_does_and_nothing_new_is_begun(
    app: Detent, place: Place
) -> None:
    go = asyncio.Event()

    @app.job
    async def finishes() -> str:
        await go.wait()
        return "done"

    handle = await finishes.aenqueue()
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        stopping = asyncio.create_task(worker.stop(20))
        await until(lambda: worker.status().state == "stopping")
        late = await finishes.aenqueue()
        go.set()
        assert await stopping == []
        assert worker.status().state == "stopped"
    assert await handle.aresult() == "done"
    assert (await late.astatus()).state == "available"


async def test_what_cannot_is_handed_back_at_no_cost_in_one_commit(
    app: Detent, place: Place
) -> None:
    @app.job
    async def goes_on(ctx: Context) -> None:
        ctx.log("begun")
        await asyncio.Event().wait()

    handles = await app.aenqueue_many([goes_on.bind() for _ in range(3)])
    async with place.worker() as worker:
        await until(lambda: len(worker.status().running) == 3)
        assert await worker.stop(0.05) == []
    for handle in handles:
        assert await events(handle) == ["enqueue", "claim", "hand_back", "due"]
        status = await handle.astatus()
        assert (status.state, status.failures) == ("available", 0)
        assert await place.lines(handle) == ["begun"]
    job = (await place.stored(handles[0])).job
    assert (job.handed_back, job.losses) == (1, 0)


async def test_a_job_that_runs_once_fails_when_its_worker_goes(app: Detent, place: Place) -> None:
    @app.job
    async def once() -> None:
        await asyncio.Event().wait()

    handle = await place.enqueue("once", profile="rest")
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        await worker.stop(0)
    assert await ended(handle) == ["discarded"]
    assert (await handle.ahistory())[-1].code == "INTERRUPTED"


async def test_a_thread_that_goes_on_is_handed_back_and_named(here: Place) -> None:
    over = threading.Event()

    @here.app.job
    def blocks() -> None:
        over.wait(30)

    handle = await blocks.aenqueue()
    try:
        async with here.worker() as worker:
            await until(lambda: worker.status().running)
            assert await worker.stop(0) == [handle.id]
        assert (await events(handle))[-2:] == ["hand_back", "due"]
    finally:
        over.set()


async def test_the_grace_can_be_shortened_and_a_cancel_still_works(here: Place) -> None:
    @here.app.job
    async def goes_on() -> None:
        await asyncio.Event().wait()

    first, second = await goes_on.aenqueue(), await goes_on.aenqueue()
    async with here.worker(grace_s=0) as worker:
        await until(lambda: len(worker.status().running) == 2)
        stopping = asyncio.create_task(worker.stop(600))
        await first.acancel()
        worker.cancel(first.id)
        assert await ended(first) == ["cancelled"]
        begun = time.monotonic()
        await worker.hasten(0.05)
        await stopping
        assert time.monotonic() - begun < 15
    assert (await events(second))[-2:] == ["hand_back", "due"]


async def test_a_handler_that_fails_while_its_worker_goes_has_failed(here: Place) -> None:
    @here.app.job(retry=0)
    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("of its own") from None

    handle = await fails.aenqueue()
    async with here.worker() as worker:
        await until(lambda: worker.status().running)
        await worker.stop(0)
    assert await ended(handle) == ["discarded"]
    assert (await handle.astatus()).error_code == "handler_error"


async def test_when_the_leases_are_lost_all_stops_and_nothing_is_said(
    app: Detent, place: Place
) -> None:
    stopped = asyncio.Event()
    over = threading.Event()

    @app.job
    async def stops() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @app.job
    def goes_on() -> None:
        over.wait(30)

    first, second = await stops.aenqueue(), await goes_on.aenqueue()
    try:
        async with place.worker() as worker:
            await until(lambda: len(worker.status().running) == 2)
            assert await worker.lapse() == [second.id]
            assert stopped.is_set()
            assert worker.status().state == "stopped"
        for handle in (first, second):
            assert await events(handle) == ["enqueue", "claim"]
    finally:
        over.set()


async def test_a_suspended_worker_is_quiet_until_it_is_resumed(app: Detent, place: Place) -> None:
    go = asyncio.Event()

    @app.job
    async def work() -> None:
        await go.wait()

    first = await work.aenqueue()
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        suspending = asyncio.create_task(worker.suspend())
        await until(lambda: worker.status().state == "quiet")
        assert not suspending.done()
        go.set()
        await suspending
        assert (await first.astatus()).state == "completed"
        second = await work.aenqueue()
        # Another worker takes it, so there was time enough for this one to do so.
        assert (await second.astatus()).state == "available"
        async with place.worker("w2"):
            await ended(second)
        assert (await second.ahistory())[1].actor_id == "w2"
        await worker.resume()
        third = await work.aenqueue()
        await ended(third)
        assert (await third.ahistory())[1].actor_id == "w1"


async def test_a_suspension_that_takes_too_long_is_withdrawn(here: Place) -> None:
    go = asyncio.Event()

    @here.app.job
    async def work() -> None:
        await go.wait()

    first = await work.aenqueue()
    async with here.worker() as worker:
        await until(lambda: worker.status().running)
        with pytest.raises(NotQuiet) as caught:
            await worker.suspend(within_s=0.05)
        assert caught.value.fields["running"] == 1
        called_off = asyncio.create_task(worker.suspend())
        await until(lambda: worker.status().state == "quiet")
        called_off.cancel()
        with suppress(asyncio.CancelledError):
            await called_off
        await until(lambda: worker.status().state == "working")
        go.set()
        await ended(first, await work.aenqueue())
