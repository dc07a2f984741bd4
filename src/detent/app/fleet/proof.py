"""Ends a worker whose lease was not renewed in time: its jobs may be somebody else's.

Its supervisor renews its lease, and stops it in time when that fails. A supervisor that stands
still does neither, so a worker looks at the clock itself: all it needs for that is a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from detent.runtime.beating import boot_clock

_SPARE_S: Final = 1.5
"""So long before the lease is over it begins to doubt: later than its supervisor would."""
_LOOK_S: Final = 0.5
_LOOKS: Final = 2
"""How often it looks, and how often in vain: after a standstill news may lie in the channel."""


class Proof:
    """Calls `end` when nobody has renewed us in time, by a clock that also counts standstills."""

    def __init__(self, end: Callable[[], None], clock: Callable[[], float] = boot_clock) -> None:
        self._end = end
        self._clock = clock
        self._until = 0.0
        self._thread = threading.Thread(target=self._watch, name="detent-proof", daemon=True)

    def renew(self, until: float) -> None:
        """Until then, by the clock, nobody else will be given our jobs."""
        self._until = until - _SPARE_S
        if self._thread.ident is None:
            self._thread.start()

    def _watch(self) -> None:
        doubts = 0
        while doubts < _LOOKS:
            time.sleep(_LOOK_S)
            doubts = doubts + 1 if self._clock() >= self._until else 0
        self._end()
