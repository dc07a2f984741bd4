"""A change is committed whole or not at all, and only on the record it was decided on."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.errors import BatchTooLarge
from detent.lifecycle import job as j
from detent.stores.api import (
    RECORDS_MAX,
    Committed,
    Failure,
    LeaseAlive,
    Line,
    Move,
    Own,
    Rejected,
    Stale,
    Taken,
    Unit,
    key_of,
)
from tests.contract.making import ALIVE, LOST, NEVER, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

# --- the version ----------------------------------------------------------------------------


async def test_a_step_that_would_keep_others_waiting_is_refused_whole(world: World) -> None:
    units = [world.make.pushed() for _ in range(RECORDS_MAX + 1)]
    with pytest.raises(BatchTooLarge) as refused:
        await world.commit(*units)
    assert refused.value.code == "batch_too_large"
    assert refused.value.fields == {"asked": RECORDS_MAX + 1, "limit": RECORDS_MAX}
    with pytest.raises(BatchTooLarge):
        await world.claim(RECORDS_MAX + 1)
    with pytest.raises(BatchTooLarge):
        await world.store.step(units[1:], now=world.now, want=world.make.want())
    assert await world.everything() == {}
    await world.must(*units[:-1])
    assert len(await world.claim(RECORDS_MAX)) == RECORDS_MAX


async def test_a_committed_unit_changes_the_record_its_history_and_its_wake_time(
    world: World,
) -> None:
    job = await world.push(run_at=world.now + SECOND)
    stored = await world.got(job)
    assert (stored.job, stored.wake_at) == (job, world.now + SECOND)
    cancelled = await world.do(job, j.Cancel(), USER)
    stored = await world.got(job)
    assert (stored.job, stored.wake_at) == (cancelled, None)
    assert [event.name for event in await world.store.history(key_of(job))] == ["enqueue", "cancel"]


async def test_a_record_that_moved_on_refuses_and_says_what_it_is_now(world: World) -> None:
    job = await world.push()
    late = world.make.doing(job, j.Cancel(), USER)
    held = await world.do(job, j.Hold(), USER)
    assert await world.commit(late) == [Stale(key_of(job), held)]
    assert (await world.got(job)).job == held


async def test_a_version_from_the_future_is_refused_too(world: World) -> None:
    job = await world.push()
    move = world.make.move(replace(job, version=7), j.Hold(), USER)
    assert await world.commit(world.make.moving(move)) == [Stale(key_of(job), job)]


async def test_a_record_that_does_not_exist_refuses_with_nothing(world: World) -> None:
    ghost = world.make.new().job
    unit = world.make.doing(ghost, j.Hold(), USER)
    assert await world.commit(unit) == [Stale(key_of(ghost), None)]
    assert await world.store.get([key_of(ghost)]) == [None]


async def test_of_two_decisions_on_one_version_the_first_in_the_batch_wins(world: World) -> None:
    job = await world.push()
    first = world.make.doing(job, j.Hold(), USER)
    second = world.make.doing(job, j.Cancel(), USER)
    assert await world.commit(first, second) == [
        Committed(),
        Stale(key_of(job), first.moves[0].job),
    ]


async def test_a_unit_sees_what_the_units_before_it_in_the_batch_did(world: World) -> None:
    pushed = world.make.pushed()
    held = world.make.doing(pushed.new[0].job, j.Hold(), USER)
    freed = world.make.doing(held.moves[0].job, j.Activate(), USER)
    await world.must(pushed, held, freed)


async def test_moving_only_wake_at_makes_no_version_and_no_event(world: World) -> None:
    job = await world.push()
    assert await world.rearm(job, world.now + 9) == Committed()
    stored = await world.got(job)
    assert (stored.job, stored.wake_at) == (job, world.now + 9)
    assert await world.rearm(job, None) == Committed()
    assert (await world.got(job)).wake_at is None
    assert len(await world.store.history(key_of(job))) == 1


async def test_moving_wake_at_is_fenced_like_everything_else(world: World) -> None:
    job = await world.push()
    held = await world.do(job, j.Hold(), USER)
    assert await world.rearm(job, world.now + 9) == Stale(key_of(job), held)
    assert (await world.got(job)).wake_at is None


# --- one's own command ----------------------------------------------------------------------


async def test_a_unit_that_was_committed_before_is_recognised_as_own(world: World) -> None:
    job = await world.push()
    unit = world.make.doing(job, j.Hold(), USER)
    await world.must(unit)
    assert await world.commit(unit) == [Own()]
    assert len(await world.store.history(key_of(job))) == 2


async def test_own_is_recognised_however_far_the_record_went_on(world: World) -> None:
    job = await world.push()
    unit = world.make.doing(job, j.Hold(), USER)
    await world.must(unit)
    freed = await world.do(unit.moves[0].job, j.Activate(), USER)
    ended = await world.do(freed, j.Cancel(), USER)
    assert await world.commit(unit) == [Own()]
    assert (await world.got(job)).job == ended


async def test_an_insert_that_was_committed_before_is_recognised_as_own(world: World) -> None:
    unit = world.make.pushed()
    await world.must(unit)
    assert await world.commit(unit) == [Own()]
    assert len(await world.store.history(key_of(unit.new[0].job))) == 1


async def test_the_same_unit_twice_in_one_batch_is_committed_once(world: World) -> None:
    unit = world.make.pushed()
    assert await world.commit(unit, unit) == [Committed(), Own()]


async def test_own_is_seen_before_the_lease_is_judged(world: World) -> None:
    """The report ended its lease, so by the lease alone its repetition would be refused."""
    job = await world.claimed()
    report = world.make.doing(
        job, j.Complete(lease=job.lease), WORKER, store={"lease": job.lease, "result": "1"}
    )
    await world.must(report)
    assert await world.commit(report) == [Own()]


async def test_own_is_seen_before_a_lost_holder_is_looked_at(world: World) -> None:
    job = await world.claimed()
    await world.lose("w1")
    unit = world.make.doing(
        job, j.Lose(), SYSTEM, lease=LOST, store={"lease": job.lease, "lost": True}
    )
    await world.must(unit)
    again = [taken.job for taken in await world.claim(holder="w2")]
    assert [one.id for one in again] == [job.id]
    assert await world.commit(unit) == [Own()]


async def test_the_history_of_another_record_makes_nothing_own(world: World) -> None:
    one, other = await world.push(), await world.push()
    unit = world.make.doing(one, j.Hold(), USER)
    await world.must(unit)
    other_now = await world.do(other, j.Hold(), USER)
    move = world.make.move(other, j.Hold(), USER, command_id=unit.command_id)
    assert await world.commit(world.make.moving(move)) == [Stale(key_of(other), other_now)]


# --- the lease ------------------------------------------------------------------------------


async def test_a_report_under_the_lease_of_record_is_committed(world: World) -> None:
    job = await world.claimed()
    told = {"lease": job.lease, "result": '{"n": 1}', "lines": (Line(world.now, "done"),)}
    done = await world.do(job, j.Complete(lease=job.lease), WORKER, store=told)
    stored = await world.got(job)
    assert (stored.job, stored.result) == (done, '{"n": 1}')
    assert [one.line.text for one in await world.store.logs(key_of(job))] == ["done"]


async def test_a_report_under_another_lease_is_refused(world: World) -> None:
    job = await world.claimed()
    move = world.make.move(job, j.Complete(lease=job.lease), WORKER)
    stray = world.make.moving(replace(move, lease="somebody-elses"))
    assert await world.commit(stray) == [Stale(key_of(job), job)]
    assert (await world.got(job)).job == job


async def test_a_lease_named_on_a_job_that_nobody_holds_is_refused(world: World) -> None:
    job = await world.push()
    move = replace(world.make.move(job, j.Hold(), USER), lease="L")
    assert await world.commit(world.make.moving(move)) == [Stale(key_of(job), job)]


# --- the row behind the lease -----------------------------------------------------------------


def losing(world: World, job: j.Job) -> Unit:
    told = {"lease": job.lease, "lost": True}
    return world.make.doing(job, j.Lose(), SYSTEM, lease=LOST, store=told)


async def test_a_wire_lease_that_was_renewed_meanwhile_cannot_be_lost(world: World) -> None:
    job = await world.claimed(wire=True, lease_us=10 * SECOND)
    world.clock.move(10 * SECOND)
    unit = losing(world, job)
    until = world.now + 5 * SECOND
    assert await world.store.extend([(job.lease or "", until)], now=world.now) == [True]
    assert await world.commit(unit) == [LeaseAlive(key_of(job), j.Lease(until))]
    assert (await world.got(job)).job == job
    world.clock.move(5 * SECOND)
    await world.must(unit)


async def test_a_wire_lease_is_over_at_its_last_microsecond_and_not_before(world: World) -> None:
    job = await world.claimed(wire=True, lease_us=10 * SECOND)
    until = world.now + 10 * SECOND
    unit = losing(world, job)
    world.clock.move(10 * SECOND - 1)
    assert await world.commit(unit) == [LeaseAlive(key_of(job), j.Lease(until))]
    world.clock.move(1)
    await world.must(unit)


async def test_a_worker_that_merely_fell_silent_is_not_lost_yet(world: World) -> None:
    job = await world.claimed()
    await world.alive("w1", until=world.now)
    unit = losing(world, job)
    assert await world.commit(unit) == [LeaseAlive(key_of(job), j.Lease(world.now))]
    assert await world.store.declare_lost(["w1"], now=world.now) == [True]
    await world.must(unit)


async def test_a_missing_row_counts_as_lost(world: World) -> None:
    job = await world.push(profile="engine")
    job = await world.do(job, j.Dispatch("L", "ghost"), SYSTEM, lease=ALIVE)
    told = {"lease": "L", "lost": True}
    await world.do(job, j.Lose(), SYSTEM, lease=LOST, store=told)


@pytest.mark.parametrize("state", ["alive", "silent", "lost", "missing"])
async def test_a_job_is_offered_only_to_a_worker_that_is_alive(world: World, state: str) -> None:
    job = await world.push(profile="engine")
    if state != "missing":
        await world.alive("w1", until=world.now + (state == "alive"))
    if state == "lost":
        await world.lose("w1")
    offer = j.Dispatch("L", "w1")
    unit = world.make.doing(job, offer, SYSTEM, lease=ALIVE, store={"taken_by": "w1"})
    [outcome] = await world.commit(unit)
    assert isinstance(outcome, Committed if state == "alive" else LeaseAlive), outcome
    assert (await world.got(job)).job.lease == ("L" if state == "alive" else None)


async def test_an_offer_over_the_wire_gets_a_lease_row(world: World) -> None:
    job = await world.push(profile="engine")
    await world.do(job, j.Dispatch("L", "e1", True, 10 * SECOND), SYSTEM)
    until = world.now + 20 * SECOND
    assert await world.store.extend([("L", until)], now=world.now) == [True]


# --- one lease, one job -------------------------------------------------------------------------


async def test_a_lease_is_not_given_to_a_second_job_of_its_holder(world: World) -> None:
    first, second = [await world.push(profile="engine") for _ in range(2)]
    held = await world.do(first, j.Dispatch("L", "e1"), SYSTEM, lease=ALIVE)
    unit = world.make.doing(second, j.Dispatch("L", "e1"), SYSTEM, lease=ALIVE)
    neighbour = world.make.pushed()
    refused, committed = await world.commit(unit, neighbour)
    assert isinstance(refused, Rejected), refused
    assert committed == Committed()
    assert (await world.got(second)).job == second
    await world.do(held, j.HandBack(lease="L"), SYSTEM, store={"lease": "L"})
    await world.must(unit)


async def test_a_lease_is_not_given_to_two_jobs_at_once(world: World) -> None:
    jobs = [await world.push(profile="engine") for _ in range(2)]
    offer = j.Dispatch("L", "e1")
    told = {"lease": ALIVE, "command_id": "c"}
    unit = world.make.moving(*(world.make.move(one, offer, SYSTEM, **told) for one in jobs))
    [outcome] = await world.commit(unit)
    assert isinstance(outcome, Rejected), outcome
    assert [(await world.got(one)).job for one in jobs] == jobs


async def test_the_same_lease_may_be_anothers(world: World) -> None:
    """Leases are judged together with their holders, everywhere."""
    jobs = [await world.push(profile="engine") for _ in range(2)]
    for job, holder in zip(jobs, ("e1", "e2"), strict=True):
        await world.do(job, j.Dispatch("L", holder), SYSTEM, lease=ALIVE)


# --- all or nothing ---------------------------------------------------------------------------


async def test_one_bad_unit_of_a_hundred_does_not_hurt_its_neighbours(world: World) -> None:
    jobs = [await world.push() for _ in range(5)]
    for job in jobs:
        await world.do(job, j.Hold(), USER)
    units = [world.make.pushed() for _ in range(95)]
    bad = [world.make.doing(job, j.Cancel(), USER) for job in jobs]
    for number, unit in enumerate(bad):
        units.insert(number * 20 + 3, unit)
    outcomes = await world.commit(*units)
    assert len(outcomes) == 100
    for unit, outcome in zip(units, outcomes, strict=True):
        assert isinstance(outcome, Stale if unit in bad else Committed)
    assert len(await world.everything()) == 100


@pytest.mark.parametrize("where", [0, 1, 2])
async def test_a_unit_with_one_stale_move_changes_none_of_its_records(
    world: World, where: int
) -> None:
    jobs = [await world.push() for _ in range(3)]
    moved = await world.do(jobs[where], j.Reprioritise(7), USER)
    command = world.make.command_id()
    moves = [world.make.move(job, j.Hold(), USER, command_id=command) for job in jobs]
    child = world.make.new(command_id=command)
    unit = world.make.inserting(child, moves=moves)
    assert await world.commit(unit) == [Stale(key_of(moved), moved)]
    assert [(await world.got(job)).job.held for job in jobs] == [False] * 3
    assert await world.store.get([key_of(child.job)]) == [None]


async def test_a_unit_whose_new_job_cannot_be_made_moves_nothing(world: World) -> None:
    job, other = await world.push(), await world.push(id="taken")
    command = world.make.command_id()
    lines = {"lines": (Line(world.now, "x"),)}
    move = world.make.move(job, j.Hold(), USER, command_id=command, store=lines)
    unit = world.make.inserting(world.make.new(id="taken", command_id=command), moves=[move])
    assert await world.commit(unit) == [Taken("id", other)]
    assert (await world.got(job)).job == job
    assert await world.store.logs(key_of(job)) == []


async def test_a_unit_with_an_illegal_part_is_not_stored_at_all(world: World) -> None:
    job = await world.push()
    command = world.make.command_id()
    move = world.make.move(job, j.Hold(), USER, command_id=command)
    new = world.make.new(command_id=command)
    broken = replace(new, events=(replace(new.events[0], target="completed"),))
    fine = world.make.pushed()
    outcomes = await world.commit(world.make.inserting(broken, moves=[move]), fine)
    assert isinstance(outcomes[0], Rejected)
    assert outcomes[1] == Committed()
    assert (await world.got(job)).job == job


async def test_what_an_attempt_left_behind_is_kept_per_attempt(world: World) -> None:
    job = await world.claimed()
    rows = [
        Failure(1, world.now, "boom", "no", "ValueError", '{"x":1}', "trace"),
        Failure(2, 1, ""),
    ]
    job = await world.do(
        job, j.Fail(lease=job.lease, code="boom"), WORKER, store={"failure": rows[0]}
    )
    world.clock.move(5 * SECOND)
    await world.must(*[world.make.ticking(one) for one in await world.due()])
    [again] = await world.claim()
    report = j.Fail(lease=again.job.lease, code="boom")
    await world.do(again.job, report, WORKER, verdict=NEVER, store={"failure": rows[1]})
    assert (await world.got(job)).failures == tuple(rows)


async def test_a_move_that_says_nothing_about_the_result_keeps_it(world: World) -> None:
    job = await world.claimed()
    told = {"lease": job.lease, "result": "42"}
    done = await world.do(job, j.Complete(lease=job.lease), WORKER, store=told)
    await world.do(done, j.Annotate("d"), USER)
    assert (await world.got(job)).result == "42"


async def test_a_step_without_units_and_without_a_wish_is_empty(world: World) -> None:
    stepped = await world.store.step([], now=world.now)
    assert (stepped.outcomes, stepped.claimed.jobs) == ((), ())


async def test_a_unit_without_anything_in_it_is_committed(world: World) -> None:
    assert await world.commit(Unit(world.make.command_id())) == [Committed()]


async def test_a_move_without_events_cannot_change_the_record(world: World) -> None:
    job = await world.push()
    move = Move(job.version, replace(job, priority=9), wake_at=world.now)
    await world.commit(Unit(world.make.command_id(), moves=(move,)))
    assert (await world.got(job)).job == job
