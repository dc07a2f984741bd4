"""What a tree of processes has used, as the kernel counts it: the clock on the wall is shared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_s", "rss_mb", "tree"]

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(process: int) -> Iterator[int]:
    """The process and all that it has started and that is still there."""
    yield process
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def cpu_s(process: int) -> float:
    """Seconds of a processor that the tree had, with children that it has buried."""
    return sum(_cpu(one) for one in tree(process))


def rss_mb(process: int) -> float:
    """Memory of the largest process of the tree: the one that runs the jobs."""
    return max((_rss(one) for one in tree(process)), default=0.0)


def _cpu(process: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return sum(int(one) for one in fields[11:15]) / _TICKS
    return 0.0


def _rss(process: int) -> float:
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE / 1_048_576
    return 0.0
