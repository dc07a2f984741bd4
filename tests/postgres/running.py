"""Stores on a server that a test may stop, restart and kill, and short words to use them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from detent import stores
from detent.lifecycle import job as j
from detent.stores.api import Store
from tests.contract.making import WORKER, Clock, Maker
from tests.contract.world import World
from tools.postgres import Server

Test = Callable[[World], Awaitable[None]]


@contextmanager
def durable(**settings: str) -> Iterator[Server]:
    """A server of one's own that keeps its promises, unless the settings say otherwise."""
    with Server(**settings) as server:
        yield server


def sql(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What an operator asks the database directly."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def in_world(url: str, test: Test) -> None:
    """Run a test in an open store, and audit what it left."""

    async def run() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            world = World(store, clock)
            await test(world)
            await world.audit()

    asyncio.run(run())


class Workers:
    """Some who push, and some who claim and complete, until they are told to stop."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.make = Maker(clock)
        self.pushed: list[str] = []
        self.done: list[str] = []
        self.is_over = asyncio.Event()
        self._pushes = asyncio.Semaphore(0)
        self._pushers = 2

    async def many(self, number: int) -> None:
        """Until so many more were pushed."""
        for _ in range(number):
            await self._pushes.acquire()

    async def push(self) -> None:
        """One job after the other; what was acknowledged is remembered."""
        while not self.is_over.is_set():
            unit = self.make.pushed()
            stepped = await self.store.step([unit], now=self.clock.now)
            assert type(stepped.outcomes[0]).__name__ == "Committed", stepped
            self.pushed.append(unit.new[0].job.id)
            self._pushes.release()
        self._pushers -= 1

    async def work(self, holder: str) -> None:
        """Claim a few, complete them, and so on until nothing is left and nobody pushes."""
        units: list[Any] = []
        while True:
            is_last = self._pushers == 0
            want = self.make.want(3, holder=holder, wire=True)
            stepped = await self.store.step(units, now=self.clock.now, want=want)
            assert all(type(one).__name__ == "Committed" for one in stepped.outcomes), stepped
            self.done += [unit.moves[0].job.id for unit in units]
            jobs = [stored.job for stored in stepped.claimed.jobs]
            units = [self.make.doing(job, j.Complete(lease=job.lease), WORKER) for job in jobs]
            if not jobs and is_last:
                return

    async def live(self, meanwhile: Coroutine[None, None, None]) -> None:
        """Everybody at work while something happens to the server, and until all is done."""

        async def happen() -> None:
            await meanwhile
            self.is_over.set()

        async with asyncio.TaskGroup() as group:
            for life in (self.push(), self.push(), self.work("a"), self.work("b"), happen()):
                group.create_task(life)


def nothing_lost_or_doubled(url: str, mishap: Callable[[Workers], Awaitable[None]]) -> None:
    """Everybody at work while something happens: nothing is lost, and nothing done twice."""

    async def run() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            workers = Workers(store, clock)

            async def meanwhile() -> None:
                await workers.many(20)
                await mishap(workers)
                await workers.many(20)

            await workers.live(meanwhile())
            world = World(store, clock)
            await world.audit()
            known = {id_ for _, id_ in await world.everything()}
            assert set(workers.pushed) <= known
            assert max(Counter(workers.done).values()) == 1
            assert set(workers.done) == known
            states = {one.job.state.value for one in (await world.everything()).values()}
            assert states == {"completed"}

    asyncio.run(run())
