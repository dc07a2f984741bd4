"""The job lifecycle: one table, one record, one function that decides.

    answer = decide(job, Complete(lease="..."), now, Context(by, command_id))

`decide` answers a command and `tick` the clock; both give `Accepted` (the new record and the
events of one commit), `Unchanged`, or a `Refusal` that says why and what would be allowed.
"""

from __future__ import annotations

from detent.lifecycle.job.applying import apply, fold
from detent.lifecycle.job.commands import (
    Acknowledge,
    Activate,
    Annotate,
    Cancel,
    Checkpoint,
    Claim,
    Command,
    Complete,
    ConfirmCancel,
    Dispatch,
    Drop,
    Enqueue,
    Erase,
    Fail,
    HandBack,
    Hold,
    Interrupt,
    Lose,
    Move,
    Receive,
    Refuse,
    Report,
    Reprioritise,
    Reschedule,
    SeeCancel,
    Snooze,
)
from detent.lifecycle.job.deciding import decide, decide_late, tick
from detent.lifecycle.job.evidence import doubted
from detent.lifecycle.job.guards import GUARDS
from detent.lifecycle.job.invariants import broken
from detent.lifecycle.job.record import (
    OPEN,
    Accepted,
    Answer,
    Context,
    Gate,
    Job,
    Lease,
    Unchanged,
)
from detent.lifecycle.job.table import JOB, Cause, JobEvent, JobState
from detent.lifecycle.job.waking import next_wake

__all__ = [
    "GUARDS",
    "JOB",
    "OPEN",
    "Accepted",
    "Acknowledge",
    "Activate",
    "Annotate",
    "Answer",
    "Cancel",
    "Cause",
    "Checkpoint",
    "Claim",
    "Command",
    "Complete",
    "ConfirmCancel",
    "Context",
    "Dispatch",
    "Drop",
    "Enqueue",
    "Erase",
    "Fail",
    "Gate",
    "HandBack",
    "Hold",
    "Interrupt",
    "Job",
    "JobEvent",
    "JobState",
    "Lease",
    "Lose",
    "Move",
    "Receive",
    "Refuse",
    "Report",
    "Reprioritise",
    "Reschedule",
    "SeeCancel",
    "Snooze",
    "Unchanged",
    "apply",
    "broken",
    "decide",
    "decide_late",
    "doubted",
    "fold",
    "next_wake",
    "tick",
]
