"""The list of slots while something else is going on with one of them."""

from __future__ import annotations

import asyncio

import pytest

from detent.errors import StartFailed
from detent.lifecycle.worker import WorkerState
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.nesting import SupervisorBody
from detent.runtime.supervisor.spec import KEEPER, Spec
from detent.runtime.supervisor.strategy import Strategy
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import Stage
from tests.runtime.supervisor.test_restarting import live

_S = WorkerState


def branch(stage: Stage, *specs: Spec) -> Spec:
    """A supervisor below the supervisor."""

    def make(path: str) -> Supervisor:
        return Supervisor(stage.tree, specs, Plan(), path=path)

    return Spec("b", lambda: SupervisorBody(make), kind="supervisor", breaker=None)


async def test_a_slot_of_a_name_that_was_removed_is_another(stage: Stage) -> None:
    """W-62, W-71: nobody was there before its first instance."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.remove("a"))
    await stage.during(supervisor.add(stage.spec("a")))
    before, after = (one.handover for one in stage.puppets["a"])
    assert before is not None
    assert after is not None
    assert after.resume_id != before.resume_id
    assert (after.attempt, after.prev_status, after.prev_cause) == (1, None, None)


async def test_what_was_below_a_removed_branch_is_forgotten_too(stage: Stage) -> None:
    """W-62: and nothing beside it, whatever its name begins with."""
    below = branch(stage, stage.spec("x"))
    supervisor = await stage.running(below, stage.spec("bx"))
    await stage.during(supervisor.remove("b"))
    assert stage.journal.slot("bx") is not None
    await stage.during(supervisor.add(below))
    before, after = (one.handover for one in stage.puppets["x"])
    assert before is not None
    assert after is not None
    assert after.resume_id != before.resume_id


async def test_one_that_ends_before_it_is_ready_is_not_added(stage: Stage) -> None:
    """W-61: and no second instance is made for it."""
    supervisor = await stage.running()
    dies = {"ready_in": None, "dies_in": 1.0}
    with pytest.raises(StartFailed):
        await stage.during(supervisor.add(stage.spec("a", dies)))
    await stage.clock.advance(100)
    assert supervisor.slots == {}
    assert len({entry.instance for entry in stage.journal.read(0) if entry.event}) == 1


async def test_a_new_list_is_the_new_order(stage: Stage) -> None:
    """W-30: what follows in the list builds on what is before it."""
    specs = [stage.spec(name, revision="1") for name in "axb"]
    supervisor = await stage.running(specs[0], specs[2], strategy=Strategy.REST_FOR_ONE)
    assert await stage.during(supervisor.apply(specs)) == {}
    assert list(supervisor.slots) == ["a", "x", "b"]
    del stage.log[:]
    await stage.during(supervisor.stop())
    assert [line for line in stage.log if "ask" in line] == ["b ask 10", "x ask 10", "a ask 10"]


async def test_a_start_of_what_is_on_its_way_out(stage: Stage) -> None:
    """W-08: who says so last is right, and hears of it when the next one is ready."""
    supervisor = await stage.running(stage.spec("a", {"obeys_in": 5.0}))
    stopping = asyncio.ensure_future(supervisor.stop_slot("a"))
    await stage.clock.advance(1)
    await stage.during(supervisor.start_slot("a"))
    await stopping
    assert stage.made("a") == 2
    assert live(supervisor, "a").state is _S.RUNNING


async def test_nothing_is_started_below_who_does_not_run(stage: Stage) -> None:
    """W-51: and whoever asks for it is told."""
    supervisor = stage.supervisor(stage.spec("a"))
    with pytest.raises(StartFailed, match="created"):
        await supervisor.start_slot("a")
    await stage.during(supervisor.start())
    await stage.during(supervisor.stop())
    with pytest.raises(StartFailed, match="stopped"):
        await supervisor.start_slot("a")
    assert stage.made("a") == 1


async def test_a_branch_is_asked_to_stop_before_all_below_it_are_there(stage: Stage) -> None:
    """E7, W-68: those that are may drain, instead of being killed when the grace is over."""
    below = branch(stage, stage.spec("x"), stage.spec("y", {"ready_in": None}))
    supervisor = stage.supervisor(below)
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.advance(1)
    await stage.during(supervisor.stop(), 5)
    await starting
    assert stage.last("x").told == stage.last("y").told == ["spawn", "ask 9", "died"]


async def test_who_serves_its_siblings_is_stopped_after_them(stage: Stage) -> None:
    supervisor = await stage.running(stage.spec("a"), stage.spec("k", role=KEEPER))
    del stage.log[:]
    await stage.during(supervisor.stop())
    assert [line for line in stage.log if "ask" in line] == ["a ask 10", "k ask 10"]
