"""How a worker stops: with time to finish, at once without a word, or just for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from detent.errors import NotQuiet
from detent.runtime.executors.api import Rung, Stopped
from detent.runtime.reporting import Report, Reporter
from detent.runtime.running import Flight, Why
from detent.runtime.watching import Watching
from detent.runtime.worker.desk import Desk

STOP_S = 3.0
"""How long runs that were stopped have to end, before we go without them."""
LAPSE_S = 1.0
"""The same when the leases are lost: others have the jobs already."""
FILE_S = 5.0
"""How long the last reports may take."""


class Leaving:
    """In the loop of the store."""

    def __init__(self, desk: Desk, watching: Watching, reporter: Reporter) -> None:
        self._desk = desk
        self._watching = watching
        self._reporter = reporter
        self._stop_at: float | None = None
        self._last_s = STOP_S
        self.state = "working"

    async def stop(self, grace_s: float, last_s: float = STOP_S) -> list[str]:
        """Finish what can be finished in time, and give the rest back; who could not be stopped."""
        self.state, self._desk.is_claiming = "stopping", False
        self.hasten(grace_s, last_s)
        desk = self._desk
        await desk.until(self._is_enough, lambda: self._stop_at or 0.0)
        if desk.flights:
            await self._give_back()
        stuck = self._part()
        await desk.until(lambda: desk.is_idle, _in(FILE_S))
        self._end()
        return stuck

    def hasten(self, grace_s: float, last_s: float = STOP_S) -> None:
        """Less time than was said before; never more, and nothing if it is not to stop."""
        if self.state != "stopping":
            return
        self._last_s = min(last_s, self._last_s)
        at = asyncio.get_running_loop().time() + grace_s
        self._stop_at = at if self._stop_at is None else min(at, self._stop_at)

    async def lapse(self) -> list[str]:
        """Stop every run now, and say nothing about it; who could not be stopped."""
        self.state, desk = "stopping", self._desk
        desk.is_claiming, desk.is_lapsed = False, True
        for flight in list(desk.flights.values()):
            flight.is_ours = False
            self._watching.end(flight, Why.LAPSE)
        await desk.until(lambda: not desk.flights, _in(LAPSE_S))
        left = [flight.key[1] for flight in desk.flights.values()]
        self._end()
        return left + desk.abandoned

    async def suspend(self, within_s: float | None) -> None:
        """Return when nothing is in flight and nothing is accepted; too late, it is withdrawn."""
        desk, is_quiet = self._desk, False
        if self.state == "working":
            self.state, desk.is_claiming = "quiet", False
        try:
            is_quiet = await desk.until(lambda: desk.is_idle, _in(within_s))
        finally:
            if not is_quiet:
                self.resume()
        if not is_quiet:
            why = f"{len(desk.flights)} jobs were still running after {within_s} s"
            raise NotQuiet(f"The worker could not be suspended: {why}", running=len(desk.flights))

    def resume(self) -> None:
        """Claim again."""
        if self.state == "quiet":
            self.state = "working"
            self._desk.claim()

    def _is_enough(self) -> bool:
        """Whether there is nothing to wait for: where the loop is held up nobody finishes."""
        return not self._desk.flights or self._desk.counts.is_hopeless

    async def _give_back(self) -> None:
        """Stop those that are left. Their ends are collected, so that one commit has them all."""
        desk = self._desk
        desk.is_holding = True
        for flight in list(desk.flights.values()):
            self._watching.stop(flight, Why.DRAIN)
        await desk.until(lambda: not desk.flights, _in(self._last_s))

    def _part(self) -> list[str]:
        """File what was collected. For those that do not answer we say ourselves what becomes."""
        desk = self._desk
        stuck = list(desk.flights.values())
        desk.land([self._parted(flight) for flight in stuck])
        desk.is_holding = False
        desk.tell()
        return [flight.key[1] for flight in stuck] + desk.abandoned

    def _parted(self, flight: Flight) -> Report:
        change = self._reporter.parting(flight) if flight.is_ours else None
        flight.is_ours = False
        return Report(flight, Stopped(Rung.ABANDONED), change)

    def _end(self) -> None:
        self.state = "stopped"
        self._desk.close()


def _in(span_s: float | None) -> Callable[[], float]:
    at = float("inf") if span_s is None else asyncio.get_running_loop().time() + span_s
    return lambda: at
