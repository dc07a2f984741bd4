"""Workers that live as long as a test says, and what tests wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from detent import Detent
from detent.app.handle import Handle
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.executors.api import Executor
from detent.runtime.executors.means import Kind
from detent.runtime.executors.processes import ProcessExecutor
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.executors.threads import ThreadExecutor
from detent.runtime.running import Runner
from detent.runtime.worker.settings import Settings
from detent.runtime.worker.worker import Worker
from detent.stores.api import Stored, Want, WorkerRow
from tests.waiting import until

DEADLINE_S = 20.0


class Place:
    """An app, and workers on it."""

    def __init__(self, app: Detent) -> None:
        self.app = app
        self.running: dict[str, asyncio.Task[None]] = {}
        """What runs each worker, by its instance."""

    async def engine(self) -> Engine:
        """Its engine."""
        return await self.app.bridge.reach(self.app.engine())

    @asynccontextmanager
    async def worker(
        self,
        instance: str = "w1",
        *,
        processes: str | None = None,
        clock: Callable[[], int] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Worker]:
        """A worker at work, whose row lives for long; afterwards nothing of it is left."""
        engine = await self.engine()
        await self.app.bridge.reach(_alive(engine, instance))
        executors: dict[Kind, Executor] = {
            Kind.ASYNC: AsyncExecutor(),
            Kind.THREAD: ThreadExecutor(),
        }
        if processes is not None:
            executors[Kind.PROCESS] = ProcessExecutor(processes)
        by = By(Actor.WORKER, instance)
        runner = Runner(engine, self.app.bridge, self.app.handlers, by, executors)
        runner.around = self.app.runs
        runner.clock = clock or runner.clock
        runner.stray_s = 0.1
        worker = Worker(runner, Settings(**settings))
        running = self.running[instance] = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            if not running.done():
                await worker.stop(0)
            await asyncio.gather(running, return_exceptions=True)
            await asyncio.gather(*(one.close() for one in executors.values()))

    async def bury(self, instance: str) -> None:
        """Declare it lost, as if it had been silent for too long."""
        engine = await self.engine()
        await self.app.bridge.reach(_buried(engine, instance))

    async def upkeep(self) -> None:
        """Let time do its part, once."""
        engine = await self.engine()
        await self.app.bridge.reach(engine.upkeep.turn())

    async def hold(self, instance: str) -> None:
        """The store says that a worker has a job, whatever that worker says."""
        engine = await self.engine()
        await self.app.bridge.reach(_claimed(engine, instance))

    async def lose(self, instance: str) -> None:
        """A worker claims a job and is gone."""
        await self.hold(instance)
        await self.bury(instance)
        await self.upkeep()

    async def enqueue(self, type_: str, **asked: Any) -> Handle[Any]:
        """A job of another profile than our own."""
        engine = await self.engine()
        ask = Ask(type=type_, payload='{"args":[],"kwargs":{}}', **asked)
        [made] = await self.app.bridge.reach(engine.enqueue([ask], self.app.by))
        assert isinstance(made, Enqueued), made
        return self.app.handle(made.job.id)

    async def stored(self, handle: Handle[Any]) -> Stored:
        """The job as it is stored."""
        engine = await self.engine()
        [found] = await self.app.bridge.reach(_got(engine, handle))
        assert found is not None
        return found

    async def rows(self) -> list[WorkerRow]:
        """Every worker that there was."""
        engine = await self.engine()
        alive = await self.app.bridge.reach(engine.store.workers())
        return [*alive, *await self.app.bridge.reach(engine.store.workers(gone=True))]

    async def lines(self, handle: Handle[Any]) -> list[str]:
        """Its log."""
        engine = await self.engine()
        logged = await self.app.bridge.reach(_logs(engine, handle))
        return [one.line.text for one in logged]


async def _alive(engine: Engine, instance: str) -> None:
    now = engine.store.now()
    await engine.store.beat([WorkerRow(instance, now + 600_000_000)], now=now)


async def _buried(engine: Engine, instance: str) -> None:
    now = engine.store.now()
    await engine.store.beat([WorkerRow(instance, now)], now=now)
    await engine.store.declare_lost([instance], now=now)


async def _claimed(engine: Engine, instance: str) -> None:
    await _alive(engine, instance)
    want = Want(
        command_id=f"want-{instance}",
        by=By(Actor.WORKER, instance),
        holder=instance,
        leases=(f"lease-{instance}",),
        queues=("default",),
    )
    assert len((await engine.claim(want)).jobs) == 1


async def _got(engine: Engine, handle: Handle[Any]) -> Sequence[Stored | None]:
    return await engine.store.get([(handle.tenant, handle.id)])


async def _logs(engine: Engine, handle: Handle[Any]) -> Any:
    return await engine.store.logs((handle.tenant, handle.id), limit=100_000)


async def events(handle: Handle[Any]) -> list[str]:
    """The names in its history."""
    return [event.name for event in await handle.ahistory()]


async def ended(*handles: Handle[Any]) -> list[str]:
    """How they ended, once all have."""

    async def states() -> list[str]:
        found = [(await handle.astatus()).state for handle in handles]
        return found if set(found) <= {"completed", "discarded", "cancelled"} else []

    found: list[str] = await until(states)
    return found
