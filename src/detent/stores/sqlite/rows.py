"""Rows to structs and back, without loss: what is read equals what was written."""

from __future__ import annotations

from collections.abc import Sequence
from sys import intern
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from detent.errors import StoreCorrupt
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Delivery
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.workflow import Step, Tally, Workflow
from detent.stores.api import Body, Failure, Fed, Key, Line, Logged, Note, Stored

_Row = Sequence[Any]
_UNREADABLE: Final = (KeyError, TypeError, ValueError, msgspec.MsgspecError)
"""What comes of a row that we have not written, or that was changed since."""
_FIELDS: Final = Job.__struct_fields__
_STATE, _DELIVERY, _PREVIOUS, _HELD, _WIRE, _CAUSE, _RETURNED_BY = (
    _FIELDS.index(name)
    for name in ("state", "delivery", "previous", "held", "wire", "cause", "returned_by")
)
_WORDS: Final = (_STATE, _DELIVERY, _PREVIOUS, _CAUSE, _RETURNED_BY)
_JOB_END: Final = 1 + len(_FIELDS)
VERSION: Final = 1 + _FIELDS.index("version")
"""Where a row of the view `detent_stored` says how often the job has moved."""
_STATES: Final[dict[str | None, JobState | None]] = {
    None: None,
    **{state.value: state for state in JobState},
}
_DELIVERIES: Final = {one.value: one for one in Delivery}
_ACTORS: Final = {actor.value: actor for actor in Actor}
_DEFAULT_RETRY: Final = RetryPolicy()
_COLUMNS: Final = Event.__struct_fields__.index("cause")
_PLACE: Final = Event.__struct_fields__.index("place") - _COLUMNS
_Rest: Final = msgspec.defstruct(
    "Rest",
    [(one.name, one.type, one.default) for one in msgspec.structs.fields(Event)[_COLUMNS:]],
    frozen=True,
    omit_defaults=True,
)
"""What an event carries beyond its columns, in the order of its fields."""
_encode = msgspec.json.Encoder().encode
_decode_rest = msgspec.json.Decoder(_Rest).decode
_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_retry = msgspec.json.Decoder(RetryPolicy).decode
_decode_workflow = msgspec.json.Decoder(Workflow).decode
_decode_step = msgspec.json.Decoder(Step).decode
_decode_tally = msgspec.json.Decoder(Tally).decode


def job_row(job: Job) -> list[Any]:
    """The record as column values, in the order of its fields."""
    values: list[Any] = list(astuple(job))
    for index in _WORDS:
        values[index] = _plain(values[index])
    values[_HELD] = int(job.held)
    values[_WIRE] = int(job.wire)
    return values


def born_row(job: Job) -> tuple[Any, ...]:
    """The record of a job that was just born, in the order of the statement `job_born`."""
    return (
        job.tenant,
        job.id,
        job.version,
        _plain(job.state),
        job.profile,
        job.queue,
        job.priority,
        _plain(job.delivery),
        job.allowed,
        job.losses_allowed,
        job.created_at,
        job.state_at,
        job.last_at,
        job.place,
        int(job.held),
        job.run_at,
        job.expires_at,
        job.available_us,
        job.pending_us,
        job.active_us,
        job.enqueued_at,
        job.ready_at,
        job.rerun_of,
        job.workflow,
        job.step,
    )


def move_row(job: Job, wake_at: int | None, gated: int, seq: int, version: int) -> tuple[Any, ...]:
    """What may have changed, in the order of the statement `job_move`."""
    return (
        job.version,
        _plain(job.state),
        job.queue,
        job.priority,
        job.state_at,
        job.last_at,
        _plain(job.previous),
        job.place,
        int(job.held),
        job.attempt,
        job.failures,
        job.losses,
        job.handed_back,
        job.run_at,
        job.lease,
        job.holder,
        int(job.wire),
        job.lease_us,
        job.enqueued_at,
        job.ready_at,
        job.activated_at,
        job.claimed_at,
        job.started_at,
        job.received_at,
        job.start_us,
        job.ended_at,
        job.erased_at,
        job.cancel_at,
        job.force_at,
        _plain(job.cause),
        _plain(job.returned_by),
        job.delay_us,
        wake_at,
        gated,
        seq,
        version,
    )


