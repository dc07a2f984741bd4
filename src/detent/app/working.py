"""A worker inside a program of the user: it works while the program does other things.

Its handlers run in the loop of whoever enters it, and its beats come from the thread of the bridge.
A handler that keeps Python from switching threads for 15 seconds keeps that one silent too, and its
jobs are then given to others: what computes for long belongs into `detent worker`, or a process.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from msgspec.structs import replace

from detent.app.checking import need
from detent.app.options import merged, need_known
from detent.engine.doctor.starting import doubts
from detent.engine.engine import Engine
from detent.engine.processes import here
from detent.errors import InstanceLost
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.beating import Beating, Hearing
from detent.runtime.executors.api import Executor
from detent.runtime.executors.capture import Capture
from detent.runtime.executors.means import Kind
from detent.runtime.executors.processes import Pool, ProcessExecutor
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.executors.threads import ThreadExecutor
from detent.runtime.office import Office
from detent.runtime.otel_spans import traced
from detent.runtime.running import Runner
from detent.runtime.supervisor.signals import Act, Taps
from detent.runtime.worker.settings import Settings, Status
from detent.runtime.worker.worker import Worker
from detent.stores.api import Fair, Store, Who, WorkerRow

if TYPE_CHECKING:
    from detent.app.detent import Detent

_log = logging.getLogger(__name__)
GRACE_S = 30.0
"""How long jobs may take to finish when the worker is called off."""


class WorkingOptions(TypedDict, total=False):
    """What a worker works on, and how much of it at once.

    `slots` is how many jobs run at once, `sync_slots` how many of them in threads and processes.
    Queues are served from left to right, or in turn if it is to be `fair`; if none are named, all
    that jobs of the app are declared on, in turn. `grace` is how long they
    may take to finish when it is called off. `processes` names the app (`"shop.jobs:app"`) for the
    jobs that need a process of their own; without it they run in threads. With `upkeep`, which is
    usual, it also does what time asks for: retries, schedules, deadlines.
    """

    queues: tuple[str, ...]
    slots: int
    sync_slots: int
    types: tuple[str, ...]
    tenants: tuple[str, ...]
    fair: Literal["queues", "keys"]
    grace: float
    processes: str
    upkeep: bool


class Working:
    """A worker in the running loop, while this is entered; leaving it, jobs may finish."""

    def __init__(self, app: Detent, options: WorkingOptions) -> None:
        need_known(options, WorkingOptions)
        told: dict[str, Any] = merged({}, options)
        self._grace_s: float = told.pop("grace", GRACE_S)
        self._reference: str | None = told.pop("processes", None)
        self._has_upkeep: bool = told.pop("upkeep", True)
        self._settings = able(app, _settings(told).serving(app.queues))
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []
        self._late: list[asyncio.Task[None]] = []
        """Ends of instances that the store could not be told of yet."""
        self._worker: Worker | None = None

    async def __aenter__(self) -> Self:
        app = self._app
        self._executors = executors_of(self._settings, self._reference)
        self._capture = Capture().__enter__()
        self._tasks = [asyncio.create_task(self._work())]
        if self._has_upkeep:
            self._tasks.append(asyncio.create_task(app.aupkeep()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *told: object) -> None:
        try:
            await self.stop(self._grace_s)
        finally:
            for task in (*self._tasks, *self._late):
                task.cancel()
            ended = await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.gather(*self._late, return_exceptions=True)
            for executor in self._executors.values():
                await executor.close()
            self._capture.__exit__(kind, *told)
        for fault in ended:
            # What ended it before it was left is told now, unless something else is.
            if isinstance(fault, Exception) and kind is None:
                raise fault

    @property
    def status(self) -> Status | None:
        """What it does right now; nothing before it has begun."""
        return None if self._worker is None else self._worker.status()

    async def stop(self, grace_s: float) -> None:
        """Claim nothing more, and let jobs finish within the grace; the others go back."""
        if self._worker is not None and not self._tasks[0].done():
            await self._worker.stop(grace_s)

    async def hasten(self, grace_s: float) -> None:
        """Shorten the grace of a stop that is under way."""
        if self._worker is not None:
            await self._worker.hasten(grace_s)

    async def _work(self) -> None:
        """One instance after the other: one that is declared lost is followed by a new one."""
        reach = self._app.bridge.reach
        await reach(doubts(await reach(self._app.engine())))
        while True:
            try:
                return await self._live()
            except InstanceLost as error:
                _log.warning("a new worker takes over: %s", error)

    async def _live(self) -> None:
        """One instance, from its registration to its end."""
        app, reach = self._app, self._app.bridge.reach
        engine = await reach(app.engine())
        instance = f"embedded-{engine.identity.id()}"
        runner = runner_of(app, engine, instance, self._executors)
        pulse = Pulse(engine.store, self._row(engine, instance))
        await reach(pulse.begin())
        try:
            await self._run(Worker(runner, self._settings), pulse)
        finally:
            if not await reach(pulse.end()):
                # Told before its lease is over, its jobs come back at no cost.
                self._late.append(asyncio.create_task(reach(pulse.see_told())))

    async def _run(self, worker: Worker, pulse: Pulse) -> None:
        self._worker = worker
        over = asyncio.create_task(self._app.bridge.reach(pulse.over()))
        running = asyncio.create_task(worker.run())
        try:
            await asyncio.wait([over, running], return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                await worker.lapse()
        finally:
            over.cancel()
            await asyncio.wait([over])
        await running
        if pulse.is_over:
            raise InstanceLost("This worker could not renew its lease", worker=pulse.instance)

    def _row(self, engine: Engine, instance: str) -> WorkerRow:
        settings, process = self._settings, here()
        who = Who(
            supervisor=instance,
            process=process,
            keeper=process,
            started_at=engine.store.now(),
            embedded=True,
            slots=settings.slots,
            queues=settings.served,
            types=tuple(self._app.handlers) if settings.types is None else settings.types,
            tenants=settings.tenants,
        )
        return WorkerRow(instance, 0, who=who, state="running")


def able(app: Detent, settings: Settings) -> Settings:
    """The same without the types that nobody can open here: those with secrets, without a key.

    They are not even claimed, since not every job can go back. What a function declares secret may
    have none, so that is seen when it comes.
    """
    types = tuple(app.handlers) if settings.types is None else settings.types
    named = [one for one in types if one in app.handlers and app.handlers[one].hidden.paths]
    if not named or app.connection.secrets.can_lock:
        return settings
    why = "they have secret arguments, and this process has no key"
    fix = "set DETENT_SECRET_KEYS as it is where they are enqueued, and start it again"
    _log.warning("jobs of %s are left to other workers: %s; %s", ", ".join(named), why, fix)
    return replace(settings, types=tuple(one for one in types if one not in named))


def executors_of(
    settings: Settings, reference: str | None, home: str | None = None
) -> dict[Kind, Executor]:
    """What runs the handlers; those in processes need to know where the program is."""
    made: dict[Kind, Executor] = {
        Kind.ASYNC: AsyncExecutor(),
        Kind.THREAD: ThreadExecutor(settings.slots),
    }
    if reference is not None:
        made[Kind.PROCESS] = ProcessExecutor(reference, Pool(most=settings.slots), home)
    return made


def runner_of(
    app: Detent, engine: Office, instance: str, executors: dict[Kind, Executor]
) -> Runner:
    """What runs the jobs of the app, in the name of that instance."""
    by = By(Actor.WORKER, instance)
    runner = Runner(engine, app.bridge, app.handlers, by, executors)
    runner.around = traced(app.runs)
    if not app.connection.has_clock:
        runner.clock = _monotonic
    return runner


def _monotonic() -> int:
    """A clock that nobody sets: what a run may take has nothing to do with what time it is."""
    return time.monotonic_ns() // 1_000


class Pulse:
    """Keeps one instance alive from the loop of the store, so that no handler can hold it up."""

    def __init__(self, store: Store, row: WorkerRow) -> None:
        self.instance = row.id
        self._row = row
        self._over = asyncio.Event()
        self._beating = Beating(store, Hearing(self._end, self._end))
        self._task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the instance is lost, or could not be kept from it."""
        return self._over.is_set()

    async def begin(self) -> None:
        """Return when the store knows it."""
        self._beating.add(self._row)
        self._task = asyncio.create_task(self._beating.run())
        await self._beating.registered(self.instance)

    async def over(self) -> None:
        """Return when it must stop."""
        await self._over.wait()

    async def end(self) -> bool:
        """It is gone: whatever it still holds is free at once; false if nobody could hear that."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._beating.gone(self.instance, "natural", 0)
        return self._beating.is_told

    async def see_told(self) -> None:
        """Tell of that again and again, until the store has heard it."""
        self._task = asyncio.create_task(self._beating.run())
        try:
            await self._beating.buried()
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _end(self, _: Sequence[str]) -> None:
        self._over.set()


def _settings(told: dict[str, Any]) -> Settings:
    for option in ("queues", "tenants", "types"):
        if option in told:
            told[option] = tuple(told[option])
    if "fair" in told:
        need("fair", told["fair"], told["fair"] in list(Fair), " or ".join(Fair))
        told["fair"] = Fair(told["fair"])
    # The loop is the program's own: if it is held up, that need not be the fault of a job.
    return Settings(**told, stall_s=None)


async def work(app: Detent, options: WorkingOptions) -> None:
    """Until called off; then jobs may finish within the grace."""
    async with Working(app, options):
        await asyncio.get_running_loop().create_future()


async def work_until_told(app: Detent, options: WorkingOptions) -> None:
    """The same until the process is asked to end; asked twice, it does not wait any longer."""
    loop, asked, taps = asyncio.get_running_loop(), asyncio.Event(), Taps()
    async with Working(app, options) as working:

        def ask(number: int) -> None:
            if taps.tap(number, loop.time()) is Act.FORCE:
                loop.create_task(working.hasten(0.0))
            asked.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask, number)
        await asked.wait()
