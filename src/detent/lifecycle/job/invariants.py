"""What is true of every job at every version, checked on each accepted decision and by `verify`."""

from __future__ import annotations

from detent.lifecycle.event import Event
from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import ENDED, IN_HANDS, JOB, TIMED, JobEvent, JobState
from detent.lifecycle.life import broken_life, must_hold

_TAKING = frozenset({JobEvent.CLAIM, JobEvent.DISPATCH})


def check(before: Job | None, event: Event, after: Job) -> None:
    """Raise when the step from `before` to `after` breaks an invariant; the fault is ours."""
    must_hold(broken(before, event, after), event)


def broken(before: Job | None, event: Event, after: Job) -> str | None:
    """The first invariant that this step breaks, as a sentence, or `None`."""
    fault = broken_life(JOB, before, event, after) or _broken_record(after)
    return fault or (None if before is None else _broken_counters(before, event, after))


def _broken_record(job: Job) -> str | None:
    state = job.state
    if (job.lease is not None) != (state in IN_HANDS):
        return "a lease is held exactly while pending or active"
    if (job.run_at is not None) != (state in TIMED):
        return "run_at is set exactly while scheduled or retryable"
    if state is JobState.AVAILABLE and (job.place is None or job.ready_at is None):
        return "an available job has a place and a time from which it is ready"
    if job.cancel_at is not None and state is not JobState.ACTIVE and state not in ENDED:
        return "after a cancel request a job never waits again"
    if state in ENDED and job.cause is None:
        return "every end has a cause"
    return None


def _broken_counters(before: Job, event: Event, after: Job) -> str | None:
    charged = event.charged
    if after.failures - before.failures != (charged.failures if charged else 0):
        return "failures grow by exactly what was charged"
    if after.losses - before.losses != (charged.losses if charged else 0):
        return "losses grow by exactly what was charged"
    if after.attempt - before.attempt != (event.name in _TAKING):
        return "attempt grows by one with each claim and dispatch"
    if after.handed_back - before.handed_back != (event.name == JobEvent.HAND_BACK):
        return "handed_back grows by one with each hand-back"
    return None
