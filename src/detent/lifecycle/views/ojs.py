"""How Open Job Spec 1.0 sees a job, and what it calls a workflow.

Its eight states are ours, with one difference: `pending` there also means "staged, waits to be
activated", which Detent keeps as a hold on the job. Hence a held job that waits is shown as
`pending`; one that is held while it runs goes on and is shown as `active`.
"""

from __future__ import annotations

from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import ENDED, IN_HANDS, PARKED, JobEvent, JobState
from detent.lifecycle.views.facts import counted_attempt, run_started, stands_in
from detent.lifecycle.views.table import Extension, Field, View, ViewName, When, Word
from detent.lifecycle.workflow.table import WorkflowState

_S = JobState
_RELEASED = (JobEvent.LOSE, JobEvent.HAND_BACK)
_MS = 1_000


def _is_staged(job: Job) -> bool:
    return job.held and stands_in(job) in PARKED


_HELD = When("held", _is_staged)
_ENTERED = When("not held while it waits or waited", lambda job: not _is_staged(job))
_STARTED = When(
    "its latest claim led to a run whose reservation was neither lost nor handed back",
    lambda job: run_started(job) and job.returned_by not in _RELEASED,
)
_RUN_ENDED_IT = When(
    "completed, or discarded by the end of an attempt",
    lambda job: (
        job.state is _S.COMPLETED or (job.state is _S.DISCARDED and job.previous in IN_HANDS)
    ),
)
_RETRYING = When(
    "shown as `retryable`", lambda job: job.state is _S.RETRYABLE and not _is_staged(job)
)
_SCHEDULED = When("in state scheduled", lambda job: job.state is _S.SCHEDULED)
_BACKED_OFF = When(
    "live, and its last attempt failed with a delay",
    lambda job: job.state not in ENDED and bool(job.delay_us),
)
_ACTIVE = When("active", lambda job: job.state is _S.ACTIVE)
_CANCELLED = When("cancelled", lambda job: job.state is _S.CANCELLED)
_DISCARDED = When("discarded", lambda job: job.state is _S.DISCARDED)


def _previous_word(job: Job) -> str:
    return "pending" if _is_staged(job) else stands_in(job).value


OJS = View(
    name=ViewName.OJS,
    title="Open Job Spec",
    words=(
        Word("pending", (_S.SCHEDULED, _S.AVAILABLE, _S.RETRYABLE), _HELD),
        Word("scheduled", (_S.SCHEDULED,)),
        Word("available", (_S.AVAILABLE,)),
        Word("retryable", (_S.RETRYABLE,)),
        Word("pending", (_S.PENDING,)),
        Word("active", (_S.ACTIVE,)),
        Word("completed", (_S.COMPLETED,)),
        Word("discarded", (_S.DISCARDED,)),
        Word("cancelled", (_S.CANCELLED,)),
    ),
    final=frozenset({"completed", "discarded", "cancelled"}),
    fields=(
        Field("attempt", "attempts that were not handed back", take=counted_attempt),
        Field("max_attempts", "allowed"),
        Field("created_at", "created_at"),
        Field("scheduled_at", "run_at", _SCHEDULED),
        Field("expires_at", "expires_at"),
        Field("activated_at", "activated_at"),
        Field("enqueued_at", "enqueued_at", _ENTERED),
        Field("started_at", "started_at", _STARTED),
        Field("completed_at", "ended_at", _RUN_ENDED_IT),
        Field("cancelled_at", "ended_at", _CANCELLED),
        Field("discarded_at", "ended_at", _DISCARDED),
        Field("cancel_requested_at", "cancel_at"),
        Field("previous_state", "the state it ended from", _CANCELLED, take=_previous_word),
        Field("next_attempt_at", "run_at", _RETRYING),
        Field("retry_delay_ms", "delay_us", _BACKED_OFF, _MS),
        Field("worker_id", "holder", _ACTIVE),
    ),
    moves=frozenset(
        {
            (None, "scheduled"),
            (None, "available"),
            (None, "pending"),
            ("scheduled", "available"),
            ("pending", "available"),
            ("available", "active"),
            ("active", "completed"),
            ("active", "retryable"),
            ("active", "discarded"),
            ("active", "available"),
            ("active", "cancelled"),
            ("retryable", "available"),
            *((word, "cancelled") for word in ("scheduled", "available", "pending", "retryable")),
            *((word, "discarded") for word in ("scheduled", "available", "pending", "retryable")),
        }
    ),
    # Running a dead letter again keeps the id shown there, but it is another record: no job shown
    # here ever leaves a final state.
    extensions=(
        Extension("available", "pending", "Offered to an engine, or held by somebody."),
        Extension("pending", "active", "The engine it was offered to has started it."),
        Extension("pending", "retryable", "The offer came to nothing, or a hold was lifted."),
        Extension("scheduled", "pending", "Held before its start time."),
        Extension("pending", "scheduled", "A hold was lifted before its start time."),
        Extension("retryable", "pending", "Held while it waited to be tried again."),
        Extension("active", "pending", "It was held while it ran and has come back."),
    ),
)

OJS_WORKFLOW_WORDS: dict[str, str] = {
    WorkflowState.CREATED: "running",
    WorkflowState.PENDING: "running",
    WorkflowState.IN_PROGRESS: "running",
    WorkflowState.PAUSED: "running",
    WorkflowState.COMPLETED: "completed",
    WorkflowState.FAILED: "failed",
    WorkflowState.ABORTED: "cancelled",
}
"""Workflow state -> the word of Open Job Spec, which calls a workflow running from its creation."""

OJS_PRIORITIES: dict[str, int] = {"HIGH": 10, "NORMAL": 0, "LOW": -10}
"""The named priorities; any whole number from -100 to 100 is legal, higher first."""
