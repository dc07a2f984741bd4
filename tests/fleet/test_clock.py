"""The clock of a machine is set by an hour while a fleet works: real processes, under a shim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent import Handle
from tests.fleet.yard import Yard
from tests.waiting import eventually

HOUR_S = 3_600
SHIM = """
import os, time

clock, now_s, now_ns = os.open({path!r}, os.O_RDONLY), time.time, time.time_ns


def ahead() -> int:
    return int(os.pread(clock, 20, 0))


time.time = lambda: now_s() + ahead()
time.time_ns = lambda: now_ns() + ahead() * 1_000_000_000
"""


class Clock:
    """What time it is for the fleets of a yard: every Python there starts with the shim."""

    def __init__(self, yard: Yard) -> None:
        shims = yard.folder / "shims"
        shims.mkdir()
        self._path: Path = shims / "ahead"
        self.set(0)
        (shims / "sitecustomize.py").write_text(SHIM.format(path=str(self._path)))
        yard.environment["PYTHONPATH"] = str(shims)

    def set(self, ahead_s: int) -> None:
        """So far ahead of everybody else."""
        self._path.write_text(f"{ahead_s:20}")


def names(handle: Handle[Any]) -> list[str]:
    return [event.name for event in handle.history()]


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S])
def test_a_clock_that_is_set_costs_nobody_anything(yard: Yard, step_s: int) -> None:
    """A run goes on under its lease, a retry is not late, and new jobs are claimed."""
    clock = Clock(yard)
    yard.start()
    [pid] = eventually(lambda: yard.pids_of("worker-1"))
    for name in ("fails.fails", "fails"):
        yard.let_go(name)
    held, retried = yard.enqueue("timed", "held"), yard.enqueue("timed", "fails")
    eventually(lambda: yard.begun("held"))
    eventually(lambda: "fail" in names(retried))
    clock.set(step_s)
    after = yard.enqueue("timed", "after")
    yard.let_go("after")
    # The first is also what a worker gets again that may claim, and the second what upkeep does.
    assert [one.result(timeout=60) for one in (after, retried)] == [pid, pid]
    yard.let_go("held")
    assert held.result(timeout=60) == pid
    assert names(held) == names(after) == ["enqueue", "claim", "complete"]
    told = [name for name in names(retried) if name != "rescheduled"]
    assert told == ["enqueue", "claim", "fail", "due", "claim", "complete"]
    assert "all is well" in yard.detent("verify")
