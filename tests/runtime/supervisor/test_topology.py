"""Adding, removing, replacing and nesting, while everything else goes on."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from detent.errors import (
    BadSpec,
    NotSuspendable,
    SlotExists,
    StartFailed,
    SuspendTimeout,
    UnknownSlot,
)
from detent.lifecycle.worker import Exit, WorkerState
from detent.runtime.supervisor.body import PERMANENT, Usage
from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.nesting import SupervisorBody
from detent.runtime.supervisor.spec import Restart, Spec, StartRate
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import CRASH, Stage
from tests.runtime.supervisor.test_restarting import die, live

_S = WorkerState


async def test_add_and_remove(stage: Stage) -> None:
    """W-61, W-62, behaviour 12."""
    supervisor = stage.supervisor()
    await supervisor.add(stage.spec("a"))
    assert stage.made("a") == 0
    await stage.during(supervisor.start())
    assert stage.made("a") == 1
    await stage.during(supervisor.add(stage.spec("b")))
    assert live(supervisor, "b").state is _S.RUNNING
    with pytest.raises(SlotExists):
        await supervisor.add(stage.spec("b"))
    assert stage.journal.slot("b") is not None
    await stage.during(supervisor.remove("b"))
    assert stage.journal.slot("b") is None
    assert list(supervisor.slots) == ["a"]
    with pytest.raises(UnknownSlot):
        await supervisor.remove("b")
    assert "removed" in stage.notes()


async def test_one_that_does_not_start_is_not_added(stage: Stage) -> None:
    """W-61: rolled back."""
    supervisor = await stage.running()
    with pytest.raises(StartFailed):
        await stage.during(supervisor.add(stage.spec("a", {"spawn_error": OSError()})))
    assert supervisor.slots == {}
    await stage.clock.advance(100)
    assert stage.made("a") == 1


async def test_a_slow_removal_holds_up_nobody(stage: Stage) -> None:
    """W-63."""
    supervisor = await stage.running(stage.spec("slow", {"obeys_in": 9.0}), stage.spec("a"))
    removing = asyncio.ensure_future(supervisor.remove("slow"))
    await stage.clock.advance(1)
    assert not removing.done()
    await die(stage, "a")
    await stage.clock.advance(2)
    await stage.during(supervisor.add(stage.spec("b")), 1)
    assert stage.made("a") == 2
    assert not removing.done()
    await stage.during(removing)


async def test_a_late_end_of_a_removed_one_is_ignored(stage: Stage) -> None:
    """W-65: only the end of the slot's own instance counts."""
    supervisor = await stage.running(stage.spec("a"))
    old = live(supervisor, "a")
    fresh = await supervisor.born(supervisor.slots["a"], supervisor.slots["a"].spec)
    supervisor.slots["a"].live = fresh
    stage.last("a").die(CRASH)
    stage.puppets["a"][0].die(CRASH)
    await stage.clock.settle()
    assert old.state is _S.FAILED
    assert supervisor.slots["a"].live is fresh
    assert stage.made("a") == 2


async def test_replace_starts_the_new_one_first(stage: Stage) -> None:
    """W-103."""
    supervisor = await stage.running(stage.spec("a"))
    old = live(supervisor, "a")
    del stage.log[:]
    await stage.during(supervisor.replace(stage.spec("a", {"ready_in": 3.0}, stop_grace_s=7)))
    assert stage.log[:2] == ["a spawn", "a ask 7"]
    assert live(supervisor, "a") is not old
    assert old.state is _S.STOPPED
    assert supervisor.slots["a"].spec.stop_grace_s == 7


async def test_a_replacement_that_fails_leaves_the_old_one(stage: Stage) -> None:
    """W-103: on error keep the old."""
    supervisor = await stage.running(stage.spec("a", stop_grace_s=5))
    old = live(supervisor, "a")
    with pytest.raises(StartFailed):
        await stage.during(supervisor.replace(stage.spec("a", {"spawn_error": OSError()})))
    assert live(supervisor, "a") is old
    assert old.state is _S.RUNNING
    assert supervisor.slots["a"].spec.stop_grace_s == 5
    await die(stage, "a", CRASH)
    stage.puppets["a"][0].die(CRASH)
    await stage.clock.advance(20)
    assert live(supervisor, "a").state is _S.RUNNING


async def test_other_settings_are_another_chance_for_who_was_given_up(stage: Stage) -> None:
    """W-103: a reload that says that it worked leaves no slot empty, but those that are to be."""
    supervisor = await stage.running(stage.spec("a"), stage.spec("b"))
    stage.last("a").die(Exit.of_process(PERMANENT))
    await stage.during(supervisor.stop_slot("b"))
    await stage.clock.settle()
    assert supervisor.slots["a"].live is supervisor.slots["b"].live is None
    for name in "ab":
        await stage.during(supervisor.replace(stage.spec(name, stop_grace_s=3)))
    assert (stage.made("a"), stage.made("b")) == (2, 1)
    assert supervisor.snapshot().children[0].status == "Running"
    await stage.during(supervisor.stop())


