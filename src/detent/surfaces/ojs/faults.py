"""What goes wrong, in the words of Open Job Spec."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from detent.engine.enqueueing import Clash
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.views import OJS
from detent.surfaces.http.exchange import Reply
from detent.surfaces.http.problems import Problem

DOCS: Final = "https://detent.dev/ojs/errors"
_HINTS = {
    "not_found": "check the id and the tenant; what has ended long ago may have been forgotten",
    "conflict": "read the job first: it has moved on, or somebody else holds it",
    "duplicate": "use the job that is there, or choose another id or another unique policy",
    "invalid_payload": "send one JSON object in UTF-8",
    "invalid_request": "compare the request with the document at /ojs/v1/openapi.json",
    "validation_error": "compare the request with the document at /ojs/v1/openapi.json",
    "rate_limited": "wait as long as Retry-After says",
    "QUEUE_FULL": "wait until workers have caught up, or raise the bound of the queue",
    "unauthenticated": "send an API key as Authorization: Bearer <key>",
    "forbidden": "use a key with that scope, tenant and queue",
}
_HINT = "the message says what to change"
_TOO_MANY = 429


def invalid(message: str, **details: Any) -> Problem:
    """A field that is missing or cannot be."""
    return Problem(400, "invalid_request", message, **details)


def unsupported(message: str, **details: Any) -> Problem:
    """Something of the specification that is not here."""
    return Problem(422, "unsupported", message, **details)


def missing(what: str, name: str) -> Problem:
    """There is no such thing."""
    return Problem(404, "not_found", f"there is no {what} {name[:100]}", id=name[:100])


def conflict(job: Job, job_id: str, asked: str, expected: str) -> Problem:
    """The state of the job does not allow it."""
    state = OJS.word(job)
    return Problem(
        409,
        "conflict",
        f"cannot {asked} a job in state '{state}'",
        job_id=job_id,
        current_state=state,
        expected_state=expected,
    )


def duplicate(clash: Clash, unique_key: str | None = None) -> Problem:
    """Another job is in the way."""
    details: dict[str, Any] = {
        "existing_job_id": clash.by.id,
        "existing_job_state": OJS.word(clash.by),
    }
    if unique_key is not None:
        details["unique_key"] = unique_key
    what = "this id" if clash.what == "id" else f"this {clash.what} key"
    return Problem(409, "duplicate", f"a job with {what} exists already", **details)


def of_refusal(refusal: Refusal) -> Problem:
    """What the lifecycle refuses: an impossible value, or a move that is not allowed."""
    if refusal.code == "bad_value":
        return invalid(refusal.detail)
    status, code = (404, "not_found") if refusal.code == "unknown_job" else (409, "conflict")
    why = refusal.detail or refusal.message
    return Problem(status, code, why, current_state=refusal.state, refusal=refusal.code)


def problem_reply(problem: Problem, request_id: str) -> Reply:
    """The one shape of every error."""
    retryable = problem.retryable or problem.status == _TOO_MANY
    facts = {name: value for name, value in problem.details.items() if value is not None}
    hint = facts.pop("hint", None) or _HINTS.get(problem.code, _HINT)
    error = {
        "code": problem.code,
        "type": facts.pop("type", problem.code),
        "message": problem.message,
        "retryable": retryable,
        "details": facts,
        "request_id": request_id,
        "hint": hint,
        "docs_url": f"{DOCS}#{problem.code}",
    }
    body = msgspec.json.encode({"error": error})
    return Reply(problem.status, body, headers=problem.headers)
