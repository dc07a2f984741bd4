"""Heartbeats: one write for all instances of a process, and the truth about what it has proven.

What counts is the time before a call was sent, by a clock that nobody sets and that goes on while
the process is stopped: until a lease's length after that, and no longer, the store will let nobody
else have the jobs. When that time comes near and no later call was answered, the instances lapse:
whoever runs handlers under them must stop these before somebody else starts the same job.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from detent.complaining import Complaint
from detent.errors import DetentError
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from detent.stores.api import Death, WorkerRow

_log = logging.getLogger(__name__)
_US = 1_000_000
_FAULTS = (DetentError, OSError, TimeoutError)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often it beats, what a beat is good for, and how early before its end it lapses."""

    every_s: float = 5.0
    lease_s: float = HEARTBEAT_LEASE_US / _US
    margin_s: float = 4.0
    retry_s: float = 1.0
    timeout_s: float = 4.0


class Hearing(msgspec.Struct, frozen=True):
    """Who is told, each with the ids of the instances that it is about.

    `lapsed`: they could not be renewed, and must stop their handlers and end now, even if they are
    renewed after all. `lost`: the store has given them up; each must end and be replaced under
    another id. `proven`: they are renewed until then, by our clock.
    """

    lapsed: Callable[[Sequence[str]], None]
    lost: Callable[[Sequence[str]], None]
    proven: Callable[[Sequence[str], float], None] = lambda _, __: None


class _Store(Protocol):
    """What is needed of a store."""

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]: ...
    async def bury(self, deaths: Sequence[Death], *, now: int) -> Sequence[bool]: ...
    def now(self) -> int: ...


class _Kept:
    """An instance that is renewed, and until when that is proven, by our own clock."""

    __slots__ = ("has_lapsed", "proven", "proven_until", "row")

    def __init__(self, row: WorkerRow) -> None:
        self.row = row
        self.proven_until: float | None = None
        self.proven = asyncio.Event()
        self.has_lapsed = False


