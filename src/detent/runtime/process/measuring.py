"""What a session uses, and whether the kernel has killed for want of memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from detent.host import LINUX, ask, members

_CPU: Final = slice(11, 15)
"""utime, stime, and the same of reaped children, in `/proc/PID/stat` after the name."""
_CGROUPS: Final = Path("/sys/fs/cgroup")


def usage(session: int) -> tuple[int, float]:
    """Resident bytes and processor seconds of a whole session.

    Memory that two processes share is counted twice. What a process has used counts with its
    parent once that has reaped it.
    """
    found = [_process(pid) for pid in members(session)]
    return sum(rss for rss, _ in found), sum(cpu for _, cpu in found)


class MemoryKills:
    """How often the kernel has killed for want of memory, where a process lives.

    Its control group says it best; without one the count of the whole machine is taken.
    """

    def __init__(self, pid: int) -> None:
        places = [place for place in counters(_groups(pid)) if _count(place) is not None]
        self._place = places[0] if places else None
        self._before = self._now()

    def happened(self) -> bool:
        """Whether there was one since we began to look."""
        return self._now() > self._before

    def _now(self) -> int:
        return 0 if self._place is None else _count(self._place) or 0


def _count(place: Path) -> int | None:
    try:
        lines = place.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def _groups(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""


def counters(groups: str) -> list[Path]:
    """Where to look, best first, for a process in these groups (of either version)."""
    found = []
    for group in groups.splitlines():
        _, kinds, path = group.split(":", 2)
        if "memory" in kinds.split(","):
            found.append(_CGROUPS / "memory" / path[1:] / "memory.oom_control")
        elif not kinds:
            found.append(_CGROUPS / path[1:] / "memory.events")
    return [*found, Path("/proc/vmstat")]


def _process(pid: int) -> tuple[int, float]:
    if not LINUX:
        return process_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        pages = int(Path(f"/proc/{pid}/statm").read_bytes().split()[1])
    except OSError:
        return 0, 0.0
    ticks = stat[stat.rfind(b")") + 1 :].split()[_CPU]
    return pages * os.sysconf("SC_PAGE_SIZE"), sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def process_by_ps(pid: int) -> tuple[int, float]:
    """macOS: kilobytes, and a time like 1:02.50 or 1:02:03."""
    words = ask("ps", "-o", "rss=,time=", "-p", str(pid)).split()
    if len(words) != 2:
        return 0, 0.0
    seconds = 0.0
    for part in words[1].replace("-", ":").split(":"):
        seconds = seconds * 60 + float(part)
    return int(words[0]) * 1024, seconds
