"""How long results are kept: they go by themselves, and nothing of their jobs goes with them."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import key_of
from detent.stores.bounds import AGAIN_US
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World


async def done(world: World, name: str, after: int | None) -> j.Job:
    """A job that has ended, whose result is kept so long."""
    until = None if after is None else world.now + after
    return await world.complete(await world.claimed(id=name), result="[1]", result_until=until)


async def forget(world: World, limit: int = 1_000) -> int:
    """How many results went."""
    return await world.store.forget_results(now=world.now, limit=limit)


async def test_a_result_goes_when_its_time_is_up_and_nothing_else(world: World) -> None:
    job, other = await done(world, "a", SECOND), await done(world, "b", 2 * SECOND)
    before, history = await world.got(job), await world.store.history(key_of(job))
    world.clock.move(SECOND - 1)
    assert await forget(world) == 0
    assert before.result == (await world.got(job)).result == "[1]"
    world.clock.move(1)
    assert await forget(world) == 1
    assert await world.got(job) == replace(before, result=None)
    assert list(await world.store.history(key_of(job))) == list(history)
    assert (await world.got(other)).result == "[1]"
    assert await forget(world) == 0


async def test_results_are_whole_however_long_all_are_together(world: World) -> None:
    running = [await world.claimed() for _ in range(5)]
    told = [f'["{at}{"x" * 300_000}"]' for at in range(5)]
    ends = [
        world.make.doing(
            one, j.Complete(lease=one.lease), WORKER, store={"result": result, "lease": one.lease}
        )
        for one, result in zip(running, told, strict=True)
    ]
    await world.must(*ends)
    assert [(await world.got(one)).result for one in running] == told


async def test_what_is_kept_for_ever_stays(world: World) -> None:
    job = await done(world, "a", None)
    world.clock.move(1_000 * SECOND)
    assert await forget(world) == 0
    assert (await world.got(job)).result == "[1]"


async def test_the_oldest_go_first_and_no_more_than_asked_for(world: World) -> None:
    jobs = [
        await done(world, name, after * SECOND) for name, after in (("a", 3), ("b", 1), ("c", 2))
    ]
    world.clock.move(5 * SECOND)
    assert await forget(world, 0) == 0
    assert await forget(world, 2) == 2
    assert [(await world.got(job)).result for job in jobs] == ["[1]", None, None]
    assert await forget(world, 2) == 1


async def test_what_was_erased_has_none_left_to_go(world: World) -> None:
    job = await done(world, "a", SECOND)
    await world.do(job, j.Erase(), USER)
    world.clock.move(SECOND)
    assert await forget(world) == 0


async def test_each_goes_once_whoever_asks(world: World) -> None:
    for number in range(6):
        await done(world, f"j{number}", 1)
    world.clock.move(SECOND)
    assert sum(await asyncio.gather(*(forget(world) for _ in range(3)))) == 6


async def test_what_a_workflow_may_still_ask_for_stays_until_it_has_ended(world: World) -> None:
    new = [world.make.new(workflow="w", step="s") for _ in range(2)]
    await world.make_flow("w", w.chain("s"), *new)
    one, two = await world.claim(2)
    first = await world.complete(one.job, result="[1]", result_until=world.now)
    assert await forget(world) == 0
    assert (await world.got(first)).result == "[1]"
    await world.complete(two.job)
    world.clock.move(AGAIN_US)
    assert await forget(world) == 1
    assert (await world.got(first)).result is None
