"""What went wrong with a request, in one shape that every surface tells in its own words."""

from __future__ import annotations

import logging
from typing import Any

from detent.errors import (
    BadArguments,
    BadOption,
    BadPolicy,
    BadSchedule,
    BatchTooLarge,
    DetentError,
    IllegalTransition,
    JobExists,
    LimitError,
    PayloadTooLarge,
    ResultTooLarge,
    ScheduleExists,
    SecretError,
    StoreError,
    UnknownJob,
    UnknownSchedule,
    UnknownWebhook,
    UnknownWorkflow,
    WebhookError,
)

_log = logging.getLogger(__name__)

_STATUSES: tuple[tuple[type[DetentError], int, str], ...] = (
    (UnknownJob, 404, "not_found"),
    (UnknownWorkflow, 404, "not_found"),
    (UnknownSchedule, 404, "not_found"),
    (UnknownWebhook, 404, "not_found"),
    (ScheduleExists, 409, "conflict"),
    (JobExists, 409, "duplicate"),
    (IllegalTransition, 409, "conflict"),
    (PayloadTooLarge, 413, "envelope_too_large"),
    (ResultTooLarge, 413, "result_too_large"),
    (BatchTooLarge, 413, "batch_too_large"),
    (LimitError, 400, "invalid_request"),
    (BadArguments, 400, "invalid_request"),
    (BadSchedule, 400, "invalid_request"),
    (BadPolicy, 400, "invalid_request"),
    (BadOption, 400, "invalid_request"),
    (WebhookError, 400, "invalid_request"),
    (SecretError, 422, "secret_error"),
)
"""The first that fits says what an error of ours is outside."""


class Problem(Exception):
    """Why a request is refused: a status, a stable code, a sentence, and the facts."""

    def __init__(
        self, status: int, code: str, message: str, *, retryable: bool = False, **details: Any
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details
        self.headers: tuple[tuple[str, str], ...] = ()

    def copied(self) -> Problem:
        """The same for somebody else."""
        found = Problem(
            self.status, self.code, self.message, retryable=self.retryable, **self.details
        )
        return found.with_headers(*self.headers)

    def with_headers(self, *headers: tuple[str, str]) -> Problem:
        """The same with headers of its own."""
        self.headers = headers
        return self


def problem_of(error: Exception, request_id: str) -> Problem:
    """What an exception is outside. What nobody foresaw is written down here, and told nowhere."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, StoreError) and not isinstance(error, BatchTooLarge):
        return _of_store(error, request_id)
    if isinstance(error, DetentError):
        for kind, status, code in _STATUSES:
            if isinstance(error, kind):
                details = {"detent_code": error.code, **_plain(error.fields)}
                return Problem(status, code, error.message, retryable=error.retryable, **details)
    _log.error("request %s failed", request_id, exc_info=error)
    why = "something went wrong inside; the log has more under this request id"
    return Problem(500, "internal_error", why, retryable=True)


def _of_store(error: StoreError, request_id: str) -> Problem:
    _log.warning("request %s: %s", request_id, error.message)
    if error.code == "bad_name":
        return Problem(400, "invalid_request", error.message)
    if error.retryable or error.code == "store_closed":
        why = "the store cannot be reached just now"
        found = Problem(503, "unavailable", why, retryable=True, detent_code=error.code)
        return found.with_headers(("retry-after", "1"))
    why = "the store could not do this"
    return Problem(500, "backend_error", why, retryable=True, detent_code=error.code)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """The facts that JSON can say as they are."""
    return {name: value for name, value in fields.items() if isinstance(value, str | int | float)}
