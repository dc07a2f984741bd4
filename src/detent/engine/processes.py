"""Which process a worker row names, and whether it is gone for certain."""

from __future__ import annotations

import os

from detent import host
from detent.stores.api import Process


def here() -> Process | None:
    """The process that asks; `None` where the system does not tell enough to know it again."""
    return process_of(os.getpid())


def process_of(pid: int, started_at: int = 0) -> Process | None:
    """A process of this host by its pid, and by its start if that was seen; else while it lives."""
    boot, at = host.boot_id(), started_at or host.start_time(pid)
    return None if not boot or at is None else Process(host.host_name(), boot, pid, at)


def is_gone(process: Process) -> bool:
    """Whether it is certain that this process has ended; false also where nobody here can know."""
    if (process.host, process.boot) != (host.host_name(), host.boot_id()):
        return False
    return host.is_gone(process.pid, process.started_at)