async def test_an_old_one_that_dies_while_it_is_replaced(stage: Stage) -> None:
    """W-65: the replacement takes over, and there is no third."""
    supervisor = await stage.running(stage.spec("a"))
    replacing = asyncio.ensure_future(supervisor.replace(stage.spec("a", {"ready_in": 5.0})))
    await stage.clock.advance(1)
    stage.puppets["a"][0].die(CRASH)
    await stage.during(replacing)
    await stage.clock.advance(100)
    assert stage.made("a") == 2
    assert live(supervisor, "a").state is _S.RUNNING
    assert len(supervisor.lives) == 1


async def test_a_new_list_of_slots(stage: Stage) -> None:
    """W-103: what is the same is not touched, and one failure spares the others."""
    one = stage.spec("same")
    supervisor = await stage.running(one, stage.spec("gone"), stage.spec("changed"))
    wanted = [
        one,
        replace(stage.spec("changed"), stop_grace_s=3),
        stage.spec("bad", {"spawn_error": OSError()}),
        stage.spec("new"),
    ]
    errors = await stage.during(supervisor.apply(wanted))
    assert list(errors) == ["bad"]
    assert list(supervisor.slots) == ["same", "changed", "new"]
    made = {name: stage.made(name) for name in ("same", "changed", "gone", "new")}
    assert made == {"same": 1, "changed": 2, "gone": 1, "new": 1}
    with pytest.raises(BadSpec):
        await supervisor.apply([one, one])


def test_specs_of_one_revision_are_the_same(stage: Stage) -> None:
    """W-103: a factory made anew is no change, if it says so."""
    first, second = (stage.spec("a", revision="7") for _ in range(2))
    assert first != second
    assert first.is_same(second)
    assert not first.is_same(stage.spec("a"))
    assert not first.is_same(stage.spec("a", revision="7", stop_grace_s=1))


@pytest.mark.parametrize("verb", ["start", "restart", "replace"])
async def test_who_waits_no_longer_has_taken_nothing_back(stage: Stage, verb: str) -> None:
    """W-31: a caller with a time limit of its own leaves no slot half started, and none down."""
    how: dict[str, object] = {}
    supervisor = await stage.running(stage.spec("a", how))
    if verb == "start":
        await stage.during(supervisor.stop_slot("a"))
    how |= {"ready_in": 5.0, "obeys_in": 5.0}
    stage.last("a").obeys_in = 5.0
    work = {
        "start": lambda: supervisor.start_slot("a"),
        "restart": lambda: supervisor.restart("a"),
        "replace": lambda: supervisor.replace(stage.spec("a", how, stop_grace_s=9)),
    }
    waiting = asyncio.ensure_future(work[verb]())
    await stage.clock.advance(1)
    waiting.cancel()
    await stage.clock.advance(30)
    assert waiting.cancelled()
    assert stage.made("a") == 2
    assert live(supervisor, "a").body is stage.last("a")
    assert (live(supervisor, "a").state, len(supervisor.lives)) == (_S.RUNNING, 1)
    await die(stage, "a")
    assert stage.made("a") == 3, "and it is looked after as any other"
    await stage.during(supervisor.stop())


async def test_an_addition_that_nobody_waits_for_leaves_nothing(stage: Stage) -> None:
    """W-61."""
    supervisor = await stage.running(stage.spec("a"))
    adding = asyncio.ensure_future(supervisor.add(stage.spec("b", {"ready_in": 5.0})))
    await stage.clock.advance(1)
    adding.cancel()
    await stage.clock.advance(30)
    assert (list(supervisor.slots), len(supervisor.lives)) == (["a"], 1)
    assert stage.last("b").told[-1] == "died"
    await stage.during(supervisor.stop())


async def test_restart_by_hand(stage: Stage) -> None:
    """W-49: whatever the policy, and at once."""
    supervisor = await stage.running(stage.spec("a", restart=Restart.NEVER))
    await stage.during(supervisor.restart("a"), 1)
    assert stage.made("a") == 2
    assert live(supervisor, "a").state is _S.RUNNING


def branch(stage: Stage, *specs: Spec, **more: object) -> Spec:
    def make() -> SupervisorBody:
        plan = Plan()
        return SupervisorBody(lambda path: Supervisor(stage.tree, specs, plan, path=path))

    return Spec("branch", make, kind="supervisor", breaker=None, **more)  # type: ignore[arg-type]


async def test_a_branch_ends_its_own_before_its_grace_is_over(stage: Stage) -> None:
    """W-68: each child is forced on record, and the branch itself has obeyed."""
    leaf = stage.spec("a", {"obeys_in": None}, stop_grace_s=100)
    tree = await stage.running(branch(stage, leaf, stop_grace_s=10))
    one, inner = live(tree, "branch"), tree.find("branch/a")[1].live
    assert inner is not None
    await stage.during(tree.stop_slot("branch"))
    assert (one.state, inner.state) == (_S.STOPPED, _S.KILLED)
    assert stage.clock.monotonic() < 110


