"""How a run ended and what it said is stored, whatever it was; and nobody else is disturbed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys

import msgspec
import pytest

from detent import Context, Detent, Handle, Snooze
from detent.engine import limits
from detent.runtime.executors.capture import Capture
from detent.surfaces.http.logs import JsonLines
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_a_failure_has_its_traceback_and_no_secrets(here: Place) -> None:
    @here.app.job(secret=["token"], retry=0)
    async def leaks(token: str) -> None:
        hidden = "local variable"
        raise ValueError(f"bad {token}{hidden[:0]}")

    handle = await leaks.aenqueue("s3cr3t-value")
    async with here.worker() as worker:
        assert await ended(handle) == ["discarded"]
        assert worker.status().failed == 1
    [failure] = (await here.stored(handle)).failures
    assert "s3cr3t" not in repr(failure)
    assert failure.type == "ValueError"
    assert failure.backtrace is not None
    assert "leaks" in failure.backtrace
    assert "local variable" not in failure.backtrace


def job_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and the text of what workers said of their jobs, without ids and durations."""
    found = [one for one in caplog.records if one.name == "detent.jobs"]
    texts = [(one.levelname, one.getMessage().split(maxsplit=2)[2]) for one in found]
    return [(level, text.split(" after ")[0]) for level, text in texts]


