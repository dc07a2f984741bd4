"""Time travel over a record's history, and the proof that the history is a legal life.

`at_version` and `at_time` rebuild a record of any kind at any past moment. `audit` walks a history
step by step and explains the first one that no legal life could contain. Because decisions and
folding share one writer per kind, folding alone would prove little: `audit` asks the table about
every edge and actor, doubts a job's event that lacks what it must carry or that its record did not
allow, and recounts the counters from names and charges without that writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from detent.errors import BadHistory
from detent.lifecycle import job, worker, workflow
from detent.lifecycle.event import Charge, Event
from detent.lifecycle.job.table import JobEvent
from detent.lifecycle.life import broken_life
from detent.lifecycle.machine import Machine, Refusal


class Fault(msgspec.Struct, frozen=True):
    """The first step of a history that cannot have happened, and why."""

    record: str
    version: int
    why: str

    @property
    def message(self) -> str:
        return f"{self.record} version {self.version}: {self.why}"


class _Kind(NamedTuple):
    machine: Machine
    apply: Callable[[Any, Event], Any]
    broken: Callable[[Any, Event, Any], str | None]
    doubted: Callable[[Any, Event], str | None] = lambda _record, _event: None


_KINDS = {
    kind.machine.name: kind
    for kind in (
        _Kind(job.JOB, job.apply, job.broken, job.doubted),
        _Kind(workflow.WORKFLOW, workflow.apply_workflow, workflow.broken_move),
        _Kind(workflow.STEP, workflow.apply_step, workflow.broken_move),
        _Kind(worker.WORKER, worker.apply, worker.broken, worker.doubted),
    )
}


def at_version(events: Iterable[Event], version: int) -> Any:
    """The record as it was after its `version`-th event; `None` before the first."""
    return _folded(event for event in events if event.version <= version)


def at_time(events: Iterable[Event], when: int) -> Any:
    """The record as it was at that instant; `None` when it did not exist yet."""
    return _folded(event for event in events if event.at <= when)


def audit(events: Sequence[Event], stored: Any = None) -> Fault | None:
    """The first fault of this history, or `None`; `stored` is compared with what it leads to."""
    record = go_on(None, events)
    return record if isinstance(record, Fault) else _against(record, events, stored)


def go_on(record: Any, events: Sequence[Event]) -> Any:
    """The record after these events, or the first fault; `record` is what came before them."""
    start = 1 if record is None else record.version + 1
    for number, event in enumerate(events, start=start):
        why = _misfiled(events[0], event, number) or _illegal(record, event)
        if why is None:
            record, why = _step(record, event)
        if why is not None:
            return Fault(event.record, event.version, why)
    return record


def recount(events: Iterable[Event]) -> dict[str, int]:
    """A job's counters, counted from names and charges alone, without `apply`."""
    counted = {"attempt": 0, "failures": 0, "losses": 0, "handed_back": 0}
    for event in events:
        counted["attempt"] += event.name in (JobEvent.CLAIM, JobEvent.DISPATCH)
        counted["failures"] += event.charged in (Charge.FAILURE, Charge.BOTH)
        counted["losses"] += event.charged in (Charge.LOSS, Charge.BOTH)
        counted["handed_back"] += event.name == JobEvent.HAND_BACK
    return counted


def _folded(events: Iterable[Event]) -> Any:
    record: Any = None
    for event in events:
        if event.kind not in _KINDS:
            raise BadHistory(_unknown_kind(event), record=event.record, version=event.version)
        record = _KINDS[event.kind].apply(record, event)
    return record


def _unknown_kind(event: Event) -> str:
    return f"there is no lifecycle of the kind {event.kind!r}"


def _misfiled(first: Event, event: Event, number: int) -> str | None:
    if event.kind not in _KINDS:
        return _unknown_kind(event)
    if (event.tenant, event.record, event.kind) != (first.tenant, first.record, first.kind):
        return "an event of another record stands in this history"
    if event.version != number:
        return f"version {number} is missing; found {event.version} in its place"
    return None


def _illegal(record: Any, event: Event) -> str | None:
    machine = _KINDS[event.kind].machine
    state = None if record is None else record.state
    if event.source != state:
        return f"it starts from {event.source}, but the record stood at {state}"
    found = machine.fire(event.source, event.name, event.target, event.actor)
    if isinstance(found, Refusal):
        return found.message
    if event.cause is not None and event.cause not in machine.causes:
        return f"{event.cause!r} is not a cause that the lifecycle knows"
    return _KINDS[event.kind].doubted(record, event)


def _step(before: Any, event: Event) -> tuple[Any, str | None]:
    kind = _KINDS[event.kind]
    try:
        after = kind.apply(before, event)
    except BadHistory as fault:
        return before, fault.message
    except ValueError as fault:
        return before, f"it cannot be read: {fault}"
    broken = broken_life(kind.machine, before, event, after)
    return after, broken or kind.broken(before, event, after)


def _against(record: Any, events: Sequence[Event], stored: Any) -> Fault | None:
    """The last word: the counters by another count, and the record that the store shows."""
    if record is None:
        return None
    if isinstance(record, job.Job):
        for counter, count in recount(events).items():
            counted = getattr(record, counter)
            if counted != count:
                return Fault(record.id, record.version, f"{counter} is {counted}, not {count}")
    if stored is None or stored == record:
        return None
    fields = ", ".join(_differing(record, stored))
    return Fault(record.id, record.version, f"the record differs in {fields}")


def _differing(one: Any, other: Any) -> list[str]:
    return [
        name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name, None)
    ]
