"""Workflows: their steps open, start and end with what the jobs do, in the very same commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.workflow import Condition, Fails, Policy, StepPlan, WhenEmpty
from detent.stores.api import (
    Committed,
    FlowMove,
    Move,
    New,
    Own,
    Record,
    Rejected,
    Stale,
    StaleFlow,
    Stored,
    Taken,
    Unit,
    key_of,
)
from tests.contract.making import LOST, NEVER, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

WAITS = Policy(when_empty=WhenEmpty.WAIT)


def job(world: World, step: str, name: str = "", flow: str = "w", **more: Any) -> New:
    """A new job of a step."""
    return world.make.new(
        id=name or f"{step}-{world.make.command_id()}", workflow=flow, step=step, **more
    )


async def chain(world: World, *names: str, jobs: int = 1, **more: Any) -> w.Flow:
    """A workflow `w` of steps in a row, each with so many jobs: a1, a2, b1, b2 and so on."""
    new = [job(world, name, f"{name}{number}") for name in names for number in range(1, jobs + 1)]
    return await world.make_flow("w", w.chain(*names), *new, **more)


def states(flow: w.Flow) -> str:
    """Workflow and steps in one line."""
    steps = (f"{step.id}:{step.state}" for step in flow.steps.values())
    return " ".join([flow.workflow.state, *steps])


async def now_at(world: World, name: str = "w") -> str:
    """Where the stored workflow stands."""
    return states(await world.flow(name))


async def command(world: World, asked: w.Command, *new: New, name: str = "w") -> w.Flow:
    """The workflow after the command."""
    await world.must(world.make.flowing(await world.flow(name), asked, *new))
    return await world.flow(name)


def completing(world: World, stored: Stored) -> Unit:
    """The report of a success."""
    held = stored.job
    return world.make.doing(held, j.Complete(lease=held.lease), WORKER, store={"lease": held.lease})


def failing(world: World, stored: Stored) -> Unit:
    """The report of a failure that is final."""
    held = stored.job
    report = j.Fail(lease=held.lease, code="x")
    return world.make.doing(held, report, WORKER, verdict=NEVER, store={"lease": held.lease})


async def moves_of(world: World, record: str) -> list[tuple[str, str]]:
    """What happened to a record, and under which command."""
    return [(one.name, one.command_id) for one in await world.store.history(("", record))]


# --- making and opening ---------------------------------------------------------------------------


async def test_a_workflow_comes_with_its_steps_and_jobs_in_one_unit(world: World) -> None:
    new = [job(world, "a", "a1"), job(world, "b", "b1"), job(world, "b", "b2")]
    make = w.Make(id="w", steps=w.chain("a", "b"), jobs={"a": 1, "b": 2})
    unit = world.make.flowing(None, make, *new)
    assert unit.flow is not None
    await world.must(unit)
    assert await world.flow("w") == unit.flow.answer.flow
    assert await now_at(world) == "pending a:pending b:created"
    records = [event.record for event in await world.feed()]
    assert records == ["w", "a", "b", "w", "a", "a1", "b1", "b2"]
    for key in ("w", "a", "b"):
        history = await world.store.history(("", key))
        mine = [event for event in unit.flow.answer.events if event.record == key]
        assert list(history) == mine


async def test_only_jobs_of_an_open_step_are_claimed(world: World) -> None:
    await chain(world, "a", "b")
    assert await world.claim_ids() == ["a1"]


async def test_a_draft_keeps_all_its_jobs_back_until_it_is_opened(world: World) -> None:
    await chain(world, "a", draft=True)
    kept_back = await world.wish()
    assert kept_back.jobs == ()
    opened = await command(world, w.Open())
    assert states(opened) == "pending a:pending"
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids() == ["a1"]


async def test_a_claim_starts_step_and_workflow_under_its_own_command(world: World) -> None:
    await chain(world, "a", jobs=3)
    await world.alive("w1")
    want = world.make.want(2)
    await world.store.step([], now=world.now, want=want)
    flow = await world.flow("w")
    assert states(flow) == "in_progress a:in_progress"
    assert flow.tally("a") == w.Tally(pending=1, in_progress=2, total=3)
    assert [event.record for event in (await world.feed())[-4:]] == ["a1", "a2", "a", "w"]
    assert (await moves_of(world, "a"))[-1] == ("start", want.command_id)
    assert (await moves_of(world, "w"))[-1] == ("start", want.command_id)
    before = await world.feed()
    await world.claim()
    assert len(await world.feed()) == len(before) + 1


async def test_an_offer_starts_a_step_too(world: World) -> None:
    await world.make_flow("w", w.chain("a"), job(world, "a", profile="engine"))
    [offered] = await world.claim(push=True, by=SYSTEM, holder="e1")
    assert await now_at(world) == "in_progress a:in_progress"
    await world.do(offered.job, j.Refuse(lease=offered.job.lease, code="x"), WORKER, verdict=NEVER)
    assert await now_at(world) == "failed a:failed"


# --- what follows from the jobs -------------------------------------------------------------------


async def test_the_end_of_the_last_job_ends_its_step_and_opens_the_next_in_one_commit(
    world: World,
) -> None:
    await chain(world, "a", "b", jobs=2)
    one, two = await world.claim(9)
    await world.must(completing(world, one))
    assert await now_at(world) == "in_progress a:in_progress b:created"
    waiting = await world.wish()
    unit = completing(world, two)
    await world.must(unit)
    assert await now_at(world) == "in_progress a:completed b:pending"
    assert [(event.record, event.name) for event in (await world.feed())[-3:]] == [
        ("a2", "complete"),
        ("a", "complete"),
        ("b", "open"),
    ]
    assert {event.command_id for event in (await world.feed())[-3:]} == {unit.command_id}
    assert await world.store.wait(30.0, seen=waiting.seen)
    assert await world.claim_ids() == ["b1", "b2"]


async def test_the_moves_that_follow_are_the_systems(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim()
    await world.must(completing(world, taken))
    for record in ("a", "w"):
        last = (await world.store.history(("", record)))[-1]
        assert (last.actor, last.actor_id, last.reason) == (Actor.SYSTEM, "cascade", None)


async def test_a_wish_beside_the_unit_gets_the_jobs_of_the_step_that_opens(world: World) -> None:
    await chain(world, "a", "b")
    [taken] = await world.claim()
    want = world.make.want(2)
    stepped = await world.store.step([completing(world, taken)], now=world.now, want=want)
    assert [one.job.id for one in stepped.claimed.jobs] == ["b1"]


async def test_a_workflow_completes_with_its_last_step(world: World) -> None:
    await chain(world, "a", "b")
    for _ in "ab":
        [taken] = await world.claim()
        await world.must(completing(world, taken))
    flow = await world.flow("w")
    assert states(flow) == "completed a:completed b:completed"
    assert flow.workflow.cause == "succeeded"


async def test_a_failed_job_fails_its_step_and_its_workflow_in_one_commit(world: World) -> None:
    await chain(world, "a", "b", jobs=2)
    taken = await world.claim(1)
    unit = failing(world, taken[0])
    await world.must(unit)
    flow = await world.flow("w")
    assert states(flow) == "failed a:failed b:created"
    assert flow.tally("a") == w.Tally(pending=1, failed=1, total=2)
    assert (await moves_of(world, "w"))[-1] == ("fail", unit.command_id)
    assert await world.claim_ids() == []


async def test_a_cancelled_job_counts_as_its_step_says(world: World) -> None:
    await chain(world, "a", jobs=2)
    stored = (await world.everything())["", "a1"]
    unit = world.make.doing(stored.job, j.Cancel(), USER)
    await world.must(unit)
    flow = await world.flow("w")
    assert states(flow) == "failed a:failed"
    assert flow.steps["a"].cause == "job_cancelled"
    assert flow.tally("a") == w.Tally(pending=2, total=2, cancelled=1, withdrawn=1)
    assert (await moves_of(world, "a"))[-2:] == [
        ("start", unit.command_id),
        ("fail", unit.command_id),
    ]


async def test_a_step_that_waits_for_all_fails_with_the_last_of_them(world: World) -> None:
    new = [job(world, "a", f"a{number}") for number in (1, 2, 3)]
    steps = (
        StepPlan("a", policy=Policy(fails=Fails.WHEN_ALL_DONE)),
        StepPlan("alert", ("a",), Policy(condition=Condition.FAILURE)),
        StepPlan("party", ("a",)),
    )
    await world.make_flow("w", steps, *new, job(world, "alert", "x"), job(world, "party", "y"))
    taken = await world.claim(9)
    await world.must(failing(world, taken[0]), completing(world, taken[1]))
    assert await now_at(world) == "in_progress a:in_progress alert:created party:created"
    await world.must(completing(world, taken[2]))
    assert await now_at(world) == "in_progress a:failed alert:pending party:created"
    assert await world.claim_ids() == ["x"]
    assert [(one.stored.job.id, one.swept) for one in await world.due()] == [("y", True)]


async def test_two_jobs_of_one_step_that_end_in_one_call_are_counted_one_by_one(
    world: World,
) -> None:
    await chain(world, "a", "b", jobs=2)
    one, two = await world.claim(9)
    first, second = completing(world, one), completing(world, two)
    await world.must(first, second)
    assert await now_at(world) == "in_progress a:completed b:pending"
    assert (await moves_of(world, "a"))[-1] == ("complete", second.command_id)


async def test_many_jobs_that_end_at_the_same_time_end_their_step_once(world: World) -> None:
    await chain(world, "a", "b", jobs=25)
    taken = await world.claim(25)
    ends = [world.store.step([completing(world, one)], now=world.now) for one in taken]
    await asyncio.gather(*ends)
    flow = await world.flow("w")
    assert flow.tally("a") == w.Tally(completed=25, total=25)
    assert [name for name, _ in await moves_of(world, "a")] == [
        "create",
        "open",
        "start",
        "complete",
    ]
    assert len(await world.claim(99)) == 25


async def test_one_unit_may_end_several_jobs_of_one_step(world: World) -> None:
    await chain(world, "a", "b", jobs=2)
    command_id = world.make.command_id()
    moves = [
        world.make.move(one.job, j.Complete(lease=one.job.lease), WORKER, command_id=command_id)
        for one in await world.claim(9)
    ]
    await world.must(world.make.moving(*moves))
    assert await now_at(world) == "in_progress a:completed b:pending"
    assert (await moves_of(world, "b"))[-1] == ("open", command_id)


async def test_one_unit_may_move_jobs_of_two_workflows(world: World) -> None:
    for name in ("x", "w"):
        new = [job(world, f"{name}-{step}", f"{name}{step}", name) for step in "ab"]
        await world.make_flow(name, w.chain(f"{name}-a", f"{name}-b"), *new)
    command_id = world.make.command_id()
    moves = [
        world.make.move(one.job, j.Complete(lease=one.job.lease), WORKER, command_id=command_id)
        for one in await world.claim(9)
    ]
    await world.must(world.make.moving(*moves))
    for name in ("x", "w"):
        assert await now_at(world, name) == f"in_progress {name}-a:completed {name}-b:pending"
    assert [event.record for event in (await world.feed())[-6:]] == [
        "xa",
        "wa",
        "w-a",
        "w-b",
        "x-a",
        "x-b",
    ]


async def test_a_refused_unit_moves_no_step(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim()
    late = completing(world, taken)
    held = await world.do(taken.job, j.Hold(), USER)
    before = await world.flow("w")
    assert await world.commit(late) == [Stale(key_of(held), held)]
    assert await world.flow("w") == before


async def test_moves_that_change_no_count_change_no_step(world: World) -> None:
    await chain(world, "a", "b", jobs=2)
    before = await world.flow("w")
    for stored in (await world.everything()).values():
        held = await world.do(stored.job, j.Hold(), USER)
        await world.do(held, j.Reprioritise(3), USER)
    assert await world.flow("w") == before


async def test_moving_only_wake_at_counts_nothing_whatever_record_it_brings(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim()
    before = await world.flow("w")
    done = replace(taken.job, state=j.JobState.COMPLETED)
    unit = Unit(world.make.command_id(), moves=(Move(taken.job.version, done, wake_at=world.now),))
    await world.must(unit)
    assert await world.flow("w") == before
    assert (await world.got(taken.job)).job == taken.job


async def test_a_retry_counts_as_retried_and_its_step_goes_on(world: World) -> None:
    await chain(world, "a")
    [taken] = await world.claim()
    await world.do(taken.job, j.Fail(lease=taken.job.lease, code="x"), WORKER)
    flow = await world.flow("w")
    assert (states(flow), flow.tally("a")) == (
        "in_progress a:in_progress",
        w.Tally(retried=1, total=1),
    )
    world.clock.move(5 * SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert await world.claim_ids() == ["a1"]
    assert (await world.flow("w")).tally("a") == w.Tally(in_progress=1, total=1)


async def test_jobs_beside_workflows_move_none(world: World) -> None:
    flow = await chain(world, "a")
    await world.push(queue="other")
    [taken] = await world.claim(queues=("other",))
    await world.must(completing(world, taken))
    assert await world.flow("w") == flow


# --- what can never run ---------------------------------------------------------------------------


async def sweep(world: World) -> list[str]:
    """Answer what is due; the ids of what was swept."""
    due = await world.due()
    await world.must(*map(world.make.ticking, due))
    return sorted(one.stored.job.id for one in due if one.swept)


async def test_jobs_that_wait_in_vain_are_due_at_once_and_cancelled(world: World) -> None:
    await chain(world, "a", "b", "c", jobs=2)
    [taken] = await world.claim(1)
    assert await world.due() == []
    await world.must(failing(world, taken))
    assert await sweep(world) == ["a2", "b1", "b2", "c1", "c2"]
    assert {one.job.state for one in (await world.everything()).values()} == {
        "discarded",
        "cancelled",
    }
    assert await now_at(world) == "failed a:failed b:created c:created"
    assert await world.due() == []


async def test_swept_jobs_are_handed_out_in_batches_each_to_one_caller(world: World) -> None:
    await chain(world, "a", jobs=21)
    await command(world, w.Abort())
    handed = await asyncio.gather(*(world.due_ids(4) for _ in range(8)))
    flat = [one for some in handed for one in some]
    assert len(flat) == len(set(flat)) == 21
    assert await world.due_ids() == []
    world.clock.move(SECOND)
    assert len(await world.due_ids()) == 21


async def test_swept_jobs_may_be_scheduled_or_retryable_or_held(world: World) -> None:
    new = [
        job(world, "a", "later", run_at=world.now + 3_600 * SECOND),
        job(world, "a", "held", held=True),
        job(world, "a", "failed"),
        job(world, "a", "runs"),
    ]
    await world.make_flow("w", w.chain("a"), *new)
    failed, runs = await world.claim(9)
    await world.do(failed.job, j.Fail(lease=failed.job.lease, code="x"), WORKER)
    await command(world, w.Abort())
    assert await sweep(world) == ["failed", "held", "later"]
    assert (await world.got(runs.job)).job.state == "active"


async def test_a_swept_job_is_not_claimed_meanwhile(world: World) -> None:
    await chain(world, "a", jobs=2)
    [taken] = await world.claim(1)
    await world.must(failing(world, taken))
    assert await world.claim_ids() == []


BACK = ["retry", "lose", "hand_back", "snooze"]


@pytest.mark.parametrize("how", BACK)
@pytest.mark.parametrize("dead", ["step", "workflow"])
async def test_a_job_that_comes_back_to_a_dead_step_is_cancelled_in_the_same_unit(
    world: World, how: str, dead: str
) -> None:
    await chain(world, "a", jobs=2)
    runs, other = await world.claim(2)
    if dead == "step":
        await world.must(failing(world, other))
    else:
        await command(world, w.Abort())
    said: dict[str, Any] = {"lease": runs.job.lease}
    command_, by = {
        "retry": (j.Fail(**said, code="x"), WORKER),
        "lose": (j.Lose(**said), SYSTEM),
        "hand_back": (j.HandBack(**said), WORKER),
        "snooze": (j.Snooze(**said, delay_us=9), WORKER),
    }[how]
    if how == "lose":
        await world.lose("w1")
    told = {"lease": runs.job.lease, "lost": how == "lose"}
    unit = world.make.doing(runs.job, command_, by, lease=LOST, store=told)
    await world.must(unit)
    stored = await world.got(runs.job)
    assert (stored.job.state, stored.job.cause, stored.wake_at) == ("cancelled", "workflow", None)
    last = (await world.store.history(key_of(runs.job)))[-1]
    assert (last.name, last.command_id, last.actor) == ("cancel", unit.command_id, Actor.SYSTEM)
    assert runs.job.id not in await world.due_ids()
    assert await world.commit(unit) == [Own()]


async def test_a_job_that_ends_under_a_dead_step_counts_and_moves_nothing(world: World) -> None:
    await chain(world, "a", jobs=2)
    runs, other = await world.claim(2)
    await world.must(failing(world, other))
    before = await world.flow("w")
    await world.must(completing(world, runs))
    flow = await world.flow("w")
    assert (flow.workflow, flow.steps) == (before.workflow, before.steps)
    assert flow.tally("a") == w.Tally(completed=1, failed=1, total=2)


async def test_a_spared_steps_jobs_are_swept_when_all_went_well(world: World) -> None:
    steps = w.batch("a", on_failure="alert", on_success="party")
    new = [job(world, name, name + "1") for name in ("a", "alert", "party")]
    await world.make_flow("w", steps, *new)
    [taken] = await world.claim(9)
    await world.must(completing(world, taken))
    assert await sweep(world) == ["alert1"]
    assert await world.claim_ids() == ["party1"]


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
