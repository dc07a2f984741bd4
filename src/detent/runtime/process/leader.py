"""The end of a child: seen at once, and reaped only when its session is empty.

Until it is reaped, a dead leader keeps its number, and with it the number of its session. So nobody
else can be hit while we clear up what it left behind.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

_UNKNOWN: Final = 255
"""The exit code of a child that somebody else has reaped."""


class Leader:
    """The first process of a session, which is a child of ours."""

    def __init__(self, pid: int, process_at: int, *, has_handle: bool | None = None) -> None:
        self.pid = pid
        self.process_at = process_at
        usable = hasattr(os, "pidfd_open") if has_handle is None else has_handle
        self._handle: int | None = os.pidfd_open(pid) if usable else None
        self._code: int | None = None

    async def exited(self) -> None:
        """Return when it has ended."""
        loop = asyncio.get_running_loop()
        seen = asyncio.Event()
        if self._handle is None:
            self._watch_in_thread(loop, seen)
            await seen.wait()
            return
        loop.add_reader(self._handle, seen.set)
        try:
            await seen.wait()
        finally:
            loop.remove_reader(self._handle)

    def has_exited(self) -> bool:
        """Whether it has ended, asked now."""
        if self._handle is None:
            return self._code is not None
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def reap(self) -> int:
        """Take its exit code, in Python's convention; its number is free from now on."""
        if self._code is None:
            self._code = _wait(self.pid)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        return self._code

    def _watch_in_thread(self, loop: asyncio.AbstractEventLoop, seen: asyncio.Event) -> None:
        """Where there are no handles of processes (macOS), a thread waits, and reaps with that."""

        def watch() -> None:
            self._code = _wait(self.pid)
            loop.call_soon_threadsafe(seen.set)

        threading.Thread(target=watch, name=f"detent-wait-{self.pid}", daemon=True).start()


def _wait(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return _UNKNOWN
