"""Time travel over a job's history, and the proof that the history is a legal life.

`at_version` and `at_time` rebuild the record at any past moment. `audit` walks a history step by
step and explains the first one that no legal life could contain. Because decisions and `fold` share
one writer, folding alone would prove little: `audit` asks the table about every edge and actor, and
recounts the counters from event names and charges without that writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import Charge, Event
from detent.lifecycle.job.applying import apply, fold
from detent.lifecycle.job.invariants import broken
from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import JOB, JobEvent
from detent.lifecycle.machine import Refusal

__all__ = ["Fault", "at_time", "at_version", "audit", "recount"]


class Fault(msgspec.Struct, frozen=True):
    """The first step of a history that cannot have happened, and why."""

    record: str
    version: int
    why: str

    @property
    def message(self) -> str:
        return f"{self.record} version {self.version}: {self.why}"


def at_version(events: Iterable[Event], version: int) -> Job | None:
    """The record as it was after its `version`-th event; `None` before the first."""
    return fold(event for event in events if event.version <= version)


def at_time(events: Iterable[Event], when: int) -> Job | None:
    """The record as it was at that instant; `None` when it did not exist yet."""
    return fold(event for event in events if event.at <= when)


def audit(events: Sequence[Event], stored: Job | None = None) -> Fault | None:
    """The first fault of this history, or `None`; `stored` is compared with what it leads to."""
    job: Job | None = None
    for number, event in enumerate(events, start=1):
        why = _misfiled(events[0], event, number) or _illegal(job, event)
        if why is None:
            job, why = _step(job, event)
        if why is not None:
            return Fault(event.record, event.version, why)
    return _against(job, events, stored)


def recount(events: Iterable[Event]) -> dict[str, int]:
    """The counters, counted from names and charges alone, without `apply`."""
    counted = {"attempt": 0, "failures": 0, "losses": 0, "handed_back": 0, "version": 0}
    for event in events:
        counted["version"] += 1
        counted["attempt"] += event.name in (JobEvent.CLAIM, JobEvent.DISPATCH)
        counted["failures"] += event.charged in (Charge.FAILURE, Charge.BOTH)
        counted["losses"] += event.charged in (Charge.LOSS, Charge.BOTH)
        counted["handed_back"] += event.name == JobEvent.HAND_BACK
    return counted


def _misfiled(first: Event, event: Event, number: int) -> str | None:
    if (event.tenant, event.record, event.kind) != (first.tenant, first.record, JOB.name):
        return "an event of another record stands in this history"
    if event.version != number:
        return f"version {number} is missing; found {event.version} in its place"
    return None


def _illegal(job: Job | None, event: Event) -> str | None:
    state = None if job is None else job.state
    if event.source != state:
        return f"it starts from {event.source}, but the record stood at {state}"
    found = JOB.fire(event.source, event.name, event.target, event.actor)
    if isinstance(found, Refusal):
        return found.message
    if event.cause is not None and event.cause not in JOB.causes:
        return f"{event.cause!r} is not a cause that the lifecycle knows"
    if event.charged is not None and event.name not in _CHARGING:
        return f"{event.name} charges nothing, yet {event.charged} was charged"
    return None


_CHARGING = frozenset({JobEvent.FAIL, JobEvent.TIME_OUT, JobEvent.REFUSE, JobEvent.LOSE})


def _step(job: Job | None, event: Event) -> tuple[Job | None, str | None]:
    try:
        after = apply(job, event)
    except BadHistory as fault:
        return job, fault.message
    return after, broken(job, event, after)


def _against(job: Job | None, events: Sequence[Event], stored: Job | None) -> Fault | None:
    if job is None:
        return None
    for counter, count in recount(events).items():
        if getattr(job, counter) != count:
            return Fault(job.id, job.version, f"{counter} is {getattr(job, counter)}, not {count}")
    if stored is None or stored == job:
        return None
    return Fault(job.id, job.version, f"the record differs in {', '.join(_differing(job, stored))}")


def _differing(one: Job, other: Job) -> list[str]:
    return [name for name in Job.__struct_fields__ if getattr(one, name) != getattr(other, name)]
