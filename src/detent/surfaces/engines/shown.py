"""A job as this surface shows it. Every word and instant of its lifecycle comes from the view."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine.secrets import redacted
from detent.lifecycle.job import Job
from detent.lifecycle.views import ENGINE, inputs_of
from detent.stores.api import Stored

_INSTANTS: Final = ("submittedAt", "queuedAt", "dispatchedAt", "startedAt", "completedAt")
_USUAL: Final = ("engineId", "retryCount", "maxAttempts")


class Asker(msgspec.Struct, frozen=True, rename="camel"):
    """Whose job it is: kept with it."""

    user_id: str | None = None


def user_of(meta: str) -> str | None:
    """Whose job it is; one of another way in may be nobody's."""
    try:
        return msgspec.json.decode(meta, type=Asker).user_id
    except msgspec.DecodeError:
        return None


def payload_of(text: str) -> Any:
    """What an engine is given: arguments by name."""
    return inputs_of(msgspec.json.decode(text))


def job_of(stored: Stored, error: str | None, at: Job | None = None) -> dict[str, Any]:
    """The job object; what has not happened is null. With `at` as it was then."""
    job = stored.job if at is None else at
    shown = ENGINE.show(job)
    is_now = job.version == stored.job.version
    result = stored.result if is_now else None
    return {
        "jobId": job.id,
        "userId": user_of(stored.body.meta),
        "jobType": stored.body.type,
        "payload": payload_of(redacted(stored.body.payload)),
        "status": shown.state,
        **{name: shown.fields.get(name) for name in (*_INSTANTS, *_USUAL)},
        "result": None if result is None else Raw(result.encode()),
        "error": error,
    }
