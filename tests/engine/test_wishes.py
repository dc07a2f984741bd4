"""Wishes that come together are granted together: alike in one, others side by side."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.engine.coalesce import Coalescer
from detent.stores.api import Stepped, Unit, Want
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
    unit = world.make.pushed()
    answers, committed = await asyncio.gather(
        asyncio.gather(*(asking.claim(world.make.want(1, holder=one)) for one in holders)),
        asking.commit([unit]),
    )
    assert counting.steps == 12
    assert len(committed) == 1
    held = {one.claimed.jobs[0].job.id: one.claimed.jobs[0].job.holder for one in answers}
    assert sorted(map(str, held.values())) == sorted(holders)
