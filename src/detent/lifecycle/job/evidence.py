"""Checks stored events of jobs: whether each carries what a true decision writes.

Deciding cannot forget any of this; whoever edits a history can. Only what the history itself tells
is asked again: a lease row, a gate or a row of the profile table may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from detent.lifecycle.event import By, Charge, Event
from detent.lifecycle.job.guards import GUARDS
from detent.lifecycle.job.planning import may_be_poison
from detent.lifecycle.job.record import Context, Job
from detent.lifecycle.job.table import JOB, Cause, JobEvent, JobState
from detent.lifecycle.machine import Transition
from detent.lifecycle.profile import PROFILES, Delivery

_E, _C = JobEvent, Cause
_ALWAYS = frozenset(
    ("tenant", "record", "version", "at", "name", "source", "target", "actor", "actor_id")
) | {"command_id", "kind", "reason"}

# What an event of that name carries: what it must, and what it may besides.
_CARRIED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    _E.ENQUEUE: (("made", "queue", "priority", "held"), ("place", "run_at", "cause")),
    _E.DUE: (("place",), ()),
    _E.CLAIM: (("lease", "holder", "wire"), ("lease_us",)),
    _E.DISPATCH: (("lease", "holder", "wire"), ("lease_us",)),
    _E.ACKNOWLEDGE: ((), ()),
    _E.COMPLETE: (("cause",), ("digest",)),
    _E.FAIL: (("code", "charged"), ("digest", "cause", "run_at", "delay_us")),
    _E.TIME_OUT: (("code", "charged"), ("cause", "run_at", "delay_us")),
    _E.REFUSE: (("code", "charged"), ("cause", "run_at", "delay_us")),
    _E.LOSE: (("code", "charged"), ("cause", "run_at", "delay_us")),
    _E.SNOOZE: (("run_at",), ()),
    _E.HAND_BACK: (("run_at",), ()),
    _E.EXPIRE: (("cause", "code"), ()),
    _E.DROP: (("cause", "code"), ()),
    _E.CANCEL: (("cause",), ("code", "digest")),
    _E.CANCEL_REQUESTED: (("force_at",), ()),
    _E.CANCEL_SEEN: ((), ()),
    _E.INTERRUPTED: ((), ()),
    _E.HELD: ((), ()),
    _E.ACTIVATED: (("place",), ()),
    _E.REPRIORITISED: (("priority",), ()),
    _E.RESCHEDULED: (("run_at",), ()),
    _E.MOVED: (("queue", "place"), ()),
    _E.CHECKPOINTED: (("digest",), ()),
    _E.RECEIVED: (("start_us",), ()),
    _E.ANNOTATED: (("digest",), ()),
    _E.ERASED: ((), ()),
}
_ENTRY: dict[str, tuple[str, ...]] = {
    JobState.AVAILABLE: ("place",),
    JobState.SCHEDULED: ("run_at",),
    JobState.RETRYABLE: ("run_at",),
    **dict.fromkeys(JOB.terminal, ("cause",)),
}
_WORDS: dict[str, tuple[Cause, ...]] = {
    _E.ENQUEUE: (_C.RERUN,),
    _E.COMPLETE: (_C.SUCCEEDED,),
    _E.FAIL: (_C.EXHAUSTED, _C.NOT_RETRYABLE, _C.DISCARD_ASKED, _C.DEAD_LETTER_ASKED),
    _E.TIME_OUT: (_C.EXHAUSTED, _C.NOT_RETRYABLE, _C.DISCARD_ASKED, _C.DEAD_LETTER_ASKED),
    _E.REFUSE: (_C.EXHAUSTED, _C.NOT_RETRYABLE, _C.DISCARD_ASKED, _C.DEAD_LETTER_ASKED),
    _E.LOSE: (_C.EXHAUSTED, _C.POISON),
    _E.EXPIRE: (_C.TTL, _C.DEADLINE),
    _E.DROP: (_C.OVERFLOW, _C.QUEUE_DELETED),
    _E.CANCEL: (
        *(_C.REQUESTED, _C.REPLACED, _C.WORKFLOW, _C.CONFIRMED, _C.KILLED, _C.ABANDONED),
        *(_C.FORCED, _C.FAIL, _C.SNOOZE, _C.TIME_OUT, _C.LOSE, _C.HAND_BACK),
    ),
}
_CALLED_OFF = frozenset({_C.REQUESTED, _C.REPLACED, _C.WORKFLOW})
_CHARGES: dict[str, tuple[Charge, ...]] = {
    _E.FAIL: (Charge.FAILURE,),
    _E.TIME_OUT: (Charge.FAILURE,),
    _E.REFUSE: (Charge.FAILURE,),
    _E.LOSE: (Charge.LOSS, Charge.BOTH),
}


def _foreign(name: str) -> tuple[tuple[str, ...], Callable[[Event], tuple[Any, ...]]]:
    """What an event of that name must not carry, and how to read all of it at once."""
    known = _ALWAYS.union(*_CARRIED[name])
    fields = tuple(field for field in Event.__struct_fields__ if field not in known)
    return fields, attrgetter(*fields)


_DELIVERIES = frozenset(Delivery)
_FOREIGN = {name: _foreign(name) for name in _CARRIED}
_ONCE: dict[str, str] = {
    _E.CANCEL_REQUESTED: "cancel_at",
    _E.RECEIVED: "received_at",
    _E.ERASED: "erased_at",
}
_OF_THE_RECORD = ("pull", "push", "open", "not_cancelling", "asked", "asked_if_worker", "is_held")


def doubted(job: Job | None, event: Event) -> str | None:
    """Why this event, though declared, cannot have been decided on this record; or `None`."""
    fault = _lacking(event) or _excess(event) or _misnamed(event) or _misborn(event)
    if fault is not None or job is None:
        return fault
    return (
        _mischarged(job, event)
        or _unguarded(job, event)
        or _repeated(job, event)
        or _untimely(job, event)
    )


def _lacking(event: Event) -> str | None:
    needed = _needed(event.name, event.target, bool(event.wire))
    missing = [field for field in needed if getattr(event, field) is None]
    if not event.command_id:
        missing.append("command_id")
    return f"it does not carry {', '.join(missing)}" if missing else None


# Few differ, and a store has millions of events.
@lru_cache(maxsize=1_024)
def _needed(name: str, target: str | None, wire: bool) -> tuple[str, ...]:
    needed = (*_CARRIED[name][0], *_ENTRY.get(target or "", ()))
    if wire:
        needed = (*needed, "lease_us")
    if target == JobState.RETRYABLE and name in _CHARGES:
        needed = (*needed, "delay_us")
    return needed


def _excess(event: Event) -> str | None:
    fields, values_of = _FOREIGN[event.name]
    if values_of(event).count(None) == len(fields):
        return None
    found = next(field for field in fields if getattr(event, field) is not None)
    return f"{event.name} carries no {found}"


def _misnamed(event: Event) -> str | None:
    if event.cause is not None and event.cause not in _WORDS.get(event.name, ()):
        return f"{event.cause} is not why a job would {event.name}"
    charges = _CHARGES.get(event.name)
    if charges is not None and event.charged not in charges:
        return f"{event.name} charges {' or '.join(charges)}, not {event.charged}"
    return None


def _misborn(event: Event) -> str | None:
    made = event.made
    if made is None:
        return None
    if made.profile not in PROFILES or made.delivery not in _DELIVERIES:
        return f"nothing is made with profile {made.profile} and delivery {made.delivery}"
    if made.allowed < 1 or made.losses_allowed < 1:
        return "nothing is made that may not even be tried once"
    if (made.rerun_of is None) != (event.cause is None):
        return "a rerun names the job it repeats, and says that it is one"
    return None


def _mischarged(job: Job, event: Event) -> str | None:
    """What is used up does not go back to waiting, and only what is used up is poison."""
    if event.charged is None:
        return None
    failures = job.failures + event.charged.failures
    losses = job.losses + event.charged.losses
    if event.cause == _C.POISON and losses < job.losses_allowed:
        return f"loss {losses} of {job.losses_allowed} is not final"
    if event.target != JobState.RETRYABLE:
        return None
    if event.charged.failures and failures >= job.allowed:
        return f"failure {failures} of {job.allowed} is final"
    is_poison = losses >= job.losses_allowed and may_be_poison(job)
    if event.charged is Charge.LOSS and is_poison:
        return f"loss {losses} of {job.losses_allowed} is final"
    return None


def _unguarded(job: Job, event: Event) -> str | None:
    found = JOB.fire(event.source, event.name, event.target, event.actor)
    if not isinstance(found, Transition):
        return None
    guards = [guard for guard in found.guards if guard in _OF_THE_RECORD]
    if not guards:
        return None
    ctx = Context(By(event.actor, event.actor_id), event.command_id)
    for guard in guards:
        if unmet := GUARDS[guard](job, None, event.at, ctx):
            return unmet.detail
    return None


def _repeated(job: Job, event: Event) -> str | None:
    """What is so already is no event."""
    once = _ONCE.get(event.name)
    is_so = (
        job.held if event.name == _E.HELD else once is not None and getattr(job, once) is not None
    )
    return f"it was {event.name} before" if is_so else None


def _untimely(job: Job, event: Event) -> str | None:
    if event.name == _E.DUE and job.run_at is not None and event.at < job.run_at:
        return "it became due before its time"
    if event.name == _E.DUE and job.returned_by == _E.HAND_BACK and event.place != job.place:
        return "a job that was handed back keeps its place"
    runs = event.name == _E.CANCEL and job.state is JobState.ACTIVE
    if runs and job.cancel_at is None and event.cause not in _CALLED_OFF:
        return f"{event.cause} follows only from a cancel request"
    return None
