"""Events of the history in the words of Open Job Spec.

One event of ours may be two of theirs: an attempt that failed has failed, and is then retried or
discarded. The id of an event says where in the feed it stands and which of several it is, so that
it is also a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from detent.engine.lasting import TOTAL
from detent.lifecycle.event import Event
from detent.lifecycle.views import OJS_WORKFLOW_WORDS
from detent.stores.api import Fed, Stored
from detent.surfaces.ojs.dead_letters import PRUNED_BY
from detent.surfaces.ojs.envelope import kept_of
from detent.surfaces.ojs.wire import millis, told

# The code of a job that was taken from its worker because that was silent about it.
STALLED: Final = "stalled"
SOURCE: Final = "ojs://detent/server"
_POS_BITS: Final = 62
_NUMBER_SHIFT: Final = 64
# The highest number of an event among those of one position of the feed.
NUMBER_MAX: Final = 0xFFF
_PREFIX: Final = "evt_"


class Position(NamedTuple):
    """Where an event stands: its place in the feed, and its number among those of that place.

    A change of state has number 0, the events of the lifecycle follow it.
    """

    pos: int
    number: int


class Told(msgspec.Struct, frozen=True):
    """An event as it is told, and what it is chosen by."""

    id: str
    type: str
    body: dict[str, Any]
    queue: str
    job_type: str
    pos: int
    number: int

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(self.pos, self.number)


class _Run(msgspec.Struct, frozen=True):
    """The attempt that an event belongs to."""

    attempt: int = 0
    started_at: int | None = None


def events_of(
    fed: Fed, stored: Stored | None, name: str, history: Sequence[Event]
) -> Iterator[Told]:
    """What one event of the feed is here: none, one or two."""
    event = fed.event
    if event.kind == "workflow":
        yield from _of_workflow(fed)
        return
    if event.kind != "job" or stored is None:
        return
    run = _run_at(history, event.version)
    for number, (kind, data) in enumerate(_kinds(event, stored, run), start=1):
        common = {
            "job_id": name,
            "job_type": stored.body.type,
            "queue": stored.job.queue,
            "state": event.target,
            "timestamp": told(event.at),
        }
        told_of = {k: v for k, v in {**common, **data}.items() if v is not None}
        yield _told(fed, kind, name, told_of, number)


def _of_workflow(fed: Fed) -> Iterator[Told]:
    event = fed.event
    word = "started" if event.source is None else OJS_WORKFLOW_WORDS.get(event.target or "")
    if word is not None and word != "running":
        data = {"workflow_id": event.record, "timestamp": told(event.at)}
        yield _told(fed, f"workflow.{word}", event.record, data, 1)


def change_of(fed: Fed, stored: Stored, name: str) -> Told | None:
    """That a job has changed its state, for those who follow a job or a queue."""
    event = fed.event
    if event.target is None:
        return None
    data = {
        "job_id": name,
        "queue": stored.job.queue,
        "type": stored.body.type,
        "from": event.source,
        "to": event.target,
        "timestamp": told(event.at),
    }
    return _told(fed, "job.state_changed", name, data, 0)


def position_of(event_id: str) -> Position | None:
    """Where an event stands, from its id; `None` if it is no id of ours."""
    try:
        found = UUID(event_id.removeprefix(_PREFIX)).int
    except ValueError:
        return None
    return Position(found & ((1 << _POS_BITS) - 1), (found >> _NUMBER_SHIFT) & NUMBER_MAX)


def event_id_of(fed: Fed, number: int = 0) -> str:
    """What an event of the feed is called here; of several that it is, the first."""
    made = (millis(fed.event.at) << 80) | (7 << 76) | (number << _NUMBER_SHIFT)
    made |= (2 << _POS_BITS) | fed.pos
    return f"{_PREFIX}{UUID(int=made)}"


def _told(fed: Fed, kind: str, subject: str, data: Mapping[str, Any], number: int) -> Told:
    event = fed.event
    at, event_id = told(event.at), event_id_of(fed, number)
    body = {
        "specversion": "1.0",
        "id": event_id,
        "type": kind,
        "event": kind,
        "source": SOURCE,
        "time": at,
        "timestamp": at,
        "subject": subject,
        "data": data,
    }
    queue, job_type = str(data.get("queue", "")), str(data.get("job_type", data.get("type", "")))
    return Told(event_id, kind, body, queue, job_type, fed.pos, number)


def _kinds(event: Event, stored: Stored, run: _Run) -> Sequence[tuple[str, dict[str, Any]]]:
    spent = None if run.started_at is None else millis(event.at - run.started_at)
    match event.name:
        case "enqueue" if event.target == "scheduled":
            return [("job.scheduled", {"scheduled_at": told(event.run_at or event.at)})]
        case "enqueue":
            return [("job.enqueued", {"priority": event.priority})]
        case "due" | "activated" if event.source != "retryable":
            return [("job.enqueued", {})]
        case "claim" | "acknowledge":
            return [("job.started", {"worker_id": event.holder, "attempt": run.attempt})]
        case "complete":
            return [("job.completed", {"duration_ms": spent or 0, "attempt": run.attempt})]
        case "fail" | "time_out" | "lose" | "refuse":
            return _failed(event, stored, run, spent)
        case "expire" | "drop":
            return _gone(event, stored, run)
        case "erased" if event.actor_id == PRUNED_BY:
            return [("dead_letter.pruned", {"reason": event.reason})]
        case "cancel":
            return [("job.cancelled", {"cancelled_by": event.actor_id, "reason": event.reason})]
        case _:
            return []


def _failed(
    event: Event, stored: Stored, run: _Run, spent: int | None
) -> Sequence[tuple[str, dict[str, Any]]]:
    message = next((f.message for f in stored.failures if f.at == event.at), "")
    error = {
        "code": event.code,
        "message": message or event.code,
        "retryable": event.target != "discarded",
    }
    failed = ("job.failed", {"attempt": run.attempt, "error": error, "duration_ms": spent})
    first = [*_late(event, stored, run), failed]
    if event.target == "discarded":
        return [*first, ("job.discarded", {"total_attempts": run.attempt, "last_error": error})]
    if event.target == "cancelled":
        return [("job.cancelled", {"reason": event.cause})]
    again = {
        "attempt": run.attempt,
        "max_attempts": stored.job.allowed,
        "next_retry_at": told(event.run_at or event.at),
        "error": error,
    }
    return [*first, ("job.retrying", again)]


def _gone(event: Event, stored: Stored, run: _Run) -> Sequence[tuple[str, dict[str, Any]]]:
    """Nobody had it when it ended: it waited too long, or there was no room for it."""
    gone = ("job.discarded", {"total_attempts": run.attempt})
    if event.name != "expire":
        return [gone]
    created = told(stored.job.created_at)
    expired = ("job.expired", {"expired_at": told(event.at), "created_at": created})
    return [*_late(event, stored, run), expired, gone]


def _late(event: Event, stored: Stored, run: _Run) -> Sequence[tuple[str, dict[str, Any]]]:
    """Which of its times was up, if that is why: of an attempt, of a silence, or of all of it."""
    job, total_us = stored.job, stored.body.retry.total_us
    began: int | None = run.started_at
    if event.code == TOTAL or (total_us and event.at >= job.created_at + total_us):
        kind, word, limit_us, began = "job.total_timeout", "total", total_us, job.created_at
    elif event.code == STALLED:
        stall_ms = kept_of(stored.body.meta).extras.stall_ms
        kind, word, limit_us = "job.stalled", "heartbeat", (stall_ms or 0) * 1_000
    elif event.name == "time_out":
        kind, word, limit_us = "job.timeout", "execution", job.active_us
    else:
        return []
    data: dict[str, Any] = {"timeout_kind": word, "attempt": run.attempt}
    if limit_us:
        data["limit_seconds"] = limit_us / 1e6
    if began is not None:
        data["elapsed_seconds"] = (event.at - began) / 1e6
    return [(kind, data)]


# Events of which an attempt is told: which one, and since when it runs.
_OF_ATTEMPTS: Final = frozenset(
    {"claim", "acknowledge", "complete", "fail", "time_out", "lose", "refuse", "expire", "drop"}
)


def is_of_attempt(event: Event) -> bool:
    """Whether telling the event takes the history of its job."""
    return event.kind == "job" and event.name in _OF_ATTEMPTS


def is_of_metadata(event: Event) -> bool:
    """Whether telling the event takes the metadata of its job."""
    return event.code == STALLED


def _run_at(history: Sequence[Event], version: int) -> _Run:
    attempt, started_at = 0, None
    for event in history[:version]:
        if event.name in ("claim", "dispatch"):
            attempt, started_at = attempt + 1, event.at
        elif event.name == "acknowledge":
            started_at = event.at
        elif event.name == "hand_back":
            attempt -= 1
    return _Run(attempt, started_at)
