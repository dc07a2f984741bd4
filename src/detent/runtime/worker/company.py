"""Whether jobs that run apart have company: others inside the process that holds all their leases.

A job that has lost a worker runs in a process of its own. Its lease is still held by the worker,
which dies of whatever runs inside it. So the supervisor is told who else is there, before they
begin: when the worker dies then, nobody who ran apart pays for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from detent.runtime.executors.means import Kind, is_alone
from detent.runtime.running import Flight
from detent.stores.api import Key


class Company:
    """Looks only while there is somebody apart, which is rare."""

    def __init__(self, flights: Mapping[Key, Flight], abandoned: Sequence[str]) -> None:
        self.tell: Callable[[bool], None] = lambda _: None
        """Told when it changes, and before anything comes of that."""
        self._flights = flights
        self._abandoned = abandoned
        self._apart = 0
        self._is_crowded = False

    def comes(self, flight: Flight) -> None:
        """Count a run that is about to begin."""
        self._apart += is_alone(flight.stored)
        if self._apart or self._is_crowded:
            self._look()

    def goes(self, flight: Flight) -> None:
        """It has ended, or nobody listens to it any more."""
        if self._apart or self._is_crowded:
            self._apart -= is_alone(flight.stored)
            self._look()

    def _look(self) -> None:
        is_crowded = self._apart > 0 and self._has_inmates()
        if is_crowded is not self._is_crowded:
            self._is_crowded = is_crowded
            self.tell(is_crowded)

    def _has_inmates(self) -> bool:
        if self._abandoned:
            return True
        return any(one.kind is not Kind.PROCESS for one in self._flights.values())
