"""What the engine protocol tells of a job's life, made of its history and nothing else.

Each move that has a name there is told once, in the order of the history, with the instants that
were told before it: how long something took is always the difference of two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job.table import JobEvent, JobState
from detent.lifecycle.views.engines import CANCELLED_CODE, TELEMETRY, category, engine_of

_MS: Final = 1_000
_WORDS: Final = {
    "QUEUE_TIMEOUT": "no engine took it in time",
    CANCELLED_CODE: "it was called off",
}
"""What is said of an end that left no error behind."""


class About(msgspec.Struct, frozen=True):
    """What the history does not hold: the type, whose job it is, and the errors of attempts."""

    job_type: str
    user_id: str | None = None
    errors: Mapping[int, tuple[str, str]] = {}


class Told(msgspec.Struct, frozen=True):
    """One thing that is told, and the version of the record that it is about."""

    version: int
    name: str
    data: dict[str, Any]


class _Life:
    """What was told so far."""

    def __init__(self, about: About) -> None:
        self.about = about
        self.queued_at = 0
        self.started_at = 0
        self.attempt = 0
        self.engine: str | None = None

    def hear(self, event: Event) -> None:
        if event.name in (JobEvent.DISPATCH, JobEvent.CLAIM):
            self.attempt += 1
            self.engine = engine_of(event.holder)
        if event.target == JobState.ACTIVE:
            self.started_at = event.at // _MS
        if event.name == JobEvent.ENQUEUE:
            self.queued_at = event.at // _MS


def telemetry(history: Sequence[Event], about: About) -> list[Told]:
    """Everything that is told of a life, from its first event on."""
    life, told = _Life(about), list[Told]()
    for event in history:
        life.hear(event)
        name = TELEMETRY.get((event.name, event.target or ""))
        if name is not None:
            data = {"jobId": event.record, **_DATA[name](life, event)}
            told.append(Told(event.version, name, data))
    return told


def error_of(event: Event, attempt: int, about: About) -> str | None:
    """Why an attempt or a job ended as it did: `CODE: message`; nothing if nothing went wrong."""
    code = CANCELLED_CODE if event.target == JobState.CANCELLED else event.code
    if code is None:
        return None
    said, message = about.errors.get(attempt, ("", ""))
    if said != code:
        message = event.reason or _WORDS.get(code, "")
    return f"{code}: {message}" if message else code


def _queued(life: _Life, event: Event) -> dict[str, Any]:
    about = life.about
    return {"jobType": about.job_type, "userId": about.user_id, "queuedAt": life.queued_at}


def _dispatched(life: _Life, event: Event) -> dict[str, Any]:
    return {"engineId": life.engine, "dispatchedAt": event.at // _MS}


def _running(life: _Life, event: Event) -> dict[str, Any]:
    return {"engineId": life.engine, "startedAt": life.started_at}


def _completed(life: _Life, event: Event) -> dict[str, Any]:
    at = event.at // _MS
    return {"engineId": life.engine, "completedAt": at, "duration": at - life.started_at}


def _failed(life: _Life, event: Event) -> dict[str, Any]:
    at, ran = event.at // _MS, event.source == JobState.ACTIVE
    error = error_of(event, life.attempt, life.about) or event.name
    code = error.partition(": ")[0]
    return {
        "engineId": life.engine if ran else None,
        "failedAt": at,
        "error": error,
        "duration": at - (life.started_at if ran else life.queued_at),
        "category": category(code, started=ran).value,
    }


def _retrying(life: _Life, event: Event) -> dict[str, Any]:
    at = (event.run_at or event.at) // _MS
    error = error_of(event, life.attempt, life.about)
    return {"engineId": life.engine, "retryAt": at, "error": error}


_DATA: Final = {
    "JOB_QUEUED": _queued,
    "JOB_DISPATCHED": _dispatched,
    "JOB_RUNNING": _running,
    "JOB_COMPLETED": _completed,
    "JOB_FAILED": _failed,
    "JOB_RETRYING": _retrying,
}
