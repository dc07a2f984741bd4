"""A handler that holds up the loop of all for too long loses its place in there.

Nothing can stop it: it neither awaits nor returns. So it is charged a loss, as if it had taken the
worker with it, and runs in a process of its own from then on, where it may take its time. The
worker says that another should take its place; what else runs in here comes back at no cost.
"""

from __future__ import annotations

import logging
from typing import Final

from detent.runtime.executors.api import Rung, Stopped
from detent.runtime.executors.tasks import AsyncExecutor
from detent.runtime.reporting import Report, Reporter
from detent.runtime.running import Flight
from detent.runtime.worker.desk import Desk

_log = logging.getLogger(__name__)
PULSE_S: Final = 1.0
"""How often the handlers' loop is asked whether it still turns."""


class Stalling:
    """Looks once a pulse, in the loop of the store.

    It counts looks and not time: after a standstill of the whole process nobody is to blame.
    """

    def __init__(self, desk: Desk, reporter: Reporter, stall_s: float | None) -> None:
        self._desk = desk
        self._reporter = reporter
        self._stall_s = stall_s
        self._turned = 0.0
        self._silent = 0

    def look(self) -> None:
        """Whether the loop has turned since the last look, and what follows if it has not."""
        counts = self._desk.counts
        self._silent = self._silent + 1 if counts.turned == self._turned else 0
        self._turned = counts.turned
        is_stalled = self._stall_s is not None and self._silent * PULSE_S >= self._stall_s
        if is_stalled and not counts.is_stalled:
            self._give_up()
        counts.is_stalled = is_stalled

    def _give_up(self) -> None:
        begun = [one for one in self._desk.flights.values() if one.is_ours and _is_inside(one)]
        # Where a task of the handler's own making blocks, nobody knows which of them it is.
        guilty = [one for one in begun if _is_current(one)] or begun
        for flight in guilty:
            _log.error("job %s blocks the loop of all and is given up", flight.key[1])
        self._desk.land([self._lost(flight) for flight in guilty])

    def _lost(self, flight: Flight) -> Report:
        change = self._reporter.stalled(flight, self._stall_s or 0.0)
        flight.is_ours = False
        flight.ctx.heard.is_cancelled = True
        return Report(flight, Stopped(Rung.ABANDONED), change)


def _is_inside(flight: Flight) -> bool:
    return flight.run is not None and isinstance(flight.executor, AsyncExecutor)


def _is_current(flight: Flight) -> bool:
    executor, run = flight.executor, flight.run
    return isinstance(executor, AsyncExecutor) and run is not None and executor.is_current(run)
