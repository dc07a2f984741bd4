"""Rows to structs and back, without loss: what is read equals what was written."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from sys import intern
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Delivery
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Failure, Fed, Line, Logged, Note, Stored
from detent.stores.legal import is_storable
from detent.stores.postgres.columns import EVENT_END, JOB, MOVING

_Row = Sequence[Any]
_STATE, _DELIVERY, _PREVIOUS = (JOB.index(name) for name in ("state", "delivery", "previous"))
JOB_END: Final = len(JOB)
"""Where the lifecycle record ends in a row that begins with it."""
STORED_END: Final = JOB_END + 12
"""Where all that is shown of a job ends in a row of the view `stored`."""
_STATES: Final[dict[str | None, JobState | None]] = {
    None: None,
    **{state.value: state for state in JobState},
}
_DELIVERIES: Final = {one.value: one for one in Delivery}
_ACTORS: Final = {actor.value: actor for actor in Actor}
_DEFAULT_RETRY: Final = RetryPolicy()
_Rest: Final = msgspec.defstruct(
    "Rest",
    [(one.name, one.type, one.default) for one in msgspec.structs.fields(Event)[EVENT_END:]],
    frozen=True,
    omit_defaults=True,
)
"""What an event carries beyond its columns, in the order of its fields."""
_NO_REST: Final = astuple(_Rest())
_encode = msgspec.json.Encoder().encode
_decode_rest = msgspec.json.Decoder(_Rest).decode
_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_retry = msgspec.json.Decoder(RetryPolicy).decode
_decode_note = msgspec.json.Decoder(tuple[Any, ...]).decode
_decode_errors = msgspec.json.Decoder(list[tuple[Any, ...]]).decode
job_row = astuple
"""The record as column values, in the order of its fields."""
moving_row: Final = attrgetter(*MOVING)
"""What a move may have changed, in the order of its columns."""


def _json(value: object) -> str:
    """As JSON, in which the server would not see a NUL."""
    text = _encode(value)
    if b"\\u0000" in text and not is_storable(value):
        raise ValueError("a text with a NUL in it cannot be kept")
    return text.decode()


def body_row(body: Body) -> tuple[Any, ...]:
    """The body as column values; what is at its default takes no room."""
    return (
        body.type,
        body.payload,
        body.meta,
        _json(body.tags) if body.tags else None,
        None if body.retry == _DEFAULT_RETRY else _json(body.retry),
        body.schema,
        body.key,
    )


def event_row(event: Event) -> tuple[Any, ...]:
    """What follows the record's key; whatever no statement asks about is one JSON text."""
    values = astuple(event)
    return (*values[2:EVENT_END], rest_of(values))


def rest_of(values: tuple[Any, ...]) -> str | None:
    """Of the values of an event, whatever no statement asks about."""
    more = values[EVENT_END:]
    return None if more == _NO_REST else _json(_Rest(*more))


def event_of(row: _Row) -> Event:
    """The event of a row that begins with the record's key; equal to the one that was written."""
    *values, rest = row
    values[7] = _ACTORS[values[7]]
    # The one text that all events share: whoever hashes them looks at the object first.
    values[-1] = intern(values[-1])
    if rest is not None:
        values += astuple(_decode_rest(rest))
    return Event(*values)


def fed_of(row: _Row) -> Fed:
    """The event at its position."""
    pos, *event = row
    return Fed(pos, event_of(event))


def job_of(row: _Row) -> Job:
    """The record of a row that begins with it."""
    values = list(row[:JOB_END])
    values[_STATE] = _STATES[values[_STATE]]
    values[_DELIVERY] = _DELIVERIES[values[_DELIVERY]]
    values[_PREVIOUS] = _STATES[values[_PREVIOUS]]
    return Job(*values)


def stored_of(row: _Row) -> Stored:
    """Everything a reader is shown, from a row of the view `stored` or one of its shape."""
    wake_at, *body, result, errors, note, checkpoint = row[JOB_END:STORED_END]
    failures = tuple(Failure(*one) for one in _decode_errors(errors)) if errors else ()
    said = Note(*_decode_note(note)) if note else None
    return Stored(job_of(row), _body_of(*body), wake_at, result, failures, said, checkpoint)


def _body_of(
    kind: str, payload: str, meta: str, tags: str | None, retry: str | None, *rest: str | None
) -> Body:
    return Body(
        kind,
        payload,
        meta,
        _decode_tags(tags) if tags else (),
        _decode_retry(retry) if retry else _DEFAULT_RETRY,
        *rest,
    )


def logged_of(row: _Row) -> Logged:
    """A log line from the columns tenant, id, cursor, at, text, level, pos."""
    tenant, job, cursor, at, text, level, pos = row
    return Logged((tenant, job), cursor, Line(at, text, level), pos)