def taken_row(job: Job, wake_at: int | None, seq: int, version: int) -> tuple[Any, ...]:
    """What a claim or a dispatch changes, in the order of the statement `job_taken`."""
    return (
        job.version,
        _plain(job.state),
        job.state_at,
        job.last_at,
        _plain(job.previous),
        job.attempt,
        job.run_at,
        job.lease,
        job.holder,
        int(job.wire),
        job.lease_us,
        job.claimed_at,
        job.started_at,
        _plain(job.returned_by),
        wake_at,
        seq,
        version,
    )


def done_row(job: Job, wake_at: int | None, seq: int, version: int) -> tuple[Any, ...]:
    """What a completion changes, in the order of the statement `job_done`."""
    return (
        job.version,
        _plain(job.state),
        job.state_at,
        job.last_at,
        _plain(job.previous),
        job.lease,
        int(job.wire),
        job.lease_us,
        job.received_at,
        job.start_us,
        job.ended_at,
        _plain(job.cause),
        wake_at,
        seq,
        version,
    )


def body_row(seq: int, body: Body) -> tuple[Any, ...]:
    """The body as column values; what is at its default takes no room."""
    return (
        seq,
        body.payload,
        body.meta,
        _encode(body.tags).decode() if body.tags else None,
        None if body.retry == _DEFAULT_RETRY else _encode(body.retry).decode(),
        body.schema,
    )


def workflow_row(workflow: Workflow) -> tuple[Any, ...]:
    """The workflow whole, beside what statements ask about."""
    where = (workflow.tenant, workflow.id, workflow.version, _plain(workflow.state))
    return (*where, workflow.ended_at, _encode(workflow).decode())


def step_row(step: Step) -> tuple[Any, ...]:
    """The same for one of its steps."""
    where = (step.tenant, step.id, step.workflow, step.version, _plain(step.state))
    return (*where, _encode(step).decode())


def tally_row(step: tuple[str, str], tally: Tally | None) -> tuple[Any, ...]:
    """What a step counts, in the order of the statement `step_tally`."""
    return (None if tally is None else _encode(tally).decode(), *step)


def failure_row(seq: int, failure: Failure) -> tuple[Any, ...]:
    """The error of one attempt as column values."""
    return (seq, *astuple(failure))


class _Told:
    """What an event carries beyond its columns, and how that is written around its place."""

    __slots__ = ("after", "before", "facts")

    def __init__(self, facts: tuple[Any, ...]) -> None:
        place = facts[_PLACE]
        told = _encode(_Rest(*facts)).decode()
        self.facts = (facts[:_PLACE], facts[_PLACE + 1 :], place is None)
        self.before: str | None = None if told == "{}" else told
        self.after = ""
        if place is not None:
            # Nothing before it is free text but the reason, in which every quote is escaped.
            self.before, _, self.after = told.partition(f'"place":{place}')
            self.before += '"place":'


_last = [_Told((None,) * len(_Rest.__struct_fields__))]
"""That of the last event; swapped as one, for several threads write events."""


def event_row(event: Event) -> tuple[Any, ...]:
    """The event as column values; what no statement asks about is one JSON text."""
    values = astuple(event)
    facts = values[_COLUMNS:]
    # Most events of a batch say the same besides their columns, if they say anything.
    known, place = _last[0], facts[_PLACE]
    if known.facts != (facts[:_PLACE], facts[_PLACE + 1 :], place is None):
        _last[0] = known = _Told(facts)
    return (
        event.tenant,
        event.record,
        event.version,
        event.at,
        _plain(event.name),
        _plain(event.source),
        _plain(event.target),
        _plain(event.actor),
        event.actor_id,
        event.command_id,
        event.kind,
        known.before if place is None else f"{known.before}{place}{known.after}",
    )


