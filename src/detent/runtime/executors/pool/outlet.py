"""The descriptors of a pool process: where its output goes, kept safe from its handlers."""

from __future__ import annotations

import faulthandler
import io
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

DUMP_SIGNAL: Final = signal.SIGQUIT
_STATM: Final = Path("/proc/self/statm")


class Outlet:
    """Copies of descriptors 1 and 2, from which they are made anew for every job."""

    def __init__(self, dump: int) -> None:
        os.set_inheritable(dump, False)
        # From a signal handler in C: it works while a handler holds the interpreter.
        faulthandler.enable(dump, all_threads=True)
        faulthandler.register(DUMP_SIGNAL, dump, all_threads=True)
        self._kept = {number: os.dup(number) for number in (1, 2)}
        # Lines are heard when they end, and streams of our own do not close what is underneath.
        self._streams = (_stream(1), _stream(2))
        sys.stdout, sys.stderr = self._streams

    def restore(self) -> None:
        """As it was, whatever the last handler did with it."""
        for stream in (sys.stdout, sys.stderr, *self._streams):
            # Anything may stand there by now, nothing included.
            with suppress(Exception):
                stream.flush()
        for number, kept in self._kept.items():
            os.dup2(kept, number)
        if any(one.closed for one in self._streams):
            self._streams = (_stream(1), _stream(2))
        sys.stdout, sys.stderr = self._streams


def _stream(number: int) -> io.TextIOWrapper:
    return open(
        number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


def rss_bytes() -> int:
    """What this process holds in memory."""
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    # Only the most that it ever held is known here, in bytes or in units of 1024 of them.
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def limited_memory(more: int | None) -> Iterator[None]:
    """In here this process may map so much more than it has now; `None` is as much as there is."""
    if more is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize() if _STATM.exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (_least(mapped + more, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _least(soft: int, hard: int) -> int:
    return soft if hard == resource.RLIM_INFINITY else min(soft, hard)
