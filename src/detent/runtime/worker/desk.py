"""The worker's side that talks to the store, in the loop of the bridge.

It claims what can start now, takes in how runs ended, and puts both into the same commits: whatever
has ended while one step of the store ran goes with the next claim. Two claims and two filings may
be under way, so that one batch of jobs runs while the store works on others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from detent.errors import DetentError, InstanceLost, StoreBusy, StoreError
from detent.lifecycle import job as j
from detent.runtime.executors.api import Rung, Stopped
from detent.runtime.executors.means import Kind
from detent.runtime.reporting import Filed, Report, Reporter, log_end
from detent.runtime.running import Flight, Runner, Step, Why
from detent.runtime.worker.beginning import Unbegun, may_return
from detent.runtime.worker.company import Company
from detent.runtime.worker.counting import STUCK_S, Counts
from detent.runtime.worker.wishing import Wish, Wishes
from detent.stores.api import Claimed, Key

_log = logging.getLogger(__name__)
T = TypeVar("T")
_Turns: TypeAlias = set[asyncio.Task[None]]
TURNS_MAX = 2
"""So many of either kind."""
POLL_S = 1.0
"""How long a worker with nothing to do trusts that it will be woken."""
_GLANCE_S = 0.1
"""How soon a deadline that was moved is noticed."""
_RETRY_S = 0.1
_RETRY_S_MAX = 2.0
_LATE_S = 0.5
_LATE_S_MAX = 10.0
"""How soon an end is told again that somebody's open transaction holds up: each try takes time."""


def _is_passing(error: DetentError) -> bool:
    return error.retryable


def _is_held_up(error: DetentError) -> bool:
    """Whether some of what was asked is committed, and the rest in somebody's hands."""
    return isinstance(error, StoreBusy) and "blocked" in error.fields


def _is_borne(error: DetentError) -> bool:
    return error.retryable and not _is_held_up(error)


