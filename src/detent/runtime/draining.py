"""Runs everything that is due, one job after the other, in this process, and then stops.

For scripts, examples and tests. It claims under the name of a worker of its own, which beats while
it works, so whatever else works on the same store sees it as one of many.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from detent.engine.engine import Engine
from detent.engine.processes import here
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from detent.runtime.bridge import Bridge
from detent.runtime.context import Context
from detent.runtime.executors.api import Ended, Executor, settle
from detent.runtime.executors.means import Kind
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.executors.threads import Hand, ThreadExecutor
from detent.runtime.middleware import Arounds
from detent.runtime.reporting import Reporter
from detent.runtime.running import Flight, Moment, Runner
from detent.runtime.signature import Signature
from detent.runtime.watching import Watching
from detent.stores.api import Death, Key, Stored, Want, Who, WorkerRow

BEAT_S = 5.0
LOOK_US = 100_000
"""How often it looks what time has done, and where jobs are: as often as upkeep does."""


class Drain:
    """One worker that works until nothing is due.

    `at` is told each moment; whatever it raises is what a crash there would look like.
    """

    def __init__(
        self,
        engine: Engine,
        bridge: Bridge,
        handlers: Mapping[str, Signature],
        at: Callable[[Moment], None] = lambda _: None,
        *,
        around: Arounds[Context] | None = None,
    ) -> None:
        self._engine = engine
        self._bridge = bridge
        self._handlers = handlers
        self._at = at
        self.worker = f"drain-{engine.identity.id()}"
        self._by = By(Actor.WORKER, self.worker)
        self._around = around or Arounds()
        self.hand: Hand | None = None
        """Who calls plain functions, if that is not to be a thread of its own."""
        self._flights: dict[Key, Flight] = {}
        process, now = here(), engine.store.now()
        self._who = Who(
            supervisor=self.worker,
            process=process,
            keeper=process,
            started_at=now,
            embedded=True,
            types=tuple(handlers),
        )
        self._looked_at: int | None = None
        self._places: list[tuple[str, str]] = []
        self.retry_at: int | None = None
        """When time alone lets a job through that a rate keeps back, if one does."""

    async def run(self) -> list[str]:
        """The ids of the jobs that were run, in order; one that was run twice is there twice."""
        ran: list[str] = []
        threads = ThreadExecutor(1, self.hand)
        executors: dict[Kind, Executor] = {Kind.ASYNC: AsyncExecutor(), Kind.THREAD: threads}
        runner = Runner(self._engine, self._bridge, self._handlers, self._by, executors)
        runner.around = self._around
        watching = Watching(runner, self._flights, self._caller())
        try:
            async with self._beside(self._keep_beating()), self._beside(watching.run()):
                while (stored := await self._bridge.reach(self._next())) is not None:
                    await self._run(runner, stored)
                    ran.append(stored.job.id)
        finally:
            await threads.close()
        await self._bridge.reach(self._leave())
        return ran

    async def _run(self, runner: Runner, stored: Stored) -> None:
        self._at(Moment.AFTER_CLAIM)
        reporter, flight = Reporter(self._engine, self._by), runner.flight(stored)
        self._flights[flight.key] = flight
        try:
            ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
            runner.start(flight, lambda _, end: settle(ended, end))
            report = reporter.report(flight, await ended)
        finally:
            del self._flights[flight.key]
        self._at(Moment.BEFORE_REPORT)
        await self._bridge.reach(reporter.file([report]))
        self._at(Moment.AFTER_COMMIT)

    def _caller(self) -> Callable[[Callable[[Flight], None], Flight], None]:
        loop = asyncio.get_running_loop()

        def call(what: Callable[[Flight], None], flight: Flight) -> None:
            loop.call_soon_threadsafe(what, flight)

        return call

    @asynccontextmanager
    async def _beside(self, work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
        """Something that goes on in the loop of the store meanwhile."""
        task = asyncio.create_task(self._bridge.reach(work))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _next(self) -> Stored | None:
        """The first job there is, whoever's it is; none only if a look has just found none."""
        has_looked = not self._is_fresh()
        if has_looked:
            await self._look()
        self.retry_at = None
        for tenant, queue in self._places:
            if (stored := await self._claimed(tenant, queue)) is not None:
                return stored
        if has_looked:
            return None
        self._looked_at = None
        return await self._next()

    def _is_fresh(self) -> bool:
        """Whether we looked a moment ago: a store of many jobs takes its time to tell of them."""
        looked_at = self._looked_at
        return looked_at is not None and 0 <= self._engine.store.now() - looked_at < LOOK_US

    async def _look(self) -> None:
        """Let time do its part, and see where jobs are."""
        await self._beat()
        while (done := await self._engine.upkeep.turn()).moved or done.is_busy:
            pass
        counts = await self._engine.store.counts()
        self._places = [(one.tenant, one.queue) for one in counts if one.state == "available"]
        self._looked_at = self._engine.store.now()

    async def _claimed(self, tenant: str, queue: str) -> Stored | None:
        name = self._engine.identity.id
        claimed = await self._engine.claim(
            Want(
                command_id=name(),
                by=self._by,
                holder=self.worker,
                leases=(name(),),
                queues=(queue,),
                tenant=tenant,
                types=tuple(self._handlers),
            )
        )
        moments = [at for at in (self.retry_at, claimed.retry_at) if at is not None]
        self.retry_at = min(moments, default=None)
        return claimed.jobs[0] if claimed.jobs else None

    async def _beat(self) -> None:
        now = self._engine.store.now()
        row = WorkerRow(self.worker, now + HEARTBEAT_LEASE_US, who=self._who, state="running")
        await self._engine.store.beat([row], now=now)

    async def _leave(self) -> None:
        """It holds nothing any more, and nobody needs to wait until its time is over."""
        death = Death(self.worker, supervisor=self.worker, cause="natural", exit_code=0)
        await self._engine.store.bury([death], now=self._engine.store.now())

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat()
