"""What goes wrong again and again is said when it begins, now and then, and when it is over.

A store that is away for a night is asked every second. A line for each try would bury everything
else, and fill the disk whose being full may be what goes wrong.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN_S: Final = 60.0
"""How often it is said while it lasts."""
_OVER_S: Final = 10.0
"""Nobody who tries again waits for so long: what comes later has begun anew."""


class Complaint:
    """One thing that is tried until it works."""

    def __init__(
        self, log: logging.Logger, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._what = what
        self._clock = clock
        self._why: str | None = None
        self._said_at = self._last_at = 0.0

    def say(self, why: str) -> None:
        """It went wrong, for this reason."""
        now = self._clock()
        is_new = why != self._why or now - self._last_at >= _OVER_S
        if is_new or now - self._said_at >= AGAIN_S:
            self._log.warning("%s, and is tried again: %s", self._what, why)
            self._said_at = now
        self._why, self._last_at = why, now

    def end(self) -> None:
        """It went well; if it did not before, that is worth a line."""
        if self._why is not None:
            self._log.info("%s: that is over", self._what)
        self._why = None
