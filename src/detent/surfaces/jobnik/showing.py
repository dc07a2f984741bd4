"""Jobs, stages and tasks as Jobnik writes them; what has no value is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from detent.engine.telling import told_at
from detent.lifecycle.views.jobnik import JOBNIK, STAGE_WORDS, SUMMARY_KEYS, WORKFLOW_WORDS
from detent.lifecycle.workflow import (
    Flow,
    Step,
    StepState,
    Tally,
    step_percentage,
    workflow_percentage,
)
from detent.stores.api import Stored
from detent.surfaces.jobnik.keeping import JobKept, StageKept, TraceFields, stage_of, task_kept

_TIMES = frozenset({"creationTime", "updateTime", "startTime", "endTime"})


class FoundJob(msgspec.Struct, frozen=True):
    """A job of Jobnik: its workflow, its name and what is kept beside it."""

    flow: Flow
    name: str
    kept: JobKept

    @property
    def status(self) -> str:
        """Its status."""
        return WORKFLOW_WORDS[self.flow.workflow.state]


def job_shown(found: FoundJob, stages: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A job, with its stages if they were asked for."""
    flow, kept = found.flow, found.kept
    shown: dict[str, Any] = {
        "id": flow.workflow.id,
        "name": found.name,
        "data": kept.data,
        "userMetadata": kept.user_metadata,
        "priority": kept.priority,
        "status": found.status,
        "percentage": workflow_percentage(flow.steps),
        "creationTime": told_at(flow.workflow.created_at),
        "updateTime": told_at(_updated(flow, kept)),
        **_trace(kept),
    }
    return shown if stages is None else {**shown, "stages": stages}


def _updated(flow: Flow, kept: JobKept) -> int:
    """When status, percentage or what is kept last changed; a stage that is added changes none."""
    completed = (
        step.ended_at or 0 for step in flow.steps.values() if step.state is StepState.COMPLETED
    )
    return max(flow.workflow.state_at, kept.at, *completed)


def stage_shown(step: Step, tally: Tally, kept: StageKept) -> dict[str, Any]:
    """A stage, without its tasks."""
    return {
        "id": stage_of(step),
        "jobId": step.workflow,
        "type": kept.type,
        "data": kept.data,
        "userMetadata": kept.user_metadata,
        "order": step.order,
        "status": STAGE_WORDS[step.state],
        "percentage": step_percentage(tally),
        "summary": summary_of(tally),
        **_trace(kept),
    }


def summary_of(tally: Tally) -> dict[str, int]:
    """How many tasks have each status. None is ever seen before it is pending."""
    counts = {"created": 0, **msgspec.structs.asdict(tally)}
    counts["retried"] -= tally.lost
    counts["in_progress"] += tally.lost
    shown = {key: counts[word.lower()] for word, key in SUMMARY_KEYS.items()}
    return {**shown, "total": tally.total}


def task_shown(stored: Stored) -> dict[str, Any]:
    """A task, through the view of its job."""
    job, kept = stored.job, task_kept(stored)
    view = JOBNIK.show(job)
    fields: dict[str, Any] = {
        name: told_at(int(value)) if name in _TIMES else value
        for name, value in view.fields.items()
    }
    if kept.max_attempts is not None:
        fields["maxAttempts"] = kept.max_attempts
    return {
        "id": job.id,
        "stageId": stage_of(job.step or ""),
        "data": data_of(stored),
        "userMetadata": kept.user_metadata,
        "status": view.state,
        **fields,
        **_trace(kept),
    }


def data_of(stored: Stored) -> Raw:
    """The input of a task: it is the one argument of its job."""
    try:
        [data] = msgspec.json.decode(stored.body.payload, type=list[Raw])
    except (msgspec.DecodeError, ValueError):
        return Raw(b"{}")
    return data


def _trace(kept: TraceFields) -> dict[str, str]:
    state = {} if kept.tracestate is None else {"tracestate": kept.tracestate}
    return {"traceparent": kept.traceparent, **state}