async def test_trees_nest(stage: Stage) -> None:
    """W-69, W-68, behaviour 13: paths, snapshots, verbs and stops go all the way down."""
    tree = await stage.running(branch(stage, stage.spec("a"), stage.spec("b")), stage.spec("c"))
    shown = tree.snapshot()
    assert [one.path for one in shown.children] == ["branch", "c"]
    assert [one.path for one in shown.children[0].children] == ["branch/a", "branch/b"]
    await tree.suspend("branch/a")
    inner = tree.snapshot().children[0].children[0]
    assert (inner.status, inner.is_suspended) == ("Suspended", True)
    assert (await tree.inspect("branch/b", fresh=True)).health == "healthy"
    with pytest.raises(UnknownSlot):
        tree.find("branch/x")
    await stage.during(tree.stop())
    asked = [line for line in stage.log if "ask" in line]
    assert asked == ["c ask 10", "b ask 9", "a ask 9"], "a branch has time to force its own"
    assert stage.journal.unended() == []


async def test_a_branch_that_gives_up_is_restarted_by_the_one_above(stage: Stage) -> None:
    """W-59, W-68: escalation."""
    spec = stage.spec("a", breaker=Breaker(most=1, escalate=True))
    tree = await stage.running(branch(stage, spec))
    first = live(tree, "branch")
    for _ in range(2):
        await stage.clock.until(lambda: tree.find("branch/a")[1].live is not None)
        await stage.clock.advance(3)
        await die(stage, "a")
    await stage.clock.advance(5)
    assert (first.state, first.record.code) == (_S.FAILED, "breaker_open")
    assert live(tree, "branch").state is _S.RUNNING
    assert stage.made("a") == 3


async def test_a_branch_that_is_held_back_is_shown_without_anything_below(stage: Stage) -> None:
    """W-69, W-87: looking at the tree must not fail, whatever state it is in."""
    rate = StartRate(most=1, window_s=50)
    tree = stage.supervisor(stage.spec("a"), branch(stage, stage.spec("b")), rate=rate)
    starting = asyncio.ensure_future(tree.start())
    await stage.clock.advance(1)
    shown = tree.snapshot().children[1]
    assert (shown.status, shown.reason, shown.children) == ("Pending", "rate", ())
    with pytest.raises(UnknownSlot):
        tree.find("branch/b")
    await stage.during(starting)
    assert [one.path for one in tree.snapshot().children[1].children] == ["branch/b"]
    await stage.during(tree.stop())


async def test_a_branch_that_will_not_stop_is_killed_with_all_below(stage: Stage) -> None:
    """W-68, K3: the kill goes through the journal of every child."""
    slow = stage.spec("a", {"obeys_in": None}, stop_grace_s=100)
    tree = await stage.running(branch(stage, slow, stop_grace_s=5.0))
    child = live(tree.find("branch/a")[0], "a")
    await stage.during(tree.stop(), 20)
    assert child.state is _S.KILLED
    assert stage.journal.unended() == []


async def test_a_branch_goes_quiet_as_a_whole(stage: Stage) -> None:
    """W-41, W-68."""
    tree = await stage.running(branch(stage, stage.spec("a"), stage.spec("b")))
    await tree.suspend("branch")
    assert [one.status for one in tree.snapshot().children[0].children] == ["Suspended"] * 2
    await tree.resume("branch")
    assert [one.status for one in tree.snapshot().children[0].children] == ["Running"] * 2


async def test_what_a_branch_tells_of_all_below(stage: Stage) -> None:
    """W-68: stacks, use, last words and health of the whole."""
    tree = await stage.running(branch(stage, stage.spec("a"), stage.spec("b")))
    body = live(tree, "branch").body
    assert (await body.dump()).count("the stacks") == 2
    for name in "ab":
        stage.last(name).used = Usage(rss_bytes=10, cpu_s=0.5, done=3)
    assert body.usage() == Usage(20, 1.0, 6)
    assert body.tail(5) == ["the last words"] * 2
    assert await body.probe()
    empty = SupervisorBody(lambda path: Supervisor(stage.tree, (), Plan(), path=path))
    assert (empty.usage(), empty.tail(5)) == (None, [])


async def test_a_branch_whose_child_will_not_go_quiet(stage: Stage) -> None:
    """W-41: the failure of one is the failure of the whole, and the whole goes on."""
    tree = await stage.running(branch(stage, stage.spec("a", {"quiet_in": None})))
    with pytest.raises(SuspendTimeout):
        await stage.during(tree.suspend("branch", 100))
    assert live(tree, "branch").state is _S.RUNNING
    deaf = await stage.running(branch(stage, stage.spec("b", {"suspendable": False})))
    with pytest.raises(NotSuspendable):
        await stage.during(deaf.suspend("branch"))
