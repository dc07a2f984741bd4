"""What a job's event must carry to be believed, asked of histories long after the decision.

Deciding cannot forget any of this; whoever edits a history can. Only what the record itself tells
is asked again: a lease row, a gate or a profile may have changed since.
"""

from __future__ import annotations

from detent.lifecycle.event import By, Charge, Event
from detent.lifecycle.job.guards import GUARDS
from detent.lifecycle.job.record import Context, Job
from detent.lifecycle.job.table import ENDED, JOB, TIMED, JobEvent, JobState
from detent.lifecycle.machine import Transition

__all__ = ["doubted"]

_E = JobEvent
_CARRIED: dict[str, tuple[str, ...]] = {
    _E.ENQUEUE: ("made", "queue", "priority", "held"),
    _E.CLAIM: ("lease", "holder", "wire"),
    _E.DISPATCH: ("lease", "holder", "wire"),
    _E.FAIL: ("code",),
    _E.TIME_OUT: ("code",),
    _E.REFUSE: ("code",),
    _E.LOSE: ("code",),
    _E.CANCEL_REQUESTED: ("force_at",),
    _E.ACTIVATED: ("place",),
    _E.MOVED: ("queue", "place"),
    _E.REPRIORITISED: ("priority",),
    _E.RESCHEDULED: ("run_at",),
    _E.RECEIVED: ("start_us",),
    _E.CHECKPOINTED: ("digest",),
    _E.ANNOTATED: ("digest",),
}
_ENTRY: dict[str, tuple[str, ...]] = {
    JobState.AVAILABLE: ("place",),
    **dict.fromkeys(TIMED, ("run_at",)),
    **dict.fromkeys(ENDED, ("cause",)),
}
_CHARGES: dict[str, tuple[Charge, ...]] = {
    _E.FAIL: (Charge.FAILURE,),
    _E.TIME_OUT: (Charge.FAILURE,),
    _E.REFUSE: (Charge.FAILURE,),
    _E.LOSE: (Charge.LOSS, Charge.BOTH),
}
_OF_THE_RECORD = ("pull", "push", "open", "not_cancelling", "asked", "asked_if_worker", "is_held")


def doubted(job: Job | None, event: Event) -> str | None:
    """Why this event, though declared, cannot have been decided on this record; or `None`."""
    return _lacking(event) or _mischarged(job, event) or _unguarded(job, event)


def _lacking(event: Event) -> str | None:
    needed = (*_CARRIED.get(event.name, ()), *_ENTRY.get(event.target or "", ()))
    missing = [field for field in needed if getattr(event, field) is None]
    return f"it does not carry {', '.join(missing)}" if missing else None


def _mischarged(job: Job | None, event: Event) -> str | None:
    """A charge belongs to the event, and what is used up does not go back to waiting."""
    charges = _CHARGES.get(event.name)
    if charges is None:
        return None if event.charged is None else f"{event.name} charges nothing"
    if event.charged not in charges:
        return f"{event.name} charges {' or '.join(charges)}, not {event.charged}"
    if job is None or event.target != JobState.RETRYABLE:
        return None
    if event.charged.failures and job.failures + 1 >= job.allowed:
        return f"failure {job.failures + 1} of {job.allowed} is final"
    if event.charged is Charge.LOSS and job.losses + 1 >= job.losses_allowed:
        return f"loss {job.losses + 1} of {job.losses_allowed} is final"
    return None


def _unguarded(job: Job | None, event: Event) -> str | None:
    found = JOB.fire(event.source, event.name, event.target, event.actor)
    if job is None or not isinstance(found, Transition):
        return None
    ctx = Context(By(event.actor, event.actor_id), event.command_id)
    for guard in found.guards:
        if guard in _OF_THE_RECORD and (unmet := GUARDS[guard](job, None, event.at, ctx)):
            return unmet.detail
    return None