def boot_clock() -> float:
    """Seconds since the boot, also those in which the host was suspended, where that is told."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Beating:
    """Keeps instances alive in a store from the loop it runs in."""

    def __init__(
        self,
        store: _Store,
        hearing: Hearing,
        pace: Pace | None = None,
        *,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._store = store
        self._hearing = hearing
        self._pace = pace or Pace()
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._deaths: dict[str, Death] = {}
        self._wake = asyncio.Event()
        self._told = asyncio.Event()
        self._told.set()

    # --- who is kept alive ----------------------------------------------------------------------

    def add(self, row: WorkerRow) -> None:
        """Register an instance with a beat that is sent at once, and renew it from then on.

        Until `registered` it may not claim. `alive_until` of the row is ours to say.
        """
        self._kept[row.id] = _Kept(row)
        self._wake.set()

    def tell(self, instance: str, state: str) -> None:
        """Its state has changed, which a beat says at once."""
        kept = self._kept.get(instance)
        if kept is not None and kept.row.state != state:
            kept.row = replace(kept.row, state=state)
            self._wake.set()

    async def registered(self, instance: str) -> None:
        """Returns when the store knows the instance; never, if it is gone before that."""
        await self._kept[instance].proven.wait()

    def proven_s(self, instance: str) -> float:
        """For how long from now the instance is trusted for certain; 0 when that is over."""
        kept = self._kept.get(instance)
        until = None if kept is None else kept.proven_until
        return 0.0 if until is None else max(until - self._clock(), 0.0)

    async def gone(
        self,
        instance: str,
        cause: str = "lost",
        exit_code: int | None = None,
        *,
        crowded: bool = False,
    ) -> bool:
        """Its process is dead: declare it lost now, or later if the store cannot hear it."""
        kept = self._kept.pop(instance, None)
        if kept is None or kept.row.who is None:
            return False
        told = Death(instance, kept.row.who.supervisor, cause=cause, exit_code=exit_code)
        self._deaths[instance] = replace(told, crowded=crowded, lapsed=kept.has_lapsed)
        self._told.clear()
        try:
            await self._bury()
        except _FAULTS as error:
            _log.warning("the end of worker %s could not be told yet: %s", instance, _why(error))
        return instance not in self._deaths

    async def buried(self) -> None:
        """Return when the store has heard of every end; beats tell of those it has not."""
        await self._told.wait()

    @property
    def is_told(self) -> bool:
        """Whether it has."""
        return self._told.is_set()

    @property
    def untold(self) -> Sequence[str]:
        """Who had lapsed, and of whose end the store has not heard: others will charge its jobs."""
        return [death.id for death in tuple(self._deaths.values()) if death.lapsed]

    # --- the two loops --------------------------------------------------------------------------

    async def run(self) -> None:
        """Beat and watch until called off."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._beat_on())
            both.create_task(self._watch())

    async def _beat_on(self) -> None:
        complaint = Complaint(_log, "the beat of the workers here fails")
        while True:
            self._wake.clear()
            sent = self._clock()
            try:
                await self.beat()
                complaint.end()
                next_at = sent + self._pace.every_s
            except _FAULTS as error:
                complaint.say(_why(error))
                next_at = self._clock() + self._pace.retry_s
            await self._sleep_until(next_at)

    async def _sleep_until(self, moment: float) -> None:
        wait_s = moment - self._clock()
        if wait_s > 0:
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def beat(self) -> None:
        """Renew all of them now, in one call, and tell of ends that could not be told before."""
        # After a stop of ours this comes first: whatever is over by now must not be used again.
        self.lapse()
        if self._deaths:
            await self._bury()
        asked = dict(self._kept)
        if not asked:
            return
        sent, now = self._clock(), self._store.now()
        until = now + round(self._pace.lease_s * _US)
        rows = [replace(one.row, alive_until=until) for one in asked.values()]
        async with asyncio.timeout(self._pace.timeout_s):
            answers = await self._store.beat(rows, now=now)
        told = dict(zip(asked, answers, strict=True))
        self._take(asked, told, sent + self._pace.lease_s)

    def _take(self, asked: dict[str, _Kept], told: dict[str, bool], proven: float) -> None:
        lost = [one for one, is_alive in told.items() if not is_alive and one in self._kept]
        for one in lost:
            del self._kept[one]
        alive = [asked[one] for one, is_alive in told.items() if is_alive]
        for kept in alive:
            kept.proven_until = proven
            kept.row = replace(kept.row, renews=True)
            kept.proven.set()
        _tell(self._hearing.lost, lost)
        _tell(lambda ids: self._hearing.proven(ids, proven), [one.row.id for one in alive])
        self.lapse()

    async def _bury(self) -> None:
        deaths = list(self._deaths.values())
        async with asyncio.timeout(self._pace.timeout_s):
            await self._store.bury(deaths, now=self._store.now())
        for death in deaths:
            self._deaths.pop(death.id, None)
        if not self._deaths:
            self._told.set()

    # --- lapsing --------------------------------------------------------------------------------

    def lapse(self) -> None:
        """Tell of those whose proof is nearly over; of each once, for then it ends."""
        over = [kept for kept in self._kept.values() if self._is_over(kept)]
        for kept in over:
            kept.has_lapsed = True
        _tell(self._hearing.lapsed, [kept.row.id for kept in over])

    def _is_over(self, kept: _Kept) -> bool:
        if kept.has_lapsed or kept.proven_until is None:
            return False
        return self._clock() >= kept.proven_until - self._pace.margin_s

    async def _watch(self) -> None:
        """A call that hangs must not keep us from lapsing: this looks at nothing but the clock."""
        while True:
            self.lapse()
            ends = [
                kept.proven_until - self._pace.margin_s
                for kept in self._kept.values()
                if kept.proven_until is not None and not kept.has_lapsed
            ]
            wait_s = min(ends, default=self._clock() + self._pace.retry_s) - self._clock()
            await asyncio.sleep(min(max(wait_s, 0.0), self._pace.retry_s))


def _why(error: BaseException) -> str:
    return str(error) or "the store does not answer"


def _tell(listener: Callable[[Sequence[str]], None], ids: Sequence[str]) -> None:
    if not ids:
        return
    try:
        listener(ids)
    except Exception:
        # Whoever cannot bear the news must not keep the others from being renewed.
        _log.exception("a listener to heartbeats failed")
