"""Going quiet: confirmed or not at all, one at a time or all, and kept across restarts."""

from __future__ import annotations

import asyncio

import pytest

from detent.errors import IllegalTransition, SuspendTimeout
from detent.lifecycle.worker import WorkerState
from detent.runtime.supervisor.supervisor import Supervisor
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


async def reborn(stage: Stage, state: WorkerState) -> Supervisor:
    """One whose slot was suspended, and that fell; its next instance is in that state."""
    supervisor = await stage.running(stage.spec("a", {"ready_in": 2.0, "quiet_in": 2.0}))
    await stage.during(supervisor.suspend("a"))
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    await stage.clock.until(lambda: live(supervisor, "a").state is state)
    return supervisor


async def test_who_dies_before_it_is_quiet_again_takes_nothing_back(stage: Stage) -> None:
    """W-38: suspended by somebody, a slot stays so until somebody says otherwise."""
    supervisor = await reborn(stage, _S.RUNNING)
    stage.last("a").die(CRASH)
    await stage.clock.advance(20)
    assert stage.made("a") == 3
    assert live(supervisor, "a").state is _S.SUSPENDED
    again = await reborn(stage, _S.RUNNING)
    await stage.during(again.stop())
    assert again.slots["a"].is_suspended


async def test_who_does_not_go_quiet_in_a_suspended_slot_is_asked_again(stage: Stage) -> None:
    """W-38: it was told at its birth to take nothing in, and nobody tells it otherwise."""
    supervisor = await reborn(stage, _S.STARTING)
    stage.last("a").quiet_in = None
    await stage.clock.advance(100)
    assert stage.last("a").told == ["spawn", *(["suspend"] * 4)]
    stage.last("a").quiet_in = 0.0
    await stage.clock.advance(40)
    assert live(supervisor, "a").state is _S.SUSPENDED
    assert supervisor.slots["a"].is_suspended


async def test_a_resume_calls_off_a_suspend_that_is_under_way(stage: Stage) -> None:
    """W-10, W-38: whoever is told last to go on, goes on."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": 5.0}))
    suspending = asyncio.ensure_future(supervisor.suspend("a"))
    await stage.clock.advance(1)
    await supervisor.resume("a")
    with pytest.raises(SuspendTimeout, match="told to go on"):
        await suspending
    await stage.clock.advance(10)
    assert stage.last("a").told == ["spawn", "suspend", "resume"]
    assert live(supervisor, "a").state is _S.RUNNING
    assert not supervisor.slots["a"].is_suspended


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("state", [_S.PENDING, _S.STARTING, _S.RUNNING])
async def test_a_slot_is_resumed_while_its_next_instance_comes(
    stage: Stage, state: WorkerState, all_of_them: bool
) -> None:
    """W-41: resumed is the slot, whatever became of the instance that was suspended."""
    supervisor = await reborn(stage, state)
    if all_of_them:
        assert (await supervisor.resume_all()).errors == {}
    else:
        await supervisor.resume("a")
    await stage.clock.advance(20)
    assert live(supervisor, "a").state is _S.RUNNING
    assert stage.last("a").told[-1] == ("spawn" if state is _S.PENDING else "resume")
    assert not supervisor.slots["a"].is_suspended


async def test_a_suspend_of_what_is_removed_keeps_nothing_of_it(stage: Stage) -> None:
    """W-62: the slot is forgotten, whoever still waits for it to go quiet."""
    supervisor = await stage.running(stage.spec("a", {"quiet_in": None}))
    suspending = asyncio.ensure_future(supervisor.suspend("a"))
    await stage.clock.settle()
    await stage.during(supervisor.remove("a"))
    with pytest.raises(IllegalTransition):
        await suspending
    assert stage.journal.slot("a") is None


async def test_a_resume_is_no_new_start(stage: Stage) -> None:
    """W-04, W-54: what it has proven, it has proven."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.clock.advance(50)
    await supervisor.suspend("a")
    await supervisor.resume("a")
    assert live(supervisor, "a").uptime_s == 50
