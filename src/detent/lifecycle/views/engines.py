"""How the engine protocol sees a job: strictly queued, dispatched, running, then one of two ends.

Here too are the protocol's other vocabularies: what its telemetry calls each move, which category a
failure belongs to, and the names its states had before.
"""

from __future__ import annotations

from enum import StrEnum

from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import IN_HANDS, JobEvent, JobState
from detent.lifecycle.profile import Delivery
from detent.lifecycle.views.facts import counted_attempt, stands_in
from detent.lifecycle.views.table import Extension, Field, View, ViewName, When, Word

_S, _E = JobState, JobEvent
_MS = 1_000
_RUN = "#"
CANCELLED_CODE = "CANCELLED"
"""The error code under which a cancelled job is shown as failed."""

_OFFERED = When(
    "its current or last attempt was offered to an engine",
    lambda job: job.delivery is Delivery.PUSH and stands_in(job) in IN_HANDS,
)
_RAN = When(
    "running, or ended while it ran",
    lambda job: stands_in(job) is _S.ACTIVE,
)
_TAKEN = When(
    "dispatched, running, or ended while it ran",
    lambda job: job.state is _S.PENDING or stands_in(job) is _S.ACTIVE,
)


def _queued_at(job: Job) -> int:
    """A job with a later start counts as queued from its creation, as its word says."""
    return job.created_at if job.enqueued_at is None else job.enqueued_at


def holder_of(engine: str, boot: str) -> str:
    """Who holds the jobs of an engine: its id, and which of its runs it is."""
    return f"{engine}{_RUN}{boot}"


def engine_of(holder: str | None) -> str | None:
    """The engine behind a holder; one that is no engine is called by its own name."""
    return None if holder is None else holder.partition(_RUN)[0]


def _engine_id(job: Job) -> str | None:
    return engine_of(job.holder)


def _retry_count(job: Job) -> int:
    return max(0, counted_attempt(job) - 1)


def _cancelled_code(job: Job) -> str | None:
    return CANCELLED_CODE if job.state is _S.CANCELLED else None


ENGINE = View(
    name=ViewName.ENGINE,
    title="Engines",
    words=(
        Word("queued", (_S.SCHEDULED, _S.AVAILABLE, _S.RETRYABLE)),
        Word("dispatched", (_S.PENDING,)),
        Word("running", (_S.ACTIVE,)),
        Word("completed", (_S.COMPLETED,)),
        Word("failed", (_S.DISCARDED, _S.CANCELLED)),
    ),
    final=frozenset({"completed", "failed"}),
    fields=(
        Field("submittedAt", "created_at", divisor=_MS),
        Field("queuedAt", "enqueued_at, or created_at before that", divisor=_MS, take=_queued_at),
        Field("dispatchedAt", "claimed_at", _OFFERED, _MS),
        Field("startedAt", "started_at", _RAN, _MS),
        Field("completedAt", "ended_at", divisor=_MS),
        Field(
            "retryCount", "attempts after the first that were not handed back", take=_retry_count
        ),
        Field("maxAttempts", "allowed"),
        Field("engineId", "holder, without which run of it", _TAKEN, take=_engine_id),
        Field("error", f"`{CANCELLED_CODE}` when cancelled", take=_cancelled_code),
    ),
    moves=frozenset(
        {
            (None, "queued"),
            ("queued", "dispatched"),
            ("dispatched", "running"),
            ("running", "completed"),
            ("running", "failed"),
            ("queued", "failed"),
            ("dispatched", "failed"),
        }
    ),
    extensions=(
        Extension("running", "queued", "It is tried again or was handed back."),
        Extension("dispatched", "queued", "The offer came to nothing; it is offered again."),
        Extension(
            "queued",
            "running",
            "A job that workers claim from the store is never dispatched.",
            deliveries=(Delivery.PULL,),
        ),
    ),
)

OLD_NAMES: dict[str, str] = {
    "queued": "queued",
    "running": "started",
    "completed": "finished",
    "failed": "failed",
}
"""Word -> what it was called before; `dispatched` is new and had no name."""

TELEMETRY_PROGRESS = "JOB_PROGRESS"
"""Progress is a note, not an event: it is only ever sent live."""
_RETURNING = (_E.FAIL, _E.TIME_OUT, _E.REFUSE, _E.LOSE, _E.SNOOZE, _E.HAND_BACK)
_DISCARDING = (_E.FAIL, _E.TIME_OUT, _E.REFUSE, _E.LOSE, _E.EXPIRE, _E.DROP)

TELEMETRY: dict[tuple[str, str], str] = {
    (_E.ENQUEUE, _S.SCHEDULED): "JOB_QUEUED",
    (_E.ENQUEUE, _S.AVAILABLE): "JOB_QUEUED",
    (_E.DISPATCH, _S.PENDING): "JOB_DISPATCHED",
    (_E.ACKNOWLEDGE, _S.ACTIVE): "JOB_RUNNING",
    (_E.CLAIM, _S.ACTIVE): "JOB_RUNNING",
    (_E.COMPLETE, _S.COMPLETED): "JOB_COMPLETED",
    (_E.CANCEL, _S.CANCELLED): "JOB_FAILED",
    **{(event, _S.DISCARDED): "JOB_FAILED" for event in _DISCARDING},
    **{(event, _S.RETRYABLE): "JOB_RETRYING" for event in _RETURNING},
}
"""(Event, target) -> the name that is emitted; `due` and amendments are silent."""


class Category(StrEnum):
    """Whose failure it was."""

    VALIDATION = "validation"
    QUEUE = "queue"
    ENGINE = "engine"
    SYSTEM = "system"
    CANCELLED = "cancelled"


CATEGORIES: dict[str, Category] = {
    "UNKNOWN_JOB_TYPE": Category.VALIDATION,
    "MISSING_FIELD": Category.VALIDATION,
    "SCHEMA_INVALID": Category.VALIDATION,
    "QUEUE_TIMEOUT": Category.QUEUE,
    "queue_timeout": Category.QUEUE,
    "expired": Category.QUEUE,
    "overflow": Category.QUEUE,
    "queue_deleted": Category.QUEUE,
    "BAD_ASSET": Category.ENGINE,
    "INVALID_ENTITY": Category.ENGINE,
    "SCENE_BUILD": Category.ENGINE,
    "ENGINE_DISCONNECTED": Category.SYSTEM,
    "ENGINE_NOT_RESPONDING": Category.SYSTEM,
    "JOB_TIMEOUT": Category.SYSTEM,
    "INTERRUPTED": Category.SYSTEM,
    "OUT_OF_MEMORY": Category.SYSTEM,
    "NETWORK": Category.SYSTEM,
    "POISON": Category.SYSTEM,
    "TIMEOUT": Category.SYSTEM,
    "WORKER_LOST": Category.SYSTEM,
    "lease_lost": Category.SYSTEM,
    "not_acknowledged": Category.SYSTEM,
    "timeout": Category.SYSTEM,
    "visibility_timeout": Category.SYSTEM,
    CANCELLED_CODE: Category.CANCELLED,
}
"""Error code -> category. A code that is not listed is an engine's own."""

# An engine that goes away before it has started the job has cost it nothing but its turn.
_BEFORE_START = {"ENGINE_DISCONNECTED": Category.QUEUE}


def category(code: str, *, started: bool) -> Category:
    """The category of a failure with this code, before or after the job was started."""
    if not started and code in _BEFORE_START:
        return _BEFORE_START[code]
    return CATEGORIES.get(code, Category.ENGINE)
