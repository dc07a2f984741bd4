"""A run that should stop is asked, interrupted, and killed or given up; each rung is recorded."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from detent import Cancelled, Context, Detent
from detent.app.handle import Handle
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_a_run_that_listens_is_seen_to_and_stops(app: Detent, place: Place) -> None:
    @app.job
    async def listens(ctx: Context) -> None:
        while not ctx.cancelled:  # noqa: ASYNC110 - a handler that works looks now and then
            await asyncio.sleep(0)
        raise Cancelled("as you wish")

    handle = await listens.aenqueue()
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        await handle.acancel()
        worker.cancel(handle.id)
        assert await ended(handle) == ["cancelled"]
    assert await events(handle) == [
        "enqueue",
        "claim",
        "cancel_requested",
        "cancel_seen",
        "cancel",
    ]
    last = (await handle.ahistory())[-1]
    assert (last.cause, last.reason, last.actor_id) == ("confirmed", "as you wish", "w1")


async def test_a_coroutine_that_does_not_listen_is_interrupted(app: Detent, place: Place) -> None:
    @app.job
    async def deaf(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ctx.log("cleaned up")

    handle = await deaf.aenqueue()
    async with place.worker(grace_s=0.2) as worker:
        await until(lambda: worker.status().running)
        await handle.acancel()
        await until(lambda: not worker.status().running or worker.status().running[0].why)
        assert await ended(handle) == ["cancelled"]
    told = await events(handle)
    assert told[2:] == ["cancel_requested", "cancel_seen", "interrupted", "cancel"]
    assert (await handle.astatus()).cause == "confirmed"
    assert await place.lines(handle) == ["cleaned up"]


async def test_a_coroutine_that_swallows_everything_is_abandoned(here: Place) -> None:
    over = asyncio.Event()

    @here.app.job
    async def swallows() -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    handle = await swallows.aenqueue()
    async with here.worker(grace_s=0.1) as worker:
        await until(lambda: worker.status().running)
        await handle.acancel()
        assert await ended(handle) == ["cancelled"]
        assert (await handle.astatus()).cause == "abandoned"
        over.set()
    assert (await events(handle))[-2:] == ["interrupted", "cancel"]


async def test_a_thread_that_does_not_listen_is_abandoned_and_keeps_its_slot(
    here: Place,
) -> None:
    over = threading.Event()

    @here.app.job
    def blocks() -> None:
        over.wait(30)

    handle = await blocks.aenqueue()
    try:
        async with here.worker(grace_s=0.1, slots=5, sync_slots=2) as worker:
            await until(lambda: worker.status().running)
            await handle.acancel()
            assert await ended(handle) == ["cancelled"]
            status = worker.status()
            assert (status.abandoned, status.free, status.wants_recycling) == (1, 4, True)
            # Nobody interrupts a thread, so nobody says so.
            assert (await events(handle))[2:] == ["cancel_requested", "cancel_seen", "cancel"]
            assert (await handle.astatus()).cause == "abandoned"
    finally:
        over.set()


async def test_a_process_that_does_not_listen_is_killed(program: tuple[str, Place]) -> None:
    reference, place = program
    handle = await place.app.jobs["stubborn"].aenqueue()
    async with place.worker(processes=reference, grace_s=0.2) as worker:
        await until(lambda: worker.status().running)
        await until(lambda: place.lines(handle))
        assert worker.status().running[0].executor == "process"
        await handle.acancel()
        assert await ended(handle) == ["cancelled"]
    assert (await events(handle))[2:] == [
        "cancel_requested",
        "cancel_seen",
        "interrupted",
        "cancel",
    ]
    assert (await handle.astatus()).cause == "killed"
    assert "not me" in await place.lines(handle)


async def test_a_success_that_comes_first_wins(app: Detent, place: Place) -> None:
    go = asyncio.Event()

    @app.job
    async def finishes() -> str:
        await go.wait()
        return "done"

    handle = await finishes.aenqueue()
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        await handle.acancel()
        await until(lambda: worker.status().running[0].why == "cancel")
        go.set()
        assert await handle.aresult(timeout=10) == "done"
    assert (await events(handle))[-1] == "complete"


async def test_where_a_cancel_counts_at_once_the_rest_is_in_the_log(
    app: Detent, place: Place
) -> None:
    stopped = asyncio.Event()

    @app.job
    async def remote() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = await place.enqueue("remote", profile="ojs")
    async with place.worker() as worker:
        await until(lambda: worker.status().running)
        assert (await handle.acancel()).state == "cancelled"
        worker.cancel(handle.id)
        await asyncio.wait_for(stopped.wait(), 10)
        await until(lambda: worker.status().lost == 1)
        [line] = await until(lambda: place.lines(handle))
    assert await events(handle) == ["enqueue", "claim", "cancel"]
    assert "interrupted" in line
    assert "lease_ended" in line


async def test_a_coroutine_that_takes_too_long_is_timed_out_and_stopped(
    app: Detent, place: Place
) -> None:
    stopped = asyncio.Event()

    @app.job(timeout=0.3, retry=0)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    handle = await slow.aenqueue()
    async with place.worker() as worker:
        assert await ended(handle) == ["discarded"]
        await asyncio.wait_for(stopped.wait(), 10)
        await until(lambda: not worker.status().running)
        [line, *_] = await until(lambda: place.lines(handle))
    assert await events(handle) == ["enqueue", "claim", "time_out"]
    stored = await place.stored(handle)
    assert [(one.code, one.attempt) for one in stored.failures] == [("timeout", 1)]
    assert "0.3 s" in stored.failures[0].message
    assert "time_out" in line


async def test_a_time_limit_holds_also_if_the_clock_is_set_back(tmp_path: Path) -> None:
    """By the clock of the store it would have an hour more; a run is timed by another one."""
    ahead_s, begun = 0, asyncio.Event()

    def wall() -> int:
        return time.time_ns() // 1_000 + ahead_s * 1_000_000

    def other() -> int:
        # Which is much further than any two clocks may be apart.
        return time.monotonic_ns() // 1_000 - 100 * ahead_s

    app = Detent(f"sqlite:///{tmp_path}/detent.db", clock=wall)

    @app.job(timeout=0.2, retry=0)
    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    handle = await slow.aenqueue()
    async with Place(app).worker(clock=other) as worker:
        await asyncio.wait_for(begun.wait(), 10)
        ahead_s = -100_000
        assert await ended(handle) == ["discarded"]
        await until(lambda: not worker.status().running)
    assert await events(handle) == ["enqueue", "claim", "fail"]
    assert (await handle.astatus()).error_code == "timeout"
    await asyncio.to_thread(app.close)


async def test_a_plain_function_with_a_timeout_runs_in_a_process_and_ends(
    program: tuple[str, Place],
) -> None:
    reference, place = program
    handle = await place.app.jobs["late"].using(timeout=0.5, retry=0).aenqueue()
    async with place.worker(processes=reference) as worker:
        await until(lambda: worker.status().running)
        assert worker.status().running[0].executor == "process"
        assert await ended(handle) == ["discarded"]
        await until(lambda: not worker.status().running)
    assert (await events(handle))[-1] == "time_out"


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_a_handler_that_blocks_stops_nobody_else_from_being_watched(
    here: Place, how: str
) -> None:
    """Commits, looks and answers come from another loop."""
    begun, go, seen = threading.Event(), threading.Event(), threading.Event()

    @here.app.job
    async def blocks() -> None:
        go.set()
        assert seen.wait(20)

    @here.app.job
    def beside(ctx: Context) -> None:
        begun.set()
        while not ctx.cancelled:
            begun.wait(0.01)
        seen.set()
        raise Cancelled

    handle = await beside.aenqueue()
    async with here.worker() as worker:
        await until(begun.is_set)
        other = await blocks.aenqueue() if how == "async" else None
        if other is None:
            go.set()
        # This loop is the one that is blocked, so the cancel comes from elsewhere.
        canceller = threading.Thread(target=_cancel, args=(handle, go))
        canceller.start()
        await until(seen.is_set)
        assert await ended(handle) == ["cancelled"]
        if other is not None:
            assert await ended(other) == ["completed"]
        assert worker.status().state == "working"
        canceller.join()


def _cancel(handle: Handle[None], go: threading.Event) -> None:
    go.wait(20)
    handle.cancel()
