"""What no store may hold, whoever asks: the checks and triggers of a database, as one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import JOB, Job
from detent.stores.api import Key, Unit

__all__ = ["fault", "is_storable"]

_INT_MAX = 2**63 - 1
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def fault(unit: Unit, has_ended: Callable[[Key], bool]) -> str | None:
    """Why this unit must not be stored, or `None`. `has_ended` knows the records it moves."""
    return next(_faults(unit, has_ended), None)


def _faults(unit: Unit, has_ended: Callable[[Key], bool]) -> Iterator[str]:
    jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
    if len(jobs) != len({(job.tenant, job.id) for job in jobs}):
        yield "a record stands twice in one unit"
    if not all(new.events for new in unit.new):
        yield "a record without a history"
    for move in unit.moves:
        ended = has_ended((move.job.tenant, move.job.id))
        yield from _breaks(move.job, move.events, move.version, ended)
    for new in unit.new:
        yield from _breaks(new.job, new.events, 0, ended=False)
    if not is_storable(unit):
        yield "a number beyond 64 bits, or a text that is no text"


def _breaks(job: Job, events: Sequence[Event], version: int, ended: bool) -> Iterator[str]:
    """Versions without a gap, triples of the table, one end, and the version they lead to."""
    for number, event in enumerate(events, start=version + 1):
        if (event.tenant, event.record, event.version) != (job.tenant, job.id, number):
            yield f"version {number} of {job.id} is missing"
        if (event.source, event.name, event.target) not in JOB.triples:
            yield f"{event.name} from {event.source} to {event.target} is not declared"
        if ended and event.target is not None:
            yield f"{job.id} has ended already"
        ended = ended or event.target in JOB.terminal
    if job.version != version + len(events):
        yield f"{job.id} has another version than its history"


def is_storable(value: object) -> bool:
    """Numbers of 64 bits and texts of real characters: what every database can hold."""
    match value:
        case str():
            return _NO_TEXT.search(value) is None
        case int():
            return -_INT_MAX - 1 <= value <= _INT_MAX
        case tuple():
            return all(is_storable(one) for one in value)
        case msgspec.Struct():
            return is_storable(msgspec.structs.astuple(value))
        case _:
            return True
