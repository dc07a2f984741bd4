"""Who makes many things lets others have their turn."""

from __future__ import annotations

import asyncio

import pytest

from detent.engine.asks import Ask
from detent.engine.commands import Change, Commands
from detent.engine.engine import Engine
from detent.engine.erasing import Erasing
from detent.engine.piecemeal import PIECE, piecemeal
from detent.engine.shaping import Order, Part
from detent.lifecycle import job as j
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import Record, Stored, key_of
from detent.stores.select import Filter, Page
from tests.contract.making import USER
from tests.contract.world import World
from tests.turns import Turns


def test_others_get_in_after_each_piece() -> None:
    async def asked() -> list[int]:
        seen: list[int] = []
        made: list[int] = []

        def make(number: int) -> int:
            made.append(number)
            return -number

        async def other() -> None:
            while True:
                seen.append(len(made))
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(other())
        found = await piecemeal(make, range(3 * PIECE))
        busy.cancel()
        assert found == [-n for n in range(3 * PIECE)]
        return seen

    assert asyncio.run(asked()) == [PIECE, 2 * PIECE]
    assert asyncio.run(piecemeal(str, [])) == []


MANY = PIECE + 100


async def test_many_commands_are_decided_some_at_a_time(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key_of(one.job) for one in await _made(world, engine)]
    turns = Turns(monkeypatch, Commands, "_decide")
    answers = await engine.carry_out([Change(key, j.Reprioritise(3), USER) for key in keys])
    assert {type(answer) for answer in answers} == {j.Accepted}
    assert (turns.all, turns.most) == (MANY, PIECE)


async def test_a_large_workflow_is_erased_some_jobs_at_a_time(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _made(world, engine)
    await engine.workflows.abort(("", "w"), USER)
    turns = Turns(monkeypatch, Erasing, "_erased")

    async def nothing() -> list[Record]:
        return []

    assert await engine.erasing.erase(("", "w"), USER, nothing) is None
    assert (turns.all, turns.most) == (MANY, PIECE)


async def _made(world: World, engine: Engine) -> list[Stored]:
    jobs = tuple(Ask(type="a", secret=()) for _ in range(MANY))
    await engine.workflows.create(Order(parts=(Part(StepPlan("s"), jobs),), id="w"), USER)
    return list(await world.store.find(Filter(workflow="w"), Page(MANY)))
