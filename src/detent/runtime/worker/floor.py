"""The worker's side where handlers run, in the loop that called it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from detent.runtime.ending import Raised
from detent.runtime.executors.api import Ended
from detent.runtime.reporting import Report, Reporter
from detent.runtime.running import Flight, Runner


class Floor:
    """Starts what it is given, and hands over how it ended."""

    def __init__(
        self,
        runner: Runner,
        reporter: Reporter,
        land: Callable[[Report], None],
        begins: Callable[[Flight], bool],
    ) -> None:
        self._begins = begins
        self._loop = asyncio.get_running_loop()
        self._runner = runner
        self._reporter = reporter
        self._land = land

    def start(self, flights: list[Flight]) -> None:
        """All of them, now; but for those that were given back while this loop was held up."""
        for flight in flights:
            if self._begins(flight):
                self._start(flight)

    def _start(self, flight: Flight) -> None:
        """One that cannot begin, whatever the reason, ends there, and is in nobody's way."""
        try:
            self._runner.start(flight, self._end)
        except Exception as error:
            self._end(flight, Raised(error))

    def call(self, what: Callable[[Flight], None], flight: Flight) -> None:
        """Do something to a flight in this loop; from any thread."""
        # A loop that is closed has no flights any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(what, flight)

    def ping(self, answer: Callable[[], None]) -> None:
        """Answer when this loop gets round to it; from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(answer)

    def _end(self, flight: Flight, ended: Ended) -> None:
        try:
            report = self._reporter.report(flight, ended)
        except Exception as error:
            # Whatever is wrong here is wrong with this run, and must not be the end of its slot.
            report = self._reporter.report(flight, Raised(error))
        self._land(report)
