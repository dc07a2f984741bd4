"""Engines in a store: who is let in under a name, what they go on with, and what is lost."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.engines import TRUST_US, Seated
from detent.engine.enqueueing import Enqueued
from detent.errors import EngineInUse
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Stored, Want
from tests.contract.making import SECOND
from tests.contract.world import World

KEY = ("", "gpu-1")
COMING = Seated(boot="b1", seat="s1", types=("RENDER",), queues=("engines",), capacity=5)
BY = By(Actor.USER, "test")


async def dispatched(engine: Engine, holder: str, count: int = 1, **more: object) -> list[Stored]:
    """New jobs in the hands of an engine, in one commit."""
    ask = Ask(type="RENDER", profile="engine", queue="engines", **more)  # type: ignore[arg-type]
    answers = await engine.enqueue([ask] * count, BY)
    assert all(isinstance(one, Enqueued) for one in answers)
    want = Want(
        command_id=engine.identity.id(),
        by=By(Actor.SYSTEM, "dispatch"),
        holder=holder,
        leases=tuple(engine.identity.id() for _ in range(count)),
        queues=("engines",),
        types=("RENDER",),
        push=True,
    )
    claimed = await engine.claim(want)
    assert len(claimed.jobs) == count
    return list(claimed.jobs)


async def state_of(world: World, stored: Stored) -> tuple[str, str | None]:
    found = await world.got(stored.job)
    history = await world.store.history((stored.job.tenant, stored.job.id))
    return found.job.state.value, history[-1].code


async def test_the_same_boot_goes_on_with_what_it_presents_and_loses_the_rest(
    world: World, engine: Engine
) -> None:
    entered = await engine.engines.enter(KEY, COMING, {})
    first, second, third = await dispatched(engine, entered.holder, 3)
    ack = j.Acknowledge(lease=third.job.lease)
    await world.do(third.job, ack, By(Actor.WORKER, entered.holder))
    await engine.engines.leave(KEY, "s1")
    world.clock.move(14 * SECOND)
    presented = {first.job.id: first.job.lease or "", "unknown": "x", second.job.id: "stale"}
    again = await engine.engines.enter(KEY, replace(COMING, seat="s2"), presented)
    assert again.holder == entered.holder
    assert [one.job.id for one in again.held] == [first.job.id]
    assert set(again.lost) == {"unknown", second.job.id}
    assert (await state_of(world, first))[0] == "pending"
    for one in (second, third):
        assert await state_of(world, one) == ("discarded", "ENGINE_DISCONNECTED")


async def test_the_clock_runs_out_15_seconds_after_it_has_left(
    world: World, engine: Engine
) -> None:
    entered = await engine.engines.enter(KEY, COMING, {})
    [once] = await dispatched(engine, entered.holder)
    await world.do(once.job, j.Acknowledge(lease=once.job.lease), By(Actor.WORKER, entered.holder))
    [twice] = await dispatched(engine, entered.holder)
    await engine.upkeep.turn()
    world.clock.move(5 * SECOND)
    await engine.engines.leave(KEY, "s1")
    for _ in range(14):
        world.clock.move(SECOND)
        await engine.upkeep.turn()
        assert (await state_of(world, once))[0] == "active"
    for _ in range(2):
        world.clock.move(SECOND)
        await engine.upkeep.turn()
    assert await state_of(world, once) == ("discarded", "ENGINE_DISCONNECTED")
    # The one that was only offered has failed before that, by its own ten seconds.
    assert await state_of(world, twice) == ("discarded", "ENGINE_NOT_RESPONDING")
    back = await engine.engines.enter(KEY, COMING, {once.job.id: once.job.lease or ""})
    assert back.holder != entered.holder
    assert (back.held, back.lost) == ((), (once.job.id,))


async def test_beats_keep_it_and_silence_loses_it(world: World, engine: Engine) -> None:
    entered = await engine.engines.enter(KEY, COMING, {})
    for _ in range(10):
        await engine.upkeep.turn()
        world.clock.move(5 * SECOND)
        assert list(await engine.engines.beat([entered.holder])) == [True]
    for _ in range(17):
        await engine.upkeep.turn()
        world.clock.move(SECOND)
    assert list(await engine.engines.beat([entered.holder])) == [False]


async def test_a_second_boot_is_refused_while_the_first_is_there(
    world: World, engine: Engine
) -> None:
    entered = await engine.engines.enter(KEY, COMING, {})
    [job] = await dispatched(engine, entered.holder)
    other = replace(COMING, boot="b2", seat="s2")
    with pytest.raises(EngineInUse):
        await engine.engines.enter(KEY, other, {})
    assert await engine.engines.seats([KEY]) == ["s1"]
    # Once it has left, or was silent for too long, the next one is let in at once.
    await engine.engines.leave(KEY, "s1")
    second = await engine.engines.enter(KEY, other, {job.job.id: job.job.lease or ""})
    assert second.holder != entered.holder
    assert second.lost == (job.job.id,)
    await engine.upkeep.turn()
    assert await state_of(world, job) == ("discarded", "ENGINE_DISCONNECTED")
    world.clock.move(TRUST_US + SECOND)
    third = await engine.engines.enter(KEY, replace(COMING, boot="b3", seat="s3"), {})
    assert list(await engine.engines.beat([second.holder, third.holder])) == [False, True]


async def test_of_many_who_come_at_once_one_is_let_in(world: World, engine: Engine) -> None:
    coming = [replace(COMING, boot=f"b{number}", seat=f"s{number}") for number in range(5)]
    tried = [engine.engines.enter(KEY, one, {}) for one in coming]
    answers = await asyncio.gather(*tried, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, EngineInUse)]
    assert len(refused) == len(coming) - 1
    assert await engine.engines.types("") == {"RENDER"}
    assert world.now > 0


async def test_leaving_a_seat_that_was_taken_over_changes_nothing(
    world: World, engine: Engine
) -> None:
    await engine.engines.enter(KEY, COMING, {})
    await engine.engines.enter(KEY, replace(COMING, seat="s2"), {})
    await engine.engines.leave(KEY, "s1")
    assert await engine.engines.seats([KEY, ("", "other")]) == ["s2", ""]
    assert world.now > 0


async def test_what_is_handed_back_keeps_its_place_and_costs_nothing(
    world: World, engine: Engine
) -> None:
    entered = await engine.engines.enter(KEY, COMING, {})
    jobs = await dispatched(engine, entered.holder, 2)
    answers = await engine.engines.hand_back(jobs, "the server stops")
    assert all(isinstance(one, j.Accepted) for one in answers)
    for one in jobs:
        found = (await world.got(one.job)).job
        assert (found.state, found.failures, found.handed_back) == ("available", 0, 1)
        assert found.place == one.job.place
