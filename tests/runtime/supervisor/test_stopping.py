"""The stop ladder: every rung in its order, every clock its own."""

from __future__ import annotations

import asyncio

import pytest

from detent.lifecycle.worker import Exit, WorkerState
from detent.runtime.supervisor.spec import Restart
from detent.runtime.supervisor.strategy import Strategy
from tests.runtime.supervisor.stage import CLEAN, Stage
from tests.runtime.supervisor.test_restarting import live

_S = WorkerState
STUBBORN = {"obeys_in": None}


async def test_the_whole_ladder(stage: Stage) -> None:
    """W-22, W-28, W-24, W-25, W-16: ask, dump at 80 %, kill order on disk, force, killed."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one = live(supervisor, "a")
    stopping = asyncio.ensure_future(supervisor.stop_slot("a"))
    await stage.clock.advance(7.9)
    assert stage.last("a").told == ["spawn", "ask 10"]
    await stage.clock.advance(0.2)
    assert stage.last("a").told[-1] == "dump"
    assert one.state is _S.STOPPING
    await stage.during(stopping)
    assert stage.last("a").told[-2:] == ["force", "died"]
    names = [event.name for event in stage.journal.history(one.id)]
    assert names[-3:] == ["stop", "kill_ordered", "kill"]
    assert (one.state, one.record.cause) == (_S.KILLED, "grace_exceeded")
    assert stage.journal.dump_of(one.id) == "the stacks"
    assert stage.numbers.values["lifecycle_grace_used_ratio"][0] >= 1


async def test_the_order_is_on_disk_before_the_force(stage: Stage) -> None:
    """W-116."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one, body = live(supervisor, "a"), stage.last("a")
    known: list[str] = []
    forced = body.force

    async def force() -> None:
        known.extend(event.name for event in stage.journal.history(one.id))
        await forced()

    body.force = force  # type: ignore[method-assign]
    await stage.during(supervisor.stop_slot("a"))
    assert known[-1] == "kill_ordered"


async def test_an_end_in_the_last_moment_is_judged_as_it_was(stage: Stage) -> None:
    """W-16: one last look before the kill."""
    supervisor = await stage.running(stage.spec("a", {"obeys_in": 10.01}))
    one = live(supervisor, "a")
    await stage.during(supervisor.stop_slot("a"))
    assert one.state is _S.STOPPED
    assert "force" not in stage.last("a").told


async def test_a_second_stop_joins_and_shortens_but_never_extends(stage: Stage) -> None:
    """W-10, W-29."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one = live(supervisor, "a")
    first = asyncio.ensure_future(supervisor.stop_slot("a", 100))
    await stage.clock.advance(1)
    longer = asyncio.ensure_future(supervisor.stop_slot("a", 1_000))
    await stage.clock.settle()
    assert [event.name for event in stage.journal.history(one.id)][-1] == "stop"
    shorter = asyncio.ensure_future(supervisor.stop_slot("a", 5))
    await stage.clock.settle()
    assert stage.last("a").told[-1] == "hasten 5"
    await stage.during(asyncio.gather(first, longer, shorter))
    assert 105.9 < stage.clock.monotonic() < 107
    assert [event.name for event in stage.journal.history(one.id)].count("hastened") == 1


async def test_kill_now(stage: Stage) -> None:
    """K3: stop with no grace, order, force; the stacks are kept before."""
    supervisor = await stage.running(stage.spec("a", restart=Restart.NEVER))
    one = live(supervisor, "a")
    await stage.during(supervisor.kill("a"), 2)
    assert stage.last("a").told == ["spawn", "dump", "force", "died"]
    assert stage.states(one.id)[-2:] == ["stopping", "killed"]


async def test_kill_now_while_it_stops(stage: Stage) -> None:
    """W-29: a stop under way can be cut to nothing."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    stopping = asyncio.ensure_future(supervisor.stop_slot("a"))
    await stage.clock.advance(1)
    await stage.during(supervisor.kill("a"), 2)
    await stage.during(stopping, 1)
    assert stage.clock.monotonic() < 103


