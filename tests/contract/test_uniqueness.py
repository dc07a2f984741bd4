"""Ids, fingerprints and idempotency keys: of many that race for one, exactly one wins."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.lifecycle import job as j
from detent.stores.api import Committed, Idempotency, Outcome, Own, Taken, Unique, key_of
from tests.contract.making import SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

LIVE = ("scheduled", "available", "pending", "active", "retryable")
ONLY = Unique("print", LIVE)


async def race(world: World, **more: Any) -> list[Outcome]:
    """Fifty callers, each with a job of its own, at the same time."""
    calls = [world.store.step([world.make.pushed(**more)], now=world.now) for _ in range(50)]
    return [step.outcomes[0] for step in await asyncio.gather(*calls)]


async def the_only_one(world: World) -> j.Job:
    [stored] = (await world.everything()).values()
    return stored.job


# --- ids ----------------------------------------------------------------------------------------


async def test_an_id_that_is_in_use_is_refused_and_names_the_job_that_has_it(world: World) -> None:
    await world.push(id="a")
    job = await world.do((await world.everything())["", "a"].job, j.Hold(), USER)
    assert await world.commit(world.make.pushed(id="a", priority=3)) == [Taken("id", job)]
    assert (await world.got(job)).job == job


async def test_an_id_stays_taken_after_its_job_has_ended(world: World) -> None:
    job = await world.do(await world.push(id="a"), j.Cancel(), USER)
    assert await world.commit(world.make.pushed(id="a")) == [Taken("id", job)]


async def test_of_many_that_race_for_an_id_one_gets_it(world: World) -> None:
    outcomes = await race(world, id="a")
    job = await the_only_one(world)
    assert outcomes.count(Committed()) == 1
    assert outcomes.count(Taken("id", job)) == 49


async def test_two_jobs_of_one_id_in_one_batch_are_one_job(world: World) -> None:
    units = [world.make.pushed(id="a"), world.make.pushed(id="a")]
    assert await world.commit(*units) == [Committed(), Taken("id", units[0].new[0].job)]


# --- fingerprints ---------------------------------------------------------------------------------


async def test_a_unique_job_keeps_others_of_its_fingerprint_out(world: World) -> None:
    job = await world.push(unique=ONLY)
    assert await world.commit(world.make.pushed(unique=ONLY)) == [Taken("unique", job)]
    await world.push(unique=Unique("another", LIVE))
    await world.push()


async def test_the_answer_shows_the_other_job_as_it_is_now(world: World) -> None:
    job = await world.do(await world.push(unique=ONLY), j.Reprioritise(4), USER)
    assert await world.commit(world.make.pushed(unique=ONLY)) == [Taken("unique", job)]


async def test_a_job_counts_only_in_the_states_that_are_asked_for(world: World) -> None:
    job = await world.push(unique=ONLY)
    await world.push(unique=Unique("print", ("active", "scheduled")))
    await world.do(job, j.Cancel(), USER)
    [outcome] = await world.commit(world.make.pushed(unique=Unique("print", ("cancelled",))))
    assert isinstance(outcome, Taken)
    assert outcome.by.id == job.id


async def test_a_fingerprint_is_free_again_when_its_job_has_ended(world: World) -> None:
    job = await world.push(unique=ONLY)
    await world.do(job, j.Cancel(), USER)
    await world.push(unique=ONLY)


async def test_a_job_counts_only_if_it_was_created_since(world: World) -> None:
    job = await world.push(unique=ONLY)
    world.clock.move(60 * SECOND)
    since = Unique("print", LIVE, since=job.created_at)
    assert await world.commit(world.make.pushed(unique=since)) == [Taken("unique", job)]
    await world.push(unique=Unique("print", LIVE, since=job.created_at + 1))


async def test_of_several_that_count_the_oldest_is_named(world: World) -> None:
    """Whatever order they were written in: clocks differ, and `since` goes by the same time."""
    later = await world.push(unique=ONLY)
    world.clock.move(-SECOND)
    oldest = await world.push(unique=Unique("print", ("active",)))
    assert await world.commit(world.make.pushed(unique=ONLY)) == [Taken("unique", oldest)]
    since = Unique("print", LIVE, since=later.created_at)
    assert await world.commit(world.make.pushed(unique=since)) == [Taken("unique", later)]


async def test_a_job_without_a_unique_wish_is_in_nobodys_way(world: World) -> None:
    await world.push()
    await world.push(unique=ONLY)


async def test_of_many_that_race_for_a_fingerprint_one_gets_it(world: World) -> None:
    outcomes = await race(world, unique=ONLY)
    job = await the_only_one(world)
    assert outcomes.count(Committed()) == 1
    assert outcomes.count(Taken("unique", job)) == 49


async def test_a_job_replaces_another_in_one_unit(world: World) -> None:
    old = await world.push(unique=ONLY)
    command = world.make.command_id()
    cancel = world.make.move(old, j.Cancel(j.Cause.REPLACED), SYSTEM, command_id=command)
    unit = world.make.inserting(world.make.new(unique=ONLY, command_id=command), moves=[cancel])
    await world.must(unit)
    assert (await world.got(old)).job.cause == "replaced"
    new = unit.new[0].job
    assert await world.commit(world.make.pushed(unique=ONLY)) == [Taken("unique", new)]
    assert await world.commit(unit) == [Own()]


async def test_a_job_that_only_changes_within_the_states_is_not_replaced(world: World) -> None:
    old = await world.push(unique=ONLY)
    command = world.make.command_id()
    hold = world.make.move(old, j.Hold(), USER, command_id=command)
    new = world.make.new(unique=ONLY, command_id=command)
    assert await world.commit(world.make.inserting(new, moves=[hold])) == [Taken("unique", old)]
    assert (await world.got(old)).job == old


async def test_two_of_one_fingerprint_in_one_unit_are_refused_together(world: World) -> None:
    command = world.make.command_id()
    first, second = (world.make.new(unique=ONLY, command_id=command) for _ in "ab")
    unit = world.make.inserting(first, second)
    assert await world.commit(unit) == [Taken("unique", first.job)]
    assert await world.everything() == {}
    other = world.make.new(unique=Unique("other", LIVE), command_id=command)
    await world.must(world.make.inserting(first, other))


async def test_in_one_unit_too_a_job_counts_by_state_time_and_tenant(world: World) -> None:
    wishes = [Unique("print", ("active",)), Unique("print", LIVE, since=world.now + 1)]
    command = world.make.command_id()
    new = [world.make.new(unique=wish, command_id=command) for wish in (ONLY, *wishes)]
    new.append(world.make.new(unique=ONLY, tenant="t", command_id=command))
    await world.must(world.make.inserting(*new))


async def test_of_stored_jobs_and_those_of_the_unit_the_oldest_is_named(world: World) -> None:
    stored = await world.push(unique=ONLY)
    world.clock.move(-SECOND)
    command = world.make.command_id()
    first = world.make.new(unique=Unique("print", ("active",)), command_id=command)
    second = world.make.new(unique=ONLY, command_id=command)
    unit = world.make.inserting(first, second)
    assert await world.commit(unit) == [Taken("unique", first.job)]
    world.clock.move(2 * SECOND)
    first = world.make.new(unique=Unique("print", ("active",)), command_id=command)
    unit = world.make.inserting(first, second)
    assert await world.commit(unit) == [Taken("unique", stored)]


# --- idempotency ----------------------------------------------------------------------------------


def once(world: World, digest: str = "d", seconds: int = 60) -> Idempotency:
    return Idempotency("key", digest, world.now + seconds * SECOND)


async def test_a_request_that_is_repeated_is_answered_with_its_job(world: World) -> None:
    job = await world.push(idempotency=once(world))
    repeated = world.make.pushed(idempotency=once(world))
    assert await world.commit(repeated) == [Taken("idempotency", job)]


async def test_another_request_under_the_same_key_is_told_that_it_differs(world: World) -> None:
    job = await world.push(idempotency=once(world))
    other = world.make.pushed(idempotency=once(world, "other"))
    assert await world.commit(other) == [Taken("idempotency", job, differs=True)]


async def test_a_key_outlives_its_job(world: World) -> None:
    job = await world.push(idempotency=once(world))
    job = await world.do(job, j.Cancel(), USER)
    repeated = world.make.pushed(idempotency=once(world))
    assert await world.commit(repeated) == [Taken("idempotency", job)]


async def test_a_key_is_free_again_when_its_life_is_over(world: World) -> None:
    job = await world.push(idempotency=once(world))
    world.clock.move(60 * SECOND - 1)
    repeated = world.make.pushed(idempotency=once(world))
    assert await world.commit(repeated) == [Taken("idempotency", job)]
    world.clock.move(1)
    second = await world.push(idempotency=once(world, "other"))
    third = world.make.pushed(idempotency=once(world, "other"))
    assert await world.commit(third) == [Taken("idempotency", second)]


@pytest.mark.parametrize("digest", ["d", "other"])
async def test_two_of_one_key_in_one_unit_are_refused_together(world: World, digest: str) -> None:
    command = world.make.command_id()
    first = world.make.new(idempotency=once(world), unique=ONLY, command_id=command)
    second = world.make.new(idempotency=once(world, digest), unique=ONLY, command_id=command)
    unit = world.make.inserting(first, second)
    refused = Taken("idempotency", first.job, differs=digest != "d")
    assert await world.commit(unit) == [refused]
    assert await world.everything() == {}
    over = world.make.new(idempotency=once(world, seconds=0), command_id=command)
    await world.must(world.make.inserting(over, first))


async def test_of_many_that_race_for_a_key_one_gets_it(world: World) -> None:
    outcomes = await race(world, idempotency=once(world))
    job = await the_only_one(world)
    assert outcomes.count(Committed()) == 1
    assert outcomes.count(Taken("idempotency", job)) == 49


async def test_a_refused_job_uses_up_neither_its_key_nor_its_fingerprint(world: World) -> None:
    await world.push(id="a", unique=ONLY)
    mine, key = Unique("mine", LIVE), once(world)
    for refused in (
        world.make.pushed(id="a", unique=mine, idempotency=key),
        world.make.pushed(unique=ONLY, idempotency=key),
    ):
        [outcome] = await world.commit(refused)
        assert isinstance(outcome, Taken)
    await world.push(unique=mine, idempotency=key)


@pytest.mark.parametrize("first", ["id", "idempotency", "unique"])
async def test_an_id_is_named_before_a_key_and_a_key_before_a_fingerprint(
    world: World, first: str
) -> None:
    job = await world.push(id="a", unique=ONLY, idempotency=once(world))
    same: dict[str, Any] = {}
    if first != "unique":
        same["idempotency"] = once(world)
    if first == "id":
        same["id"] = "a"
    assert await world.commit(world.make.pushed(unique=ONLY, **same)) == [Taken(first, job)]


async def test_a_unique_job_that_comes_back_to_life_states_still_counts(world: World) -> None:
    await world.push(unique=ONLY)
    [taken] = await world.claim()
    job = await world.do(taken.job, j.Snooze(lease=taken.job.lease, delay_us=9), WORKER)
    assert job.state == "retryable"
    assert await world.commit(world.make.pushed(unique=ONLY)) == [Taken("unique", job)]
    assert key_of(job) in await world.everything()
