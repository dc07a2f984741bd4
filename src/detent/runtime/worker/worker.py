"""One worker: claims jobs under the name of one instance, and runs them until it is stopped.

Handlers run in the loop that calls `run`. Everything else happens in the loop of the bridge, so a
handler that blocks holds up neither commits nor the watch over the others. All methods but `run`
may be called in any loop, that of the bridge too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from detent.runtime.crossing import Crossing
from detent.runtime.reporting import Report, Reporter
from detent.runtime.running import Flight, Runner
from detent.runtime.watching import Watching
from detent.runtime.worker.counting import Counts
from detent.runtime.worker.desk import Desk
from detent.runtime.worker.floor import Floor
from detent.runtime.worker.leaving import STOP_S, Leaving
from detent.runtime.worker.settings import Running, Settings, Status
from detent.runtime.worker.stalling import PULSE_S, Stalling
from detent.runtime.worker.straying import Straying
from detent.runtime.worker.wishing import Wishes


class Worker:
    """The runner says who it is and what it can run.

    Somebody else keeps the row of that instance alive: a supervisor, or a beat beside it.
    """

    def __init__(self, runner: Runner, settings: Settings) -> None:
        self._runner = runner
        self._bridge = runner.bridge
        self._reporter = Reporter(runner.engine, runner.by)
        self._counts = Counts(settings)
        wishes = Wishes(settings, runner.by, runner.kinds(), runner.engine.identity)
        self._desk = Desk(runner, self._reporter, wishes, self._counts)
        self._floor: Floor | None = None
        self._watching = Watching(runner, self._desk.flights, self._call, settings.grace_s)
        self._straying = Straying(runner, self._desk.leases)
        self._leaving = Leaving(self._desk, self._watching, self._reporter)
        self._stalling = Stalling(self._desk, self._reporter, settings.stall_s)

    async def run(self) -> None:
        """Work, until it is stopped; `InstanceLost` if it was declared lost."""
        store_loop = await self._bridge.reach(_own_loop())
        landing: Crossing[Report] = Crossing(store_loop, self._desk.land)
        self._floor = Floor(self._runner, self._reporter, landing.put, self._desk.unbegun.begins)
        starting = Crossing(asyncio.get_running_loop(), self._floor.start)
        await self._bridge.reach(self._work(starting.put))

    async def stop(self, grace_s: float, last_s: float = STOP_S) -> list[str]:
        """Claim nothing more, let runs finish within the grace, and give the others back.

        These have `last_s` to end after they were interrupted. The answer names jobs whose handlers
        could not be stopped: the process should end.
        """
        return await self._bridge.reach(self._leaving.stop(grace_s, last_s))

    async def hasten(self, grace_s: float, last_s: float = STOP_S) -> None:
        """Shorten the grace of a stop that is under way."""
        await self._bridge.reach(_called(lambda: self._leaving.hasten(grace_s, last_s)))

    async def lapse(self) -> list[str]:
        """The leases are lost: stop all handlers now, and report nothing.

        The answer names jobs whose handlers could not be stopped: the process must end.
        """
        return await self._bridge.reach(self._leaving.lapse())

    async def suspend(self, within_s: float | None = None) -> None:
        """Return when no job is in flight and none is accepted; `NotQuiet` withdraws it."""
        await self._bridge.reach(self._leaving.suspend(within_s))

    async def resume(self) -> None:
        """Accept jobs again."""
        await self._bridge.reach(_called(self._leaving.resume))

    def on_company(self, tell: Callable[[bool], None]) -> None:
        """Tell that, before it begins, when jobs that run apart get company in here or lose it."""
        self._desk.company.tell = tell

    def cancel(self, job_id: str) -> None:
        """This job was called off: look at once. Any thread may say so."""
        self._watching.look_soon(job_id)

    def status(self) -> Status:
        """What it does right now, from any thread."""
        counts = self._counts
        return Status(
            state=self._leaving.state,
            running=tuple(map(_running, list(self._desk.flights.values()))),
            slots=counts.slots,
            free=counts.slots_free,
            done=counts.done,
            failed=counts.failed,
            lost=counts.lost,
            abandoned=counts.abandoned,
            wants_recycling=counts.wants_recycling,
            step_at=counts.step_at,
            loop_at=counts.loop_at,
        )

    async def _work(self, put: Callable[[Flight], None]) -> None:
        beside = [
            asyncio.ensure_future(self._watching.run()),
            asyncio.ensure_future(self._pulse()),
            asyncio.ensure_future(self._straying.run()),
        ]
        try:
            await self._desk.run(put)
        except BaseException:
            # It does not go on, so nobody would look after what it runs.
            await self._leaving.lapse()
            raise
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    async def _pulse(self) -> None:
        while self._floor is not None:
            self._floor.ping(self._turned)
            await asyncio.sleep(PULSE_S)
            self._stalling.look()
            self._desk.mind_the_loop()

    def _turned(self) -> None:
        self._counts.loop_at = self._runner.engine.store.now()
        self._counts.turned = time.monotonic()

    def _call(self, what: Callable[[Flight], None], flight: Flight) -> None:
        if self._floor is not None:
            self._floor.call(what, flight)


async def _own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def _called(what: Callable[[], None]) -> None:
    what()


def _running(flight: Flight) -> Running:
    job = flight.stored.job
    return Running(
        job.tenant,
        job.id,
        flight.stored.body.type,
        job.attempt,
        job.started_at or 0,
        flight.kind,
        flight.step,
        flight.why,
    )
