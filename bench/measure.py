"""How every benchmark here is measured: in one process, taking turns, and reported by medians.

Cases of one run take turns repetition by repetition, so that a slow second of the machine hits all
of them alike and the ratio between two of them means something even where the absolute numbers
drift. The statement of a case is compiled into the timing loop itself (`timeit`): no call of a
wrapper is charged to anybody, and the garbage collector is off while the clock runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from timeit import Timer
from typing import Any

import msgspec

__all__ = ["Bench", "Case", "Goal", "Ratio", "Result", "compare", "run"]

_SLICE_S = 0.004


class Case(msgspec.Struct, frozen=True):
    """One statement, the names it uses, and how many operations one execution of it is."""

    name: str
    statement: str
    names: Mapping[str, Any]
    operations: int = 1


class Goal(msgspec.Struct, frozen=True):
    """How many times as fast as `theirs` the case `ours` is meant to be."""

    ours: str
    theirs: str
    at_least: float


class Bench(msgspec.Struct, frozen=True):
    """Cases that are measured together, and the comparisons drawn from them."""

    cases: tuple[Case, ...]
    goals: tuple[Goal, ...] = ()


class Result(msgspec.Struct, frozen=True):
    """Microseconds per operation: the median, and the range of the middle half."""

    name: str
    median_us: float
    low_us: float
    high_us: float

    @property
    def per_second(self) -> float:
        return 1e6 / self.median_us


class Ratio(msgspec.Struct, frozen=True):
    """What became of a goal."""

    ours: str
    theirs: str
    times: float
    at_least: float

    @property
    def verdict(self) -> str:
        return "met" if self.times >= self.at_least else "missed"


def run(cases: Sequence[Case], repetitions: int) -> list[Result]:
    """Measure all cases, one short slice of each per repetition."""
    timers = [Timer(case.statement, globals=dict(case.names)) for case in cases]
    loops = [_loops(timer) for timer in timers]
    samples: list[list[float]] = [[] for _ in cases]
    for _ in range(repetitions):
        for case, timer, count, taken in zip(cases, timers, loops, samples, strict=True):
            taken.append(timer.timeit(count) * 1e6 / count / case.operations)
    return [_result(case.name, taken) for case, taken in zip(cases, samples, strict=True)]


def compare(goals: Sequence[Goal], results: Sequence[Result]) -> list[Ratio]:
    """The ratio of the medians for every goal."""
    medians = {result.name: result.median_us for result in results}
    return [
        Ratio(goal.ours, goal.theirs, medians[goal.theirs] / medians[goal.ours], goal.at_least)
        for goal in goals
    ]


def _loops(timer: Timer) -> int:
    """How often to execute a statement so that one slice is long enough for the clock."""
    count = 1
    while (taken := timer.timeit(count)) < _SLICE_S / 4:
        count *= 4
    return max(1, round(count * _SLICE_S / taken))


def _result(name: str, samples: Sequence[float]) -> Result:
    low, median, high = statistics.quantiles(samples, n=4)
    return Result(name, median, low, high)
