"""The shapes of requests and replies, for the document and for nothing else.

Requests are read by the code that serves them; what is said here is what that code takes.
"""

from __future__ import annotations

from typing import Any, Final

from detent.lifecycle.views import REST
from detent.surfaces.http.openapi import Schema, list_of, object_of, ref
from detent.surfaces.rest.faults import CODES

_TEXT: Final[Schema] = {"type": "string"}
_ID: Final[Schema] = {"type": "string", "format": "uuid"}
_AT: Final[Schema] = {"type": "string", "format": "date-time"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_STATE: Final[Schema] = {"enum": list(dict.fromkeys(row.word for row in REST.words))}

CURSOR: Final[dict[str, Schema]] = {"cursor": _COUNT}
LIST: Final[dict[str, Schema]] = {
    "state": _STATE,
    "action": _TEXT,
    "cursor": _ID,
    "limit": {"type": "integer", "minimum": 1, "maximum": 100},
}
LOGS: Final[dict[str, Schema]] = {
    **CURSOR,
    "limit": {"type": "integer", "minimum": 1, "maximum": 1_000},
}
KEY: Final[dict[str, Schema]] = {
    "Idempotency-Key": {"type": "string", "pattern": r"^[!-~]{1,255}$", "maxLength": 255}
}
SEEN: Final[dict[str, Schema]] = {"Last-Event-ID": {"type": "string", "pattern": r"^[0-9]{1,18}$"}}

_JOB: Final[dict[str, Any]] = {
    "id": _TEXT,
    "state": _STATE,
    "createdAt": _AT,
    "startedAt": _AT,
    "completedAt": _AT,
    "cancelRequestedAt": _AT,
    "output": {},
    "error": object_of(("code", "message"), code=_TEXT, message=_TEXT),
    "retriedFrom": _TEXT,
    "metadata": object_of(
        ("requestId", "userId", "orgId", "action", "inputs"),
        requestId=_TEXT_OR_NULL,
        userId=_TEXT_OR_NULL,
        orgId=_TEXT_OR_NULL,
        action=_TEXT,
        inputs={},
    ),
}
_SHOWN: Final = ("id", "state", "createdAt", "metadata")

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": object_of(
        ("requestId", "error"),
        requestId=_ID,
        error=object_of(
            ("code", "message"),
            code={"enum": list(CODES)},
            message={"type": "string", "minLength": 1},
            details={"type": "object"},
        ),
    ),
    "StartRequest": object_of(
        ("action",),
        action={"type": "string", "minLength": 1, "maxLength": 255},
        inputs={"type": ["object", "null"]},
    ),
    "Job": object_of(
        (*_SHOWN, "logs"), **_JOB, logs={"type": "array", "items": _TEXT}, logsNextCursor=_COUNT
    ),
    "ListedJob": object_of(_SHOWN, **_JOB),
    "JobReply": object_of(("requestId", "job"), requestId=_ID, job=ref("Job")),
    "JobsReply": object_of(
        ("requestId", "jobs"), requestId=_ID, jobs=list_of("ListedJob"), nextCursor=_TEXT
    ),
    "Line": object_of(
        ("cursor", "line", "at", "level"), cursor=_COUNT, line=_TEXT, at=_AT, level=_TEXT
    ),
    "LogsReply": object_of(
        ("requestId", "lines", "nextCursor"),
        requestId=_ID,
        lines=list_of("Line"),
        nextCursor=_COUNT,
    ),
    "Manifest": object_of(
        ("requestId", "actions", "unknownActions"),
        requestId=_ID,
        actions={"type": ["array", "null"], "items": _TEXT},
        unknownActions={"enum": ["accepted", "refused"]},
    ),
    "Document": object_of(("openapi", "paths"), openapi=_TEXT, paths={"type": "object"}),
}
