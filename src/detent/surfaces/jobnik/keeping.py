"""What Jobnik keeps beside the lifecycle: of a job with its workflow, of a stage in a small record,
of a task in its metadata."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine.keeping import KEPT_US, step_id
from detent.lifecycle.views.jobnik import DEFAULT_PRIORITY
from detent.lifecycle.workflow import Step
from detent.stores.api import Key, Record, Stored
from detent.surfaces.http.exchange import Call

KIND: Final = "jobnik-stage"
NO_TRACE: Final = f"00-{'0' * 32}-{'0' * 16}-00"
TRACEPARENT: Final = re.compile(r"[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}", re.ASCII)
_MEMBER: Final = r"[ \t]*[a-z0-9_*/@-]+=[^,=\x00-\x1f]+"
TRACESTATE: Final = re.compile(rf"(?:{_MEMBER}(?:,{_MEMBER})*)?", re.ASCII)
TRACESTATE_MAX: Final = 512
_UUID_CHARS: Final = 36
_UNTYPED: Final = "a Jobnik stage without a type, which nobody can ask for"
"""Longer than any type, so that it is nobody else's."""


class TraceFields(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Whose request it belongs to; all that Jobnik keeps has it."""

    traceparent: str = NO_TRACE
    tracestate: str | None = None


class JobKept(TraceFields, frozen=True, omit_defaults=True, kw_only=True):
    """Beside a workflow; `at` is when something of it was last changed."""

    data: Raw
    user_metadata: Raw = Raw(b"{}")
    priority: str = DEFAULT_PRIORITY
    at: int = 0


class StageKept(TraceFields, frozen=True, omit_defaults=True, kw_only=True):
    """Beside a step: which workflow it is in, and what it is for."""

    job: str
    type: str
    data: Raw
    user_metadata: Raw = Raw(b"{}")

    def name(self, stage: str) -> str:
        """What its step is called: people read the type, and the id makes it the only one."""
        return step_name(self.type, stage)

    def step(self, stage: str) -> str:
        """The id of its step."""
        return step_id(self.job, self.name(stage))


class TaskKept(TraceFields, frozen=True, omit_defaults=True, kw_only=True):
    """In the metadata of a job; the trace is where every part of Detent looks for it."""

    user_metadata: Raw = msgspec.field(default=Raw(b"{}"), name="userMetadata")
    max_attempts: int | None = msgspec.field(default=None, name="maxAttempts")


class _Meta(msgspec.Struct, frozen=True):
    jobnik: JobKept


def step_name(type_: str, stage: str) -> str:
    """The name of a stage's step."""
    return f"{type_} {stage}"


def stage_of(step: Step | str) -> str:
    """The id of the stage whose step this is."""
    return (step if isinstance(step, str) else step.id)[-_UUID_CHARS:]


def queue_of(type_: str) -> str:
    """The queue that the tasks of such stages wait in; it is also the type of their jobs."""
    return type_ or _UNTYPED


def job_meta(kept: JobKept) -> str:
    """What stands beside the workflow."""
    return msgspec.json.encode(_Meta(kept)).decode()


def job_kept(meta: str) -> JobKept | None:
    """The same read again; `None` for a workflow that is no job of Jobnik."""
    try:
        return msgspec.json.decode(meta, type=_Meta).jobnik
    except msgspec.DecodeError:
        return None


def stage_kept(record: Record) -> StageKept:
    """What a small record says of a stage."""
    return msgspec.json.decode(record.data or "", type=StageKept)


def task_kept(stored: Stored) -> TaskKept:
    """What the metadata of a job says of a task; others may have put anything there."""
    try:
        return msgspec.json.decode(stored.body.meta, type=TaskKept)
    except msgspec.DecodeError:
        return TaskKept()


def written(kept: Any, key: Key, version: int, now: int) -> Record:
    """The small record of a stage; now and then it is asked whether its workflow is still there."""
    data = msgspec.json.encode(kept).decode()
    return Record(KIND, key[1], version, data, now + KEPT_US, key[0])


def trace_of(call: Call, fields: dict[str, Any]) -> dict[str, Any]:
    """The trace that was given, or else that of the request; a tracestate alone is dropped."""
    if "traceparent" in fields:
        state = fields.get("tracestate") or None
        return {"traceparent": fields["traceparent"], "tracestate": state}
    parent, state = call.header("traceparent") or "", call.header("tracestate") or ""
    if TRACEPARENT.fullmatch(parent) is None:
        return {}
    is_sound = len(state) <= TRACESTATE_MAX and TRACESTATE.fullmatch(state) is not None
    return {"traceparent": parent, "tracestate": state if state and is_sound else None}
