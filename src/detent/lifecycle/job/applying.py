"""`apply`: the only writer of job records. Deciding and folding both go through it.

It trusts the event and interprets nothing but its name, its target and the facts it carries; what
is legal was settled before the event was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from detent.lifecycle.event import Event
from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import ENDED, IN_HANDS, JobEvent, JobState
from detent.lifecycle.life import creates_nothing
from detent.lifecycle.profile import Delivery

# Looking a member up by its value through the Enum class costs three times as much.
_STATES: dict[str, JobState] = {state.value: state for state in JobState}
_Changes = dict[str, Any]


def apply(job: Job | None, event: Event) -> Job:
    """The record after the event; `None` before the first one."""
    if job is None:
        return _born(event)
    if event.target is None:
        changes = _amended(job, event)
    else:
        changes = _moved(job, event, _STATES[event.target])
    return replace(job, version=event.version, last_at=event.at, **changes)


def fold(events: Iterable[Event]) -> Job | None:
    """The record that this history leaves behind, or `None` for an empty one."""
    job: Job | None = None
    for event in events:
        job = apply(job, event)
    return job


def _born(event: Event) -> Job:
    made = event.made
    if made is None or event.target is None or event.queue is None or event.priority is None:
        raise creates_nothing(event)
    ready_at = event.at if event.target == JobState.AVAILABLE else None
    return Job(
        tenant=event.tenant,
        id=event.record,
        version=event.version,
        state=_STATES[event.target],
        profile=made.profile,
        queue=event.queue,
        priority=event.priority,
        delivery=Delivery(made.delivery),
        allowed=made.allowed,
        losses_allowed=made.losses_allowed,
        created_at=event.at,
        state_at=event.at,
        last_at=event.at,
        place=event.place,
        held=bool(event.held),
        run_at=event.run_at,
        expires_at=made.expires_at,
        available_us=made.available_us,
        pending_us=made.pending_us,
        active_us=made.active_us,
        enqueued_at=ready_at,
        ready_at=ready_at,
        rerun_of=made.rerun_of,
        workflow=made.workflow,
        step=made.step,
    )


def _moved(job: Job, event: Event, target: JobState) -> _Changes:
    changes: _Changes = {"state": target, "state_at": event.at, "previous": job.state}
    if job.state in IN_HANDS:
        _left_holder(job, event, target, changes)
    else:
        changes["run_at"] = None
    if target in ENDED:
        changes["ended_at"] = event.at
        changes["cause"] = event.cause
    else:
        _ENTERED[target](job, event, changes)
    return changes


def _left_holder(job: Job, event: Event, target: JobState, changes: _Changes) -> None:
    """Pending to active keeps the lease; every other way out of a holder's hands ends it."""
    if target is JobState.ACTIVE:
        return
    changes["lease"] = changes["lease_us"] = None
    changes["wire"] = False
    changes["received_at"] = changes["start_us"] = None
    charged = event.charged
    if charged is not None:
        changes["failures"] = job.failures + charged.failures
        changes["losses"] = job.losses + charged.losses
    elif event.name == JobEvent.HAND_BACK:
        changes["handed_back"] = job.handed_back + 1


def _entered_available(job: Job, event: Event, changes: _Changes) -> None:
    changes["place"] = event.place
    changes["enqueued_at"] = changes["ready_at"] = event.at


def _entered_pending(job: Job, event: Event, changes: _Changes) -> None:
    changes["attempt"] = job.attempt + 1
    changes["claimed_at"] = event.at
    changes["lease"] = event.lease
    changes["holder"] = event.holder
    changes["wire"] = bool(event.wire)
    changes["lease_us"] = event.lease_us
    changes["returned_by"] = None


def _entered_active(job: Job, event: Event, changes: _Changes) -> None:
    changes["started_at"] = event.at
    if job.state is JobState.AVAILABLE:
        _entered_pending(job, event, changes)


def _entered_retryable(job: Job, event: Event, changes: _Changes) -> None:
    changes["run_at"] = event.run_at
    changes["delay_us"] = event.delay_us
    changes["returned_by"] = event.name


_ENTERED = {
    JobState.AVAILABLE: _entered_available,
    JobState.PENDING: _entered_pending,
    JobState.ACTIVE: _entered_active,
    JobState.RETRYABLE: _entered_retryable,
}


def _amended(job: Job, event: Event) -> _Changes:
    match event.name:
        case JobEvent.CANCEL_REQUESTED:
            return {"cancel_at": event.at, "force_at": event.force_at}
        case JobEvent.HELD:
            return {"held": True}
        case JobEvent.ACTIVATED:
            return {"held": False, "activated_at": event.at, **_readied(job, event)}
        case JobEvent.REPRIORITISED:
            return {"priority": event.priority}
        case JobEvent.RESCHEDULED:
            return {"run_at": event.run_at}
        case JobEvent.MOVED:
            return {"queue": event.queue, **_requeued(job, event)}
        case JobEvent.RECEIVED:
            return {"received_at": event.at, "start_us": event.start_us}
        case JobEvent.ERASED:
            return {"erased_at": event.at}
        case _:
            return {}


def _readied(job: Job, event: Event) -> _Changes:
    """Activation inside `available` counts as arriving there; elsewhere it only lifts the hold."""
    if job.state is not JobState.AVAILABLE:
        return {}
    return {"place": event.place, "enqueued_at": event.at, "ready_at": event.at}


def _requeued(job: Job, event: Event) -> _Changes:
    if job.state is not JobState.AVAILABLE:
        return {}
    return {"place": event.place, "ready_at": event.at}
