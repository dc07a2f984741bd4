"""What no store may hold, whoever asks: the checks and triggers of a database, as one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import JOB, Job
from detent.lifecycle.machine import Machine
from detent.lifecycle.workflow import STEP, WORKFLOW, Flow, Step, Workflow
from detent.stores.shapes import FlowMove, Key, Unit, Want, key_of, name_of

_INT_MAX = 2**63 - 1
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_NUL = b"\\u0000"
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG = b"0" * 19
"""So many digits may be a number that does not fit."""
_encode = msgspec.json.Encoder().encode
_MACHINES: dict[type[object], Machine] = {Job: JOB, Workflow: WORKFLOW, Step: STEP}


def fault(
    unit: Unit, has_ended: Callable[[Key], bool], flow_of: Callable[[Key], Flow | None]
) -> str | None:
    """Why this unit must not be stored, or `None`. The callables know what is stored."""
    return next(_faults(unit, has_ended, flow_of), None)


def _faults(
    unit: Unit, has_ended: Callable[[Key], bool], flow_of: Callable[[Key], Flow | None]
) -> Iterator[str]:
    yield from _doubles(unit)
    if not all(new.events for new in unit.new):
        yield "a record without a history"
    for move in unit.moves:
        ended = has_ended((move.job.tenant, move.job.id))
        yield from _breaks(move.job, move.events, move.version, ended)
    for new in unit.new:
        yield from _breaks(new.job, new.events, 0, ended=False)
        yield from _homeless(new.job, unit.flow, flow_of)
        if new.body.key == "":
            yield f"{new.job.id} has a key without a character"
    if unit.flow is not None:
        yield from _flow_breaks(unit.flow)
    if not is_storable(unit):
        yield "a number beyond 64 bits, or a text that is no text"


def _doubles(unit: Unit) -> Iterator[str]:
    """Jobs, workflows and steps share the keys of their histories; small records have their own."""
    records: list[Job | Workflow | Step] = [move.job for move in unit.moves]
    records += [new.job for new in unit.new]
    if unit.flow is not None:
        flow = unit.flow.answer.flow
        records += [flow.workflow, *flow.steps.values()]
    if len(records) != len({(record.tenant, record.id) for record in records}):
        yield "a record stands twice in one unit"
    if len(unit.puts) != len({name_of(record) for record in unit.puts}):
        yield "a small record stands twice in one unit"


def _breaks(
    record: Job | Workflow | Step, events: Sequence[Event], version: int, ended: bool
) -> Iterator[str]:
    """Versions without a gap, triples of the table, one end, and the version they lead to."""
    machine = _MACHINES[type(record)]
    for number, event in enumerate(events, start=version + 1):
        if (event.tenant, event.record, event.version) != (record.tenant, record.id, number):
            yield f"version {number} of {record.id} is missing"
        if event.kind != machine.name:
            yield f"an event of a {event.kind} cannot move a {machine.name}"
        if (event.source, event.name, event.target) not in machine.triples:
            yield f"{event.name} from {event.source} to {event.target} is not declared"
        if ended and event.target is not None:
            yield f"{record.id} has ended already"
        ended = ended or event.target in machine.terminal
    if record.version != version + len(events):
        yield f"{record.id} has another version than its history"


def _homeless(
    job: Job, move: FlowMove | None, flow_of: Callable[[Key], Flow | None]
) -> Iterator[str]:
    """A job of a workflow belongs to one of its steps, and to one that has not ended."""
    if job.workflow is None or job.step is None:
        if job.workflow is not job.step:
            yield f"{job.id} names a workflow without a step, or a step without a workflow"
        return
    moved = None if move is None else move.answer.flow
    key = (job.tenant, job.workflow)
    flow = moved if moved is not None and key_of(moved.workflow) == key else flow_of(key)
    step = None if flow is None else flow.steps.get(job.step)
    if step is None or step.ended_at is not None:
        yield f"{job.id} names a step that is not there or has ended"


def _flow_breaks(move: FlowMove) -> Iterator[str]:
    """The same rules for the workflow and each of its steps, and no event of anybody else."""
    before, after = move.before, move.answer.flow
    records: list[Workflow | Step] = [after.workflow, *after.steps.values()]
    known: dict[str, Workflow | Step] = {}
    if before is not None:
        known = {before.workflow.id: before.workflow, **before.steps}
    left = list(move.answer.events)
    for record in records:
        old = known.get(record.id)
        own = [event for event in left if event.record == record.id]
        left = [event for event in left if event.record != record.id]
        version, ended = (0, False) if old is None else (old.version, old.ended_at is not None)
        yield from _breaks(record, own, version, ended)
    if left:
        yield f"{left[0].record} is no part of {after.workflow.id}"
    if before is not None and not before.steps.keys() <= after.steps.keys():
        yield f"a step of {after.workflow.id} is gone"


def is_grantable(want: Want) -> bool:
    """A wish that names a lease twice would put two jobs under it, and is granted nothing."""
    return len(want.leases) == len(set(want.leases)) and is_storable(want)


def is_storable(value: object) -> bool:
    """Numbers of 64 bits and texts of real characters: what every database can hold."""
    return _is_usual(value) or _holds(value)


def _is_usual(value: object) -> bool:
    """Cheap, and sure when it says yes: as JSON it is looked through in one go."""
    try:
        text = _encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return False
    # A pattern would be tried at every character.
    return _NUL not in text and _LONG not in text.translate(_DIGITS)


def _holds(value: object) -> bool:
    match value:
        case str():
            return _NO_TEXT.search(value) is None
        case int():
            return -_INT_MAX - 1 <= value <= _INT_MAX
        case tuple():
            return all(_holds(one) for one in value)
        case dict():
            return all(_holds(one) for pair in value.items() for one in pair)
        case msgspec.Struct():
            return _holds(msgspec.structs.astuple(value))
        case _:
            return True