async def test_every_child_has_its_own_clock(stage: Stage) -> None:
    """W-23: two that will not stop cost one grace, not two, and the third is not robbed."""
    slow = {"obeys_in": 9.0}
    specs = [stage.spec("a", slow), stage.spec("b", STUBBORN), stage.spec("c", STUBBORN)]
    supervisor = await stage.running(*specs)
    lives = {name: live(supervisor, name) for name in "abc"}
    await stage.during(supervisor.stop())
    assert stage.clock.monotonic() < 111
    assert lives["a"].state is _S.STOPPED
    assert lives["b"].state is lives["c"].state is _S.KILLED


async def test_in_a_group_the_clocks_run_one_after_the_other(stage: Stage) -> None:
    """W-23, W-30: the slow one leaves the others their full grace."""
    specs = [stage.spec("a", {"obeys_in": 9.0}), stage.spec("b", STUBBORN)]
    supervisor = await stage.running(*specs, strategy=Strategy.REST_FOR_ONE)
    lives = {name: live(supervisor, name) for name in "ab"}
    await stage.during(supervisor.stop())
    assert 119 < stage.clock.monotonic() < 120
    assert (lives["a"].state, lives["b"].state) == (_S.STOPPED, _S.KILLED)


async def test_who_waits_for_its_turn_to_stop_is_shown_as_stopping(stage: Stage) -> None:
    """W-69: in a tree that stops, nobody is shown as if it were there to stay."""
    specs = [stage.spec("a"), stage.spec("b", {"obeys_in": 5.0})]
    supervisor = await stage.running(*specs, strategy=Strategy.REST_FOR_ONE)
    stopping = asyncio.ensure_future(supervisor.stop())
    await stage.clock.advance(1)
    assert live(supervisor, "a").state is _S.RUNNING
    assert [one.status for one in supervisor.snapshot().children] == ["Stopping", "Stopping"]
    await stage.during(stopping)


async def test_the_budget_of_the_tree_ends_every_grace(stage: Stage) -> None:
    """W-23: what is left at its end is forced together."""
    specs = [stage.spec(name, STUBBORN, stop_grace_s=50) for name in "abc"]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL, shutdown_s=20)
    await stage.during(supervisor.stop(), 30)
    assert 120 <= stage.clock.monotonic() < 122
    assert all(one.told[-1] == "died" for (one,) in stage.puppets.values())
    assert supervisor.phase is _S.STOPPED


async def test_nobody_is_told_of_more_time_than_the_tree_has(stage: Stage) -> None:
    """W-23: who drains for the grace that it heard of would be killed in the middle of it."""
    specs = [stage.spec(name, STUBBORN, stop_grace_s=50) for name in "ab"]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL, shutdown_s=70)
    await stage.during(supervisor.stop(), 80)
    assert [line for line in stage.log if "ask" in line] == ["b ask 50", "a ask 19.98"]


async def test_a_shorter_time_for_the_tree_is_told_to_all_of_it(stage: Stage) -> None:
    """W-10, W-29: those that drain hear of it; who comes later never hears of more."""
    specs = [stage.spec(name, STUBBORN, stop_grace_s=50) for name in "ab"]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL, shutdown_s=100)
    first = asyncio.ensure_future(supervisor.stop())
    await stage.clock.advance(1)
    shorter = asyncio.ensure_future(supervisor.stop(5))
    await stage.clock.advance(1)
    assert stage.last("b").told == ["spawn", "ask 50", "hasten 5"]
    stage.last("b").die(CLEAN)
    await stage.clock.settle()
    assert stage.last("a").told == ["spawn", "ask 4"]
    await stage.during(asyncio.gather(first, shorter))
    assert stage.clock.monotonic() < 107


async def test_a_second_stop_of_the_tree_shortens_it(stage: Stage) -> None:
    """W-10: that is what a second signal does."""
    supervisor = await stage.running(stage.spec("a", STUBBORN, stop_grace_s=50))
    first = asyncio.ensure_future(supervisor.stop())
    await stage.clock.advance(1)
    assert supervisor.snapshot().status == "Stopping"
    await stage.during(supervisor.stop(0), 3)
    await stage.during(first, 1)


