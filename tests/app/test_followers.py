"""Jobs that a handler enqueues with its own end: both are committed, or neither is."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from detent import Context, Detent, JobFailed, Limit, Snooze
from detent.engine.asks import Ask
from detent.engine.commands import Change
from detent.errors import BadOption, IllegalTransition, PayloadTooLarge, TooMany
from detent.lifecycle import job as j
from detent.testing import Crashed, Rig, VirtualClock
from tests.app.lateness import outlast


def two(app: Detent, then: Any = lambda _: None, **options: Any) -> tuple[Any, Any]:
    """A job, and one that enqueues it twice and then does something else."""

    @app.job
    def second(number: int) -> int:
        return number

    @app.job(**options)
    def first(ctx: Context) -> str:
        ctx.enqueue(second.bind(1))
        ctx.enqueue(second.using(delay=60).bind(2))
        then(ctx)
        return "done"

    return first, second


def test_they_appear_with_the_end_and_tell_who_wanted_them(
    app: Detent, clock: VirtualClock
) -> None:
    first, _ = two(app)
    handle = first.enqueue()
    ran = app.drain()
    assert len(ran) == 2
    [made] = app.handle(ran[1]).history()[:1]
    assert (made.actor, made.actor_id) == ("user", f"job {handle.id}")
    assert made.command_id == handle.history()[-1].command_id
    clock.advance(60)
    assert len(app.drain()) == 1


def raising(error: Exception) -> Any:
    def raise_it(_: Context) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("error", [ValueError("no"), Snooze(3600)])
def test_a_run_that_does_not_complete_leaves_none(app: Detent, error: Exception) -> None:
    first, _ = two(app, raising(error), retry=0)
    first.enqueue()
    assert len(app.drain()) == 1


def test_a_result_that_cannot_be_kept_leaves_none(app: Detent) -> None:
    @app.job(retry=0)
    def bad(ctx: Context) -> object:
        ctx.enqueue(bad.bind())
        return object()

    bad.enqueue()
    assert len(app.drain()) == 1


@pytest.mark.parametrize("moment", ["before_report", "after_commit"])
def test_a_worker_that_dies_leaves_all_or_none(moment: str) -> None:
    with Rig() as rig:
        first, second = two(rig.app)
        first.enqueue()
        with pytest.raises(Crashed):
            rig.drain(crash=moment)
        rig.assert_enqueued(second.bind(1), count=0 if moment == "before_report" else 1)
        rig.drain()
        rig.assert_enqueued(second.bind(1), count=1)


def test_what_cannot_be_made_is_refused_while_the_handler_runs(app: Detent) -> None:
    @app.job
    def other(text: str = "") -> None: ...

    wrong = {
        BadOption: [other.using(unique=True).bind()],
        PayloadTooLarge: [other.bind("x" * 2_000_000)],
        IllegalTransition: [other.using(priority=10**12).bind()],
        TooMany: [other.bind() for _ in range(501)],
    }
    refused: list[type[Exception]] = []

    @app.job(retry=0)
    def first(ctx: Context) -> None:
        for error, calls in wrong.items():
            with pytest.raises(error):
                ctx.enqueue(*calls)
            refused.append(error)

    handle = first.enqueue()
    assert len(app.drain()) == 1
    assert (handle.result(), len(refused)) == (None, 4)


def test_their_limits_hold(app: Detent) -> None:
    @app.job(limit=Limit(rate=1, per=60))
    def limited() -> None: ...

    @app.job
    def first(ctx: Context) -> None:
        ctx.enqueue(limited.bind(), limited.bind())

    first.enqueue()
    assert len(app.drain()) == 2


def test_an_end_that_is_refused_makes_nothing(app: Detent, clock: VirtualClock) -> None:
    # Beyond what its worker has to see to it itself.
    late = partial(outlast, app, clock, 42)
    first, _ = two(app, lambda _: app.bridge.run(late()), timeout=10, retry=0)
    handle = first.enqueue()
    assert app.drain() == [handle.id]
    with pytest.raises(JobFailed):
        handle.result(timeout=1)


def test_the_engine_refuses_followers_that_cannot_be_born(app: Detent) -> None:
    first, _ = two(app)
    handle = first.enqueue()

    async def cancel() -> None:
        follower = Ask(type="x", priority=10**12)
        change = Change(("", handle.id), j.Cancel(), app.by, new=(follower,))
        await (await app.engine()).carry_out([change])

    with pytest.raises(IllegalTransition):
        app.bridge.run(cancel())
    assert handle.status().state == "available"
