"""Going quiet: confirmed or not at all, one at a time or all, and kept across restarts."""

from __future__ import annotations

import asyncio

import pytest

from detent.errors import IllegalTransition, SuspendTimeout
from detent.lifecycle.worker import WorkerState
from tests.runtime.supervisor.stage import CRASH, Stage
from tests.runtime.supervisor.test_restarting import live

_S = WorkerState


async def test_suspended_is_said_when_it_is_true(stage: Stage) -> None:
    """W-43, W-37, W-04: running until the worker confirms; a resume does not move started_at."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": 5.0}))
    one = live(supervisor, "a")
    started_at = one.record.started_at
    task = asyncio.ensure_future(supervisor.suspend("a"))
    await stage.clock.advance(4.9)
    assert one.record.state == "running"
    await stage.during(task)
    assert one.record.state == "suspended"
    await supervisor.suspend("a")
    await supervisor.resume("a")
    await supervisor.resume("a")
    assert one.state is _S.RUNNING
    assert (one.record.started_at, one.record.resumed_at) == (started_at, stage.clock.now())
    assert stage.last("a").told == ["spawn", "suspend", "resume"]


async def test_a_deadline_withdraws_the_request(stage: Stage) -> None:
    """W-38: never half suspended."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": None}))
    with pytest.raises(SuspendTimeout) as caught:
        await stage.during(supervisor.suspend("a"))
    assert caught.value.retryable
    assert stage.clock.monotonic() == 130
    assert stage.last("a").told == ["spawn", "suspend", "resume"]
    assert live(supervisor, "a").state is _S.RUNNING
    assert not supervisor.slots["a"].is_suspended


async def test_ten_requests_are_one(stage: Stage) -> None:
    """W-42, behaviour 17."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": 2.0}))
    await stage.during(asyncio.gather(*(supervisor.suspend("a") for _ in range(10))))
    assert stage.last("a").told == ["spawn", "suspend"]


async def test_a_stop_while_it_goes_quiet_wins(stage: Stage) -> None:
    """W-39: a worker on its way to quiet can always stop."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": 20.0}))
    one = live(supervisor, "a")
    task = asyncio.ensure_future(supervisor.suspend("a"))
    await stage.clock.advance(1)
    await stage.during(supervisor.stop_slot("a"))
    with pytest.raises(IllegalTransition):
        await stage.during(task)
    assert one.state is _S.STOPPED
    assert not supervisor.slots["a"].is_suspended


async def test_a_stop_of_a_suspended_one(stage: Stage) -> None:
    """E14."""
    supervisor = await stage.running(stage.spec("a"))
    one = live(supervisor, "a")
    await supervisor.suspend("a")
    await stage.during(supervisor.stop_slot("a"))
    assert stage.states(one.id)[-3:] == ["suspended", "stopping", "stopped"]


async def test_all_of_them_in_reverse_and_back_in_order(stage: Stage) -> None:
    """W-41, behaviour 15: what cannot is left out, what fails is named, the rest stays quiet."""
    specs = [
        stage.spec("a"),
        stage.spec("b", {"suspendable": False}),
        stage.spec("c", {"quiet_in": None}),
        stage.spec("d"),
    ]
    supervisor = await stage.running(*specs)
    done = await stage.during(supervisor.suspend_all())
    assert done.suspended == "some"
    assert list(done.errors) == ["c"]
    assert [line for line in stage.log if "suspend" in line] == [
        *("d suspend", "c suspend", "a suspend")
    ]
    back = await supervisor.resume_all()
    assert (back.suspended, back.errors) == ("none", {})
    assert [line for line in stage.log if "resume" in line][1:] == ["a resume", "d resume"]


async def test_the_next_instance_is_suspended_too(stage: Stage) -> None:
    """W-38 and issue: a suspended slot stays suspended after a crash of its instance."""
    supervisor = await stage.running(stage.spec("a"))
    await supervisor.suspend("a")
    stage.last("a").die(CRASH)
    await stage.clock.advance(5)
    assert stage.made("a") == 2
    handover = stage.last("a").handover
    assert handover is not None
    assert handover.suspended
    assert live(supervisor, "a").state is _S.SUSPENDED


async def test_the_next_supervisor_knows(stage: Stage) -> None:
    """Persisted: the slot is suspended, though another supervisor starts it."""
    supervisor = await stage.running(stage.spec("a"))
    await supervisor.suspend("a")
    await stage.during(supervisor.stop())
    again = await stage.running(stage.spec("a"))
    await stage.clock.settle()
    assert live(again, "a").state is _S.SUSPENDED
    await again.resume("a")
    await stage.during(again.stop())
    third = await stage.running(stage.spec("a"))
    await stage.clock.settle()
    assert live(third, "a").state is _S.RUNNING


async def test_a_body_that_cannot_go_quiet_says_so(stage: Stage) -> None:
    """W-38: an error of the body reaches the caller, and nothing has changed."""
    supervisor = await stage.running(stage.spec("a"))

    async def broken() -> None:
        raise ConnectionError("the channel is gone")

    stage.last("a").suspend = broken  # type: ignore[method-assign]
    with pytest.raises(ConnectionError):
        await supervisor.suspend("a")
    assert live(supervisor, "a").state is _S.RUNNING
