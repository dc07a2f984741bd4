"""Which process this is, and whether another one is gone for certain. Linux tells; others do not.

A pid is used again, and the same pid means another process in another container. So a process is
named by host, boot, the namespace its pid is seen in, pid and start time together.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path

from detent.stores.api import Process

__all__ = ["here", "is_gone", "process_of"]

_PROC = Path("/proc")
_STARTED = 19
"""The start time among the fields that follow a process's name, from 0."""
_DEAD = ("Z", "X")


def here() -> Process | None:
    """The process that asks; `None` where the system does not tell enough to know it again."""
    return process_of(os.getpid())


def process_of(pid: int) -> Process | None:
    """A process of this host by its pid, while it lives."""
    boot, told = _boot(), _told(pid)
    return None if boot is None or told is None else Process(_host(), boot, pid, told[1])


def is_gone(process: Process) -> bool:
    """Whether it is certain that this process has ended; false also where nobody here can know."""
    if (process.host, process.boot) != (_host(), _boot()):
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    told = _told(process.pid)
    # What cannot be read may be hidden from us; it is there, or kill would have said so.
    return told is not None and (told[1] != process.started_at or told[0] in _DEAD)


@cache
def _host() -> str:
    return socket.gethostname()


@cache
def _boot() -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _told(pid: int) -> tuple[str, int] | None:
    """State and start of a process, in microseconds of the kernel's own clock."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets too.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[_STARTED]) * 1_000_000 // os.sysconf("SC_CLK_TCK")