async def test_a_failure_is_logged_with_its_traceback_and_no_secrets(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @here.app.job(secret=["token"], retry=0)
    async def leaks(token: str) -> None:
        raise ValueError(f"bad {token}\nand more")

    @here.app.job
    async def fine() -> None:
        pass

    handles = [await leaks.aenqueue("s3cr3t-value"), await fine.aenqueue()]
    async with here.worker():
        assert await ended(*handles) == ["discarded", "completed"]
    assert job_lines(caplog) == [("ERROR", "(leaks) failed, attempt 1: ValueError: bad [secret]")]
    [record] = [one for one in caplog.records if one.name == "detent.jobs"]
    told = json.loads(JsonLines().format(record))
    for text in (caplog.text, told["exception"]):
        assert "s3cr3t" not in text
        assert "in leaks\n" in text
        assert "ValueError: bad [secret]\nand more" in text


async def test_ends_and_starts_are_logged_where_the_level_asks(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @here.app.job
    async def fine() -> None:
        pass

    @here.app.job
    async def later(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Snooze(0)

    async def said(level: int, handle: Handle[None]) -> list[tuple[str, str]]:
        caplog.clear()
        caplog.set_level(level, "detent.jobs")
        async with here.worker(f"w{level}"):
            assert await ended(handle) == ["completed"]
        return job_lines(caplog)

    done, starts = ("INFO", "(fine) completed"), ("DEBUG", "(fine) starts, attempt 1")
    assert await said(logging.WARNING, await fine.aenqueue()) == []
    assert await said(logging.INFO, await fine.aenqueue()) == [done]
    assert await said(logging.DEBUG, await fine.aenqueue()) == [starts, done]
    put_off, done = ("INFO", "(later) was put off"), ("INFO", "(later) completed")
    assert await said(logging.INFO, await later.aenqueue()) == [put_off, done]


async def test_what_ran_too_long_is_logged_as_a_failure(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    @here.app.job(timeout=0.05, retry=0)
    async def sleeps() -> None:
        await asyncio.Event().wait()

    handle = await sleeps.aenqueue()
    async with here.worker():
        assert await ended(handle) == ["discarded"]
        await until(lambda: bool(job_lines(caplog)))
    why = "timeout: It ran longer than the 0.05 s that it may take"
    assert job_lines(caplog) == [("ERROR", f"(sleeps) failed, attempt 1: {why}")]


async def test_arguments_that_fit_no_more_are_not_tried_again(app: Detent, place: Place) -> None:
    @app.job(retry=5)
    async def grown(number: int) -> None:
        raise AssertionError(number)

    handle = await place.enqueue("grown")
    async with place.worker():
        assert await ended(handle) == ["discarded"]
    status = await handle.astatus()
    assert (status.error_code, status.cause, status.attempt) == (
        "bad_arguments",
        "not_retryable",
        1,
    )


async def test_what_is_printed_and_logged_goes_with_the_end(app: Detent, place: Place) -> None:
    @app.job
    async def talks(ctx: Context) -> None:
        print("printed")  # noqa: T201
        sys.stderr.write("to stderr\n")
        logging.getLogger("shop").warning("logged %d", 7)
        ctx.progress(100, "all of it")

    handle = await talks.aenqueue()
    with Capture():
        async with place.worker():
            await ended(handle)
    assert await place.lines(handle) == ["printed", "to stderr", "logged 7"]
    assert (await handle.astatus()).message == "all of it"


async def test_what_a_long_run_says_is_there_while_it_runs(app: Detent, place: Place) -> None:
    go = asyncio.Event()

    @app.job
    async def talks(ctx: Context) -> None:
        for number in range(1_200):
            ctx.log(f"line {number}")
        ctx.progress(40)
        await go.wait()
        ctx.log("last")

    handle = await talks.aenqueue()
    async with place.worker():

        async def all_there() -> bool:
            return len(await place.lines(handle)) == 1_200

        await until(all_there)
        assert (await handle.astatus()).percent == 40
        go.set()
        await ended(handle)
    assert await place.lines(handle) == [*(f"line {number}" for number in range(1_200)), "last"]


async def test_a_run_that_says_too_much_is_cut_and_the_log_says_so(here: Place) -> None:
    @here.app.job
    async def floods(ctx: Context) -> str:
        for _ in range(limits.LOG_LINES_MAX + 500):
            ctx.log("x")
        return "done"

    handle = await floods.aenqueue()
    async with here.worker():
        assert await handle.aresult(timeout=20) == "done"
    lines = await here.lines(handle)
    assert len(lines) == limits.LOG_LINES_MAX + 1
    assert lines[-1].startswith("500 more lines were dropped")


async def test_one_end_that_cannot_be_stored_does_not_hurt_the_others(
    app: Detent, place: Place
) -> None:
    go = asyncio.Event()

    @app.job
    async def returns(what: str) -> object:
        await go.wait()
        return {"huge": "x" * (limits.RESULT_BYTES_MAX + 1), "odd": object()}.get(what, what)

    handles = [await returns.using(retry=0).aenqueue(what) for what in ("a", "huge", "odd", "b")]
    async with place.worker() as worker:
        await until(lambda: len(worker.status().running) == 4)
        go.set()
        states = await ended(*handles)
    assert states == ["completed", "discarded", "discarded", "completed"]
    codes = [(await handle.astatus()).error_code for handle in handles]
    assert codes == [None, "result_too_large", "bad_result", None]


async def test_jobs_that_follow_come_with_the_end(app: Detent, place: Place) -> None:
    @app.job
    async def second() -> str:
        return "second"

    @app.job
    async def first(ctx: Context, fails: bool) -> None:
        ctx.enqueue(second.bind())
        if fails:
            raise ValueError

    handles = [await first.using(retry=0).aenqueue(fails) for fails in (True, False)]
    async with place.worker() as worker:
        await ended(*handles)
        await until(lambda: worker.status().done == 2)


async def test_a_job_that_kills_its_process_is_poison_after_three_losses(
    program: tuple[str, Place],
) -> None:
    reference, place = program
    handle = await place.app.jobs["segfaults"].aenqueue()
    beside = await place.app.jobs["where"].aenqueue()
    async with place.worker(processes=reference) as worker:
        assert await ended(handle, beside) == ["discarded", "completed"]
        assert worker.status().failed == 3
    told = [event for event in await handle.ahistory() if event.name == "lose"]
    assert [event.cause for event in told] == [None, None, "poison"]
    stored = await place.stored(handle)
    assert (stored.job.losses, stored.job.failures) == (3, 0)
    assert [one.code for one in stored.failures] == ["process_died"] * 3
    assert "signal 11" in stored.failures[0].message
    assert msgspec.json.decode(stored.failures[0].details or "")["signal"] == 11


async def test_a_job_that_has_lost_a_worker_runs_alone(program: tuple[str, Place]) -> None:
    reference, place = program
    handle = await place.app.jobs["where"].aenqueue()
    await place.lose("gone")
    assert (await events(handle))[-2:] == ["lose", "due"]
    async with place.worker(processes=reference):
        assert await handle.aresult(timeout=20) != os.getpid()


@pytest.mark.parametrize("profile", ["python", "ojs"])
async def test_a_report_under_a_lease_that_has_ended_counts_for_nothing(
    app: Detent, place: Place, profile: str
) -> None:
    """W-118."""
    go = asyncio.Event()

    @app.job
    async def late() -> str:
        await go.wait()
        return "too late"

    handle = await place.enqueue("late", profile=profile)
    async with place.worker(slots=1) as worker:
        await until(lambda: worker.status().running)
        await place.bury("w1")
        await place.upkeep()
        assert (await events(handle))[-2:] == ["lose", "due"]
        go.set()
        await until(lambda: worker.status().lost == 1)
    assert (await handle.astatus()).state == "available"


class OddlyNamed(Exception):
    """No database keeps its name, which stands beside every failure."""


OddlyNamed.__module__ = "odd\0name"


async def test_an_end_that_cannot_be_stored_is_told_and_takes_nobody_with_it(
    app: Detent, place: Place
) -> None:
    go, here = asyncio.Event(), asyncio.Semaphore(0)

    @app.job(retry=5)
    async def odd(ctx: Context, number: int) -> int:
        ctx.log("begun")
        here.release()
        await go.wait()
        if number == 1:
            raise OddlyNamed("what it said")
        return number

    handles = [await odd.aenqueue(number) for number in range(3)]
    async with place.worker() as worker:
        for _ in handles:
            await asyncio.wait_for(here.acquire(), 10)
        go.set()
        assert await ended(*handles) == ["completed", "discarded", "completed"]
        await until(lambda: worker.status().done == 2)
        assert worker.status().lost == 0
    assert [await place.lines(one) for one in handles] == [["begun"]] * 3
    status = await handles[1].astatus()
    assert (status.error_code, status.cause, status.attempt) == ("unstorable", "not_retryable", 1)


async def test_what_cannot_even_begin_goes_back_and_is_tried_again(here: Place) -> None:
    """Where processes cannot be started, nobody is charged, and what needs none goes on."""

    @here.app.job(executor="process")
    def apart() -> None: ...

    @here.app.job
    async def inside() -> str:
        return "ran"

    handle = await apart.aenqueue()
    async with here.worker(processes="no_such_program_anywhere:app"):
        await until_given_back(here, handle)
        assert await (await inside.aenqueue()).aresult(timeout=10) == "ran"
    job = (await here.stored(handle)).job
    assert (job.failures, job.losses, job.state) == (0, 0, "available")


async def until_given_back(place: Place, handle: Handle[None]) -> None:
    async def is_back() -> bool:
        return (await place.stored(handle)).job.handed_back > 1

    await until(is_back)
