"""Why something is refused here: one code, one sentence, and the field it is about."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from detent.errors import BadArguments, DetentError, EngineInUse, LimitError, StoreError
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.views import ENGINE
from detent.surfaces.http.exchange import Reply
from detent.surfaces.http.problems import Problem

BAD: Final = "BAD_MESSAGE"
BAD_SCHEMA: Final = "BAD_SCHEMA"
MISSING_FIELD: Final = "MISSING_FIELD"
SCHEMA_INVALID: Final = "SCHEMA_INVALID"
UNKNOWN_TYPE: Final = "UNKNOWN_JOB_TYPE"
CODES: Final = {
    BAD: 400,
    MISSING_FIELD: 400,
    SCHEMA_INVALID: 400,
    UNKNOWN_TYPE: 400,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "UNKNOWN_JOB": 404,
    "INVALID_TRANSITION": 409,
    "JOB_ENDED": 409,
    "LEASE_ENDED": 409,
    "NOT_HOLDER": 409,
    "NOT_REGISTERED": 409,
    "ENGINE_IN_USE": 409,
    "CONFLICT": 409,
    "TOO_LARGE": 413,
    BAD_SCHEMA: 422,
    "TOO_MUCH": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
"""Every code there is; a request over HTTP gets it with this status."""
_BY_STATUS: Final = {
    400: BAD,
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    413: "TOO_LARGE",
    429: "TOO_MUCH",
    503: "UNAVAILABLE",
}
_REFUSALS: Final = {
    "final": "JOB_ENDED",
    "no_edge": "INVALID_TRANSITION",
    "wrong_actor": "INVALID_TRANSITION",
    "lease_ended": "LEASE_ENDED",
    "unknown_job": "UNKNOWN_JOB",
    "bad_value": BAD,
}
_SERVER = 500


class Fault(Exception):
    """A refusal on its way to whoever asked; nothing has changed."""

    def __init__(self, code: str, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = {name: value for name, value in facts.items() if value is not None}

    @property
    def reply(self) -> dict[str, Any]:
        """The answer to a message."""
        error = {"code": self.code, "message": self.message, **self.facts}
        return {"ok": False, "error": error}


def misheard(error: msgspec.ValidationError) -> Fault:
    """A message that has not the shape it must have."""
    text = str(error)
    why, _, where = text.partition(" - at `$")
    field = where.rstrip("`").lstrip(".") or None
    code = BAD
    if "missing required field" in why:
        code = MISSING_FIELD
        name = why.rpartition("`")[0].rpartition("`")[2]
        field = f"{field}.{name}" if field else name
    return Fault(code, text, field=field)


def refused(refusal: Refusal, job: Job | None) -> Fault:
    """What the lifecycle refuses, and where the job stands instead."""
    code = _REFUSALS.get(refusal.code, "INVALID_TRANSITION")
    status = None if job is None else ENGINE.word(job)
    return Fault(code, refusal.message, status=status)


def unheld(job: Job | None, name: str, holder: str) -> Fault:
    """A message about a job that this engine has not: whose it is, or how it ended."""
    if job is None:
        return Fault("UNKNOWN_JOB", f"there is no job {name}")
    status = ENGINE.word(job)
    if status in ENGINE.final:
        return Fault("JOB_ENDED", f"the job is {status}, and stays so", status=status)
    if job.lease is None:
        why = f"the job is {status}: it must be dispatched to this engine first"
        return Fault("INVALID_TRANSITION", why, status=status)
    if job.holder != holder:
        return Fault("NOT_HOLDER", "another engine holds the job", status=status)
    return Fault("LEASE_ENDED", "the job is held under another lease by now", status=status)


def fault_of(error: Exception) -> Fault | None:
    """What an error of ours is outside; nothing for one that nobody foresaw."""
    match error:
        case Fault():
            return error
        case EngineInUse():
            return Fault("ENGINE_IN_USE", error.message)
        case LimitError():
            return Fault("TOO_LARGE", error.message, limit=error.fields.get("limit"))
        case StoreError():
            return Fault("UNAVAILABLE", "the store cannot be reached just now; try again")
        case BadArguments():
            field = str(error.fields.get("path") or "payload")
            return Fault(SCHEMA_INVALID, error.message, field=field)
        case DetentError():
            return Fault(BAD, error.message)
        case _:
            return None


def of_problem(problem: Problem) -> Fault:
    """The fault for a request that the gate refuses."""
    return Fault(_BY_STATUS.get(problem.status, BAD), problem.message)


def problem_reply(problem: Problem) -> Reply:
    """A problem as an HTTP reply, in the shape of a fault."""
    code = problem.code if problem.code in CODES else _BY_STATUS.get(problem.status, BAD)
    if problem.status >= _SERVER and code != "UNAVAILABLE":
        code = "INTERNAL"
    facts = {
        name: problem.details[name]
        for name in ("field", "limit", "path")
        if name in problem.details
    }
    body = msgspec.json.encode(Fault(code, problem.message, **facts).reply)
    return Reply(problem.status, body, headers=problem.headers)
