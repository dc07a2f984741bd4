"""Handlers in tasks and threads of the worker: run, stopped as far as that goes, and captured."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from detent import Context, Detent
from detent.engine import limits
from detent.runtime.ending import Raised
from detent.runtime.executors.api import Executor, Returned, Run, Rung, Stopped
from detent.runtime.executors.capture import Capture, Splitter
from detent.runtime.executors.means import Kind
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.executors.threads import ThreadExecutor
from tests.runtime.executors.desk import Desk, lines, opened
from tests.waiting import until

WHO: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Detent]:
    """An app of its own."""
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:
        yield app


@pytest.fixture(params=["async", "thread"])
def colour(request: pytest.FixtureRequest) -> str:
    """Where it runs."""
    return str(request.param)


def executor_of(colour: str) -> Executor:
    return AsyncExecutor() if colour == "async" else ThreadExecutor()


async def run_of(app: Detent, colour: str, body: Any) -> Run:
    """A run of a job around a function of its context."""

    def sync(ctx: Context) -> Any:
        return body(ctx)

    async def asynchronous(ctx: Context) -> Any:
        return body(ctx)

    app.job(name="it")(sync if colour == "thread" else asynchronous)
    return await Desk(app).run_of("it")


async def test_what_it_returns(app: Detent, colour: str) -> None:
    run = await run_of(app, colour, lambda ctx: ctx.attempt)
    async with opened(executor_of(colour)) as executor:
        assert executor.kind == Kind(colour)
        assert await executor.run(run) == Returned(1)


class _Odd(BaseException):
    """Of no kind that anybody catches."""


@pytest.mark.parametrize(
    "error", [KeyError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), _Odd("x")]
)
async def test_what_it_raises(app: Detent, colour: str, error: BaseException) -> None:
    def fail(_: Context) -> None:
        raise error

    async with opened(executor_of(colour)) as executor:
        assert await executor.run(await run_of(app, colour, fail)) == Raised(error)


async def test_arguments_that_do_not_fit(app: Detent, colour: str) -> None:
    run = await run_of(app, colour, lambda _: None)
    run.opened = type(run.opened)('["too many"]')
    async with opened(executor_of(colour)) as executor:
        ended = await executor.run(run)
    assert isinstance(ended, Raised)
    assert getattr(ended.error, "code", "") == "bad_arguments"


async def test_what_stands_around_it(app: Detent, colour: str) -> None:
    told: list[object] = []

    @app.around_run
    async def outer(ctx: Context) -> Any:
        told.append(("outer", threading.current_thread() is threading.main_thread()))
        yield
        ctx.log("never")

    @app.around_run
    def inner(_: Context) -> Any:
        WHO.set("inner")
        try:
            yield
        except KeyError as error:
            told.append(repr(error))

    def fail(_: Context) -> None:
        told.append(WHO.get())
        raise KeyError("x")

    run = await run_of(app, colour, fail)
    async with opened(executor_of(colour)) as executor:
        assert await executor.run(run) == Returned(None)
    assert told == [("outer", True), "inner", "KeyError('x')"]
    assert lines(run) == ["never"]


async def test_an_error_reaches_the_asynchronous_ones_around_a_thread(app: Detent) -> None:
    @app.around_run
    async def swallowing(ctx: Context) -> Any:
        try:
            yield
        except KeyError:
            ctx.log("swallowed")

    def fail(_: Context) -> None:
        raise KeyError("x")

    run = await run_of(app, "thread", fail)
    async with opened(ThreadExecutor()) as executor:
        assert await executor.run(run) == Returned(None)
    assert lines(run) == ["swallowed"]


async def test_the_word_that_it_should_stop(app: Detent, colour: str) -> None:
    run = await run_of(app, colour, lambda ctx: ctx.cancelled)
    async with opened(executor_of(colour)) as executor:
        executor.ask(run)
        assert await executor.run(run) == Returned(True)


async def test_a_task_is_interrupted(app: Detent) -> None:
    @app.job
    async def sleeps(ctx: Context) -> None:
        ctx.log("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ctx.log("cleaned up")

    run = await Desk(app).run_of("sleeps")
    async with opened(AsyncExecutor()) as executor:
        assert not executor.interrupt(run)
        task = asyncio.create_task(executor.run(run))
        await until(lambda: lines(run))
        assert executor.interrupt(run)
        assert await task == Stopped(Rung.INTERRUPTED)
        assert await executor.kill(run) is Rung.KILLED
    assert lines(run) == ["begun", "cleaned up"]


async def test_somebody_elses_end_is_an_error_of_the_handler(app: Detent) -> None:
    @app.job
    async def ends() -> None:
        raise asyncio.CancelledError

    async with opened(AsyncExecutor()) as executor:
        ended = await executor.run(await Desk(app).run_of("ends"))
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, asyncio.CancelledError)


async def test_a_task_that_swallows_its_end_is_abandoned(app: Detent) -> None:
    is_over = asyncio.Event()

    @app.job
    async def deaf(ctx: Context) -> str:
        ctx.log("begun")
        while not is_over.is_set():
            try:
                await is_over.wait()
            except asyncio.CancelledError:
                ctx.log("not me")
        return "over"

    run = await Desk(app).run_of("deaf")
    executor = AsyncExecutor()
    task = asyncio.create_task(executor.run(run))
    await until(lambda: lines(run))
    executor.interrupt(run)
    await until(lambda: "not me" in lines(run))
    assert await executor.kill(run) is Rung.ABANDONED
    assert await task == Stopped(Rung.ABANDONED)
    assert executor.abandoned == 1
    is_over.set()
    await until(lambda: executor.abandoned == 0)
    await executor.close()


async def test_a_task_that_ends_at_last_is_killed(app: Detent) -> None:
    @app.job
    async def sleeps() -> None:
        await asyncio.Event().wait()

    executor = AsyncExecutor()
    task = asyncio.create_task(executor.run(await Desk(app).run_of("sleeps")))
    await until(lambda: executor._tasks)  # noqa: SLF001
    await executor.close()
    assert await task == Stopped(Rung.INTERRUPTED)


async def test_a_thread_is_abandoned_and_replaced(app: Detent) -> None:
    is_over, begun = threading.Event(), threading.Event()

    def blocks(ctx: Context) -> int:
        begun.set()
        is_over.wait()
        ctx.log("nobody hears this")
        return threading.get_ident()

    run = await run_of(app, "thread", blocks)
    executor = ThreadExecutor(1)
    task = asyncio.create_task(executor.run(run))
    await until(begun.is_set)
    assert not executor.interrupt(run)
    assert await executor.kill(run) is Rung.ABANDONED
    assert await task == Stopped(Rung.ABANDONED)
    await until(lambda: executor.abandoned == 1)
    app.job(name="other")(lambda: threading.current_thread().name)
    ended = await executor.run(await Desk(app).run_of("other"))
    assert ended == Returned("detent-job-2")
    is_over.set()
    await until(lambda: executor.abandoned == 0)
    await executor.close()


async def test_threads_are_bounded_reused_and_daemons(app: Detent) -> None:
    is_over, many = threading.Event(), threading.Barrier(2)

    def blocks(_: Context) -> bool:
        many.wait()
        is_over.wait()
        return threading.current_thread().daemon

    first = await run_of(app, "thread", blocks)
    runs = [first, *[await Desk(app).run_of("it") for _ in range(2)]]
    async with opened(ThreadExecutor(2)) as executor:
        tasks = [asyncio.create_task(executor.run(run)) for run in runs]
        await until(lambda: many.n_waiting == 0 and _threads() == 2)
        waiting = tasks[2]
        await executor.kill(runs[2])
        assert await waiting == Stopped(Rung.ABANDONED)
        is_over.set()
        assert await asyncio.gather(*tasks[:2]) == [Returned(True)] * 2
    await until(lambda: _threads() == 0)


def _threads() -> int:
    return sum(thread.name.startswith("detent-job") for thread in threading.enumerate())


async def test_output_is_captured_and_passes_through_outside(
    app: Detent, colour: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(_: Context) -> None:
        sys.stdout.write("printed\nha")
        sys.stdout.write("lf")
        sys.stdout.flush()
        sys.stderr.write("wrong\r\n")
        logging.getLogger("shop").warning("careful %s", 7)
        assert not sys.stdout.isatty()

    run = await run_of(app, colour, talk)
    with Capture():
        async with opened(executor_of(colour)) as executor:
            sys.stdout.write("outside\n")
            assert await executor.run(run) == Returned(None)
            sys.stderr.write("outside too\n")
    told = [(line.text, line.level) for line in run.ctx.heard.lines]
    assert told == [
        ("printed", "stdout"),
        ("wrong", "stderr"),
        ("careful 7", "warning"),
        ("half", "stdout"),
    ]
    assert capsys.readouterr() == ("outside\n", "outside too\n")


async def test_a_record_that_is_printed_too_is_heard_once(app: Detent, colour: str) -> None:
    logger = logging.getLogger("printed")

    def talk(_: Context) -> None:
        logger.error("bad")

    run = await run_of(app, colour, talk)
    with Capture():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("own: %(message)s"))
        logger.addHandler(handler)
        try:
            async with opened(executor_of(colour)) as executor:
                await executor.run(run)
        finally:
            logger.removeHandler(handler)
    assert [(line.text, line.level) for line in run.ctx.heard.lines] == [("own: bad", "error")]


async def test_a_bad_record_fails_nobody(
    app: Detent, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    run = await run_of(app, colour, lambda _: logging.getLogger("x").error("%d", "no"))
    with Capture():
        async with opened(executor_of(colour)) as executor:
            assert await executor.run(run) == Returned(None)


async def test_a_flood_is_counted(app: Detent, colour: str) -> None:
    many = limits.LOG_LINES_MAX + 500

    def flood(_: Context) -> None:
        for at in range(many):
            sys.stdout.write(f"{at}\n")

    run = await run_of(app, colour, flood)
    with Capture():
        async with opened(executor_of(colour)) as executor:
            await executor.run(run)
    assert len(run.ctx.heard.lines) == limits.LOG_LINES_MAX
    assert lines(run)[-1].startswith("500 more lines were dropped")


async def test_two_runs_at_once_are_told_apart(app: Detent, colour: str) -> None:
    meet = asyncio.Barrier(2)

    @app.job
    async def acoroutine(ctx: Context) -> None:
        await meet.wait()
        sys.stdout.write(f"{ctx.job_id}\n")
        await meet.wait()
        sys.stdout.write(f"{ctx.job_id}\n")

    both = threading.Barrier(2)

    @app.job
    def plain(ctx: Context) -> None:
        both.wait()
        sys.stdout.write(f"{ctx.job_id}\n")
        both.wait()
        sys.stdout.write(f"{ctx.job_id}\n")

    name = "acoroutine" if colour == "async" else "plain"
    runs = [await Desk(app).run_of(name) for _ in range(2)]
    with Capture():
        async with opened(executor_of(colour)) as executor:
            await asyncio.gather(*(executor.run(run) for run in runs))
    assert [lines(run) for run in runs] == [[run.ctx.job_id] * 2 for run in runs]


def test_the_streams_are_as_before_afterwards() -> None:
    before = (sys.stdout, sys.stderr, list(logging.root.handlers))
    with Capture():
        assert (sys.stdout, sys.stderr) != before[:2]
        assert sys.stdout.encoding == before[0].encoding
        assert sys.stdout.errors == before[0].errors
        assert sys.stdout.writable()
        assert sys.stdout.isatty() == before[0].isatty()
    assert (sys.stdout, sys.stderr, logging.root.handlers) == before


def test_somebody_elses_stream_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    other = sys.__stdout__
    with Capture():
        sys.stdout = other
    assert sys.stdout is other


def test_the_last_resort_of_logging_is_not_hidden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    with Capture():
        logging.getLogger("shop").warning("seen")
        logging.getLogger("shop").info("not seen")
    assert capsys.readouterr().err == "seen\n"


def test_a_line_that_never_ends_is_cut() -> None:
    splitter = Splitter()
    assert splitter.feed("x" * limits.LINE_CHARS_MAX) == []
    assert splitter.feed("y") == ["x" * limits.LINE_CHARS_MAX + "y"]
    assert splitter.end() == []
