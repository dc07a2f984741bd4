"""The shapes of requests and replies, for the document and for nothing else.

Requests are read by the code that serves them; what is said here is what that code takes.
"""

from __future__ import annotations

from typing import Final

from detent.lifecycle.views import OJS
from detent.surfaces.http.openapi import Schema, list_of, object_of, ref

_TEXT: Final[Schema] = {"type": "string"}
_WEIGHT: Final[Schema] = {"type": "number"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_ANY_OBJECT: Final[Schema] = {"type": "object"}
_AT: Final[Schema] = {"type": "string", "format": "date-time"}
_STATES = sorted({word.word for word in OJS.words})


PAGES: Final[dict[str, Schema]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": 200},
    "offset": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
}
_YEAR_S: Final = 366 * 86_400
_SECONDS: Final[Schema] = {"type": "number", "exclusiveMinimum": 0, "maximum": _YEAR_S}
_QUEUE: Final[Schema] = {"type": "string", "pattern": r"^[a-z0-9][a-z0-9\-.]*$", "maxLength": 128}
_RETRY: Final[Schema] = object_of(
    max_attempts={"type": "integer", "minimum": 0, "maximum": 100_000},
    initial_interval={"type": "string", "pattern": r"^PT\d{1,4}S$"},
    backoff_coefficient={"type": "number", "minimum": 1, "maximum": 1_000},
    jitter={"type": "boolean"},
    on_exhaustion={"enum": ["discard", "dead_letter"]},
)
_OPTIONS: Final[Schema] = object_of(
    queue=_QUEUE,
    priority={"type": "integer", "minimum": -100, "maximum": 100},
    retry=_RETRY,
    timeout_ms={"type": "integer", "minimum": 1},
    visibility_timeout_ms={"type": "integer", "minimum": 1},
    total_timeout=_SECONDS,
    heartbeat_timeout=_SECONDS,
    result_ttl={"type": "integer", "minimum": -1, "maximum": _YEAR_S},
    pending={"type": "boolean"},
    tags={"type": "array", "items": _TEXT},
)
_REPORT: Final[dict[str, Schema]] = {
    "job_id": _TEXT,
    "worker_id": _TEXT,
    "lease": _TEXT,
    "attempt": {"type": "integer"},
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": object_of(
        ("error",),
        error=object_of(
            ("code", "message", "retryable", "type", "details", "request_id", "hint", "docs_url"),
            code={"type": "string", "minLength": 1},
            type=_TEXT,
            message={"type": "string", "minLength": 1},
            retryable={"type": "boolean"},
            details=_ANY_OBJECT,
            request_id=_TEXT,
            hint=_TEXT,
            docs_url=_TEXT,
        ),
    ),
    "Anything": _ANY_OBJECT,
    "Job": object_of(
        ("specversion", "id", "type", "queue", "args", "meta", "priority", "state", "attempt"),
        specversion=_TEXT,
        id=_TEXT,
        type=_TEXT,
        queue=_TEXT,
        args={"type": "array"},
        meta=_ANY_OBJECT,
        priority={"type": "integer"},
        state={"enum": _STATES},
        attempt=_COUNT,
        max_attempts=_COUNT,
        retry=_ANY_OBJECT,
        tags={"type": "array", "items": _TEXT},
        created_at=_AT,
        enqueued_at=_AT,
        started_at=_AT,
        completed_at=_AT,
        cancelled_at=_AT,
        discarded_at=_AT,
        worker_id=_TEXT,
        lease=_TEXT,
        workflow_id=_TEXT,
        error=_ANY_OBJECT,
        errors={"type": "array", "items": _ANY_OBJECT},
    ),
    "JobRequest": object_of(
        ("type", "args"),
        type={"type": "string", "pattern": r"^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*$"},
        args={"type": "array"},
        meta=_ANY_OBJECT,
        options=_OPTIONS,
    ),
    "JobReply": object_of(("job",), job=ref("Job")),
    "JobsRequest": object_of(("jobs",), jobs={**list_of("JobRequest"), "minItems": 1}),
    "JobsReply": object_of(("jobs",), jobs=list_of("Job")),
    "FetchRequest": object_of(
        ("queues",),
        queues={
            "type": "array",
            "items": {"anyOf": [_QUEUE, object_of(("name",), name=_QUEUE, weight=_WEIGHT)]},
            "minItems": 1,
            "maxItems": 100,
        },
        count={"type": "integer", "minimum": 1, "maximum": 100},
        worker_id=_TEXT,
        visibility_timeout_ms={"type": "integer", "minimum": 1},
    ),
    "AckRequest": object_of(("job_id",), **_REPORT, result={}),
    "NackRequest": object_of(
        ("job_id", "error"),
        **_REPORT,
        error=object_of(code=_TEXT, message=_TEXT, type=_TEXT, retryable={"type": "boolean"}),
        requeue={"type": "boolean"},
    ),
    "ReportReply": object_of(
        ("id", "job_id", "state", "job"), state={"enum": _STATES}, job=ref("Job")
    ),
    "BeatRequest": object_of(
        ("worker_id",),
        worker_id={"type": "string", "minLength": 1, "maxLength": 200},
        active_jobs={"type": "array", "items": _TEXT},
        state=_TEXT,
    ),
    "CronRequest": object_of(
        ("name", "expression", "job_template"),
        name={"type": "string", "pattern": r"^[a-z0-9][a-z0-9\-.]*$", "maxLength": 255},
        expression=_TEXT,
        timezone=_TEXT,
        job_template=ref("JobRequest"),
    ),
    "WorkflowRequest": object_of(
        type={"enum": ["chain", "group", "batch"]},
        name=_TEXT,
        steps=list_of("JobRequest"),
        jobs=list_of("JobRequest"),
    ),
    "WorkflowReply": object_of(
        ("workflow",),
        workflow=object_of(
            ("id", "state", "steps"), id=_TEXT, state=_TEXT, steps={"type": "array"}
        ),
    ),
}
