"""Jobs come in past a mark: nobody else may have moved it, and who makes room ends with it."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from detent.engine.asks import Ask, OnConflict, Uniqueness
from detent.engine.building import Created
from detent.engine.engine import Engine
from detent.engine.enqueueing import Clash, Enqueued, Refused
from detent.engine.entering import OUTRUN, Entry
from detent.engine.shaping import Order, Part
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Actor
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import Record, Unit, key_of
from tests.contract.making import USER
from tests.contract.world import World

ASK = Ask(type="a", secret=())
UNIQUE = replace(ASK, unique=Uniqueness("f"))
SYSTEM = By(Actor.SYSTEM, "somebody")


def entry(version: int = 1, *drops: Job) -> Entry:
    return Entry(SYSTEM, (Record("mark", "q", version, "{}"),), drops)


async def job(engine: Engine, ask: Ask = ASK) -> Job:
    [made] = await engine.enqueue([ask], USER)
    assert isinstance(made, Enqueued)
    return made.job


async def state(world: World, one: Job) -> str:
    [stored] = await world.store.get([key_of(one)])
    assert stored is not None
    return stored.job.state


async def test_of_many_who_have_seen_the_same_mark_one_comes_in(
    world: World, engine: Engine
) -> None:
    answers = await asyncio.gather(*(engine.enter(ASK, USER, entry()) for _ in range(5)))
    assert sum(isinstance(one, Enqueued) for one in answers) == 1
    assert answers.count(OUTRUN) == 4
    assert [one.count for one in await world.store.counts()] == [1]
    assert isinstance(await engine.enter(ASK, USER, entry(2)), Enqueued)


async def test_who_is_replaced_and_makes_room_ends_once(world: World, engine: Engine) -> None:
    first, second, third = await job(engine), await job(engine), await job(engine)
    unit = world.make.doing(first, j.Cancel(), USER)
    told = entry(1, first, second).through(unit, world.now)
    assert isinstance(told, Unit)
    assert [move.job.id for move in told.moves] == [first.id, second.id]
    # Where it is not the number that counts nobody is spared for it.
    strict = replace(entry(1, second, third), is_sparing=False).through(unit, world.now)
    assert isinstance(strict, Unit)
    assert [move.job.id for move in strict.moves] == [first.id, second.id, third.id]


async def test_who_makes_room_ends_with_it_or_not_at_all(world: World, engine: Engine) -> None:
    oldest = await job(engine)
    await job(engine, UNIQUE)
    assert isinstance(await engine.enter(UNIQUE, USER, entry(1, oldest)), Clash)
    assert await engine.enter(ASK, USER, entry(7, oldest)) is OUTRUN
    assert await state(world, oldest) == "available"
    assert isinstance(await engine.enter(ASK, USER, entry(1, oldest)), Enqueued)
    last = (await world.store.history(key_of(oldest)))[-1]
    assert (last.target, last.cause, last.actor_id) == ("discarded", "overflow", "somebody")


async def test_nobody_makes_room_who_has_begun_meanwhile(world: World, engine: Engine) -> None:
    oldest = await job(engine)
    [taken] = await world.claim()
    assert await engine.enter(ASK, USER, entry(1, oldest)) is OUTRUN
    assert await engine.enter(ASK, USER, entry(1, taken.job)) is OUTRUN
    assert await state(world, oldest) == "active"


async def test_whoever_is_replaced_makes_room_too(world: World, engine: Engine) -> None:
    first, second = await job(engine), await job(engine)
    rival = await job(engine, UNIQUE)
    again = replace(UNIQUE, unique=Uniqueness("f", ("available",), None, OnConflict.REPLACE))
    made = await engine.enter(again, USER, entry(1, first, second))
    assert isinstance(made, Enqueued)
    assert (made.replaced, await state(world, rival)) == (rival.id, "cancelled")
    assert (await state(world, first), await state(world, second)) == ("discarded", "available")


@pytest.mark.parametrize("version", [1, 2])
async def test_several_and_workflows_come_in_alike(
    world: World, engine: Engine, version: int
) -> None:
    oldest = await job(engine)
    together = await engine.enqueue_together([ASK, ASK], USER, entry(version, oldest))
    order = Order(parts=(Part(StepPlan("s"), (ASK,)),), entry=entry(version + 1))
    made = await engine.workflows.create(order, USER)
    if version == 1:
        assert isinstance(together, list)
        assert isinstance(made, Created)
        assert await state(world, oldest) == "discarded"
    else:
        assert isinstance(together, Refused)
        assert (together.why, made) == (OUTRUN, OUTRUN)
        assert await state(world, oldest) == "available"
