"""Commands to workflows: what they open and close, their fences, and who belongs where."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import (
    Committed,
    FlowMove,
    Own,
    Record,
    Rejected,
    StaleFlow,
    Taken,
)
from tests.contract.flowing import (
    WAITS,
    chain,
    command,
    completing,
    failing,
    job,
    moves_of,
    now_at,
    states,
    sweep,
)
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World

# --- commands -------------------------------------------------------------------------------------


async def test_a_pause_closes_claims_at_once_and_writes_no_job(world: World) -> None:
    await chain(world, "a", jobs=3)
    [taken] = await world.claim(1)
    jobs = await world.everything()
    assert states(await command(world, w.Pause())) == "paused a:in_progress"
    assert await world.everything() == jobs
    kept_back = await world.wish()
    assert kept_back.jobs == ()
    await world.must(completing(world, taken))
    assert await world.claim_ids() == []
    assert states(await command(world, w.Resume())) == "pending a:in_progress"
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids() == ["a2", "a3"]
    assert await now_at(world) == "in_progress a:in_progress"


async def test_a_paused_workflow_keeps_its_end_for_the_resume(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim(1)
    await command(world, w.Pause())
    await world.must(completing(world, taken))
    assert await now_at(world) == "paused a:completed"
    assert states(await command(world, w.Resume())) == "completed a:completed"


async def test_a_resumed_workflow_starts_again_with_the_first_word_of_its_jobs(
    world: World,
) -> None:
    await chain(world, "a", jobs=2)
    [taken] = await world.claim(1)
    await command(world, w.Pause())
    await command(world, w.Resume())
    assert await world.rearm(taken.job, world.now + SECOND) == Committed()
    waiting = (await world.everything())["", "a2"].job
    await world.do(waiting, j.Reprioritise(5), USER)
    assert await now_at(world) == "pending a:in_progress"
    await world.must(completing(world, taken))
    assert await now_at(world) == "in_progress a:in_progress"


async def test_an_abort_ends_all_steps_and_lets_running_jobs_be(world: World) -> None:
    await chain(world, "a", "b")
    [taken] = await world.claim(1)
    assert states(await command(world, w.Abort())) == "aborted a:aborted b:aborted"
    assert await sweep(world) == ["b1"]
    await world.must(completing(world, taken))
    assert await now_at(world) == "aborted a:aborted b:aborted"


async def test_a_gate_keeps_its_step_back_until_it_is_released(world: World) -> None:
    new = [job(world, name, name + "1") for name in "ab"]
    await world.make_flow("w", w.stages("a", "b", gate=("b",)), *new)
    [taken] = await world.claim(9)
    await world.must(completing(world, taken))
    assert await now_at(world) == "in_progress a:completed b:waiting"
    kept_back = await world.wish()
    assert kept_back.jobs == ()
    await command(world, w.Release("b"))
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids() == ["b1"]


async def test_a_gate_that_is_put_before_a_running_step_closes_it_at_once(world: World) -> None:
    await chain(world, "a", jobs=2)
    [taken] = await world.claim(1)
    assert states(await command(world, w.Wait("a"))) == "in_progress a:waiting"
    assert await world.claim_ids() == []
    await world.must(completing(world, taken))
    assert await now_at(world) == "in_progress a:waiting"
    assert states(await command(world, w.Release("a"))) == "in_progress a:in_progress"
    assert await world.claim_ids() == ["a2"]


async def test_jobs_may_be_added_to_a_step_that_has_not_started(world: World) -> None:
    await world.make_flow("w", w.stages("a", "b"))
    kept_back = await world.wish()
    flow = await command(world, w.AddJobs("a", 2), job(world, "a", "a1"), job(world, "a", "a2"))
    assert flow.tally("a") == w.Tally(pending=2, total=2)
    await command(world, w.AddJobs("b", 1), job(world, "b", "b1"))
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids() == ["a1", "a2"]


async def test_jobs_added_under_a_workflow_that_has_ended_are_cancelled_at_once(
    world: World,
) -> None:
    """A client cannot know that the step will never have its turn; nothing may wait for ever."""
    await chain(world, "a", "b")
    [taken] = await world.claim()
    await world.must(failing(world, taken))
    assert await now_at(world) == "failed a:failed b:created"
    added = job(world, "b", "b2")
    flow = await command(world, w.AddJobs("b", 1), added)
    assert (await world.got(added.job)).job.state == "cancelled"
    assert flow.tally("b") == w.Tally(pending=2, total=2, cancelled=1, withdrawn=1)
    assert await sweep(world) == ["b1"]


async def test_what_a_user_does_to_a_swept_job_does_not_bring_it_back(world: World) -> None:
    await chain(world, "a", jobs=2)
    [taken] = await world.claim(1)
    await world.must(failing(world, taken))
    waiting = (await world.everything())["", "a2"].job
    held = await world.do(waiting, j.Hold(), USER)
    assert (await world.got(held)).job == held
    assert await world.rearm(held, world.now + 60 * SECOND) == Committed()
    assert await sweep(world) == ["a2"]


async def test_jobs_added_to_a_blocked_step_of_a_workflow_that_goes_on_are_swept(
    world: World,
) -> None:
    steps = (StepPlan("a"), StepPlan("b", ("a",)), StepPlan("other", policy=WAITS))
    await world.make_flow("w", steps, job(world, "a", "a1"))
    [taken] = await world.claim()
    await world.must(failing(world, taken))
    assert await now_at(world) == "in_progress a:failed b:created other:pending"
    await command(world, w.AddJobs("b", 1), job(world, "b", "b1"))
    assert await world.claim_ids() == []
    assert await sweep(world) == ["b1"]


async def test_a_step_may_be_added_with_its_jobs(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim()
    added = w.AddStep(StepPlan("z"), jobs=1, after_last=True)
    flow = await command(world, added, job(world, "z", "z1"))
    assert states(flow) == "in_progress a:in_progress z:created"
    assert flow.steps["z"].depends_on == ("a",)
    await world.must(completing(world, taken))
    assert await world.claim_ids() == ["z1"]


async def test_a_command_and_what_follows_from_the_stores_own_numbers_are_one_commit(
    world: World,
) -> None:
    """The decision was made before the jobs ended; its fence is the versions, not the tallies."""
    await chain(world, "a", jobs=2)
    one, two = await world.claim(9)
    await command(world, w.Wait("a"))
    flow = await world.flow("w")
    release = world.make.flowing(flow, w.Release("a"))
    await world.must(completing(world, one), completing(world, two))
    assert await now_at(world) == "in_progress a:waiting"
    await world.must(release)
    assert await now_at(world) == "completed a:completed"
    assert (await moves_of(world, "w"))[-1] == ("complete", release.command_id)


async def test_a_decision_may_move_jobs_too(world: World) -> None:
    await chain(world, "a", jobs=2)
    [taken] = await world.claim(1)
    unit = world.make.flowing(await world.flow("w"), w.Abort())
    report = j.Complete(lease=taken.job.lease)
    move = world.make.move(taken.job, report, WORKER, command_id=unit.command_id)
    await world.must(replace(unit, moves=(move,)))
    assert await now_at(world) == "aborted a:aborted"
    assert (await world.flow("w")).tally("a") == w.Tally(pending=1, completed=1, total=2)


# --- fences ---------------------------------------------------------------------------------------


async def test_a_decision_on_a_flow_that_has_moved_is_refused_with_the_flow_as_it_is(
    world: World,
) -> None:
    old = await chain(world, "a", "b")
    late = world.make.flowing(old, w.Pause())
    await world.claim()
    stored = await world.flow("w")
    assert await world.commit(late) == [StaleFlow(("", "w"), stored)]
    assert await world.flow("w") == stored


async def test_a_step_alone_that_moved_makes_a_decision_stale(world: World) -> None:
    new = [job(world, name, name + "1") for name in "ab"]
    await world.make_flow("w", w.group("a", "b"), *new)
    [taken] = await world.claim(1)
    old = await world.flow("w")
    await world.claim(1)
    stored = await world.flow("w")
    assert stored.workflow == old.workflow
    late = world.make.flowing(old, w.Pause())
    assert await world.commit(late) == [StaleFlow(("", "w"), stored)]
    assert taken.job.step == "a"


async def test_tallies_alone_make_nothing_stale(world: World) -> None:
    await chain(world, "a", jobs=3)
    one, _ = await world.claim(2)
    pause = world.make.flowing(await world.flow("w"), w.Pause())
    await world.must(completing(world, one))
    await world.must(pause)
    flow = await world.flow("w")
    assert (states(flow), flow.tally("a").completed) == ("paused a:in_progress", 1)


async def test_a_stale_decision_keeps_everything_else_of_its_unit_out(world: World) -> None:
    old = await world.make_flow("w", w.stages("a", "b"))
    apart = await world.push()
    late = world.make.flowing(old, w.AddJobs("a", 1), job(world, "a", "a1"))
    move = world.make.move(apart, j.Hold(), USER, command_id=late.command_id)
    late = replace(late, moves=(move,), puts=(Record("x", "y", 1, ""),))
    await command(world, w.Pause())
    [stale] = await world.commit(late)
    assert isinstance(stale, StaleFlow)
    assert list((await world.everything()).values()) == [await world.got(apart)]
    assert (await world.got(apart)).job == apart
    assert list(await world.store.records("x")) == []


async def test_a_refused_job_keeps_the_decision_out(world: World) -> None:
    flow = await world.make_flow("w", w.stages("a"))
    other = await world.push(id="taken")
    add = world.make.flowing(flow, w.AddJobs("a", 1), job(world, "a", "taken"))
    assert await world.commit(add) == [Taken("id", other)]
    assert await world.flow("w") == flow


async def test_a_workflow_that_is_not_there_refuses_with_nothing(world: World) -> None:
    ghost = w.decide(None, w.Make(id="ghost", steps=w.stages("a")), world.now, w.Context(USER, "c"))
    assert isinstance(ghost, w.Accepted)
    unit = world.make.flowing(ghost.flow, w.Pause())
    assert await world.commit(unit) == [StaleFlow(("", "ghost"), None)]


async def test_an_id_of_a_workflow_that_is_in_use_is_refused_with_the_flow_as_it_is(
    world: World,
) -> None:
    flow = await chain(world, "a")
    again = world.make.flowing(None, w.Make(id="w", steps=w.chain("x")))
    assert await world.commit(again) == [StaleFlow(("", "w"), flow)]
    assert await world.flow("w") == flow


async def test_of_many_that_race_to_make_a_workflow_one_does(world: World) -> None:
    units = [
        world.make.flowing(None, w.Make(id="w", steps=w.chain(f"s{number}"))) for number in range(9)
    ]
    outcomes = [one for some in await asyncio.gather(*map(world.commit, units)) for one in some]
    assert outcomes.count(Committed()) == 1
    flow = await world.flow("w")
    stale = [one for one in outcomes if one != Committed()]
    assert stale == [StaleFlow(("", "w"), flow)] * 8


async def test_of_many_commands_on_one_version_one_is_committed(world: World) -> None:
    flow = await world.make_flow("w", w.stages("a"))
    units = [world.make.flowing(flow, w.Pause()) for _ in range(8)]
    outcomes = [one for some in await asyncio.gather(*map(world.commit, units)) for one in some]
    assert outcomes.count(Committed()) == 1
    assert sum(isinstance(one, StaleFlow) for one in outcomes) == 7


# --- one's own command ----------------------------------------------------------------------------


async def test_a_decision_that_was_committed_before_is_recognised_as_own(world: World) -> None:
    asked = w.Make(id="w", steps=w.chain("a"), jobs={"a": 1})
    make = world.make.flowing(None, asked, job(world, "a", "a1"))
    assert await world.commit(make, make) == [Committed(), Own()]
    pause = world.make.flowing(await world.flow("w"), w.Pause())
    await world.must(pause)
    await command(world, w.Resume())
    [taken] = await world.claim()
    assert await world.commit(pause, make) == [Own(), Own()]
    await world.must(completing(world, taken))
    assert await world.commit(pause, make) == [Own(), Own()]


async def test_a_decision_that_moved_only_a_step_is_recognised_as_own(world: World) -> None:
    await world.make_flow("w", w.stages("a", "b", gate=("a",)))
    release = world.make.flowing(await world.flow("w"), w.Release("a"))
    await world.must(release)
    assert await world.commit(release) == [Own()]
    await command(world, w.Pause())
    assert await world.commit(release) == [Own()]


async def test_jobs_that_were_added_before_are_recognised_though_their_step_went_on(
    world: World,
) -> None:
    """Adding jobs writes no event of the workflow: only the jobs can tell."""
    flow = await world.make_flow("w", w.stages("a"))
    command_id = world.make.command_id()
    new = job(world, "a", "a1", command_id=command_id)
    add = world.make.flowing(flow, w.AddJobs("a", 1), new, command_id=command_id)
    await world.must(add)
    assert await world.commit(add) == [Own()]
    [taken] = await world.claim()
    assert await world.commit(add) == [Own()]
    await world.must(completing(world, taken))
    assert await world.commit(add) == [Own()]


async def test_a_claim_that_is_repeated_starts_nothing_twice(world: World) -> None:
    await chain(world, "a", jobs=2)
    await world.alive("w1")
    want = world.make.want(1)
    first = await world.store.step([], now=world.now, want=want)
    feed = await world.feed()
    again = await world.store.step([], now=world.now, want=want)
    assert again.claimed.jobs == first.claimed.jobs
    assert await world.feed() == feed


# --- who belongs where ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow", "step", "tenant"),
    [("w", "none", ""), ("none", "a", ""), ("w", "a", "t2"), ("w", "done", ""), ("v", "a", "")],
)
async def test_a_job_names_a_step_that_is_there_and_has_not_ended(
    world: World, flow: str, step: str, tenant: str
) -> None:
    await world.make_flow("w", (StepPlan("done"), StepPlan("a", policy=WAITS)))
    await world.make_flow("v", (StepPlan("b", policy=WAITS),))
    assert await now_at(world) == "in_progress done:completed a:pending"
    unit = world.make.pushed(workflow=flow, step=step, tenant=tenant)
    rejected, fine = await world.commit(unit, world.make.pushed(workflow="w", step="a"))
    assert isinstance(rejected, Rejected)
    assert fine == Committed()
    assert len(await world.everything()) == 1


async def test_a_job_of_another_tenant_is_no_part_of_the_workflow_its_unit_makes(
    world: World,
) -> None:
    make = w.Make(id="w", steps=w.stages("a"))
    stranger = job(world, "a", tenant="t2")
    [rejected, fine] = await world.commit(
        world.make.flowing(None, make, stranger), world.make.pushed()
    )
    assert isinstance(rejected, Rejected)
    assert fine == Committed()
    assert list(await world.store.find_workflows()) == []


async def test_an_id_of_a_step_that_is_in_use_elsewhere_is_rejected(world: World) -> None:
    await chain(world, "a")
    flow = await world.make_flow("v", w.stages("b"))
    for unit in (
        world.make.flowing(None, w.Make(id="x", steps=w.chain("a"))),
        world.make.flowing(flow, w.AddStep(StepPlan("a"))),
        world.make.flowing(None, w.Make(id="a", steps=w.chain("c"))),
        world.make.flowing(None, w.Make(id="y", steps=w.chain("a1"))),
        world.make.flowing(None, w.Make(id="a1", steps=w.chain("d"))),
        world.make.pushed(id="a"),
        world.make.pushed(id="w"),
    ):
        [rejected, fine] = await world.commit(unit, world.make.pushed())
        assert isinstance(rejected, Rejected), unit
        assert fine == Committed()
    assert len(await world.store.find_workflows()) == 2
    assert await world.flow("v") == flow


async def test_a_job_and_a_step_of_one_unit_have_different_ids(world: World) -> None:
    make = w.Make(id="w", steps=w.stages("a"), jobs={"a": 1})
    for name in ("a", "w"):
        [rejected] = await world.commit(world.make.flowing(None, make, job(world, "a", name)))
        assert isinstance(rejected, Rejected)
    same = world.make.flowing(None, w.Make(id="w", steps=w.chain("w")))
    [rejected] = await world.commit(same)
    assert isinstance(rejected, Rejected)
    assert await world.feed() == []


async def test_workflows_of_one_name_in_two_tenants_are_two(world: World) -> None:
    for tenant in ("", "t"):
        new = job(world, "a", "a1", tenant=tenant)
        await world.make_flow("w", w.chain("a"), new, tenant=tenant)
    [taken] = await world.claim(tenant="t")
    await world.must(completing(world, taken))
    assert states(await world.flow("w", "t")) == "completed a:completed"
    assert await now_at(world) == "pending a:pending"


async def test_only_declared_moves_of_workflows_and_steps_are_stored(world: World) -> None:
    flow = await world.make_flow("w", w.stages("a", "b"))
    unit = world.make.flowing(flow, w.Pause())
    assert unit.flow is not None
    answer = unit.flow.answer
    [event] = answer.events
    gone = replace(answer.flow, steps={"a": answer.flow.steps["a"]})
    for broken in (
        replace(answer, events=(replace(event, target="completed"),)),
        replace(answer, events=(replace(event, version=event.version + 1),)),
        replace(answer, events=(replace(event, kind="step"),)),
        replace(answer, events=(event, replace(event, record="nobody"))),
        replace(answer, events=()),
        replace(answer, flow=gone),
    ):
        wrong = replace(unit, flow=FlowMove(flow, broken))
        [rejected, fine] = await world.commit(wrong, world.make.pushed())
        assert isinstance(rejected, Rejected), broken
        assert fine == Committed()
        assert await world.flow("w") == flow


# --- time -----------------------------------------------------------------------------------------


async def test_the_limit_of_waiting_starts_when_the_step_opens(world: World) -> None:
    limit = Deadlines(available_us=10 * SECOND)
    new = [job(world, "a", "a1"), job(world, "b", "b1", deadlines=limit)]
    await world.make_flow("w", w.chain("a", "b"), *new)
    world.clock.move(10 * SECOND)
    [due] = await world.due()
    assert (due.stored.job.id, due.gate.closed, due.swept) == ("b1", True, False)
    await world.must(world.make.ticking(due))
    [taken] = await world.claim()
    world.clock.move(5 * SECOND)
    await world.must(completing(world, taken))
    opened = world.now
    world.clock.move(5 * SECOND)
    [due] = await world.due()
    assert (due.gate, due.swept) == (j.Gate(opened_at=opened), False)
    await world.must(world.make.ticking(due))
    assert (await world.got(due.stored.job)).wake_at == opened + 10 * SECOND
    world.clock.move(5 * SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert (await world.got(due.stored.job)).job.state == "discarded"
    assert await now_at(world) == "failed a:completed b:failed"


async def test_the_limit_of_waiting_starts_anew_with_a_resume(world: World) -> None:
    new = job(world, "a", "a1", deadlines=Deadlines(available_us=SECOND))
    await world.make_flow("w", w.chain("a"), new)
    await command(world, w.Pause())
    world.clock.move(SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert (await world.got(new.job)).job == new.job
    await command(world, w.Resume())
    resumed = world.now
    world.clock.move(SECOND)
    [due] = await world.due()
    assert due.gate == j.Gate(opened_at=resumed)


async def test_the_gates_of_queue_and_step_are_one(world: World) -> None:
    new = job(world, "a", "a1", deadlines=Deadlines(available_us=SECOND))
    await world.make_flow("w", w.chain("a"), new)
    opened = world.now
    await world.gate("default", closed=True)
    world.clock.move(SECOND)
    [due] = await world.due(hold_us=1)
    assert due.gate == j.Gate(closed=True, opened_at=opened)
    assert await world.claim_ids() == []
    await world.gate("default", opened_at=world.now)
    world.clock.move(SECOND)
    [due] = await world.due(hold_us=1)
    assert due.gate == j.Gate(opened_at=world.now - SECOND)


async def test_what_time_does_to_a_job_moves_its_workflow(world: World) -> None:
    new = job(world, "a", "a1", expires_at=world.now + SECOND)
    await world.make_flow("w", w.chain("a"), new)
    world.clock.move(SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert await now_at(world) == "failed a:failed"


async def test_events_of_a_workflow_never_go_back_in_time(world: World) -> None:
    await chain(world, "a")
    world.clock.move(-3 * SECOND)
    [taken] = await world.claim()
    await world.must(completing(world, taken))
    flow = await world.flow("w")
    assert flow.workflow.ended_at == flow.workflow.created_at


async def test_an_operators_name_stands_on_the_move_he_asked_for_only(world: World) -> None:
    await world.make_flow("w", w.stages("a"))
    flow, bob = await world.flow("w"), By(Actor.USER, "bob")
    await world.must(world.make.flowing(flow, w.Abort(), by=bob, reason="enough"))
    [abort] = (await world.store.history(("", "w")))[-1:]
    assert (abort.actor_id, abort.reason) == ("bob", "enough")
    [step] = (await world.store.history(("", "a")))[-1:]
    assert (step.actor_id, step.reason) == ("cascade", None)
