"""Processes that become our children without having been started by us (Linux only).

That happens to process 1, and to a subreaper: whoever loses its parent is given to us. When such a
process dies, somebody must reap it, or it stays in the table of processes for ever.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection
from typing import Final

from detent.host import LINUX, children, state_of

_BE_SUBREAPER: Final = 36
"""PR_SET_CHILD_SUBREAPER."""


class Orphans:
    """Whether we take them in, and who was dead already when we last looked."""

    def __init__(self) -> None:
        self.adopts = os.getpid() == 1
        self._seen: set[int] = set()

    def adopt(self) -> bool:
        """Take in the descendants that lose their parents; whether the system lets us."""
        self.adopts = LINUX and not ctypes.CDLL(None).prctl(_BE_SUBREAPER, 1, 0, 0, 0)
        return self.adopts

    def sweep(self, own: Collection[int]) -> list[int]:
        """Reap the dead that nobody else does, and name them.

        One that was not dead at the last look is left alone this time: other code in this process
        may have started it, and then wants its exit code for itself.
        """
        if not self.adopts:
            return []
        dead = {p for p in children(os.getpid()) if p not in own and state_of(p) == "Z"}
        reaped = [pid for pid in dead & self._seen if _reap(pid)]
        self._seen = dead
        return reaped


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
