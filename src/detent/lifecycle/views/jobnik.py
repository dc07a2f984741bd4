"""How Jobnik sees a job (a task, there), its step (a stage) and its workflow (a job).

Jobnik knows no cancelled task: one that is cancelled while it waits keeps the word it had, one that
is cancelled in somebody's hands has failed. It knows no offer either: a task is in progress from
the moment somebody has it. It knows no leases: a task whose lease ran out stays in progress until
somebody else takes it, because its worker may well be busy with it and asks before it reports.
"""

from __future__ import annotations

from detent.lifecycle.job.table import IN_HANDS, JobState
from detent.lifecycle.views.table import Extension, Field, View, ViewName, When, Word
from detent.lifecycle.workflow.table import StepState, WorkflowState

_S = JobState
_TAKEN_BEFORE = When("claimed before", lambda job: job.attempt > 0)
_LOST = When("lost, and not taken again", lambda job: job.is_lost)
_ENDED_IN_HANDS = When("cancelled while somebody had it", lambda job: job.previous in IN_HANDS)
_FINISHED = When(
    "COMPLETED or FAILED",
    lambda job: job.state in (_S.COMPLETED, _S.DISCARDED) or job.previous in IN_HANDS,
)

JOBNIK = View(
    name=ViewName.JOBNIK,
    title="Jobnik tasks",
    words=(
        Word("IN_PROGRESS", (_S.PENDING, _S.ACTIVE)),
        Word("FAILED", (_S.CANCELLED,), _ENDED_IN_HANDS),
        Word("IN_PROGRESS", (_S.AVAILABLE, _S.RETRYABLE), _LOST),
        Word("RETRIED", (_S.AVAILABLE, _S.RETRYABLE, _S.CANCELLED), _TAKEN_BEFORE),
        Word("PENDING", (_S.SCHEDULED, _S.AVAILABLE, _S.RETRYABLE, _S.CANCELLED)),
        Word("COMPLETED", (_S.COMPLETED,)),
        Word("FAILED", (_S.DISCARDED,)),
    ),
    final=frozenset({"COMPLETED", "FAILED"}),
    fields=(
        Field("attempts", "failures"),
        Field("maxAttempts", "allowed"),
        Field("creationTime", "created_at"),
        Field("updateTime", "last_at"),
        Field("startTime", "claimed_at"),
        Field("endTime", "ended_at", _FINISHED),
    ),
    moves=frozenset(
        {
            (None, "PENDING"),
            ("PENDING", "IN_PROGRESS"),
            ("RETRIED", "IN_PROGRESS"),
            ("IN_PROGRESS", "COMPLETED"),
            ("IN_PROGRESS", "RETRIED"),
            ("IN_PROGRESS", "FAILED"),
        }
    ),
    extensions=(
        Extension("PENDING", "FAILED", "Its time to live ran out, or its queue is gone."),
        Extension("RETRIED", "FAILED", "The same, while it waited to be tried again."),
    ),
)

STAGE_WORDS: dict[str, str] = {state: state.value.upper() for state in StepState}
"""Step state -> stage status."""
WORKFLOW_WORDS: dict[str, str] = {state: state.value.upper() for state in WorkflowState}
"""Workflow state -> job status."""

SUMMARY_KEYS: dict[str, str] = {
    "PENDING": "pending",
    "IN_PROGRESS": "inProgress",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "CREATED": "created",
    "RETRIED": "retried",
}
"""Task status -> its counter in a stage's summary."""

# From the highest down; the middle three lie on the named priorities of Open Job Spec.
JOBNIK_PRIORITIES: dict[str, int] = {
    "VERY_HIGH": 20,
    "HIGH": 10,
    "MEDIUM": 0,
    "LOW": -10,
    "VERY_LOW": -20,
}
"""Name -> Detent's number, higher first."""
DEFAULT_PRIORITY = "MEDIUM"
"""What a Jobnik job gets when it names no priority."""
