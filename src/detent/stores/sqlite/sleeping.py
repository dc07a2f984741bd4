"""What the thread that writes does while there is nothing to write, and what ends it.

Somebody of this process calls it, or another one has written to the journal beside the database.
Linux tells of the latter, so there is nothing to be looked for until it does. That it does so here
is shown by a first write, before it is relied upon; until then, and elsewhere, we look often.
"""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.002
"""How often we look for commits of others where nobody tells of them, or one may be missed."""
CALM_S: Final = 0.05
"""How often where it is told."""
_ALERT_S: Final = 0.1
"""So long after any write one of another may have been missed whose commit is under way."""
_QUICK_S: Final = 0.003
"""So long after a write of another its commit is expected at any moment."""
_GLANCE_S: Final = 0.0001
_NOTES_BYTES: Final = 4_096
_MODIFIED: Final = 0x2


class Sleep:
    """Only the thread that sleeps may use it; `wake` is for all."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._heard, self._called = os.pipe()
        os.set_blocking(self._heard, False)
        os.set_blocking(self._called, False)
        self._calls = select.poll()
        self._calls.register(self._heard, select.POLLIN)
        self._both: select.poll | None = None
        self._notes = -1
        self._is_told = False
        self._deaf_until = 0.0
        self._quick_until = 0.0
        self._alert_until = 0.0

    def wake(self) -> None:
        """End it, or the next one."""
        with suppress(BlockingIOError):
            os.write(self._called, b"\0")

    def rest(self) -> None:
        """Sleep until somebody calls `wake`."""
        self._calls.poll()
        _emptied(self._heard)

    def doze(self) -> None:
        """The same, or until it is time to look whether others have committed."""
        now = time.monotonic()
        if now < self._deaf_until:
            self._calls.poll(1_000 * LOOK_S)
            _emptied(self._heard)
            return
        if now < self._quick_until:
            time.sleep(_GLANCE_S)
            return
        is_calm = self._is_told and now >= self._alert_until
        woken = {one for one, _ in self._watching().poll(1_000 * (CALM_S if is_calm else LOOK_S))}
        if self._heard in woken:
            _emptied(self._heard)
        if self._notes in woken:
            _emptied(self._notes)
            self._is_told = True
            # What is written is not committed yet: that takes a sync.
            now = time.monotonic()
            self._quick_until, self._alert_until = now + _QUICK_S, now + _ALERT_S

    def see(self) -> None:
        """Another has committed: there is time until the next one is looked for."""
        self.know()
        self._deaf_until = time.monotonic() + LOOK_S

    def know(self) -> None:
        """Whatever was told by now is known: it was our own write, or was seen by looking."""
        if self._notes >= 0 and _emptied(self._notes):
            self._is_told = True
        self._quick_until, self._alert_until = 0.0, time.monotonic() + _ALERT_S

    def close(self) -> None:
        """Let go of everything."""
        for one in (self._heard, self._called, self._notes):
            if one >= 0:
                os.close(one)

    def _watching(self) -> select.poll:
        if self._both is None:
            self._both = select.poll()
            self._both.register(self._heard, select.POLLIN)
            self._notes = _told_of(self._journal)
            if self._notes >= 0:
                self._both.register(self._notes, select.POLLIN)
        return self._both


def _emptied(pipe: int) -> bool:
    """Whether there was anything in it."""
    try:
        return bool(os.read(pipe, _NOTES_BYTES))
    except BlockingIOError:
        return False


def _told_of(path: Path) -> int:
    """What can be read from when somebody writes to that file; -1 where there is no such thing."""
    if sys.platform != "linux":
        return -1
    import ctypes  # noqa: PLC0415 (slow, and of no use elsewhere)

    libc = ctypes.CDLL(None, use_errno=True)
    notes: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if notes >= 0 and libc.inotify_add_watch(notes, os.fsencode(path), _MODIFIED) < 0:
        os.close(notes)
        return -1
    return notes
