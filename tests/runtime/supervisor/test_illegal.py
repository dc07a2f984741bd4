"""Every pair of states, through the supervisor's own mover: 17 edges, 10 no-ops, 73 refusals."""

from __future__ import annotations

import pytest

from detent.errors import IllegalTransition, NotSuspendable, UnknownSlot
from detent.lifecycle import worker as w
from detent.lifecycle.event import WorkerFacts
from detent.lifecycle.worker import EDGE_IDS, Cause, Detail, Governor, WorkerState
from detent.runtime.supervisor.instance import Live
from tests.runtime.supervisor.stage import CRASH, Stage
from tests.runtime.supervisor.test_restarting import live

_S = WorkerState
# How to walk an instance into each state.
WAYS: dict[WorkerState, tuple[WorkerState, ...]] = {
    _S.CREATED: (),
    _S.PENDING: (_S.PENDING,),
    _S.STARTING: (_S.STARTING,),
    _S.RUNNING: (_S.STARTING, _S.RUNNING),
    _S.SUSPENDED: (_S.STARTING, _S.RUNNING, _S.SUSPENDED),
    _S.STOPPING: (_S.STARTING, _S.RUNNING, _S.STOPPING),
    _S.STOPPED: (_S.PENDING, _S.STOPPED),
    _S.FINISHED: (_S.STARTING, _S.RUNNING, _S.FINISHED),
    _S.FAILED: (_S.STARTING, _S.FAILED),
    _S.KILLED: (_S.STARTING, _S.RUNNING, _S.STOPPING, _S.KILLED),
}
PAIRS = [(source, target) for source in _S for target in _S]
ILLEGAL = [pair for pair in PAIRS if pair not in EDGE_IDS and pair[0] is not pair[1]]


async def walk(stage: Stage, state: WorkerState) -> Live:
    supervisor = stage.supervisor(stage.spec("a"))
    one = await supervisor.born(supervisor.slots["a"], supervisor.slots["a"].spec)
    for target in WAYS[state]:
        if target is _S.KILLED:
            one.move(w.order_kill)
        one.enter(w.move(one.record, target, stage.tree.order(), detail_for(target)))
    assert one.state is state
    return one


def detail_for(target: WorkerState) -> Detail | None:
    if target is _S.PENDING:
        return Detail(facts=WorkerFacts(governor=Governor.BACKOFF))
    return None


def test_the_numbers_of_pairs() -> None:
    """Section 3."""
    assert (len(PAIRS), len(EDGE_IDS), len(ILLEGAL)) == (100, 17, 73)


@pytest.mark.parametrize("source", _S)
async def test_an_illegal_pair_changes_nothing(stage: Stage, source: WorkerState) -> None:
    """W-07: an error with the facts, one count, one warning; record and journal stay."""
    one = await walk(stage, source)
    record, history = one.record, stage.journal.history(one.id)
    targets = [target for start, target in ILLEGAL if start is source]
    for number, target in enumerate(targets, start=1):
        with pytest.raises(IllegalTransition) as caught:
            one.enter(w.move(one.record, target, stage.tree.order()))
        assert one.record is record
        assert stage.journal.history(one.id) == history
        fields = caught.value.fields
        assert (fields["instance"], fields["state"], fields["target"]) == (one.id, source, target)
        counted = stage.numbers.counts["lifecycle_illegal_transitions_total"]
        assert stage.tree.illegal == counted == number
    assert targets


@pytest.mark.parametrize("state", _S)
async def test_the_same_state_is_no_move(stage: Stage, state: WorkerState) -> None:
    """Section 3: ten no-ops."""
    one = await walk(stage, state)
    version = one.record.version
    assert not one.enter(w.move(one.record, state, stage.tree.order()))
    assert one.record.version == version


@pytest.mark.parametrize("state", [one for one in _S if one not in (_S.CREATED, _S.PENDING)])
async def test_a_start_names_the_state_that_refuses_it(stage: Stage, state: WorkerState) -> None:
    """W-08."""
    one = await walk(stage, state)
    with pytest.raises(IllegalTransition, match=state.value):
        one.move(w.start)


@pytest.mark.parametrize("verb", ["suspend", "resume"])
@pytest.mark.parametrize("state", [_S.CREATED, _S.PENDING, _S.STARTING, _S.STOPPING, _S.FAILED])
async def test_what_cannot_be_suspended_or_resumed_now(
    stage: Stage, verb: str, state: WorkerState
) -> None:
    """W-11."""
    supervisor = stage.supervisor(stage.spec("b"))
    one = await walk(stage, state)
    supervisor.slots["b"].live = one
    with pytest.raises(IllegalTransition):
        await getattr(supervisor, verb)("b")
    assert one.state is state


async def test_who_cannot_be_suspended_at_all(stage: Stage) -> None:
    """W-12: nothing changes, and the worker is not even asked."""
    supervisor = await stage.running(stage.spec("a", {"suspendable": False}))
    with pytest.raises(NotSuspendable):
        await supervisor.suspend("a")
    assert live(supervisor, "a").state is _S.RUNNING
    assert stage.last("a").told == ["spawn"]


async def test_the_killed_flag_needs_stopping(stage: Stage) -> None:
    """W-05."""
    one = await walk(stage, _S.RUNNING)
    with pytest.raises(IllegalTransition):
        one.move(w.order_kill)
    assert not one.record.killed


async def test_a_refusal_never_harms_the_worker(stage: Stage) -> None:
    """W-07: after any number of illegal wishes it runs as before."""
    supervisor = await stage.running(stage.spec("a"))
    one = live(supervisor, "a")
    for verb in (w.start, w.order_kill):
        with pytest.raises(IllegalTransition):
            one.move(verb)
    with pytest.raises(IllegalTransition):
        one.move(w.stop, cause=Cause.OOM)
    assert stage.last("a").told == ["spawn"]
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    assert one.state is _S.FAILED


async def test_a_slot_that_is_down_has_nobody_to_ask(stage: Stage) -> None:
    """W-62: and one that does not exist neither."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.stop_slot("a"))
    for name in ("a", "b", "a/b"):
        with pytest.raises(UnknownSlot):
            await supervisor.suspend(name)
