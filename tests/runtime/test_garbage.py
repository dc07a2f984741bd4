"""A worker process looks for cycles rarely, and never again at what it began with."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from detent.runtime.garbage import OBJECTS_MAX, OF_A_SLOT, settle, sweep_rarely

before = gc.get_threshold()
sweep_rarely(1)
assert gc.get_threshold() == before
sweep_rarely(100)
assert gc.get_threshold() == (100 * OF_A_SLOT, *before[1:])
sweep_rarely(100_000)
assert gc.get_threshold() == (OBJECTS_MAX, *before[1:])
cycle = []
cycle.append(cycle)
del cycle
settle()
assert gc.get_freeze_count() > 1_000
assert gc.collect() == 0
"""


def test_what_was_there_first_is_not_looked_through_again() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)  # noqa: S603
