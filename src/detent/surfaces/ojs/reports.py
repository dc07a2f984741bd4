"""What workers report: how it is read, and how it is answered. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType

from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Failure
from detent.surfaces.http.exchange import Call
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.faults import conflict, invalid
from detent.surfaces.ojs.wire import instant

_CODE_MAX: Final = 255
_BACKTRACE_MAX: Final = 10_000


class Report(msgspec.Struct, frozen=True):
    """What every report may name: the job, who speaks, under which lease, about which attempt."""

    job_id: str | None = None
    worker_id: str | None = None
    lease: str | None = None
    attempt: int | None = None


class Ack(Report, frozen=True):
    """A success."""

    result: Raw | UnsetType = msgspec.UNSET


class Error(msgspec.Struct, frozen=True):
    """What went wrong, as its worker tells it."""

    code: str | None = None
    message: str | None = None
    type: str | None = None
    retryable: bool | None = None
    details: Raw | UnsetType = msgspec.UNSET
    backtrace: str | list[str] | None = None
    rate_limit_until: str | None = None


class Nack(Report, frozen=True):
    """A failure, or a job that is given back."""

    error: Error | None = None
    requeue: bool = False


def refused(refusal: Refusal, job: Job, name: str, asked: str) -> Problem:
    """Why a report is not taken, and what the job is now."""
    found = conflict(job, name, asked, "active")
    if refusal.detail:
        found.message = f"{found.message}: {refusal.detail}"
    found.details["refusal"] = refusal.code
    return found


def name_of(call: Call, report: Report) -> str:
    """The job that a report is about: in its path, or in its body."""
    name = call.param("id") if "id" in call.params else report.job_id
    if not name:
        raise invalid("job_id is needed", field="job_id")
    return name


def flat(job: dict[str, Any]) -> dict[str, Any]:
    """The reply that all readers understand: the job, and what matters of it beside."""
    names = (
        "state",
        "attempt",
        "max_attempts",
        "retry_delay_ms",
        "next_attempt_at",
        "completed_at",
        "discarded_at",
    )
    some = {name: job[name] for name in names if name in job}
    return {"id": job["id"], "job_id": job["id"], **some, "job": job}


def failure_of(error: Error, job: Job, now: int) -> Failure:
    """The error as it is kept; what is too long is cut."""
    code = (error.code or error.type or "handler_error")[:_CODE_MAX]
    trace: str | Sequence[str] | None = error.backtrace
    if isinstance(trace, list):
        trace = "\n".join(trace)
    return Failure(
        attempt=job.attempt,
        at=now,
        code=code,
        message=error.message or "",
        type=(error.type or "")[:_CODE_MAX],
        details=None if isinstance(error.details, UnsetType) else text_of(error.details),
        backtrace=None if trace is None else str(trace)[:_BACKTRACE_MAX],
    )


def info_of(error: Error, failure: Failure) -> ErrorInfo:
    """What the retry policy looks at."""
    details = msgspec.json.decode(failure.details) if failure.details else None
    kind = details.get("error_class") if isinstance(details, dict) else None
    named = kind if isinstance(kind, str) else None
    return ErrorInfo(failure.code, error.type, named, error.retryable)


def delay_of(error: Error, now: int) -> int | None:
    """How long the job is to wait: its worker was told when to come again."""
    if error.rate_limit_until is None:
        return None
    return max(instant("error.rate_limit_until", error.rate_limit_until, now)[0] - now, 0)


def text_of(raw: Raw) -> str:
    """A value as it was written."""
    return bytes(raw).decode()
