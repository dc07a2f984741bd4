"""Workflows: their steps open, start and end with what the jobs do, in the very same commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.machine import Actor
from detent.lifecycle.workflow import Condition, Fails, Policy, StepPlan
from detent.stores.api import (
    Committed,
    Move,
    Own,
    Stale,
    StaleFlow,
    Unit,
    key_of,
)
from tests.contract.flowing import (
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
from tests.contract.making import LOST, NEVER, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

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


async def test_in_one_call_a_job_that_comes_back_after_its_step_died_is_cancelled(
    world: World,
) -> None:
    await chain(world, "a", jobs=4)
    early, dies, late, well = await world.claim(4)
    back = [
        world.make.doing(one.job, j.HandBack(lease=one.job.lease), WORKER) for one in (early, late)
    ]
    await world.must(back[0], failing(world, dies), back[1], completing(world, well))
    assert (await world.got(early.job)).job.state == "available"
    assert (await world.got(late.job)).job.state == "cancelled"
    flow = await world.flow("w")
    assert states(flow) == "failed a:failed"
    ended = {"completed": 1, "failed": 1, "cancelled": 1, "withdrawn": 1}
    assert flow.tally("a") == w.Tally(retried=2, total=4, **ended)
    assert await world.claim_ids() == []
    assert await sweep(world) == [early.job.id]


async def test_in_one_call_a_command_to_a_workflow_is_judged_after_what_its_jobs_did(
    world: World,
) -> None:
    flow = await chain(world, "a", "b", jobs=2)
    one, two = await world.claim(2)
    started = await world.flow("w")
    assert started != flow
    paused = world.make.flowing(started, w.Pause())
    outcomes = await world.commit(completing(world, one), completing(world, two), paused)
    assert outcomes[:2] == [Committed(), Committed()]
    assert isinstance(outcomes[2], StaleFlow)
    assert await now_at(world) == "in_progress a:completed b:pending"


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
