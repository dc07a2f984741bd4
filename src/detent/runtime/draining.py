"""Runs everything that is due, one job after the other, in this process, and then stops.

For scripts, examples and tests. It claims under the name of a worker of its own, which beats while
it works, so whatever else works on the same store sees it as one of many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from detent.engine.engine import Engine
from detent.engine.processes import here
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from detent.runtime.bridge import Bridge
from detent.runtime.context import Context
from detent.runtime.middleware import Arounds
from detent.runtime.running import Moment, Runner
from detent.runtime.signature import Signature
from detent.stores.api import Death, Stored, Want, Who, WorkerRow

__all__ = ["Drain"]

BEAT_S = 5.0


class Drain:
    """One worker that works until nothing is due."""

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
        self.worker = f"drain-{engine.identity.id()}"
        self._by = By(Actor.WORKER, self.worker)
        process, now = here(), engine.store.now()
        self._who = Who(
            supervisor=self.worker,
            process=process,
            keeper=process,
            started_at=now,
            embedded=True,
            types=tuple(handlers),
        )
        self._runner = Runner(engine, bridge, handlers, self._by, at)
        self._runner.around = around or Arounds()
        self.retry_at: int | None = None
        """When time alone lets a job through that a rate keeps back, if one does."""

    async def run(self) -> list[str]:
        """The ids of the jobs that were run, in order; one that was run twice is there twice."""
        ran: list[str] = []
        beating = asyncio.create_task(self._keep_beating())
        try:
            while (stored := await self._bridge.reach(self._next())) is not None:
                await self._runner.run(stored)
                ran.append(stored.job.id)
        finally:
            beating.cancel()
            await asyncio.wait([beating])
        await self._bridge.reach(self._leave())
        return ran

    async def _next(self) -> Stored | None:
        """Let time do its part, then take the first job there is, whoever's it is."""
        await self._beat()
        while (done := await self._engine.upkeep.turn()).moved or done.is_busy:
            pass
        self.retry_at = None
        for counted in await self._engine.store.counts():
            if counted.state == "available":
                stored = await self._claimed(counted.tenant, counted.queue)
                if stored is not None:
                    return stored
        return None

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
            await self._bridge.reach(self._beat())
