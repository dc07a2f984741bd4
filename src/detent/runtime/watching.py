"""Looks after the runs of one worker: whether one should stop, and how far that has got.

One look at the store serves all of them. The ladder is climbed rung by rung: the run is asked to
stop, after a grace it is interrupted, after another it is killed or given up. Each rung is recorded
in the job's history as long as the lease is ours, and in its log when it is not.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from detent.engine.commands import Change
from detent.errors import StoreError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.profile import CANCEL_GRACE_US
from detent.runtime.executors.means import Kind
from detent.runtime.office import Office
from detent.runtime.reporting import failing, log_end, timing_out
from detent.runtime.running import Flight, Runner, Step, Why
from detent.stores.api import Glancing, Key, Line, Note, Stored

_log = logging.getLogger(__name__)
_TURN_S = 0.1
"""How fine the ladder and time limits are."""
_BEHIND_US = 5_000_000
"""So much later it may be by the clock of the store."""
_YOUNG_S = 0.1
"""A run that has just begun is not asked about: most have ended before."""
_OVER_S = 2.0
"""How long a run may take to end when what it does counts no more, or its worker has to go."""
_KEYS_MAX = 500
_LINES_MAX = 500


class Watching:
    """In the loop of the store; executors are reached through `floor`, in the handlers' loop."""

    def __init__(
        self,
        runner: Runner,
        flights: Mapping[Key, Flight],
        floor: Callable[[Callable[[Flight], None], Flight], None],
        grace_s: float = CANCEL_GRACE_US / 1_000_000,
    ) -> None:
        self._runner = runner
        self._engine: Office = runner.engine
        self._by: By = runner.by
        store = runner.engine.store
        self._glancing = store if isinstance(store, Glancing) else None
        self._flights = flights
        self._floor = floor
        self._grace_s = grace_s
        self._looked_at = 0.0
        self._named: set[str] = set()
        self._killing: set[asyncio.Task[object]] = set()

    async def run(self) -> None:
        """Turn after turn, until called off."""
        while True:
            await asyncio.sleep(_TURN_S)
            if self._flights:
                await self._try()

    async def _try(self) -> None:
        try:
            await self.turn()
        except StoreError as error:
            # A store that is away for a while is no reason to end a run: what was said is kept.
            _log.warning("nobody is watched over for a moment: %s", error)

    def look_soon(self, job_id: str) -> None:
        """Something is known to have happened to it: do not wait for the next look."""
        self._named.add(job_id)

    async def turn(self) -> None:
        """Do everything that is due now: stops, timeouts, and a look at the store."""
        now = time.monotonic()
        self._climb_all(now)
        await self._time_out()
        named, self._named = self._named, set()
        if now - self._looked_at >= self._runner.look_s:
            self._looked_at = now
            await self._look([one for one in self._all() if now - one.since >= _YOUNG_S])
        elif named:
            await self._look([one for one in self._all() if one.key[1] in named])

    def stop(self, flight: Flight, why: Why) -> None:
        """Begin at the foot of the ladder; whoever is on it already goes on from there."""
        flight.why = why
        flight.ctx.heard.is_cancelled = True
        if flight.step is Step.RUNNING:
            flight.step, flight.step_at = Step.ASKED, time.monotonic()
            self._floor(_ask, flight)

    def end(self, flight: Flight, why: Why) -> None:
        """The whole ladder at once."""
        self.stop(flight, why)
        flight.step, flight.step_at = Step.KILLED, time.monotonic()
        self._floor(_interrupt, flight)
        self._floor(self._kill, flight)

    def _all(self) -> list[Flight]:
        return list(self._flights.values())

    # --- the store ------------------------------------------------------------------------------

    async def _look(self, flights: Sequence[Flight]) -> None:
        """Carry what was said to the store, and see who should stop."""
        await self._carry(flights)
        for at in range(0, len(flights), _KEYS_MAX):
            some = await self._unquiet(flights[at : at + _KEYS_MAX])
            if not some:
                continue
            found = await self._engine.store.get([one.key for one in some])
            asked = [one for one, now in zip(some, found, strict=True) if self._is_asked(one, now)]
            # First the history, then the word: having heard it the run may be over at once.
            await self._amend(asked, j.SeeCancel)
            for flight in asked:
                self.stop(flight, Why.CANCEL)

    async def _unquiet(self, flights: Sequence[Flight]) -> Sequence[Flight]:
        """Those that need a look: to read all that run takes as long as to run many of them."""
        if self._glancing is None or not flights:
            return flights
        runs = [(one.key, one.lease) for one in flights]
        keys = set(await self._glancing.unquiet(runs))
        return [one for one in flights if one.key in keys]

    def _is_asked(self, flight: Flight, now: Stored | None) -> bool:
        """Whether it hears for the first time that it was asked to stop."""
        if now is None or now.job.lease != flight.stored.job.lease:
            if flight.is_ours and self._flights.get(flight.key) is flight:
                flight.is_ours = False
                self.stop(flight, Why.LEASE_ENDED)
            return False
        return now.job.cancel_at is not None and flight.why is None

    async def _amend(self, flights: Sequence[Flight], kind: type[j.Report]) -> None:
        """A rung in the history. One that is refused comes too late: the run has ended."""
        changes = [
            Change(one.key, kind(lease=one.stored.job.lease), self._by, known=one.stored)
            for one in flights
        ]
        if changes:
            await self._engine.carry_out(changes)

    async def _time_out(self) -> None:
        """What has had its time. By the clock of the store that may be so a little later.

        If it is much later, that clock was set back, and nobody can wait until it has caught up.
        """
        now = self._runner.clock()
        late = [one for one in self._all() if one.is_ours and _is_late(one, now)]
        if not late:
            return
        told = [timing_out(one, self._by.id, self._engine.store.now()) for one in late]
        answers = await self._engine.carry_out(told)
        early = self._timed_out(late, told, answers)
        if beyond := [one for one in early if _is_late(one, now - _BEHIND_US)]:
            told = [failing(one, self._by, self._engine.store.now()) for one in beyond]
            self._timed_out(beyond, told, await self._engine.carry_out(told))

    def _timed_out(
        self, late: Sequence[Flight], told: Sequence[Change], answers: Sequence[j.Answer]
    ) -> list[Flight]:
        """Stop those of which the store says so, too; the others."""
        early: list[Flight] = []
        for flight, change, answer in zip(late, told, answers, strict=True):
            if isinstance(answer, j.Unchanged):
                early.append(flight)
            else:
                if isinstance(answer, j.Accepted):
                    log_end(flight, change)
                flight.is_ours = False
                self.stop(flight, Why.TIME_OUT)
        return early

    async def _carry(self, flights: Sequence[Flight]) -> None:
        said = [(one, *one.ctx.heard.take(_LINES_MAX)) for one in flights if _has_news(one)]
        if not said:
            return
        try:
            await self._write(said)
        except StoreError:
            for flight, lines, note in said:
                flight.ctx.heard.give_back(lines, note)
            raise

    async def _write(self, said: Sequence[tuple[Flight, list[Line], Note | None]]) -> None:
        store = self._engine.store
        notes = [(one.key, one.lease, note) for one, _, note in said if note is not None]
        if notes:
            await store.note(notes, now=store.now())
        if lines := [(one.key, line) for one, some, _ in said for line in some]:
            await store.append_logs(lines)

    # --- the ladder -----------------------------------------------------------------------------

    def _climb_all(self, now: float) -> None:
        for flight in self._all():
            if flight.step is Step.ASKED and now - flight.step_at >= self._patience(flight):
                self._interrupt(flight, now)
            elif flight.step is Step.INTERRUPTED and now - flight.step_at >= self._mercy(flight):
                flight.step, flight.step_at = Step.KILLED, now
                self._floor(self._kill, flight)

    def _patience(self, flight: Flight) -> float:
        """How long it has to stop by itself."""
        return self._grace(flight) if flight.why is Why.CANCEL else 0.0

    def _mercy(self, flight: Flight) -> float:
        """How long it has to end after it was interrupted."""
        grace = self._grace(flight)
        return grace if flight.why is Why.CANCEL else min(grace, _OVER_S)

    def _grace(self, flight: Flight) -> float:
        own = self._runner.handlers[flight.stored.body.type].means.grace_us
        return self._grace_s if own is None else own / 1_000_000

    def _interrupt(self, flight: Flight, now: float) -> None:
        """A thread cannot be interrupted: nothing is recorded, and it is given up in the end."""
        flight.step, flight.step_at = Step.INTERRUPTED, now
        if flight.kind is Kind.THREAD:
            return
        flight.step_at = math.inf
        if not flight.is_ours:
            said = f"this run was interrupted: it should have stopped ({flight.why})"
            flight.ctx.heard.say(said, "warning", self._engine.store.now())
        task = asyncio.ensure_future(self._interrupted(flight))
        self._killing.add(task)
        task.add_done_callback(self._killing.discard)

    async def _interrupted(self, flight: Flight) -> None:
        """The history first here, too."""
        try:
            if flight.is_ours and flight.why is Why.CANCEL:
                await self._amend([flight], j.Interrupt)
        except StoreError as error:
            _log.warning("an interruption is not in the history: %s", error)
        # Its last grace begins now: a slow store must not let the kill come first.
        if flight.step is Step.INTERRUPTED:
            flight.step_at = time.monotonic()
        self._floor(_interrupt, flight)

    def _kill(self, flight: Flight) -> None:
        """In the handlers' loop."""
        if flight.run is not None and flight.executor is not None:
            task = asyncio.ensure_future(flight.executor.kill(flight.run))
            self._killing.add(task)
            task.add_done_callback(self._killing.discard)


def _ask(flight: Flight) -> None:
    if flight.run is not None and flight.executor is not None:
        flight.executor.ask(flight.run)


def _interrupt(flight: Flight) -> None:
    if flight.run is not None and flight.executor is not None:
        flight.executor.interrupt(flight.run)


def _is_late(flight: Flight, now: int) -> bool:
    return flight.limit_at is not None and flight.limit_at <= now


def _has_news(flight: Flight) -> bool:
    heard = flight.ctx.heard
    return bool(heard.lines) or heard.note is not None