async def test_stop_of_what_was_created_or_has_ended(stage: Stage) -> None:
    """K1, W-10."""
    supervisor = stage.supervisor(stage.spec("a", restart=Restart.NEVER))
    one = await supervisor.born(supervisor.slots["a"], supervisor.slots["a"].spec)
    assert one.state is _S.CREATED
    await supervisor.halt(one, 10, None)
    assert stage.states(one.id) == ["created", "pending", "stopped"]
    await supervisor.halt(one, 10, None)
    assert (await one.done).state is _S.STOPPED


async def test_an_error_while_stopping_is_a_failure(stage: Stage) -> None:
    """E16, W-13."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one = live(supervisor, "a")
    stopping = asyncio.ensure_future(supervisor.stop_slot("a"))
    await stage.clock.advance(1)
    stage.last("a").die(Exit.of_process(3))
    await stage.during(stopping)
    assert (one.state, one.record.exit_code) == (_S.FAILED, 3)


async def test_a_clean_end_after_the_request_is_stopped(stage: Stage) -> None:
    """E15."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one = live(supervisor, "a")
    stopping = asyncio.ensure_future(supervisor.stop_slot("a"))
    await stage.clock.advance(1)
    stage.last("a").die(CLEAN)
    await stage.during(stopping)
    assert one.state is _S.STOPPED


async def test_a_body_that_does_not_answer_is_forced_all_the_same(stage: Stage) -> None:
    """W-24: nothing that a body does not do can hold the ladder up."""
    supervisor = await stage.running(stage.spec("a"))
    one, body = live(supervisor, "a"), stage.last("a")

    async def never(_: float) -> None:
        await asyncio.get_running_loop().create_future()

    async def broken() -> str:
        raise OSError("no stacks")

    body.ask = never  # type: ignore[method-assign,assignment]
    body.dump = broken  # type: ignore[method-assign]
    await stage.during(supervisor.stop_slot("a"), 30)
    assert one.state is _S.KILLED


async def test_a_force_that_fails_is_tried_again(stage: Stage) -> None:
    """W-78: it has ended when nothing of it is left, and not before."""
    supervisor = await stage.running(stage.spec("a", STUBBORN))
    one, body = live(supervisor, "a"), stage.last("a")
    forced, tries = body.force, []

    async def force() -> None:
        tries.append(one.state)
        if len(tries) < 3:
            raise PermissionError("not yet")
        await forced()

    body.force = force  # type: ignore[method-assign]
    await stage.during(supervisor.stop_slot("a", 1), 30)
    assert tries == [_S.STOPPING] * 3
    assert one.state is _S.KILLED


@pytest.mark.parametrize("jump_s", [3600, -3600])
async def test_a_clock_that_is_set_changes_no_grace(stage: Stage, jump_s: int) -> None:
    """W-10: shorter is what ends sooner, whatever the time of day is by then."""
    supervisor = await stage.running(stage.spec("a", {"obeys_in": None}))
    one = live(supervisor, "a")
    stopping = asyncio.ensure_future(supervisor.stop_slot("a", 60))
    await stage.clock.advance(1)
    stage.clock.set(jump_s)
    longer = asyncio.ensure_future(supervisor.stop_slot("a", 100))
    await stage.clock.advance(1)
    assert "hastened" not in [event.name for event in stage.journal.history(one.id)]
    await stage.during(supervisor.kill("a"), 2)
    assert one.state is _S.KILLED
    await asyncio.gather(stopping, longer)


async def test_a_longer_time_for_the_tree_does_not_count(stage: Stage) -> None:
    """W-10, W-23."""
    specs = [stage.spec(name, {"obeys_in": None}, stop_grace_s=50) for name in "ab"]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL)
    stopping = asyncio.ensure_future(supervisor.stop(5))
    await stage.clock.advance(1)
    await stage.during(supervisor.stop(100), 5)
    await stopping
