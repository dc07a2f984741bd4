"""Operations that share a transaction see what others did before, and cost them little time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import Fair, Limit, LimitKind, LimitRow, Retention
from detent.stores.sqlite import SqliteStore, upkeep
from detent.stores.sqlite import claim as claims
from detent.stores.sqlite.claim import claim
from detent.stores.sqlite.pruning import SLICE
from detent.stores.sqlite.transaction import Transaction
from tests.contract.flowing import chain, command, job
from tests.contract.making import SECOND, WORKER, Clock
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
        tx.writing.switch((), [row])
        second = claim(tx, world.make.want(5), now)
        return len(first.jobs), len(second.jobs)

    async def main() -> tuple[int, int]:
        async with inside.store:
            await world.alive("w1")
            await world.must(*(world.make.pushed() for _ in range(6)))
            return await inside.together(run)

    assert asyncio.run(main()) == (1, 1)


def test_a_wide_workflow_is_read_once_by_claims_and_by_upkeep(tmp_path: Path) -> None:
    inside, width = Inside(tmp_path / "detent.db"), 30
    world, now = inside.world, inside.world.now
    read: list[str] = []

    def run(tx: Transaction) -> tuple[int, int]:
        tx.connection.set_trace_callback(read.append)
        want = world.make.want(width, fair=Fair.KEYS)
        claimed = len(claim(tx, want, now).jobs)
        due = upkeep.take_due(tx, now + 10 * SECOND, width, now + 20 * SECOND)
        tx.connection.set_trace_callback(None)
        return claimed, len(due)

    async def main() -> tuple[int, int]:
        async with inside.store:
            await world.alive("w1")
            steps = [w.StepPlan(f"s{number}") for number in range(width)]
            soon = now + SECOND
            new = [job(world, step.id, expires_at=soon) for step in steps for _ in range(2)]
            await world.make_flow("w", steps, *new)
            return await inside.together(run)

    assert asyncio.run(main()) == (width, width)
    assert len([one for one in read if "SELECT record, tally FROM detent_steps" in one]) == 1


def test_a_claim_that_meets_very_many_shut_jobs_puts_some_away_and_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "SHUT_MAX", 10)
    inside = Inside(tmp_path / "detent.db")
    world = inside.world

    async def main() -> list[int]:
        async with inside.store:
            await chain(world, "a", jobs=25)
            assert await world.claim(0) == []  # The jobs are let in,
            await command(world, w.Pause())  # and then their step is closed.
            await world.push(id="behind")
            granted: list[int] = []
            while not any(granted):
                found = await world.wish(1)
                granted.append(len(found.jobs))
                assert found.jobs or await world.store.wait(10, found.seen)
            return granted

    assert asyncio.run(main()) == [0, 0, 1]


def test_retention_lets_others_write_between_its_commits(tmp_path: Path) -> None:
    inside = Inside(tmp_path / "detent.db")
    world = inside.world

    async def main() -> tuple[int, int]:
        async with inside.store as store:
            number = 3 * SLICE
            await world.must(*(world.make.pushed() for _ in range(number)))
            jobs = [one.job for one in await world.claim(number)]
            done = [world.make.doing(x, j.Complete(lease=x.lease), WORKER) for x in jobs]
            await world.must(*done)
            while await store.seal():
                pass
            world.clock.move(SECOND)
            pruning = asyncio.create_task(world.prune(Retention("completed", world.now)))
            seen = set[int]()
            while not pruning.done():
                await world.push(id=f"beside-{len(seen)}-{world.make.command_id()}")
                seen |= {one.count for one in await store.counts() if one.state == "completed"}
            return await pruning, len(seen & {SLICE, 2 * SLICE})

    gone, between = asyncio.run(main())
    assert gone == 3 * SLICE
    assert between > 0, "all went in one commit"
