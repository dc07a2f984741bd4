"""An app on a store in memory, with a virtual clock, whose work is done when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from detent.app.asking import Call, need_calls
from detent.app.checking import need
from detent.app.connection import Connection
from detent.app.detent import Detent
from detent.app.handle import Handle
from detent.app.options import CallOptions
from detent.engine.engine import Engine
from detent.engine.secrets import Owner, redacted
from detent.lifecycle.job.table import TIMED
from detent.runtime.bridge import need_no_loop
from detent.runtime.draining import Drain
from detent.runtime.executors.caller import CallersThread
from detent.runtime.executors.threads import Hand
from detent.runtime.otel_spans import traced
from detent.runtime.running import Moment
from detent.stores.api import Stored, WorkerRow
from detent.stores.select import Filter, Page
from detent.testing.clock import VirtualClock

R = TypeVar("R")
RUNS_MAX = 10_000
"""After so many runs a drain that moves the clock gives up: something comes back for ever."""
_ALL = Page(100_000)


class Crashed(Exception):
    """The worker of this drain died where it was told to; the next one finds what it left."""


class Rig:
    """Puts an app on a store in memory while it is entered, and does its work on demand."""

    def __init__(self, app: Detent | None = None) -> None:
        self.app = app or Detent("memory:")
        self.clock = VirtualClock()
        self._real = self.app.connection
        self._dead: list[str] = []

    def __enter__(self) -> Self:
        self.app.connection = Connection("memory:", self.clock)
        return self

    def __exit__(self, *_: object) -> None:
        self.app.connection.close(in_loop=True)
        self.app.connection = self._real

    def drain(self, *, advance: bool = False, crash: Moment | str | None = None) -> list[str]:
        """Run every job that is due; the ids of those that were run, in order.

        With `advance` the clock is moved to the next moment at which something is due, until
        nothing is left that time could bring to jobs that there are; schedules never end, so for
        their slots move the clock yourself. With `crash` the worker dies at that moment of its
        first job, and `Crashed` is raised. Handlers run in the thread of the test.
        """
        need_no_loop()
        here = CallersThread()
        return here.run(self._drained(advance, crash, here))

    async def adrain(
        self, *, advance: bool = False, crash: Moment | str | None = None
    ) -> list[str]:
        """The same in the running loop; asynchronous handlers run in it, plain ones in a thread."""
        return await self._drained(advance, crash, None)

    async def _drained(
        self, advance: bool, crash: Moment | str | None, hand: Hand | None
    ) -> list[str]:
        engine = await self.app.bridge.reach(self.app.engine())
        await self.app.schedules.aput()
        await self.app.bridge.reach(self._bury(engine))
        ran: list[str] = []
        while len(ran) < RUNS_MAX:
            app, dying = self.app, _dying(crash)
            drain = Drain(engine, app.bridge, app.handlers, dying, around=traced(app.runs))
            drain.hand = hand
            try:
                ran += await drain.run()
            except Crashed:
                self._dead.append(drain.worker)
                raise
            next_at = await self.app.bridge.reach(self._next_at(engine, drain.retry_at))
            if not advance or next_at is None:
                return ran
            self.clock.advance_to(next_at)
        raise AssertionError(f"{RUNS_MAX} jobs were run and there is no end: does one snooze?")

    def run(self, call: Call[R]) -> R:
        """Enqueue one job, run everything that is due, and answer its result or raise its error."""
        [handle] = self.app.enqueue_calls(need_calls([call]), None)
        self.drain()
        return handle.result(timeout=0)

    async def arun(self, call: Call[R]) -> R:
        """The same in the running loop."""
        [handle] = await self.app.aenqueue_calls(need_calls([call]), None)
        await self.adrain()
        return await handle.aresult(timeout=0)

    def enqueued(self) -> list[Stored]:
        """Every job there is, oldest first, with its record and what it is about."""
        return self.app.bridge.wait(self._all())

    def assert_enqueued(self, call: Call[Any], *, count: int | None = None) -> list[Handle[Any]]:
        """Fail unless there is such a job: of that type, with those arguments.

        Options of the call that say where it waits or whose it is (`using(queue=...)`) must be
        those of the job. `count` asks for exactly that many, 0 for none.
        """
        need_calls([call])
        jobs = self.enqueued()
        found = [one for one in jobs if _fits(self._opened(one), call)]
        wanted = f"{count} times" if count is not None else "at least once"
        if len(found) != count if count is not None else not found:
            there = (
                "\n".join(f"  {one.body.type} {redacted(one.body.payload)}" for one in jobs)
                or "  none"
            )
            raise AssertionError(
                f"Expected {call} {wanted}, found {len(found)}. Jobs there are:\n{there}"
            )
        return [self.app.handle(one.job.id, one.job.tenant) for one in found]

    def _opened(self, stored: Stored) -> Stored:
        """The same with its secrets, as its handler would get it."""
        return self.app.bridge.wait(self._open(stored))

    async def _open(self, stored: Stored) -> Stored:
        job, body = stored.job, stored.body
        owner = Owner(job.tenant, job.id, body.type)
        opened = (await self.app.engine()).secrets.opened(body.payload, owner)
        return replace(stored, body=replace(body, payload=opened.payload))

    async def _all(self) -> list[Stored]:
        engine = await self.app.engine()
        return list(reversed(await engine.store.find(Filter(), _ALL)))

    async def _bury(self, engine: Engine) -> None:
        """Declare dead workers lost, as their supervisor would."""
        now = engine.store.now()
        await engine.store.beat([WorkerRow(worker, now) for worker in self._dead], now=now)
        await engine.store.declare_lost(self._dead, now=now)
        self._dead.clear()

    async def _next_at(self, engine: Engine, retry_at: int | None) -> int | None:
        """When time alone will bring something to do."""
        moments = [] if retry_at is None else [retry_at]
        for state in TIMED:
            waiting = await engine.store.find(Filter(state=state), _ALL)
            moments += [one.wake_at for one in waiting if one.wake_at is not None]
        return min(moments, default=None)


def _dying(crash: Moment | str | None) -> Callable[[Moment], None]:
    need("crash", crash, crash is None or crash in list(Moment), " or ".join(Moment))
    where = None if crash is None else Moment(crash)

    def at(moment: Moment) -> None:
        if moment is where:
            raise Crashed(f"The worker died: {moment}")

    return at


def _fits(stored: Stored, call: Call[Any]) -> bool:
    job, body, options = stored.job, stored.body, call.options
    if (body.type, body.payload) != (call.signature.name, call.payload):
        return False
    said = (("queue", job.queue), ("priority", job.priority), ("tenant", job.tenant))
    is_there = all(have == _said(options, option, have) for option, have in said)
    # A key is declared as a pattern, and the job has what came of it.
    return is_there and call.key in (None, body.key)


def _said(options: CallOptions, option: str, otherwise: object) -> object:
    return options.get(option, otherwise)
