"""How a web front end sees a job: pending, running, and one of three ends."""

from __future__ import annotations

from detent.lifecycle.job.table import JobState
from detent.lifecycle.profile import ProfileName
from detent.lifecycle.views.table import EVERY_PROFILE, Extension, Field, View, ViewName, Word

_S = JobState
_RUNS_AGAIN = tuple(name for name in EVERY_PROFILE if name is not ProfileName.REST)

REST = View(
    name=ViewName.REST,
    title="REST",
    words=(
        Word("pending", (_S.SCHEDULED, _S.AVAILABLE, _S.PENDING, _S.RETRYABLE)),
        Word("running", (_S.ACTIVE,)),
        Word("success", (_S.COMPLETED,)),
        Word("failed", (_S.DISCARDED,)),
        Word("cancelled", (_S.CANCELLED,)),
    ),
    final=frozenset({"success", "failed", "cancelled"}),
    fields=(
        Field("createdAt", "created_at"),
        Field("startedAt", "started_at"),
        Field("completedAt", "ended_at"),
        Field("cancelRequestedAt", "cancel_at"),
        Field("retriedFrom", "rerun_of"),
    ),
    moves=frozenset(
        {
            (None, "pending"),
            ("pending", "running"),
            ("pending", "cancelled"),
            ("running", "success"),
            ("running", "failed"),
            ("running", "cancelled"),
        }
    ),
    extensions=(
        Extension(
            "pending",
            "failed",
            "It was never started: its time ran out, its queue is gone, or no engine took it.",
        ),
        Extension("running", "pending", "It is tried again or was handed back.", _RUNS_AGAIN),
    ),
)
