"""Wishes that come together are granted together: alike in one, others side by side."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from detent.engine import coalesce
from detent.engine.coalesce import Coalescer
from detent.lifecycle import job as j
from detent.stores.api import Committed, Stepped, Unit, Want
from tests.contract.making import WORKER
from tests.contract.world import World


class Counting:
    """A store that counts the steps it is asked for."""

    def __init__(self, world: World) -> None:
        self._store = world.store
        self.steps = 0

    def now(self) -> int:
        return self._store.now()

    async def step(self, units: list[Unit], *, now: int, want: Want | None = None) -> Stepped:
        self.steps += 1
        return await self._store.step(units, now=now, want=want)


def coalescer(world: World) -> tuple[Coalescer, Counting]:
    store: Any = Counting(world)
    return Coalescer(store), store


async def test_wishes_that_are_alike_are_one(world: World) -> None:
    pushed = [await world.push() for _ in range(5)]
    await world.alive("w1")
    asking, counting = coalescer(world)
    wants = [world.make.want(size) for size in (1, 2, 1, 3)]
    answers = await asyncio.gather(*map(asking.claim, wants))
    assert counting.steps == 1
    # Who came first is served first, each under the leases it brought.
    granted = [[stored.job.id for stored in one.claimed.jobs] for one in answers]
    ids = [job.id for job in pushed]
    assert granted == [ids[:1], ids[1:3], ids[3:4], ids[4:]]
    for want, one in zip(wants, answers, strict=True):
        leases = tuple(stored.job.lease for stored in one.claimed.jobs)
        assert leases == want.leases[: len(leases)]


async def test_whoever_asks_again_gets_what_they_were_granted(world: World) -> None:
    for _ in range(3):
        await world.push()
    await world.alive("w1")
    asking, _ = coalescer(world)
    wants = [world.make.want(1), world.make.want(2)]
    first = await asyncio.gather(*map(asking.claim, wants))
    again = [await asking.claim(want) for want in wants]
    assert [one.claimed.jobs for one in again] == [one.claimed.jobs for one in first]


async def test_wishes_of_many_holders_come_true_beside_a_commit(world: World) -> None:
    for _ in range(12):
        await world.push()
    holders = [f"w{number}" for number in range(12)]
    await world.alive(*holders)
    asking, counting = coalescer(world)
    committing = asyncio.ensure_future(asking.commit([world.make.pushed()]))
    await asyncio.sleep(0)
    wants = [world.make.want(1, holder=one) for one in holders]
    answers, committed = await asyncio.gather(asyncio.gather(*map(asking.claim, wants)), committing)
    assert counting.steps == 12
    assert len(committed) == 1
    held = {one.claimed.jobs[0].job.id: one.claimed.jobs[0].job.holder for one in answers}
    assert sorted(map(str, held.values())) == sorted(holders)


async def test_what_has_much_to_say_is_not_said_in_one_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.stores.shapes.RECORD_CHARS", 10)
    ends = [await completing(world, "x" * 3_000) for _ in range(7)]
    ends += [await completing(world, "x") for _ in range(20)]
    asking, counting = coalescer(world)
    assert set(await asking.commit(ends)) == {Committed()}
    assert counting.steps == 3  # three, three, and one with all that are short
    counting.steps = 0
    more = [await completing(world, "x" * 6_000) for _ in range(3)]
    await asyncio.gather(*(asking.commit([one]) for one in more))
    assert counting.steps == 3


async def completing(world: World, text: str) -> Unit:
    """The end of a job that runs, with a result."""
    running = await world.claimed()
    unit = world.make.doing(running, j.Complete(lease=running.lease), WORKER)
    return replace(unit, moves=(replace(unit.moves[0], result=f'"{text}"'),))


class Sided(Counting):
    """A store that has room for two steps, and holds claims back until it is told."""

    connections = 2

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.sizes: list[tuple[int, int]] = []
        self.may_claim = asyncio.Event()

    async def step(self, units: list[Unit], *, now: int, want: Want | None = None) -> Stepped:
        self.sizes.append((len(units), len(want.leases) if want else 0))
        if want is not None:
            await self.may_claim.wait()
        return await super().step(units, now=now, want=want)


async def test_no_end_waits_for_a_claim_that_does_not_come_back(world: World) -> None:
    await world.push()
    await world.alive("w1")
    store: Any = Sided(world)
    asking = Coalescer(store)
    claiming = asyncio.ensure_future(asking.claim(world.make.want(1)))
    await asyncio.sleep(0)
    assert len(await asking.commit([world.make.pushed()])) == 1
    assert not claiming.done()
    store.may_claim.set()
    assert len((await claiming).claimed.jobs) == 1
    assert store.sizes == [(0, 1), (1, 0)]
    await asking.close()


async def test_what_is_small_goes_with_a_wish_and_what_is_large_beside_it(world: World) -> None:
    await world.alive("w1")
    store: Any = Sided(world)
    store.may_claim.set()
    asking = Coalescer(store)
    for size in (coalesce.TOGETHER_MAX, coalesce.TOGETHER_MAX + 1):
        units = [world.make.pushed() for _ in range(size)]
        committing = asyncio.ensure_future(asking.commit(units))
        await asyncio.sleep(0)
        await asyncio.gather(committing, asking.claim(world.make.want(1)))
    assert store.sizes == [(32, 1), (33, 0), (0, 1)]


async def test_what_was_asked_for_is_finished_on_both_ways(world: World) -> None:
    await world.alive("w1")
    store: Any = Sided(world)
    asking = Coalescer(store)
    claiming = asyncio.ensure_future(asking.claim(world.make.want(1)))
    await asyncio.sleep(0)
    later = asyncio.ensure_future(asking.claim(world.make.want(2)))
    committing = asyncio.ensure_future(asking.commit([world.make.pushed()]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(asking.close())
    store.may_claim.set()
    await asyncio.gather(claiming, later, committing, closing)
    assert sorted(store.sizes) == [(0, 1), (0, 2), (1, 0)]
