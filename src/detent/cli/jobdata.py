"""Jobs as data: what `--json` says about them. Names and forms here are a contract."""

from __future__ import annotations

from typing import Any

import msgspec

from detent.cli.showing import at
from detent.engine.hurdles import Hurdle
from detent.engine.queries import Shown, Why
from detent.engine.secrets import redacted
from detent.lifecycle.event import Event
from detent.stores.api import Failure, Logged, Stored

_INSTANTS = ("created_at", "state_at", "run_at", "claimed_at", "ended_at", "expires_at")
_PLAIN = ("queue", "priority", "attempt", "failures", "losses", "held", "cause", "holder")
_LINKS = ("workflow", "step", "rerun_of")


def job_data(stored: Stored) -> dict[str, Any]:
    """A job in a list."""
    job, body = stored.job, stored.body
    return {
        "id": job.id,
        "tenant": job.tenant,
        "type": body.type,
        "state": job.state.value,
        **{name: getattr(job, name) for name in _PLAIN},
        **{name: at(getattr(job, name)) for name in _INSTANTS},
        **{name: getattr(job, name) for name in _LINKS},
        "tags": body.tags,
        "key": body.key,
    }


def shown_data(shown: Shown) -> dict[str, Any]:
    """A job with everything there is about it, but its log."""
    stored, body, note = shown.stored, shown.stored.body, shown.stored.note
    return {
        **job_data(stored),
        "story": shown.story.sentence,
        "waiting_us": shown.story.waiting_us,
        "working_us": shown.story.working_us,
        "payload": _json(redacted(body.payload)),
        "meta": _json(body.meta),
        "result": _json(stored.result),
        "progress": None if note is None else {"percent": note.percent, "text": note.text},
        "errors": [_error_data(one) for one in stored.failures],
        "stays": [
            {
                "state": one.state,
                "since": at(one.since),
                "until": at(one.until),
                "entered_by": one.entered_by,
            }
            for one in shown.story.stays
        ],
    }


def event_data(event: Event) -> dict[str, Any]:
    """A move of a history."""
    return {
        "version": event.version,
        "at": at(event.at),
        "event": event.name,
        "from": event.source,
        "to": event.target,
        "actor": event.actor,
        "actor_id": event.actor_id,
        "cause": event.cause,
        "code": event.code,
        "reason": event.reason,
        "command_id": event.command_id,
    }


def line_data(logged: Logged) -> dict[str, Any]:
    """A line of a log."""
    line = logged.line
    return {"cursor": logged.cursor, "at": at(line.at), "level": line.level, "text": line.text}


def why_data(why: Why) -> dict[str, Any]:
    """Why a job is where it is."""
    return {
        "id": why.job.id,
        "state": why.job.state.value,
        "at": at(why.at),
        "answer": why.answer,
        "waiting": why.is_waiting,
        "expected_at": at(why.expected_at),
        "hurdles": [_hurdle_data(one) for one in why.hurdles],
        "holding": None if why.holding is None else _told(why.holding),
        "ending": None if why.ending is None else _told(why.ending),
    }


def _hurdle_data(hurdle: Hurdle) -> dict[str, Any]:
    return {
        "name": hurdle.name,
        "verdict": hurdle.verdict,
        "says": hurdle.says,
        "clears_at": at(hurdle.clears_at),
    }


def _error_data(error: Failure) -> dict[str, Any]:
    return {**msgspec.structs.asdict(error), "at": at(error.at)}


def _told(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields of it, instants as texts; the sentence is the answer already."""
    moments = ("since", "until", "at", "limit_at", "cancel_at", "force_at")
    told = msgspec.structs.asdict(struct)
    told.pop("says")
    return {name: at(value) if name in moments else value for name, value in told.items()}


def _json(text: str | None) -> msgspec.Raw | None:
    """Exactly as it was stored: not a digit of it is read and written again."""
    return None if text is None else msgspec.Raw(text.encode())
