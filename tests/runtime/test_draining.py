"""Running everything that is due: what is asked of the store for each job, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.bridge import Bridge
from detent.runtime.draining import LOOK_US, Drain
from detent.runtime.signature import Signature
from detent.stores.api import Counted
from detent.stores.memory import MemoryStore
from detent.testing import VirtualClock

BY = By(Actor.USER, "test")
PASSES_S = LOOK_US / 1_000_000


class Counting(MemoryStore):
    """Counts how often somebody asks how many jobs there are."""

    looks = 0

    async def counts(self, tenant: str | None = None) -> Sequence[Counted]:
        self.looks += 1
        return await super().counts(tenant)


class World:
    """A store, and a drain that knows one type of job, which lets time pass and more follow."""

    def __init__(self, passes_s: float) -> None:
        self.clock = VirtualClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.store = Counting(self.clock)
        self.ran: list[int] = []
        self._passes_s = passes_s

    async def enqueue(self, *numbers: int, queue: str = "default") -> None:
        payloads = [f"[{number}]" for number in numbers]
        asks = [Ask(type="step", payload=payload, queue=queue) for payload in payloads]
        await self._engine.enqueue(asks, BY)

    async def _step(self, number: int) -> None:
        self.ran.append(number)
        self.clock.advance(self._passes_s)
        if number == 0:
            # Where there was no job when it was looked.
            await self._bridge.reach(self.enqueue(100, queue="another"))

    async def drain(self, jobs: int) -> None:
        """Run so many jobs, and whatever follows."""
        self._bridge = Bridge()
        try:
            await self._bridge.reach(self._open(jobs))
            handlers = {"step": Signature("step", self._step)}
            await Drain(self._engine, self._bridge, handlers).run()
        finally:
            self._bridge.stop()

    async def _open(self, jobs: int) -> None:
        await self.store.__aenter__()
        self._engine = Engine(self.store)
        await self.enqueue(*range(jobs))


async def test_many_jobs_are_looked_for_together() -> None:
    """Each look goes through all jobs there are, so one per job would be their square."""
    world = World(0)
    await world.drain(20)
    assert world.ran == [*range(20), 100]
    # At first; when there are none where it knows of some, for the one that followed; at the end.
    assert world.store.looks <= 3


async def test_what_time_brings_is_seen_while_others_wait() -> None:
    world = World(PASSES_S)
    await world.drain(5)
    assert world.ran == [0, 100, 1, 2, 3, 4]
