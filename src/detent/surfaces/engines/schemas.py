"""The shapes of requests and replies, for the document and for nothing else."""

from __future__ import annotations

from typing import Any, Final

from detent.lifecycle.views import ENGINE
from detent.surfaces.engines.messages import DEADLINE_MS_MAX

Schema = dict[str, Any]
_TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}
_OPTIONAL: Final[Schema] = {"anyOf": [_TEXT, {"type": "null"}]}
_AT: Final[Schema] = {"type": ["integer", "null"]}
_SPAN: Final[Schema] = {"type": ["integer", "null"], "minimum": 1, "maximum": DEADLINE_MS_MAX}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_INSTANTS: Final = ("submittedAt", "queuedAt", "dispatchedAt", "startedAt", "completedAt")
SCHEMAS: Final[dict[str, Schema]] = {
    "Anything": {},
    "Error": _object(
        ("ok", "error"),
        ok={"const": False},
        error=_object(
            ("code", "message"),
            code={"type": "string"},
            message={"type": "string"},
            field={"type": "string"},
        ),
    ),
    "Submit": _object(
        ("jobType",),
        jobType=_TEXT,
        payload={"type": "object"},
        userId=_OPTIONAL,
        queue=_OPTIONAL,
        maxAttempts={"type": "integer", "minimum": 1, "maximum": 100},
        deadlines=_object(queued=_SPAN, dispatched=_SPAN, running=_SPAN),
    ),
    "Job": _object(
        ("jobId", "jobType", "payload", "status", "retryCount", *_INSTANTS),
        jobId={"type": "string"},
        userId={"type": ["string", "null"]},
        jobType={"type": "string"},
        payload={"type": "object"},
        status={"enum": list(dict.fromkeys(row.word for row in ENGINE.words))},
        retryCount={"type": "integer", "minimum": 0},
        maxAttempts={"type": "integer"},
        engineId={"type": ["string", "null"]},
        result={},
        error={"type": ["string", "null"]},
        **dict.fromkeys(_INSTANTS, _AT),
    ),
    "Schema": _object(("schema",), schema={"type": ["object", "boolean"]}),
    "JobTypes": _object(
        ("jobTypes",),
        jobTypes={"type": "array", "items": _object(("jobType",), jobType={"type": "string"})},
    ),
}
