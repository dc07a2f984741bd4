"""A job as this surface shows it. Every word and instant of its lifecycle comes from the view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from detent.engine.secrets import redacted
from detent.engine.telling import told_at
from detent.lifecycle.event import Event
from detent.lifecycle.views import REST
from detent.lifecycle.views.shapes import inputs_of
from detent.stores.api import Stored


class Asker(msgspec.Struct, frozen=True, rename="camel"):
    """Who asked for a job, in which request: kept with it, and shown with it."""

    request_id: str | None = None
    user_id: str | None = None


def job_of(stored: Stored, error: dict[str, str] | None = None) -> dict[str, Any]:
    """The job without its log."""
    shown = REST.show(stored.job)
    told: dict[str, Any] = {"id": stored.job.id, "state": shown.state}
    for name, value in shown.fields.items():
        told[name] = told_at(value) if isinstance(value, int) else value
    if stored.result is not None:
        told["output"] = Raw(stored.result.encode())
    if error is not None:
        told["error"] = error
    told["metadata"] = _metadata(stored)
    return told


def status_of(stored: Stored, error: dict[str, str] | None = None) -> dict[str, Any]:
    """Where it stands, for those who follow it."""
    told: dict[str, Any] = {"state": REST.word(stored.job)}
    if stored.result is not None:
        told["output"] = Raw(stored.result.encode())
    if error is not None:
        told["error"] = error
    return told


def error_of(stored: Stored, history: Sequence[Event]) -> dict[str, str]:
    """Why it failed: what its last attempt said, or what ended it without a word."""
    last = next((event for event in reversed(history) if event.target == "discarded"), None)
    code = None if last is None else last.code
    failure = stored.failures[-1] if stored.failures else None
    if failure is not None and code in (None, failure.code):
        return {"code": failure.code, "message": failure.message}
    why = "" if last is None else last.reason or f"It ended by {last.name}"
    return {"code": code or "INTERNAL_SERVER_ERROR", "message": why}


def _metadata(stored: Stored) -> dict[str, Any]:
    asker = _asker(stored.body.meta)
    return {
        "requestId": asker.request_id,
        "userId": asker.user_id,
        "orgId": stored.job.tenant or None,
        "action": stored.body.type,
        "inputs": _inputs(stored.body.payload),
    }


def _asker(meta: str) -> Asker:
    try:
        return msgspec.json.decode(meta, type=Asker)
    except msgspec.DecodeError:
        # A job of another way in has metadata of its own.
        return Asker()


def _inputs(payload: str) -> Any:
    """The inputs as they were given, redacted."""
    return inputs_of(msgspec.json.decode(redacted(payload)))
