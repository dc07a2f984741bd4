"""Detent: background jobs that are always in exactly one named state."""

from __future__ import annotations

from importlib.metadata import version as _version

from detent.app.asking import Call
from detent.app.detent import Detent
from detent.app.handle import Handle, LogLine, Status
from detent.app.job import Job
from detent.app.operating import Explanation, Obstacle, Selection
from detent.app.options import Backoff, Limit, Unique
from detent.app.schedules import ScheduleStatus
from detent.app.shapes import Workflow, batch, chain, dag, group, stages
from detent.app.workflow import StepStatus, WorkflowHandle, WorkflowStatus
from detent.engine.bulk import Effects
from detent.engine.trace import Trace
from detent.errors import (
    BadArguments,
    DetentError,
    JobCancelled,
    JobExists,
    JobFailed,
    ResultTimeout,
    WorkflowAborted,
    WorkflowFailed,
)
from detent.runtime.context import Context, Ending
from detent.runtime.outcomes import Cancelled, Discard, Retry, Snooze, UpstreamError

__all__ = [
    "Backoff",
    "BadArguments",
    "Call",
    "Cancelled",
    "Context",
    "Detent",
    "DetentError",
    "Discard",
    "Effects",
    "Ending",
    "Explanation",
    "Handle",
    "Job",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "Limit",
    "LogLine",
    "Obstacle",
    "ResultTimeout",
    "Retry",
    "ScheduleStatus",
    "Selection",
    "Snooze",
    "Status",
    "StepStatus",
    "Trace",
    "Unique",
    "UpstreamError",
    "Workflow",
    "WorkflowAborted",
    "WorkflowFailed",
    "WorkflowHandle",
    "WorkflowStatus",
    "__version__",
    "batch",
    "chain",
    "dag",
    "group",
    "stages",
]

__version__ = _version("detent")
