"""What is true of every job at every version, checked on each accepted decision and by `verify`."""

from __future__ import annotations

from detent.errors import BadHistory
from detent.lifecycle.event import Event
from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import ENDED, IN_HANDS, TIMED, JobEvent, JobState

__all__ = ["broken", "check"]

_TAKING = frozenset({JobEvent.CLAIM, JobEvent.DISPATCH})


def check(before: Job | None, event: Event, after: Job) -> None:
    """Raise when the step from `before` to `after` breaks an invariant; the fault is ours."""
    fault = broken(before, event, after)
    if fault is not None:
        raise BadHistory(
            f"job {event.record} version {event.version} ({event.name}): {fault}",
            record=event.record,
            version=event.version,
            fault=fault,
        )


def broken(before: Job | None, event: Event, after: Job) -> str | None:
    """The first invariant that this step breaks, as a sentence, or `None`."""
    return _broken_record(after) or _broken_step(before, event, after)


def _broken_record(job: Job) -> str | None:
    state = job.state
    if (job.lease is not None) != (state in IN_HANDS):
        return "a lease is held exactly while pending or active"
    if (job.ended_at is not None) != (state in ENDED):
        return "ended_at is set exactly in a terminal state"
    if (job.run_at is not None) != (state in TIMED):
        return "run_at is set exactly while scheduled or retryable"
    if state is JobState.AVAILABLE and (job.place is None or job.ready_at is None):
        return "an available job has a place and a time from which it is ready"
    if job.cancel_at is not None and state is not JobState.ACTIVE and state not in ENDED:
        return "after a cancel request a job never waits again"
    if state in ENDED and job.cause is None:
        return "every end has a cause"
    return None


def _broken_step(before: Job | None, event: Event, after: Job) -> str | None:
    if before is None:
        return None if after.version == 1 and event.source is None else "a life starts at version 1"
    if after.version != before.version + 1:
        return "versions count the events, without gaps"
    if event.at < before.last_at:
        return "event times never decrease"
    if before.state in ENDED and event.target is not None:
        return "nothing leaves a terminal state"
    if event.source != before.state or after.state != (event.target or before.state):
        return "the event starts where the record stands and ends where it then stands"
    if event.target is not None and after.state_at != event.at:
        return "state_at is when the state was entered"
    return _broken_counters(before, event, after)


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
