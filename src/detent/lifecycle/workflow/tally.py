"""How far a step has come, as counters that move by deltas.

Every job of a step is counted under exactly one of five words, and the words add up to `total`. A
job that is cancelled keeps the word it had: one called off while it waited stays pending or
retried, one called off while a worker had it counts as failed. Beside the words, `cancelled` counts
all that ended so, and `withdrawn` those of them that still stand under pending or retried: without
it nobody could tell from the counters that a step has nothing left to run. `lost` counts those
under retried whose holder was lost and that nobody has taken since: Jobnik has them in progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

import msgspec

from detent.lifecycle.job import JobState
from detent.lifecycle.job.table import PARKED

Word: TypeAlias = Literal["pending", "in_progress", "retried", "completed", "failed"]

_WORDS: dict[JobState, Word] = {
    JobState.PENDING: "in_progress",
    JobState.ACTIVE: "in_progress",
    JobState.COMPLETED: "completed",
    JobState.DISCARDED: "failed",
    JobState.CANCELLED: "failed",
}


class Standing(Protocol):
    """What of a job is counted: a store need not read more of it."""

    @property
    def state(self) -> JobState: ...
    @property
    def previous(self) -> JobState | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def is_lost(self) -> bool: ...


class Tally(msgspec.Struct, frozen=True, omit_defaults=True):
    """The counters of one step, or, with negative numbers, a change of them."""

    pending: int = 0
    in_progress: int = 0
    retried: int = 0
    completed: int = 0
    failed: int = 0
    total: int = 0
    cancelled: int = 0
    withdrawn: int = 0
    lost: int = 0

    @property
    def ended(self) -> int:
        """Jobs that will never run again, however they ended."""
        return self.completed + self.failed + self.withdrawn

    @property
    def waiting(self) -> int:
        """Jobs that would still run if they were let."""
        return self.pending + self.retried - self.withdrawn

    @property
    def spoiled(self) -> int:
        """Jobs that ended without completing."""
        return self.failed + self.withdrawn

    @property
    def has_begun(self) -> bool:
        """Whether a job runs or has ended."""
        return self.in_progress > 0 or self.ended > 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.pending + other.pending,
            self.in_progress + other.in_progress,
            self.retried + other.retried,
            self.completed + other.completed,
            self.failed + other.failed,
            self.total + other.total,
            self.cancelled + other.cancelled,
            self.withdrawn + other.withdrawn,
            self.lost + other.lost,
        )

    def __neg__(self) -> Tally:
        return Tally(*(-count for count in msgspec.structs.astuple(self)))


NOTHING = Tally()


def fresh(jobs: int) -> Tally:
    """The tally of that many jobs of which none was ever claimed."""
    return Tally(pending=jobs, total=jobs)


def bucket(job: Standing) -> Word:
    """The word that the job is counted under."""
    return _bucket(job.state, job.previous, job.attempt > 0)


def delta(before: Standing | None, after: Standing) -> Tally:
    """What the move from `before` to `after` changes in its step's tally; `None` for a new job."""
    return _delta(None if before is None else _told(before), _told(after))


def recount(jobs: Iterable[Standing]) -> Tally:
    """The tally as it must be, from the jobs themselves."""
    tally = NOTHING
    for job in jobs:
        tally += _counted(*_told(job))
    return tally


def step_percentage(tally: Tally) -> int:
    """Completed jobs of all jobs, rounded down; a step without jobs stands at 0."""
    return 100 * tally.completed // tally.total if tally.total else 0


_Told: TypeAlias = tuple[JobState, JobState | None, bool, bool]
"""All that counts of a job: its state, the one before, whether it was ever claimed, and lost."""


def _told(job: Standing) -> _Told:
    return job.state, job.previous, job.attempt > 0, job.is_lost


# There are few ways to stand, and every move of every job of a step is counted.
@lru_cache(maxsize=4_096)
def _delta(before: _Told | None, after: _Told) -> Tally:
    now = _counted(*after)
    return now if before is None else now + -_counted(*before)


def _bucket(state: JobState, previous: JobState | None, was_claimed: bool) -> Word:
    if _stands_waiting(state, previous):
        return "retried" if was_claimed else "pending"
    return _WORDS[state]


def _stands_waiting(state: JobState, previous: JobState | None) -> bool:
    """A cancelled job stands where its cancel found it."""
    return (previous if state is JobState.CANCELLED else state) in PARKED


def _counted(state: JobState, previous: JobState | None, was_claimed: bool, is_lost: bool) -> Tally:
    cancelled = state is JobState.CANCELLED
    counts: dict[str, int] = {_bucket(state, previous, was_claimed): 1}
    return Tally(
        **counts,
        total=1,
        cancelled=int(cancelled),
        withdrawn=int(cancelled and _stands_waiting(state, previous)),
        lost=int(is_lost),
    )
