"""Jobs on their way from the claim to the handlers' loop, which somebody may be holding up."""

from __future__ import annotations

from detent.lifecycle.profile import PROFILES, Drain
from detent.runtime.running import Flight
from detent.stores.api import Key, Stored


class Unbegun:
    """Two threads reach in here, and whoever takes a flight out decides about it."""

    def __init__(self) -> None:
        self._flights: dict[Key, Flight] = {}

    def add(self, flight: Flight) -> None:
        """Remember a flight that is on its way to the handlers' loop."""
        self._flights[flight.key] = flight

    def begins(self, flight: Flight) -> bool:
        """Whether it may begin; asked in the handlers' loop, once."""
        return self._flights.pop(flight.key, None) is flight

    def take_back(self) -> list[Flight]:
        """Those that have not begun and need not: they will not any more."""
        able = [key for key, one in list(self._flights.items()) if may_return(one.stored)]
        return [one for key in able if (one := self._flights.pop(key, None)) is not None]


def may_return(stored: Stored) -> bool:
    """Whether it can be given back at no cost."""
    return PROFILES[stored.job.profile].drain is Drain.HAND_BACK
