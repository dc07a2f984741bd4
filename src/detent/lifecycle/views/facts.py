"""Plain facts about a job that several views tell in their own words."""

from __future__ import annotations

from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import ENDED, JobEvent, JobState


def stands_in(job: Job) -> JobState:
    """The live state it is in or, once ended, the one it ended from."""
    if job.state in ENDED and job.previous is not None:
        return job.previous
    return job.state


def counted_attempt(job: Job) -> int:
    """Which attempt this is or was; one that was handed back does not count.

    Until it is claimed again a job that was handed back keeps the number of the attempt that it
    will repeat.
    """
    return job.attempt - job.handed_back + (job.returned_by == JobEvent.HAND_BACK)


def run_started(job: Job) -> bool:
    """Whether the latest offer or claim led to a run."""
    if job.started_at is None or job.claimed_at is None or stands_in(job) is JobState.PENDING:
        return False
    return job.started_at >= job.claimed_at
