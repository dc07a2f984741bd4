"""What other job systems call the same situations, for people who come from there. Read only."""

from __future__ import annotations

from detent.lifecycle.job.table import JobState

_S = JobState

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
"""System -> our state -> its word. A state that is missing has no counterpart there."""


def foreign_word(system: str, state: str) -> str | None:
    """What that system calls the state, or `None` when it has no word for it."""
    return FOREIGN_WORDS[system].get(state)
