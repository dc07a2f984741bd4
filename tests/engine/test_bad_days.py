"""An engine over a store that refuses, fails, loses answers and is slow: nothing lost, no twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar, cast

import pytest

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.errors import StoreBusy, StoreError, StoreUnavailable
from detent.lifecycle import job as j
from detent.stores.api import Idempotency, Store, Stored, key_of
from detent.stores.faulty import Fault, Faults, FaultyStore, faulty
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import completed

T = TypeVar("T")
JOBS = 300
CALLERS = 10
RATES = dict.fromkeys(Fault, 0.08)


async def surely(work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """Ask again while it may be asked again; the answer, and how often it had failed before."""
    for failed in range(100):
        with suppress(StoreBusy, StoreUnavailable):
            return await work(), failed
    raise AssertionError("it failed a hundred times")


async def enqueue(engine: Engine, world: World, numbers: range) -> list[str]:
    made = []
    for number in numbers:
        promise = Idempotency(f"k{number}", "same", world.now + 999 * SECOND)
        ask = Ask(type="mail.send", payload=str(number), idempotency=promise)
        [one], _ = await surely(lambda ask=ask: engine.enqueue([ask], USER))  # type: ignore[misc]
        assert isinstance(one, Enqueued)
        made.append(one.job.id)
    return made


async def work(engine: Engine, world: World, holder: str) -> list[Stored]:
    """Claim and complete until there is nothing more."""
    done: list[Stored] = []
    while True:
        want = world.make.want(7, holder=holder)
        claimed, _ = await surely(lambda want=want: engine.claim(want))  # type: ignore[misc]
        if not claimed.jobs:
            return done
        for one in claimed.jobs:
            report = completed(one)
            [answer], failed = await surely(lambda: engine.carry_out([report]))  # noqa: B023
            # Who heard no error is told of a success, though it was committed by an earlier try.
            assert isinstance(answer, j.Accepted) or failed
            done.append(one)


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_and_nothing_is_done_twice(world: World, seed: int) -> None:
    bad = FaultyStore(world.store, Faults(seed=seed, rates=RATES, slow_s=0.001))
    holders = [f"w{number}" for number in range(3)]
    await world.alive(*holders)
    async with Engine(cast("Store", bad)) as engine:
        share = JOBS // CALLERS
        parts = [range(one * share, (one + 1) * share) for one in range(CALLERS)]
        made = await asyncio.gather(*(enqueue(engine, world, part) for part in parts))
        done = await asyncio.gather(*(work(engine, world, holder) for holder in holders))
        bad.is_calm = True
    ids = [name for part in made for name in part]
    assert sorted(one.job.id for part in done for one in part) == sorted(ids)
    assert len(set(ids)) == JOBS, "an answer that was lost made no second job"
    for one in await world.store.get([("", name) for name in ids]):
        assert one is not None
        events = await world.store.history(key_of(one.job))
        assert [event.name for event in events] == ["enqueue", "claim", "complete"]
    assert set(bad.happened) == set(Fault)


async def test_a_call_that_is_made_again_recognises_its_own_success(world: World) -> None:
    await world.alive("w1")
    day = Faults(seed=0, rates={Fault.REPEATED: 1.0})
    async with Engine(faulty(world.store, day)) as engine:
        [made] = await engine.enqueue([Ask(type="mail.send")], USER)
        assert isinstance(made, Enqueued)
        [taken] = (await engine.claim(world.make.want(5))).jobs
        [answer] = await engine.carry_out([completed(taken)])
    assert isinstance(answer, j.Accepted)
    assert [event.name for event in await world.store.history(key_of(made.job))] == [
        *("enqueue", "claim", "complete")
    ]


async def test_equal_seeds_make_equal_days(world: World) -> None:
    def calls(seed: int) -> FaultyStore:
        return FaultyStore(world.store, Faults(seed=seed, rates=RATES, slow_s=0))

    async def told(store: FaultyStore) -> list[str]:
        said = []
        for _ in range(60):
            try:
                await store.get([])
                said.append("")
            except StoreError as error:
                said.append(error.code)
        return said

    first, second, other = calls(4), calls(4), calls(5)
    assert await told(first) == await told(second) != await told(other)
    assert first.happened == second.happened
