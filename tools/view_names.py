"""What the documents, and other job systems, call the same things: data of the page about views."""

from __future__ import annotations

import msgspec

from detent.lifecycle.job.table import JobState
from detent.lifecycle.views.table import ViewName

_S = JobState

# System -> our state -> its word. A state that is missing has no counterpart there.
FOREIGN_WORDS: dict[str, dict[str, str]] = {
    "Sidekiq": {
        _S.SCHEDULED: "scheduled",
        _S.AVAILABLE: "enqueued",
        _S.ACTIVE: "busy",
        _S.RETRYABLE: "retrying",
        _S.DISCARDED: "dead",
    },
    "Celery": {
        _S.SCHEDULED: "PENDING",
        _S.AVAILABLE: "PENDING",
        _S.PENDING: "PENDING",
        _S.ACTIVE: "STARTED",
        _S.RETRYABLE: "RETRY",
        _S.COMPLETED: "SUCCESS",
        _S.DISCARDED: "FAILURE",
        _S.CANCELLED: "REVOKED",
    },
    "BullMQ": {
        _S.SCHEDULED: "delayed",
        _S.AVAILABLE: "waiting",
        _S.ACTIVE: "active",
        _S.RETRYABLE: "delayed",
        _S.COMPLETED: "completed",
        _S.DISCARDED: "failed",
    },
    "Oban": {
        _S.SCHEDULED: "scheduled",
        _S.AVAILABLE: "available",
        _S.ACTIVE: "executing",
        _S.RETRYABLE: "retryable",
        _S.COMPLETED: "completed",
        _S.DISCARDED: "discarded",
        _S.CANCELLED: "cancelled",
    },
}


class Slot(msgspec.Struct, frozen=True):
    """A name in a document, and the kind of value that stands there.

    A dotted name leads into an object. `owner` says where it stands when that is not the job's own
    object.
    """

    name: str
    kind: str
    owner: str = "job"


class Shape(msgspec.Struct, frozen=True):
    """One row: a thing, what it is inside Detent, and where each document has it (or not)."""

    thing: str
    inside: str
    ojs: Slot | None = None
    rest: Slot | None = None
    engine: Slot | None = None
    jobnik: Slot | None = None

    def slot(self, view: ViewName) -> Slot | None:
        """Where that document has it, or `None` when it has no place for it."""
        found: Slot | None = getattr(self, view.value)
        return found


_UUID, _TEXT, _INT, _ANY, _OBJECT = "uuid", "string", "integer", "any JSON", "object"

SHAPES: tuple[Shape, ...] = (
    Shape(
        "id",
        "Job.id",
        Slot("id", _UUID),
        Slot("id", _UUID),
        Slot("jobId", _UUID),
        Slot("id", _UUID, "task"),
    ),
    Shape(
        "type",
        "type",
        Slot("type", "string, lower case"),
        Slot("action", _TEXT, "request; metadata in replies"),
        Slot("jobType", _TEXT),
        Slot("type", "string, at most 50", "stage"),
    ),
    Shape(
        "payload",
        "payload",
        Slot("args", "array"),
        Slot("inputs", _OBJECT, "request; metadata in replies"),
        Slot("payload", _OBJECT),
        Slot("data", _OBJECT, "task"),
    ),
    Shape(
        "queue",
        "Job.queue",
        Slot("options.queue", _TEXT),
        jobnik=Slot("type", "string, at most 50", "stage"),
    ),
    Shape(
        "priority",
        "Job.priority",
        Slot("options.priority", "integer, -100 to 100"),
        jobnik=Slot("priority", "VERY_HIGH, HIGH, MEDIUM, LOW or VERY_LOW", "job (workflow)"),
    ),
    Shape(
        "state",
        "Job.state",
        Slot("state", _TEXT),
        Slot("state", _TEXT),
        Slot("status", _TEXT),
        Slot("status", _TEXT, "task"),
    ),
    Shape(
        "attempts so far",
        "Job.attempt, Job.failures",
        Slot("attempt", "integer, claims"),
        engine=Slot("retryCount", "integer, claims after the first"),
        jobnik=Slot("attempts", "integer, failures", "task"),
    ),
    Shape(
        "attempts allowed",
        "Job.allowed",
        Slot("options.retry.max_attempts", _INT),
        engine=Slot("maxAttempts", _INT),
        jobnik=Slot("maxAttempts", _INT, "task"),
    ),
    Shape(
        "result",
        "result",
        Slot("result", _ANY),
        Slot("output", _ANY),
        Slot("result", _ANY),
    ),
    Shape(
        "error",
        "error of the last attempt",
        Slot("error", "object with code, type, message"),
        Slot("error", "object with code, message"),
        Slot("error", "string `CODE: message`"),
    ),
    Shape(
        "annotations",
        "meta",
        Slot("meta", _OBJECT),
        Slot("metadata", _OBJECT),
        jobnik=Slot("userMetadata", _OBJECT, "task"),
    ),
    Shape(
        "who asked for it",
        "owner",
        rest=Slot("metadata.userId", _TEXT),
        engine=Slot("userId", _TEXT),
    ),
    Shape(
        "holder",
        "Job.holder",
        Slot("worker_id", _TEXT),
        engine=Slot("engineId", _TEXT),
    ),
    Shape(
        "start time",
        "Job.run_at",
        Slot("options.scheduled_at", "RFC 3339 instant"),
    ),
    Shape(
        "time to live",
        "Job.expires_at",
        Slot("options.expires_at", "RFC 3339 instant"),
    ),
    Shape(
        "runs again",
        "Job.rerun_of",
        rest=Slot("retriedFrom", _UUID),
    ),
    Shape(
        "instants",
        "microseconds since the epoch",
        Slot("*_at", "RFC 3339 instant, milliseconds"),
        Slot("*At", "RFC 3339 instant"),
        Slot("*At", "milliseconds since the epoch"),
        Slot("*Time", "ISO 8601 instant, milliseconds", "task"),
    ),
)
