"""Processes that do all that a store can are killed in a row, on a durable server."""

from __future__ import annotations

import asyncio
import random

from detent import stores
from detent.engine.verify import Verification
from tests.postgres.running import durable
from tests.sqlite.processes import rest_of, start
from tests.sqlite.test_kills import killed
from tests.sqlite.witness import Witness

KILLS = 50


async def faults_of(url: str) -> list[str]:
    """Everything that is wrong with a store; an empty list is the only pass."""
    async with stores.open(url) as store:
        found = [one async for one in Verification(store).findings()]
    return [f"{one.where}: {one.why}" for one in found]


def test_nothing_acknowledged_is_lost_when_writers_are_killed() -> None:
    chance, witness = random.Random(3), Witness()
    with durable() as server:
        url = server.url("postgres")
        stores.run_migrations(url)
        nursery = start(module="tests.sqlite.toil")
        for kill in range(1, KILLS + 1):
            words = chance.choice((0, 2, chance.randint(3, 40)))
            killed(nursery, url, f"k{kill}", words, witness)
            if kill % 10 == 0:
                witness.check_at(url)
                assert asyncio.run(faults_of(url)) == []
        rest_of(nursery)
    assert witness.kinds["died"] == KILLS
    wanted = ("pushed", "flowed", "completed", "counted")
    assert all(witness.kinds[one] for one in wanted), f"something was never done: {witness.kinds}"
