"""Operations that share a transaction see what others did before, and cost them little time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from detent.stores.api import Limit, LimitKind, LimitRow
from detent.stores.sqlite import SqliteStore, upkeep
from detent.stores.sqlite.claim import claim
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import Clock
from tests.contract.world import World

T = TypeVar("T")


class Inside:
    """A store, and the inside of its transactions."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.store = SqliteStore(path, self.clock)
        self.world = World(self.store, self.clock)

    async def together(self, run: Callable[[Transaction], T]) -> T:
        """Several operations as one: so they run when they have queued up."""
        return await self.store._writing().do(run)  # noqa: SLF001 - nobody else gets there


def test_a_limit_that_is_set_holds_for_whoever_claims_in_the_same_commit(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "detent.db")
    world, now = inside.world, inside.world.now
    row = LimitRow(LimitKind.QUEUE, "default", Limit(concurrency=2))

    def run(tx: Transaction) -> tuple[int, int]:
        first = claim(tx, world.make.want(1), now)
        upkeep.set_limits(tx, [row])
        second = claim(tx, world.make.want(5), now)
        return len(first.jobs), len(second.jobs)

    async def main() -> tuple[int, int]:
        async with inside.store:
            await world.alive("w1")
            await world.must(*(world.make.pushed() for _ in range(6)))
            return await inside.together(run)

    assert asyncio.run(main()) == (1, 1)