def event_of(row: _Row) -> Event:
    """The event of a row that begins with its position; equal to the one that was written."""
    values = list(row[1:-1])
    try:
        values[7] = _ACTORS[values[7]]
        # The one text that all events share: whoever hashes them looks at the object first.
        values[-1] = intern(values[-1])
        if row[-1] is not None:
            values += astuple(_decode_rest(row[-1]))
    except _UNREADABLE as error:
        why = f"the event at position {row[0]} of the feed cannot be read ({error!r})"
        raise StoreCorrupt(why, pos=row[0]) from error
    return Event(*values)


def fed_of(row: _Row) -> Fed:
    """The event at its position."""
    return Fed(row[0], event_of(row))


def job_of(row: _Row) -> Job:
    """The record of a row of the view `detent_stored`."""
    values = list(row[1:_JOB_END])
    try:
        values[_STATE] = _STATES[values[_STATE]]
        values[_DELIVERY] = _DELIVERIES[values[_DELIVERY]]
        values[_PREVIOUS] = _STATES[values[_PREVIOUS]]
    except _UNREADABLE as error:
        why = f"the record of {row[2]} cannot be read ({error!r})"
        raise StoreCorrupt(why, tenant=row[1], id=row[2]) from error
    values[_HELD] = bool(values[_HELD])
    values[_WIRE] = bool(values[_WIRE])
    return Job(*values)


def stored_of(row: _Row, failures: tuple[Failure, ...]) -> Stored:
    """Everything a reader is shown, from a row of the view `detent_stored` and its failures."""
    return stored_with(row, failures, job_of(row), row[_JOB_END])


def stored_with(row: _Row, failures: tuple[Failure, ...], job: Job, wake_at: int | None) -> Stored:
    """The same with a record that has moved on since the row was read."""
    body = body_of((row[1], row[2]), row[_JOB_END + 1 : _JOB_END + 8])
    result, checkpoint, at, attempt, percent, text, _ = row[_JOB_END + 8 :]
    note = None if at is None else Note(at, attempt, percent, text)
    return Stored(job, body, wake_at, result, failures, note, checkpoint)


def body_of(job: Key, row: _Row) -> Body:
    """What a job is about, from its columns in the order of the view `detent_stored`."""
    kind, payload, meta, tags, retry, schema, key = row
    try:
        parts = (
            _decode_tags(tags) if tags else (),
            _decode_retry(retry) if retry else _DEFAULT_RETRY,
        )
    except _UNREADABLE as error:
        why = f"the body of {job[1]} cannot be read ({error!r})"
        raise StoreCorrupt(why, tenant=job[0], id=job[1]) from error
    return Body(kind, payload, meta, *parts, schema, key)


def workflow_of(tenant: str, workflow: str, record: str) -> Workflow:
    """The workflow of a row of its table."""
    try:
        return _decode_workflow(record)
    except _UNREADABLE as error:
        why = f"the record of workflow {workflow} cannot be read ({error!r})"
        raise StoreCorrupt(why, tenant=tenant, id=workflow) from error


def step_of(
    tenant: str, workflow: str, record: str, tally: str | None
) -> tuple[Step, Tally | None]:
    """A step of that workflow, and what it counts."""
    try:
        return _decode_step(record), None if tally is None else _decode_tally(tally)
    except _UNREADABLE as error:
        why = f"a step of workflow {workflow} cannot be read ({error!r})"
        raise StoreCorrupt(why, tenant=tenant, id=workflow) from error


def logged_of(row: _Row) -> Logged:
    """A log line from the columns tenant, id, cursor, at, text, level, pos."""
    tenant, job, cursor, at, text, level, pos = row
    return Logged((tenant, job), cursor, Line(at, text, level), pos)


def _plain(word: str | None) -> str | None:
    # Members of enums are text, but sqlite3 asks its adapters about all that is not exactly str.
    return None if word is None else str.__str__(word)