class Desk:
    """Everything here happens in one loop; `put` hands a flight to the handlers' loop."""

    def __init__(self, runner: Runner, reporter: Reporter, wishes: Wishes, counts: Counts) -> None:
        self.flights: dict[Key, Flight] = {}
        """Every run that is under way, from the claim until its end is here."""
        self.is_claiming = True
        self.is_holding = False
        """Whether ends are collected, to be filed together."""
        self.is_lapsed = False
        """Whether the leases are lost: nothing is reported any more."""
        self.leases: set[str] = set()
        """Those that we may have: from before the claim until the end is told."""
        self.abandoned: list[str] = []
        """Jobs whose handlers go on although nobody listens to them."""
        self.counts = counts
        self._runner = runner
        self._reporter = reporter
        self._wishes = wishes
        self._store = runner.engine.store
        self._put: Callable[[Flight], None] = lambda _: None
        self.unbegun = Unbegun()
        self.company = Company(self.flights, self.abandoned)
        self._ended: list[Report] = []
        self._filings: _Turns = set()
        self._late: _Turns = set()
        """Reports that somebody's open transaction holds up, each by itself."""
        self._pauses: dict[str, float] = {}
        """How long each of them waits before it is told again, by its lease."""
        self._claims: _Turns = set()
        self._waiting: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._fault: BaseException | None = None
        self._is_done = False
        self._is_pausing = False
        self._is_stuck = False

    async def run(self, put: Callable[[Flight], None]) -> None:
        """Turn after turn, until it is closed or something is wrong that only a restart mends."""
        self._put = put
        try:
            while not self._is_done and self._fault is None:
                news = self._news
                self._begin_turns()
                await news.wait()
        finally:
            self.is_claiming = False
            await self._end_turns()
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """No more turns."""
        self._is_done = True
        self.tell()

    def land(self, reports: list[Report]) -> None:
        """These runs have ended: their slots are free."""
        for report in reports:
            flight = report.flight
            if self.flights.get(flight.key) is flight:
                del self.flights[flight.key]
                self._vacate(flight, is_abandoned=_is_abandoned(report))
                self.company.goes(flight)
                self._ended.append(report)
                change = report.change
                if change and (flight.is_logged or change.beside.failure is not None):
                    log_end(flight, change)
                if flight.fault is not None:
                    self._mind(flight, flight.fault)
        if self._wishes.shut:
            begun = [one.flight for one in reports if one.flight.run is not None]
            if self._wishes.shut.opened(one.stored.body.type for one in begun):
                self._wishes.wet()
        self.tell()

    def _vacate(self, flight: Flight, *, is_abandoned: bool) -> None:
        self.counts.free(flight.kind, is_abandoned=is_abandoned)
        if is_abandoned:
            self.abandoned.append(flight.key[1])

    def _mind(self, flight: Flight, fault: DetentError) -> None:
        """A job could not even begin. There is a pause, and no end of trying but a restart."""
        if flight.why is Why.NO_KEY:
            self._shut(flight.stored.body.type, fault)
            return
        _log.warning("jobs are given back, because none can begin: %s", fault)
        if not self._is_pausing:
            self._is_pausing = True
            asyncio.get_running_loop().call_later(POLL_S, self._unpause)

    def _shut(self, type_: str, fault: DetentError) -> None:
        """One could not be opened for lack of a key: its kind is left to others for a while."""
        if (pause := self._wishes.shut.met(type_)) is not None:
            _log.warning("jobs of %s are left to others for %g s: %s", type_, pause, fault)
            asyncio.get_running_loop().call_later(pause, self._wet)

    def _unpause(self) -> None:
        self._is_pausing = False
        self._wet()

    def claim(self) -> None:
        """Go on claiming."""
        self.is_claiming = True
        self._wet()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, and all that ended is filed."""
        return not (self.flights or self._ended or self._filings or self._late or self._claims)

    async def until(self, is_so: Callable[[], bool], deadline: Callable[[], float]) -> bool:
        """Wait for something to become so; the deadline, by the loop's time, may move."""
        loop = asyncio.get_running_loop()
        while not is_so():
            left = deadline() - loop.time()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, _GLANCE_S))
        return True

    def mind_the_loop(self) -> None:
        """While a handler holds that loop up nothing can begin there, so nothing is kept for it."""
        is_stuck = self.counts.is_stuck
        if is_stuck and (back := self.unbegun.take_back()):
            _log.warning("%d jobs are given back: a handler blocks the loop of all", len(back))
            self.land([self._returned(flight) for flight in back])
        elif self._is_stuck and not is_stuck:
            self._wet()
        self._is_stuck = is_stuck
        is_given_up = self.counts.is_stalled or any(map(_is_hopeless, self.flights.values()))
        self.counts.is_hopeless = is_stuck and is_given_up

    def _returned(self, flight: Flight) -> Report:
        return Report(flight, Stopped(Rung.INTERRUPTED), self._reporter.parting(flight))

    # --- turns ----------------------------------------------------------------------------------

    def tell(self) -> None:
        """Something has changed for somebody who waits."""
        self._news.set()
        self._news = asyncio.Event()

    def _wet(self) -> None:
        self._wishes.wet()
        self.tell()

    def _begin_turns(self) -> None:
        """Both at once: they may meet in one step of the store, and neither waits for the other."""
        if len(self._filings) < TURNS_MAX and (reports := self._taken()):
            self._begin(self._tell_of(reports), self._filings)
        while len(self._claims) < TURNS_MAX and (wish := self._wish()) is not None:
            self._begin(self._claim(wish), self._claims)

    def _begin(self, work: Coroutine[Any, Any, None], among: _Turns) -> None:
        turn = asyncio.ensure_future(work)
        among.add(turn)
        turn.add_done_callback(partial(self._turned, among))

    def _taken(self) -> list[Report]:
        if self.is_holding:
            return []
        taken, self._ended = self._ended, []
        return taken

    def _wish(self) -> Wish | None:
        if not self.is_claiming or self._is_pausing or self._is_stuck:
            return None
        wish = self._wishes.next(self.counts.slots_free, self.counts.sync_free)
        if wish is not None:
            self.counts.reserve(wish.size, is_sync=wish.is_sync)
        return wish

    def _turned(self, among: _Turns, turn: asyncio.Task[None]) -> None:
        among.discard(turn)
        if not turn.cancelled() and (error := turn.exception()) is not None:
            self._fault = self._fault or error
        self.counts.step_at = self._store.now()
        self.tell()

    async def _end_turns(self) -> None:
        tasks = [*self._filings, *self._late, *self._claims]
        tasks += [] if self._waiting is None else [self._waiting]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- claiming -------------------------------------------------------------------------------

    async def _claim(self, wish: Wish) -> None:
        claimed = Claimed()
        self.leases.update(wish.want.leases)
        try:
            # The same wish again, if the answer to the first was lost: it has the same leases.
            claimed = await self._patiently(lambda: self._runner.engine.claim(wish.want))
        finally:
            flights = [self._runner.flight(stored) for stored in claimed.jobs]
            self.leases.difference_update(wish.want.leases)
            self.leases.update(one.lease for one in flights)
            sync = sum(one.kind is not Kind.ASYNC for one in flights)
            self.counts.taken(wish.size, len(flights), sync, is_sync=wish.is_sync)
        if claimed.lost:
            raise InstanceLost(
                "This worker was declared lost, and its jobs are given to others: it must start"
                " anew under another name",
                worker=wish.want.holder,
            )
        self._wishes.brought(wish, len(flights))
        if not flights:
            self._wait_for_more(wish, claimed)
        for flight in flights:
            self._accept(flight)

    def _accept(self, flight: Flight) -> None:
        """Let it run; what came after the last call is given back, if it may be."""
        if self.is_lapsed:
            return
        self.flights[flight.key] = flight
        self.company.comes(flight)
        if self.is_claiming or not may_return(flight.stored):
            self.unbegun.add(flight)
            self._put(flight)
        else:
            self.land([self._returned(flight)])

    def _wait_for_more(self, wish: Wish, claimed: Claimed) -> None:
        self._wishes.dry(wish)
        if claimed.retry_at is not None:
            delay_s = (claimed.retry_at - self._store.now()) / 1_000_000
            asyncio.get_running_loop().call_later(min(max(delay_s, 0.0), POLL_S), self._wet)
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._wait(claimed.seen))

    async def _wait(self, seen: int) -> None:
        try:
            await self._patiently(lambda: self._store.wait(POLL_S, seen))
        finally:
            self._waiting = None
            self._wet()

    async def _patiently(
        self, work: Callable[[], Awaitable[T]], is_borne: Callable[[StoreError], bool] = _is_passing
    ) -> T:
        """A store that is away for a while comes back."""
        pause = _RETRY_S
        while True:
            try:
                return await work()
            except StoreError as error:
                if not is_borne(error) or self.is_lapsed:
                    raise
                _log.warning("the store will be asked again: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RETRY_S_MAX)

    # --- reporting ------------------------------------------------------------------------------

    async def _tell_of(self, reports: Sequence[Report]) -> None:
        late = await self._file(reports)
        for one in late:
            self._begin(self._tell_later(one), self._late)
        told = {one.flight.lease for one in reports} - {one.flight.lease for one in late}
        if not self.is_lapsed:
            self.leases -= told
        for lease in told & self._pauses.keys():
            del self._pauses[lease]

    async def _tell_later(self, report: Report) -> None:
        lease = report.flight.lease
        pause = self._pauses[lease] = min(2 * self._pauses.get(lease, _LATE_S), _LATE_S_MAX)
        await asyncio.sleep(pause)
        await self._tell_of([report])

    async def _file(self, reports: Sequence[Report]) -> list[Report]:
        """Those that have to wait for somebody's open transaction, which nobody else waits for."""
        if self.is_lapsed:
            return []
        try:
            filed = await self._patiently(lambda: self._reporter.file(reports), _is_borne)
        except DetentError as error:
            if _is_held_up(error):
                self._count_over(reports)
                return await self._left([one for one in reports if one.change is not None])
            if len(reports) > 1:
                return await self._file_each(reports)
            filed = await self._refile(reports[0], error)
        self._count_over(reports)
        self.counts.filed(filed.done, filed.failed, filed.refused)
        return []

    async def _file_each(self, reports: Sequence[Report]) -> list[Report]:
        """One of them cannot be stored; the others are no part of that, and may be by now."""
        late: list[Report] = []
        for one in await self._left(reports):
            late += await self._file([one])
        return late

    async def _left(self, reports: Sequence[Report]) -> list[Report]:
        """Those that are not filed yet; the others have ended."""
        keys = [one.flight.key for one in reports]
        found = await self._patiently(lambda: self._store.get(keys))
        left: list[Report] = []
        for one, stored in zip(reports, found, strict=True):
            if one.change is None or stored is None or stored.job.lease == one.flight.lease:
                left.append(one)
            elif stored.job.state is j.JobState.COMPLETED:
                self.counts.done += 1
            else:
                self.counts.failed += 1
        return left

    async def _refile(self, report: Report, error: DetentError) -> Filed:
        """What it returned or said cannot be stored: then that is how it ended."""
        failed = self._reporter.unstorable(report.flight, error)
        if failed.change is not None:
            log_end(report.flight, failed.change)
        try:
            if report.change is not None:
                with suppress(DetentError):  # They may be what cannot be stored.
                    await self._reporter.keep(report.flight, report.change.beside.lines)
            return await self._patiently(lambda: self._reporter.file([failed]))
        except DetentError:
            _log.exception("the end of job %s cannot be stored", report.flight.key[1])
            return Filed(refused=1)

    def _count_over(self, reports: Sequence[Report]) -> None:
        """Those whose end counts no more: their lines are kept, and that is all."""
        self.counts.lost += sum(one.change is None for one in reports)


def _is_hopeless(flight: Flight) -> bool:
    """Whether all rungs are climbed and it is still there."""
    return flight.step is Step.KILLED and time.monotonic() - flight.step_at > STUCK_S


def _is_abandoned(report: Report) -> bool:
    return isinstance(report.ended, Stopped) and report.ended.rung is Rung.ABANDONED
