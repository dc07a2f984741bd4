"""Tells when the log beside a database only grows, which nobody else would notice in time.

What is committed goes into the log, and from there into the database as soon as nobody reads what
was there before. Whoever begins to read and never ends keeps all of it from going, and the log
grows until the disk is full.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from detent.complaining import Complaint

_log = logging.getLogger(__name__)
LARGE = 128 << 20
"""Twice what SQLite leaves of a log that has become large for a while (`journal_size_limit`)."""
_LOOK_S: Final = 1.0
_WHY: Final = (
    "it has more than %d MB, because somebody reads in a transaction that does not end."
    " `fuser %s` tells who has it open; end that one before the disk is full"
)


class Growth:
    """Looks at the size of the log, at most once a second."""

    def __init__(self, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = log
        self._clock = clock
        self._looked_at = float("-inf")
        database = log.name.removesuffix("-wal")
        self._database = log.with_name(database)
        what = f"what is committed cannot be taken into {database}"
        self._complaint = Complaint(_log, what, clock)

    def look(self) -> None:
        """Complain if it is large, again whenever it has doubled."""
        now = self._clock()
        if now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        size = self._size()
        if size <= LARGE:
            self._complaint.end()
            return
        doubled = LARGE << ((size - 1) // LARGE).bit_length() - 1
        self._complaint.say(_WHY % (doubled >> 20, self._database))

    def _size(self) -> int:
        try:
            return self._file.stat().st_size
        except OSError:
            return 0
