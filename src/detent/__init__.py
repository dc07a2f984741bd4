"""Detent: background jobs that are always in exactly one named state.

The names below are loaded when they are first used: whatever needs a part waits for no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detent.app.asking import Call
    from detent.app.detent import Detent
    from detent.app.handle import Handle, LogLine, Status
    from detent.app.job import Job
    from detent.app.operating import Explanation, Obstacle
    from detent.app.policies import Backoff, Limit, Unique
    from detent.app.schedules import ScheduleStatus
    from detent.app.selecting import Found, Selection
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

    __version__: str

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
    "Found",
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

_HOMES = {
    "detent.app.asking": ("Call",),
    "detent.app.detent": ("Detent",),
    "detent.app.handle": ("Handle", "LogLine", "Status"),
    "detent.app.job": ("Job",),
    "detent.app.operating": ("Explanation", "Obstacle"),
    "detent.app.options": ("Backoff", "Limit", "Unique"),
    "detent.app.schedules": ("ScheduleStatus",),
    "detent.app.selecting": ("Found", "Selection"),
    "detent.app.shapes": ("Workflow", "batch", "chain", "dag", "group", "stages"),
    "detent.app.workflow": ("StepStatus", "WorkflowHandle", "WorkflowStatus"),
    "detent.engine.bulk": ("Effects",),
    "detent.engine.trace": ("Trace",),
    "detent.errors": (
        "BadArguments",
        "DetentError",
        "JobCancelled",
        "JobExists",
        "JobFailed",
        "ResultTimeout",
        "WorkflowAborted",
        "WorkflowFailed",
    ),
    "detent.runtime.context": ("Context", "Ending"),
    "detent.runtime.outcomes": ("Cancelled", "Discard", "Retry", "Snooze", "UpstreamError"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # Type checkers read the imports above, and complain of other names.

    def __getattr__(name: str) -> object:
        if name == "__version__":
            value = import_module("importlib.metadata").version("detent")
        elif name in _HOME_OF:
            value = getattr(import_module(_HOME_OF[name]), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return list(__all__)
