"""What goes wrong, in the words of Jobnik: always `{message, code}`, never an empty body."""

from __future__ import annotations

from typing import Final

import msgspec

from detent.surfaces.http.exchange import Reply
from detent.surfaces.http.problems import Problem

UNKNOWN: Final = "UNKNOWN_ERROR"
_INVALID: Final = "VALIDATION_ERROR"
_STORE: Final = "DATABASE_RELATED_ERROR"
_STORE_CODES: Final = frozenset({"unavailable", "backend_error"})
_BAD_REQUEST: Final = 400
_SERVER_ERROR: Final = 500


def invalid(message: str) -> Problem:
    """A request that cannot be meant."""
    return Problem(_BAD_REQUEST, _INVALID, message)


def refused(code: str, message: str | None = None) -> Problem:
    """Something that the state of things does not allow."""
    return Problem(_BAD_REQUEST, code, message or code)


def missing(what: str) -> Problem:
    """There is no such job, stage or task, or none any more."""
    code = f"{what}_NOT_FOUND"
    return Problem(404, code, code)


def illegal(what: str, source: str, target: str) -> Problem:
    """A move that the state does not allow; clients compare the sentence."""
    why = f"Illegal status transition from {source} to {target}"
    return refused(f"ILLEGAL_{what}_STATUS_TRANSITION", why)


def lost_race() -> Problem:
    """Somebody else has changed the task in this moment, or has it now."""
    code = "TASK_STATUS_UPDATE_FAILED"
    return Problem(409, code, code)


def problem_reply(problem: Problem) -> Reply:
    """The one shape of every error.

    A failure inside is always 500: clients send a dequeue again at once when they hear 502 to 504.
    """
    status, code, message = problem.status, problem.code, problem.message
    if status >= _SERVER_ERROR:
        known = _STORE if code in _STORE_CODES else UNKNOWN
        status, code, message = _SERVER_ERROR, known, "Internal Server Error"
    elif not code.isupper():
        code = _INVALID if status == _BAD_REQUEST else UNKNOWN
        if message.startswith(("the body", "body")):
            # Refused before it came here; clients look for the place in front.
            message = f"request/{message.removeprefix('the ')}"
    body = msgspec.json.encode({"message": message, "code": code})
    return Reply(status, body, headers=problem.headers)
