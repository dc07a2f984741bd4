"""Jobs come in past a mark that nobody else may have moved meanwhile."""

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
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import Record
from tests.contract.making import USER
from tests.contract.world import World

ASK = Ask(type="a", secret=())
UNIQUE = replace(ASK, unique=Uniqueness("f"))


def entry(version: int = 1) -> Entry:
    return Entry((Record("mark", "q", version, "{}"),))


async def test_of_many_who_have_seen_the_same_mark_one_comes_in(
    world: World, engine: Engine
) -> None:
    answers = await asyncio.gather(*(engine.enter(ASK, USER, entry()) for _ in range(5)))
    assert sum(isinstance(one, Enqueued) for one in answers) == 1
    assert answers.count(OUTRUN) == 4
    assert [one.count for one in await world.store.counts()] == [1]
    assert isinstance(await engine.enter(ASK, USER, entry(2)), Enqueued)


async def test_a_duplicate_does_not_move_the_mark(world: World, engine: Engine) -> None:
    [first] = await engine.enqueue([UNIQUE], USER)
    assert isinstance(first, Enqueued)
    assert isinstance(await engine.enter(UNIQUE, USER, entry()), Clash)
    assert await world.store.record([("mark", "", "q")]) == [None]
    again = replace(UNIQUE, unique=Uniqueness("f", ("available",), None, OnConflict.REPLACE))
    made = await engine.enter(again, USER, entry())
    assert isinstance(made, Enqueued)
    assert made.replaced == first.job.id


@pytest.mark.parametrize("version", [1, 2])
async def test_several_and_workflows_come_in_alike(engine: Engine, version: int) -> None:
    together = await engine.enqueue_together([ASK, ASK], USER, entry(version))
    order = Order(parts=(Part(StepPlan("s"), (ASK,)),), entry=entry(version + 1))
    made = await engine.workflows.create(order, USER)
    if version == 1:
        assert isinstance(together, list)
        assert isinstance(made, Created)
    else:
        assert isinstance(together, Refused)
        assert (together.why, made) == (OUTRUN, OUTRUN)
