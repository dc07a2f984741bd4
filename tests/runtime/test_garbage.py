"""A worker process looks for cycles rarely, and never again at what it began with."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from detent.runtime.garbage import OBJECTS, settle, sweep_rarely

before = gc.get_threshold()
sweep_rarely()
assert gc.get_threshold() == (OBJECTS, *before[1:])
cycle = []
cycle.append(cycle)
del cycle
settle()
assert gc.get_freeze_count() > 1_000
assert gc.collect() == 0
"""


def test_what_was_there_first_is_not_looked_through_again() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)  # noqa: S603
