"""Commands become commits: enqueue, change, race, retry and time, on every store."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.engine.asks import Ask, OnConflict, Uniqueness
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.enqueueing import Clash, Enqueued
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import ErrorInfo, RetryPolicy
from detent.stores.api import Failure, Idempotency, Stored, key_of
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World

MAIL = Ask(type="mail.send")


async def push(engine: Engine, **more: Any) -> j.Job:
    """A new job."""
    [made] = await engine.enqueue([Ask(type="mail.send", **more)], USER)
    assert isinstance(made, Enqueued), made
    return made.job


async def claim(world: World, engine: Engine, number: int = 1) -> list[Stored]:
    """Jobs in the hands of w1."""
    await world.alive("w1")
    return list((await engine.claim(world.make.want(number))).jobs)


def reported(stored: Stored, command: j.Command, **more: Any) -> Change:
    return Change(key_of(stored.job), command, WORKER, known=stored, **more)


async def state(world: World, job: j.Job) -> str:
    [stored] = await world.store.get([key_of(job)])
    assert stored is not None
    return stored.job.state.value


# --- enqueue --------------------------------------------------------------------------------------


async def test_new_jobs_have_ids_of_their_own_that_sort_by_age(
    world: World, engine: Engine
) -> None:
    made = await engine.enqueue([MAIL] * 50, USER)
    ids = [one.job.id for one in made if isinstance(one, Enqueued)]
    assert ids == sorted(set(ids))
    assert len(ids) == 50
    found = await claim(world, engine, 50)
    assert [stored.job.id for stored in found] == ids


async def test_many_callers_share_few_commits(world: World, engine: Engine) -> None:
    made = await asyncio.gather(*(engine.enqueue([MAIL], USER) for _ in range(200)))
    assert len({one.job.id for [one] in made if isinstance(one, Enqueued)}) == 200
    [counted] = await world.store.counts()
    assert counted.count == 200


async def test_a_bulk_of_any_size_goes_in_slices(world: World, engine: Engine) -> None:
    made = await engine.enqueue([MAIL] * 2_500, USER)
    assert len(made) == 2_500
    [counted] = await world.store.counts()
    assert counted.count == 2_500


async def test_what_the_lifecycle_refuses_hurts_no_neighbour(engine: Engine) -> None:
    bad = Ask(type="mail.send", profile="rest", retry=RetryPolicy(max_attempts=5))
    first, second, third = await engine.enqueue([MAIL, bad, MAIL], USER)
    assert isinstance(second, Refusal)
    assert isinstance(first, Enqueued)
    assert isinstance(third, Enqueued)


async def test_the_same_request_is_one_job(world: World, engine: Engine) -> None:
    promise = Idempotency("k", "d", world.now + SECOND)
    ask = Ask(type="mail.send", idempotency=promise)
    [first], [second] = await asyncio.gather(
        engine.enqueue([ask], USER), engine.enqueue([ask], USER)
    )
    assert isinstance(first, Enqueued)
    assert isinstance(second, Enqueued)
    assert first.job.id == second.job.id
    assert {first.is_new, second.is_new} == {True, False}
    other = Ask(type="mail.send", idempotency=Idempotency("k", "other", world.now + SECOND))
    [clash] = await engine.enqueue([other], USER)
    assert isinstance(clash, Clash)
    assert clash.what == "idempotency"


async def test_a_unique_job_is_refused_dropped_or_put_in_its_place(
    world: World, engine: Engine
) -> None:
    def unique(choice: OnConflict) -> Ask:
        return Ask(type="mail.send", unique=Uniqueness("f", ("available",), None, choice))

    [first] = await engine.enqueue([unique(OnConflict.REJECT)], USER)
    assert isinstance(first, Enqueued)
    [clash] = await engine.enqueue([unique(OnConflict.REJECT)], USER)
    assert isinstance(clash, Clash)
    assert clash.by.id == first.job.id
    [same] = await engine.enqueue([unique(OnConflict.IGNORE)], USER)
    assert same == Enqueued(first.job, is_new=False)
    [newer] = await engine.enqueue([unique(OnConflict.REPLACE)], USER)
    assert isinstance(newer, Enqueued)
    assert newer.replaced == first.job.id
    assert await state(world, first.job) == "cancelled"
    assert await state(world, newer.job) == "available"


async def test_of_many_who_replace_at_once_one_is_left(world: World, engine: Engine) -> None:
    ask = Ask(type="x", unique=Uniqueness("f", ("available",), None, OnConflict.REPLACE))
    made = await asyncio.gather(*(engine.enqueue([ask], USER) for _ in range(12)))
    assert all(isinstance(one, Enqueued) for [one] in made)
    counted = {one.state: one.count for one in await world.store.counts()}
    assert counted == {"available": 1, "cancelled": 11}


# --- commands -------------------------------------------------------------------------------------


async def test_a_life_from_end_to_end(world: World, engine: Engine) -> None:
    job = await push(engine)
    [taken] = await claim(world, engine)
    done = j.Complete(lease=taken.job.lease, digest="d")
    [answer] = await engine.carry_out([reported(taken, done, beside=Beside(result='"ok"'))])
    assert isinstance(answer, j.Accepted)
    [stored] = await world.store.get([key_of(job)])
    assert stored is not None
    assert (stored.job, stored.result) == (answer.job, '"ok"')


async def test_who_is_outrun_is_decided_about_again(world: World, engine: Engine) -> None:
    """The worker completes what it knows; meanwhile somebody gave the job another priority."""
    job = await push(engine)
    [taken] = await claim(world, engine)
    await engine.carry_out([Change(key_of(job), j.Reprioritise(9), USER)])
    done = reported(taken, j.Complete(lease=taken.job.lease))
    [answer] = await engine.carry_out([done])
    assert isinstance(answer, j.Accepted)
    assert (answer.job.priority, answer.job.state) == (9, "completed")


async def test_a_refusal_is_about_the_job_as_it_is_now(world: World, engine: Engine) -> None:
    job = await push(engine)
    [taken] = await claim(world, engine)
    first = reported(taken, j.Complete(lease=taken.job.lease))
    second = reported(taken, j.Fail(lease=taken.job.lease, code="late"))
    answers = await asyncio.gather(engine.carry_out([first]), engine.carry_out([second]))
    assert sum(isinstance(answer, j.Accepted) for [answer] in answers) == 1
    assert sum(isinstance(answer, Refusal) for [answer] in answers) == 1
    assert await state(world, job) in ("completed", "retryable")


async def test_nobody_is_refused_for_what_they_did_not_know(world: World, engine: Engine) -> None:
    """A worker may cancel only when asked; that it was asked after the claim it need not know."""
    job = await push(engine)
    [taken] = await claim(world, engine)
    await engine.carry_out([Change(key_of(job), j.Cancel(), USER)])
    stopped = reported(taken, j.ConfirmCancel(lease=taken.job.lease))
    [answer] = await engine.carry_out([stopped])
    assert isinstance(answer, j.Accepted)
    assert await state(world, job) == "cancelled"


async def test_a_handler_may_say_how_long_to_wait_but_not_how_often(
    world: World, engine: Engine
) -> None:
    await push(engine, retry=RetryPolicy(max_attempts=2, jitter=False))
    [taken] = await claim(world, engine)
    failed = j.Fail(lease=taken.job.lease, code="busy")
    [answer] = await engine.carry_out([reported(taken, failed, delay_us=90 * SECOND)])
    assert isinstance(answer, j.Accepted)
    assert answer.job.run_at == world.now + 90 * SECOND
    world.clock.move(90 * SECOND)
    await engine.upkeep.turn()
    [taken] = await claim(world, engine)
    failed = j.Fail(lease=taken.job.lease, code="busy")
    [answer] = await engine.carry_out([reported(taken, failed, delay_us=90 * SECOND)])
    assert isinstance(answer, j.Accepted)
    assert answer.job.cause == "exhausted"


async def test_many_changes_of_one_job_all_happen(world: World, engine: Engine) -> None:
    job = await push(engine)
    asked = [engine.carry_out([Change(key_of(job), j.Reprioritise(n), USER)]) for n in range(1, 11)]
    answers = await asyncio.gather(*asked)
    assert all(isinstance(answer, j.Accepted) for [answer] in answers)
    assert len(await world.store.history(key_of(job))) == 11


async def test_a_job_that_is_not_there_is_refused(engine: Engine) -> None:
    [answer] = await engine.carry_out([Change(("", "nowhere"), j.Cancel(), USER)])
    assert isinstance(answer, Refusal)
    assert answer.code == "unknown_job"


async def test_a_failure_is_judged_by_the_policy_of_its_job(world: World, engine: Engine) -> None:
    policy = RetryPolicy(max_attempts=2, initial_us=SECOND, jitter=False)
    job = await push(engine, retry=policy)
    for expected in ("retryable", "discarded"):
        [taken] = await claim(world, engine)
        failure = Failure(taken.job.attempt, world.now, "boom", "it broke")
        failed = j.Fail(lease=taken.job.lease, code="boom")
        change = reported(taken, failed, beside=Beside(failure=failure), error=ErrorInfo("boom"))
        await engine.carry_out([change])
        assert await state(world, job) == expected
        world.clock.move(SECOND)
        await engine.upkeep.turn()
    [stored] = await world.store.get([key_of(job)])
    assert stored is not None
    assert [one.message for one in stored.failures] == ["it broke"] * 2


# --- time -----------------------------------------------------------------------------------------


async def test_what_is_scheduled_becomes_available_in_time(world: World, engine: Engine) -> None:
    job = await push(engine, run_at=world.now + SECOND)
    assert (await engine.upkeep.turn()).moved == 0
    world.clock.move(SECOND)
    assert (await engine.upkeep.turn()).moved == 1
    assert await state(world, job) == "available"


async def test_more_than_a_batch_is_caught_up_with(world: World, engine: Engine) -> None:
    await engine.enqueue([Ask(type="x", run_at=world.now + SECOND)] * 450, USER)
    world.clock.move(SECOND)
    turns = [await engine.upkeep.turn() for _ in range(3)]
    assert [turn.moved for turn in turns] == [200, 200, 50]
    assert [turn.is_busy for turn in turns] == [True, True, False]


async def test_a_silent_worker_is_lost_but_not_right_after_a_gap_of_our_own(
    world: World, engine: Engine
) -> None:
    job = await push(engine)
    await engine.upkeep.turn()
    [taken] = await claim(world, engine)
    await world.alive("w1", until=world.now + 10 * SECOND)
    # Upkeep itself stood still for as long: nobody could renew, so nobody is blamed.
    world.clock.move(20 * SECOND)
    assert (await engine.upkeep.turn()).declared_lost == 0
    assert await state(world, job) == "active"
    for _ in range(16):
        world.clock.move(SECOND)
        await engine.upkeep.turn()
    assert await state(world, job) == "available"
    history = await world.store.history(key_of(job))
    assert [event.name for event in history][-2:] == ["lose", "due"]
    late = reported(taken, j.Complete(lease=taken.job.lease))
    [answer] = await engine.carry_out([late])
    assert isinstance(answer, Refusal)


async def test_a_gap_in_the_middle_of_a_turn_is_one_too(world: World, engine: Engine) -> None:
    """The clock is set, or the store stands still, while upkeep is at work."""
    job = await push(engine)
    await engine.upkeep.turn()
    await claim(world, engine)
    await world.alive("w1", until=world.now + 10 * SECOND)
    world.clock.move(SECOND)
    turn = asyncio.ensure_future(engine.upkeep.turn())
    await asyncio.sleep(0)
    assert not turn.done()
    world.clock.move(20 * SECOND)
    await turn
    assert (await engine.upkeep.turn()).declared_lost == 0
    assert await state(world, job) == "active"


async def test_two_upkeeps_do_nothing_twice(world: World) -> None:
    first, second = Engine(world.store), Engine(world.store)
    await first.enqueue([Ask(type="x", run_at=world.now + SECOND)] * 300, USER)
    world.clock.move(SECOND)
    moved = 1
    while moved:
        done = await asyncio.gather(first.upkeep.turn(), second.upkeep.turn())
        moved = sum(one.moved for one in done)
    [counted] = await world.store.counts()
    assert (counted.state, counted.count) == ("available", 300)
