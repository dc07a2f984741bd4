"""Ties the life of a pool process, and of all that it starts, to that of its worker.

The worker holds the other end of a pipe on which nothing is ever said. On Linux the kernel is asked
to kill our whole group when that end closes: it does so while a handler holds the interpreter, and
however the worker has died. Elsewhere only the thread that reads the channel watches over it.
"""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import suppress


def tie(lifeline: int) -> None:
    """Die when the other end of this closes."""
    os.set_inheritable(lifeline, False)
    os.set_blocking(lifeline, False)
    if hasattr(fcntl, "F_SETSIG"):
        # Minus is a group. Without a signal of our choice it would be one that can be ignored.
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    with suppress(BlockingIOError):
        # It answers only if it was closed before we asked.
        os.read(lifeline, 1)
        end_group()


def end_group() -> None:
    """Kill everything in our group, if it is ours."""
    own = os.getpid()
    if os.getpgrp() == own:
        os.killpg(own, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)
