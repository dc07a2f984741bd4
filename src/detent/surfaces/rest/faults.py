"""The closed table of error codes, and the one shape in which a problem is told."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from detent.errors import BadArguments, DetentError, LimitError
from detent.lifecycle.machine import Refusal
from detent.surfaces.http.exchange import Reply
from detent.surfaces.http.problems import Problem

BAD, UNFIT = "BAD_REQUEST", "VALIDATION_ERROR"
CODES: Final = {
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    BAD: 400,
    UNFIT: 400,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "RATE_LIMITED": 429,
    "UPSTREAM_ERROR": 502,
    "INTERNAL_SERVER_ERROR": 500,
    "SERVICE_UNAVAILABLE": 503,
}
"""Every code there is, and the status it comes with."""
_BY_STATUS = {status: code for code, status in CODES.items() if code != UNFIT}
_SERVER = 500
_INSIDE = "something went wrong inside; the log has more under this request id"
_PLAIN = frozenset(CODES)


def bad(message: str, **details: Any) -> Problem:
    """The shape of the request is wrong."""
    return Problem(400, BAD, message, **details)


def unfit(message: str, **fields: str) -> Problem:
    """Values do not fit; each field is named with what is wrong about it."""
    return Problem(400, UNFIT, message, fields=fields)


def misfit(error: DetentError) -> Problem:
    """Arguments that the engine itself refuses."""
    if isinstance(error, BadArguments):
        place = str(error.fields.get("path", "")).removeprefix("kwargs.")
        why = str(error.fields.get("why") or error.message)
        return unfit(error.message, **{f"inputs.{place}" if place else "inputs": why})
    return unfit(error.message, **{_limited(error): error.message})


def _limited(error: DetentError) -> str:
    is_name = isinstance(error, LimitError) and error.fields.get("limit") == "NAME_CHARS_MAX"
    return "action" if is_name else "inputs"


def missing(name: str) -> Problem:
    """There is no such job, or it is somebody else's."""
    return Problem(404, "NOT_FOUND", f"there is no job {name[:100]}")


def conflict(message: str, **details: Any) -> Problem:
    """It is not in the state for that."""
    return Problem(409, "CONFLICT", message, **details)


def of_refusal(refusal: Refusal) -> Problem:
    """What the lifecycle refuses: an impossible value, or a move that is not allowed."""
    why = refusal.detail or refusal.message
    return unfit(why, request=why) if refusal.code == "bad_value" else conflict(why)


def problem_reply(problem: Problem, request_id: str) -> Reply:
    """The one shape of every error.

    Few things about HTTP itself have a status that the table does not name (405, 408, 421, 431):
    they keep it, as bad requests.
    """
    code = problem.code if problem.code in _PLAIN else _BY_STATUS.get(problem.status, BAD)
    status, message, details = problem.status, problem.message, _told(problem)
    if status >= _SERVER and code not in ("SERVICE_UNAVAILABLE", "UPSTREAM_ERROR"):
        code, status, message, details = "INTERNAL_SERVER_ERROR", 500, _INSIDE, {}
    error: dict[str, Any] = {"code": code, "message": message}
    if details:
        error["details"] = details
    body = msgspec.json.encode({"requestId": request_id, "error": error})
    return Reply(status, body, headers=problem.headers)


def _told(problem: Problem) -> dict[str, Any]:
    return {name: value for name, value in problem.details.items() if value is not None}
