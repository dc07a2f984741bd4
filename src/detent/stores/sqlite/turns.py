"""Processes on one file take turns, so that nobody ever finds the database locked."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from detent.errors import StoreUnavailable
from detent.stores.sqlite.patience import TURN_S
from detent.stores.sqlite.place import lock_paths

_PID_BYTES = 20
Calls: TypeAlias = tuple[tuple[Any, ...], ...]
"""What is to be called, each with its arguments, one after the other."""


class Turns:
    """The right to write, held by one process at a time: `with turns: ...` waits until it is ours.

    Two locks make it fair. Whoever waits for the second holds the first, so a process that has just
    written and wants to write again has to queue behind it. The kernel frees both when we die.

    It does not free them when their holder is merely stopped, and it knows no limit for waiting. So
    a thread waits in our place while we look at the clock. When we have given up, it stays in line:
    the next who asks takes over its place, and if nobody has asked, it lets the turn go.
    """

    def __init__(self, path: Path, limit_s: float = TURN_S) -> None:
        self._turn, self._lock = (
            os.open(one, os.O_RDWR | os.O_CLOEXEC) for one in lock_paths(path)
        )
        self._limit_s = limit_s
        self._changed = threading.Condition()
        self._is_in_line = False
        self._is_wanted = False
        self._is_closed = False
        self._error: OSError | None = None
        self._mine = b"%-*d" % (_PID_BYTES, os.getpid())
        self.taking: Final[Calls] = (
            (fcntl.flock, self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB),
            (fcntl.flock, self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB),
            (fcntl.flock, self._turn, fcntl.LOCK_UN),
            (os.pwrite, self._lock, self._mine, 0),
        )
        """The calls that take the turn if it is free, for who cannot wait; or one of them fails."""
        self.giving: Final[Calls] = ((fcntl.flock, self._lock, fcntl.LOCK_UN),)
        """The calls that give it back,"""
        self.leaving: Final[Calls] = (*self.giving, (fcntl.flock, self._turn, fcntl.LOCK_UN))
        """however many of the first were made."""

    @property
    def is_in_line(self) -> bool:
        """Whether somebody waits for the turn in our place, or still stands there for nobody."""
        return self._is_in_line

    def __enter__(self) -> None:
        if self._is_in_line or not self._is_free():
            self._wait()
        self._sign()

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the descriptors back; if one is still in line, it does so when it comes out."""
        with self._changed:
            self._is_closed = True
            if not self._is_in_line:
                self._give_back()

    def _is_free(self) -> bool:
        """Whether we have the turn without waiting: almost always, and without a thread."""
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)
        return True

    def _wait(self) -> None:
        """Until the one in line has got the turn for us, or for as long as we are patient."""
        with self._changed:
            self._is_wanted = True
            if not self._is_in_line:
                self._is_in_line = True
                threading.Thread(target=self._stand, name="detent-turn", daemon=True).start()
            has_come = self._changed.wait_for(lambda: not self._is_in_line, self._limit_s)
            self._is_wanted = False
            error, self._error = self._error, None
        if error is not None:
            raise error
        if not has_come:
            raise self._late()

    def _stand(self) -> None:
        error = None
        try:
            fcntl.flock(self._turn, fcntl.LOCK_EX)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            finally:
                fcntl.flock(self._turn, fcntl.LOCK_UN)
        except OSError as why:
            error = why
        self._come_out(error)

    def _come_out(self, error: OSError | None) -> None:
        """With the turn, for the one who wants it; nobody may want it any more."""
        with self._changed:
            self._is_in_line = False
            if self._is_closed:
                self._give_back()
            elif self._is_wanted:
                self._error = error
                self._changed.notify()
            else:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _give_back(self) -> None:
        os.close(self._turn)
        os.close(self._lock)

    # --- who has it -----------------------------------------------------------------------------

    def _sign(self) -> None:
        """Write down who has the turn, unless it is who had it last; it is for people only."""
        with suppress(OSError):
            if os.pread(self._lock, _PID_BYTES, 0) != self._mine:
                os.pwrite(self._lock, self._mine, 0)

    def _late(self) -> StoreUnavailable:
        text = os.pread(self._lock, _PID_BYTES, 0).strip()
        holder = int(text) if text.isdigit() else None
        whose = "Another process" if holder is None else f"Process {holder}"
        return StoreUnavailable(
            f"{whose} has the turn to write and did not give it back in {self._limit_s:g} s; it may"
            " be stopped. Nothing was committed: let it go on or end it, then try again",
            holder_pid=holder,
            waited_s=self._limit_s,
        )
