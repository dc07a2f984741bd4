"""Processes on one file take turns, so that nobody ever finds the database locked."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from detent.stores.sqlite.place import lock_paths

__all__ = ["Turns"]


class Turns:
    """The right to write, held by one process at a time: `with turns: ...` blocks until it is ours.

    Two locks make it fair. Whoever waits for the second holds the first, so a process that has just
    written and wants to write again has to queue behind it. The kernel frees both when we die.
    """

    def __init__(self, path: Path) -> None:
        self._turn, self._lock = (
            os.open(one, os.O_RDWR | os.O_CLOEXEC) for one in lock_paths(path)
        )

    def __enter__(self) -> None:
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the descriptors back."""
        os.close(self._turn)
        os.close(self._lock)
