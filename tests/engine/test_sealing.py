"""What has happened is sealed as time goes by, by one of all who look after a store."""

from __future__ import annotations

import pytest

from detent.engine import sealing
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.sealing import EVERY_US
from tests.contract.making import SECOND, USER
from tests.contract.world import World

ASK = Ask(type="a", secret=())


async def minute(world: World, *engines: Engine) -> None:
    """Let one pass without a gap."""
    for _ in range(EVERY_US // SECOND):
        world.clock.move(SECOND)
        for engine in engines:
            await engine.upkeep.turn()


async def sealed(world: World) -> list[int]:
    """How many events each block has."""
    return [block.count for block in await world.store.blocks()]


async def test_what_has_happened_is_sealed_within_a_minute_or_two(
    world: World, engine: Engine
) -> None:
    await engine.upkeep.turn()
    await engine.enqueue([ASK, ASK], USER)
    assert await sealed(world) == []
    await minute(world, engine)
    assert await sealed(world) == [2]
    await minute(world, engine)
    assert await sealed(world) == [2]
    await engine.enqueue([ASK], USER)
    await minute(world, engine)
    assert await sealed(world) == [2, 1]


async def test_one_of_all_who_look_after_a_store_seals(world: World, engine: Engine) -> None:
    other = Engine(world.store)
    await engine.upkeep.turn()
    await other.upkeep.turn()
    for _ in range(3):
        await engine.enqueue([ASK], USER)
        await minute(world, engine, other)
    assert await sealed(world) == [1, 1, 1]


async def test_much_is_sealed_piece_by_piece_and_no_more_than_a_minute_has_room_for(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "PIECE", 3)
    monkeypatch.setattr(sealing, "PIECES_MAX", 2)
    await engine.upkeep.turn()
    await engine.enqueue([ASK] * 8, USER)
    await minute(world, engine)
    assert await sealed(world) == [3]
    await engine.upkeep.turn()
    await engine.upkeep.turn()
    assert await sealed(world) == [3, 3]
    await minute(world, engine)
    assert await sealed(world) == [3, 3, 2]


async def test_a_clock_that_is_set_back_does_not_put_it_off(world: World, engine: Engine) -> None:
    world.clock.move(3_600 * SECOND)
    await engine.upkeep.turn()
    world.clock.move(-3_600 * SECOND)
    await engine.enqueue([ASK], USER)
    await engine.upkeep.turn()
    await minute(world, engine)
    assert await sealed(world) == [1]
