"""Runs claimed jobs: from the payload to how the handler ended.

It all happens in the loop of whoever calls; the store is reached by others, across the bridge, so a
handler that blocks holds up nobody's commits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from detent.engine.keyless import is_keyless
from detent.engine.secrets import Owner
from detent.errors import DetentError
from detent.lifecycle.event import By
from detent.runtime.bridge import Bridge
from detent.runtime.context import Context
from detent.runtime.ending import Raised
from detent.runtime.executors.api import Ended, Executor, Run, Rung, Stopped
from detent.runtime.executors.means import Kind, chosen, kind_of
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.masking import Mask
from detent.runtime.middleware import Arounds
from detent.runtime.office import Office
from detent.runtime.signature import Signature
from detent.stores.api import Key, Stored, key_of

# What workers say of the jobs they run: failures as errors, ends at INFO, starts at DEBUG. Whether
# anybody asks for more than errors is looked at once per run: a line costs more than a short job.
JOBS_LOG = logging.getLogger("detent.jobs")
LOOK_S = 0.5
STRAY_S = 10.0


class Moment(StrEnum):
    """Where a worker can die between claiming a job and hearing that its end is stored."""

    AFTER_CLAIM = "after_claim"
    BEFORE_REPORT = "before_report"
    AFTER_COMMIT = "after_commit"


class Why(StrEnum):
    """Why a run is to stop."""

    CANCEL = "cancel"
    TIME_OUT = "time_out"
    LEASE_ENDED = "lease_ended"
    DRAIN = "drain"
    LAPSE = "lapse"
    NO_ROOM = "no_room"
    NO_KEY = "no_key"


class Step(StrEnum):
    """How far the stopping of a run has gone."""

    RUNNING = "running"
    ASKED = "asked"
    INTERRUPTED = "interrupted"
    KILLED = "killed"


class Flight:
    """One run that is under way: what it is, why it is to stop, and how far that has gone.

    `is_ours` is false once its lease has ended: then nothing that it does counts any more. `fault`
    is why it could not even begin. `is_logged` says that its end is logged even if it succeeds.
    """

    __slots__ = (
        "ctx",
        "executor",
        "fault",
        "is_logged",
        "is_ours",
        "key",
        "kind",
        "limit_at",
        "run",
        "since",
        "step",
        "step_at",
        "stored",
        "task",
        "why",
    )

    def __init__(self, stored: Stored, ctx: Context, kind: Kind) -> None:
        self.stored = stored
        self.ctx = ctx
        self.kind = kind
        self.key: Key = key_of(stored.job)
        self.limit_at: int | None = None
        """When its time is over, by the clock of its runner; known when its handler is called."""
        self.since = time.monotonic()
        self.run: Run | None = None
        self.executor: Executor | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_ours = True
        self.is_logged = False
        self.why: Why | None = None
        self.fault: DetentError | None = None
        self.step = Step.RUNNING
        self.step_at = 0.0

    @property
    def lease(self) -> str:
        """What it runs under."""
        return self.stored.job.lease or ""

    @property
    def type(self) -> str:
        """The type of its job."""
        return self.stored.body.type


class Runner:
    """Runs jobs whose handlers it knows, under the name of one worker."""

    def __init__(
        self,
        engine: Office,
        bridge: Bridge,
        handlers: Mapping[str, Signature],
        by: By,
        executors: Mapping[Kind, Executor],
    ) -> None:
        self.around: Arounds[Context] = Arounds()
        """What is done around every run."""
        self.clock: Callable[[], int] = engine.store.now
        """By what runs are timed, in microseconds; a clock that nobody sets, if there is one."""
        self.look_s = LOOK_S
        """How often whoever keeps the jobs is asked about all that run."""
        self.stray_s = STRAY_S
        """How often it is asked about those that do not run, though it says they do."""
        self.by = by
        self.engine = engine
        self.bridge = bridge
        self.handlers = handlers
        self.executors = executors
        self._kinds: dict[tuple[str, bool], Kind] = {}

    def flight(self, stored: Stored) -> Flight:
        """A claimed job, ready to be run."""
        ctx = Context(stored, self.engine, self.bridge, self.by, self.handlers)
        return Flight(stored, ctx, self._kind(stored))

    def kinds(self) -> dict[str, Kind]:
        """Where jobs of each type run as a rule."""
        return {name: self._usual(one) for name, one in self.handlers.items()}

    def start(self, flight: Flight, end: Callable[[Flight, Ended], None]) -> None:
        """Run it in the running loop, and tell once how it ended.

        What is wrong with it before its handler is called is an end too.
        """
        try:
            run = self._run(flight)
        except DetentError as error:
            if is_keyless(error):
                flight.why, flight.fault = Why.NO_KEY, error
            end(flight, Raised(error))
            return
        if JOBS_LOG.isEnabledFor(logging.INFO):
            flight.is_logged = True
            job = flight.stored.job
            JOBS_LOG.debug("job %s (%s) starts, attempt %d", job.id, flight.type, job.attempt)
        executor = self.executors[flight.kind]
        flight.run, flight.executor = run, executor
        if flight.stored.job.active_us is not None:
            run.begun = partial(self._begun, flight, flight.stored.job.active_us)
        if flight.step is not Step.RUNNING:
            # It was asked to stop before it had begun.
            executor.ask(run)
        if isinstance(executor, AsyncExecutor):
            # The handler's own task is all there is.
            executor.start(run, partial(end, flight))
        else:
            work = _awaited(flight, run, executor, end)
            flight.task = asyncio.get_running_loop().create_task(work)

    def _begun(self, flight: Flight, active_us: int) -> None:
        """Its time runs from here: that a process had to be started for it is not its fault."""
        flight.limit_at = self.clock() + active_us

    def _run(self, flight: Flight) -> Run:
        """With its secrets; from here on whatever it says is masked."""
        stored, ctx = flight.stored, flight.ctx
        owner = Owner(stored.job.tenant, stored.job.id, stored.body.type)
        opened = self.engine.secrets.opened(stored.body.payload, owner)
        if opened.values:
            ctx.heard.mask = Mask(opened.values)
        return Run(stored, ctx, self.handlers[stored.body.type], opened, self.around)

    def _kind(self, stored: Stored) -> Kind:
        """Where it runs. What is usual is the same for all jobs of a type."""
        if stored.job.losses:
            return self._chosen(stored)
        usual = (stored.body.type, stored.job.active_us is None)
        if usual not in self._kinds:
            self._kinds[usual] = self._chosen(stored)
        return self._kinds[usual]

    def _usual(self, signature: Signature) -> Kind:
        means = signature.means
        is_light = means.memory_bytes is None and means.executor in (None, Kind.ASYNC)
        is_async = inspect.iscoroutinefunction(signature.function)
        return Kind.ASYNC if is_async and is_light else Kind.PROCESS

    def _chosen(self, stored: Stored) -> Kind:
        signature = self.handlers[stored.body.type]
        wanted = kind_of(stored, signature.function, signature.means)
        return chosen(wanted, signature.function, self.executors)


async def _awaited(
    flight: Flight, run: Run, executor: Executor, end: Callable[[Flight, Ended], None]
) -> None:
    try:
        ended = await executor.run(run)
    except DetentError as error:
        # Nothing has begun, and it is no fault of the job: it goes back, like on a deploy.
        flight.why, flight.fault = Why.NO_ROOM, error
        ended = Stopped(Rung.KILLED)
    end(flight, ended)
