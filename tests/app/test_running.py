"""What a handler returns, raises and says becomes the end of its job, its log and its progress."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

import pytest

from detent import (
    Backoff,
    Cancelled,
    Context,
    Detent,
    DetentError,
    Discard,
    JobCancelled,
    JobFailed,
    ResultTimeout,
    Retry,
    Snooze,
)
from detent.errors import BadOption, BadResult, IllegalTransition, UnknownJob
from detent.testing import VirtualClock
from tests.app.lateness import outlast


def events(handle: Any) -> list[str]:
    return [event.name for event in handle.history()]


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> str:
    """Handlers are functions or coroutines; nothing else differs."""
    return str(request.param)


def declared(app: Detent, colour: str, body: Any, **options: Any) -> Any:
    """A job around a function of its context."""

    def sync(ctx: Context) -> Any:
        return body(ctx)

    async def asynchronous(ctx: Context) -> Any:
        return body(ctx)

    return app.job(name="it", **options)(sync if colour == "sync" else asynchronous)


def raising(error: BaseException) -> Any:
    def body(_: Context) -> None:
        raise error

    return body


def test_a_result_arrives_as_the_type_that_was_promised(app: Detent) -> None:
    @app.job
    def split(text: str) -> set[str]:
        return set(text.split())

    @app.job
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    words, number = split.enqueue("a b"), double.enqueue(4)
    assert app.drain() == [words.id, number.id]
    assert words.result() == {"a", "b"}
    assert number.result(timeout=1) == 8
    assert events(words) == ["enqueue", "claim", "complete"]
    assert words.history()[-1].digest is not None
    assert app.handle(words.id).result() == {"a", "b"}


def test_a_job_that_is_not_done_is_waited_for_no_longer_than_asked(app: Detent) -> None:
    handle = declared(app, "sync", lambda _: None).enqueue()
    with pytest.raises(ResultTimeout) as caught:
        handle.result(timeout=0.02)
    assert caught.value.fields["state"] == "available"
    assert isinstance(caught.value, TimeoutError)


async def test_a_result_is_awaited_while_the_job_runs(app: Detent) -> None:
    job = declared(app, "async", lambda _: "done")
    handle = await job.aenqueue()
    waiting = asyncio.create_task(handle.aresult())
    await app.adrain()
    assert await waiting == "done"


def test_a_failure_is_tried_again_and_then_final(
    app: Detent, colour: str, clock: VirtualClock
) -> None:
    job = declared(app, colour, raising(ValueError("it\0broke")), retry=1)
    handle = job.enqueue()
    app.drain()
    status = handle.status()
    assert (status.state, status.failures, status.error_code) == ("retryable", 1, "handler_error")
    clock.advance(2)
    app.drain()
    with pytest.raises(JobFailed) as caught:
        handle.result()
    told = caught.value.fields
    assert (told["error_code"], told["cause"], told["attempt"]) == ("handler_error", "exhausted", 2)
    assert told["error_message"] == "it\ufffdbroke"
    assert "ValueError" in str(caught.value)


def test_the_traceback_is_kept_with_the_attempt(app: Detent, colour: str) -> None:
    handle = declared(app, colour, raising(KeyError("k")), retry=0).enqueue()
    app.drain()

    async def kept() -> Any:
        [stored] = await (await app.engine()).store.get([("", handle.id)])
        return stored.failures if stored else None

    [failure] = app.bridge.run(kept())
    assert failure.type == "KeyError"
    assert failure.backtrace.startswith("Traceback")
    assert "raise error" in failure.backtrace
    assert failure.backtrace.count("Traceback") == 1, "nothing of ours is told as its reason"


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), StopAsyncIteration()])
def test_whatever_is_raised_ends_the_job_and_nothing_else(
    app: Detent, colour: str, error: BaseException
) -> None:
    handle = declared(app, colour, raising(error), retry=0).enqueue()
    app.drain()
    assert handle.status().state == "discarded"


def test_a_listed_class_covers_what_is_derived_from_it(app: Detent, colour: str) -> None:
    backoff = Backoff(retries=5, never=(LookupError,))
    handle = declared(app, colour, raising(KeyError("k")), retry=backoff).enqueue()
    app.drain()
    assert handle.status().cause == "not_retryable"


def test_a_discard_is_final(app: Detent, colour: str) -> None:
    handle = declared(app, colour, raising(Discard("of no use")), retry=5).enqueue()
    app.drain()
    with pytest.raises(JobFailed, match="of no use") as caught:
        handle.result()
    assert caught.value.fields["cause"] == "discard_asked"


def test_a_retry_waits_as_long_as_it_says_if_the_policy_grants_one(
    app: Detent, colour: str, clock: VirtualClock
) -> None:
    handle = declared(app, colour, raising(Retry("busy", after=90)), retry=1).enqueue()
    app.drain()
    run_at = handle.status().run_at
    assert run_at is not None
    assert (run_at - clock.now).total_seconds() == 90
    clock.advance(90)
    app.drain()
    assert handle.status().cause == "exhausted"


def test_a_snooze_costs_nothing(app: Detent, colour: str, clock: VirtualClock) -> None:
    def body(ctx: Context) -> str:
        if ctx.attempt < 4:
            raise Snooze(60, "not yet")
        return "done"

    handle = declared(app, colour, body, retry=0).enqueue()
    for _ in range(4):
        app.drain()
        clock.advance(60)
    assert handle.result() == "done"
    assert handle.status().failures == 0
    assert handle.history()[2].reason == "not yet"


@pytest.mark.parametrize("say", [lambda: Snooze(-1), lambda: Snooze(1e12), lambda: Retry(after=-1)])
def test_a_wait_that_cannot_be_fails_where_it_is_said(app: Detent, say: Any) -> None:
    handle = declared(app, "sync", lambda _: say(), retry=0).enqueue()
    app.drain()
    assert handle.status().error_code == BadOption.code


def test_a_reason_of_any_kind_can_be_kept(app: Detent, colour: str) -> None:
    handle = declared(app, colour, raising(Snooze(60, "\0\ud800" * 3_000))).enqueue()
    app.drain()
    assert handle.history()[-1].reason == "\ufffd?" * 1_000


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I cannot say")


def test_an_error_that_cannot_say_what_it_is_is_still_one(app: Detent, colour: str) -> None:
    handle = declared(app, colour, raising(Mute()), retry=0).enqueue()
    app.drain()
    assert handle.status().error_message == "(no message: RuntimeError)"


def test_somebody_elses_cancellation_is_a_failure_of_the_handler(app: Detent) -> None:
    handle = declared(app, "async", raising(asyncio.CancelledError()), retry=0).enqueue()
    app.drain()
    assert handle.status().state == "discarded"


async def test_a_drain_that_is_called_off_leaves_its_job_to_others(app: Detent) -> None:
    started = asyncio.Event()

    @app.job
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await endless.aenqueue()
    running = asyncio.create_task(app.adrain())
    await started.wait()
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert (await handle.astatus()).state == "active"


def test_a_job_that_waits_is_cancelled_at_once(app: Detent) -> None:
    handle = declared(app, "sync", lambda _: None).enqueue()
    assert handle.cancel("changed my mind").state == "cancelled"
    assert handle.history()[-1].reason == "changed my mind"
    with pytest.raises(JobCancelled) as caught:
        handle.result()
    assert caught.value.fields["cause"] == "requested"
    with pytest.raises(IllegalTransition):
        handle.cancel()


def test_a_job_that_runs_is_asked_to_stop(app: Detent) -> None:
    @app.job
    def wait(ctx: Context) -> None:
        app.handle(ctx.job_id).cancel("enough")
        while True:
            ctx.check_cancelled()

    @app.job
    async def await_it(ctx: Context) -> None:
        await app.handle(ctx.job_id).acancel("enough")
        while not ctx.cancelled:  # noqa: ASYNC110 - a handler that works looks now and then
            await asyncio.sleep(0)
        raise Cancelled("stopped")

    for handle in (wait.enqueue(), await_it.enqueue()):
        app.drain()
        assert handle.status().cause == "confirmed"
        assert events(handle)[-3:] == ["cancel_requested", "cancel_seen", "cancel"]


def test_who_stops_unasked_is_discarded(app: Detent, colour: str) -> None:
    handle = declared(app, colour, raising(Cancelled("by myself"))).enqueue()
    app.drain()
    assert handle.status().cause == "discard_asked"


def test_a_success_that_comes_first_wins(app: Detent) -> None:
    def body(ctx: Context) -> str:
        app.handle(ctx.job_id).cancel()
        return "done"

    handle = declared(app, "sync", body).enqueue()
    app.drain()
    assert handle.result() == "done"


def test_lines_and_progress_are_kept(app: Detent, colour: str) -> None:
    def body(ctx: Context) -> None:
        ctx.log("one")
        ctx.log("two\0\ud800", level="warning")
        ctx.log("x" * 20_000)
        ctx.progress(10)
        ctx.progress(50.5, "half")

    handle = declared(app, colour, body).enqueue()
    app.drain()
    lines = [(line.level, line.text) for line in handle.logs(follow=True)]
    assert lines == [("info", "one"), ("warning", "two\ufffd?"), ("info", "x" * 16_384)]
    assert (handle.status().percent, handle.status().message) == (50, "half")


async def test_a_log_is_followed_until_the_job_ends(app: Detent) -> None:
    spoke, heard = asyncio.Event(), asyncio.Event()

    @app.job
    async def speak(ctx: Context) -> None:
        ctx.log("first")
        spoke.set()
        await heard.wait()
        ctx.log("last")

    handle = await speak.aenqueue()
    running = asyncio.create_task(app.adrain())
    await spoke.wait()
    lines = []
    async for line in handle.alogs(follow=True):
        lines.append(line.text)
        heard.set()
    await running
    assert lines == ["first", "last"]


def test_progress_has_bounds(app: Detent, colour: str) -> None:
    handle = declared(app, colour, lambda ctx: ctx.progress(101), retry=5).enqueue()
    app.drain()
    status = handle.status()
    assert (status.error_code, status.cause) == (BadOption.code, "not_retryable")


def test_a_checkpoint_survives_its_attempt(app: Detent, clock: VirtualClock) -> None:
    seen: list[Any] = []

    @app.job(retry=2)
    def count(ctx: Context) -> None:
        seen.append(ctx.saved(list[int]))
        ctx.save([*(ctx.saved() or []), ctx.attempt])
        if ctx.attempt < 3:
            raise ValueError

    @app.job
    async def also(ctx: Context) -> None:
        await ctx.asave({"a": 1})
        seen.append(ctx.saved())

    count.enqueue()
    for _ in range(3):
        app.drain()
        clock.advance(10)
    assert seen == [None, [1], [1, 2]]
    also.enqueue()
    app.drain()
    assert seen[-1] == {"a": 1}


@pytest.mark.parametrize("returned", [object(), "\ud800", "x" * 17_000_000])
def test_what_cannot_be_kept_fails_the_job_for_good(app: Detent, returned: object) -> None:
    handle = declared(app, "sync", lambda _: returned, retry=5).enqueue()
    app.drain()
    assert handle.status().cause == "not_retryable"


def test_a_checkpoint_that_cannot_be_kept_says_so(app: Detent) -> None:
    handle = declared(app, "sync", lambda ctx: ctx.save(object()), retry=5).enqueue()
    app.drain()
    assert handle.status().error_code == BadResult.code


def test_arguments_that_no_longer_fit_fail_for_good() -> None:
    with Detent("memory:") as app:

        @app.job(name="it")
        def old(a: str) -> None: ...

        handle = old.enqueue("a")
        del app.jobs["it"]

        @app.job(name="it")
        def new(a: int) -> None: ...

        app.drain()
        assert handle.status().error_code == "bad_arguments"
        assert "argument a" in (handle.status().error_message or "")


def test_a_job_of_an_unknown_type_stays_where_it_is(app: Detent) -> None:
    handle = declared(app, "sync", lambda _: None).enqueue()
    app.jobs.clear()
    assert app.drain() == []
    assert handle.status().state == "available"


def test_results_of_unknown_types_are_plain_json(app: Detent) -> None:
    handle = declared(app, "sync", lambda _: {"a": (1,)}).enqueue()
    app.drain()
    app.jobs.clear()
    assert handle.result() == {"a": [1]}


def test_the_report_of_a_lease_that_has_ended_is_refused_but_its_lines_stay(
    app: Detent, clock: VirtualClock
) -> None:
    def body(ctx: Context) -> str:
        ctx.log("late")
        # Meanwhile somebody else notices that it has run for too long.
        app.bridge.run(outlast(app, clock, 62))
        return "too late"

    handle = declared(app, "sync", body, timeout=30, retry=0).enqueue()
    app.drain()
    assert handle.status().cause == "exhausted"
    assert [line.text for line in handle.logs()] == ["late"]


def test_jobs_of_every_tenant_and_queue_are_drained(app: Detent) -> None:
    job = declared(app, "sync", lambda ctx: ctx.tenant)
    one = job.using(tenant="t", queue="a").enqueue()
    two = job.using(queue="b").enqueue()
    assert sorted(app.drain()) == sorted([one.id, two.id])
    assert one.result() == "t"


def test_a_job_that_is_not_there_is_unknown(app: Detent) -> None:
    handle = app.handle("nobody")
    logs = partial(next, handle.logs())
    for ask in (handle.status, handle.cancel, handle.result, handle.history, logs):
        with pytest.raises(UnknownJob) as caught:
            ask()
        assert caught.value.fields == {"id": "nobody", "tenant": ""}
    assert repr(handle) == "<Handle nobody>"


def test_what_there_is_to_see_is_seen(app: Detent) -> None:
    job = declared(app, "sync", lambda _: None)
    assert repr(job) == "<Job it>"
    handle = job.enqueue()
    assert not handle.status().is_ended
    app.drain()
    assert handle.status().is_ended
    assert handle.status().ended_at is not None


def test_a_checkpoint_under_a_lease_that_has_ended_is_refused(
    app: Detent, clock: VirtualClock
) -> None:
    refused: list[str] = []

    def body(ctx: Context) -> None:
        app.bridge.run(outlast(app, clock, 62))
        try:
            ctx.save(1)
        except IllegalTransition as error:
            refused.append(error.fields["code"])

    declared(app, "sync", body, timeout=30, retry=0).enqueue()
    app.drain()
    assert refused == ["lease_ended"]


def test_every_refusal_has_a_code_of_its_own() -> None:
    kinds = [kind for kind in vars(sys.modules["detent.errors"]).values() if isinstance(kind, type)]
    codes = [kind.code for kind in kinds if issubclass(kind, DetentError)]
    assert len(codes) == len(set(codes))
