"""A job as Open Job Spec shows it: the words of its view, and what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine.dropping import DROP
from detent.engine.lasting import KEEP
from detent.engine.losing import LOST
from detent.engine.secrets import redacted
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.job.table import Cause
from detent.lifecycle.views import OJS
from detent.lifecycle.views.facts import counted_attempt
from detent.stores.api import Failure, Stored
from detent.surfaces.ojs.policies import retry_shown
from detent.surfaces.ojs.reading import EXTRAS, Extras
from detent.surfaces.ojs.wire import instant, public_tenant, told

ANONYMOUS: Final = "anonymous"
"""Who holds a job that was fetched without saying for whom."""
SPEC: Final = "1.0"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_EXTRAS = msgspec.json.Decoder(Extras)
_MARK = f'"{EXTRAS}"'
_SCHEDULE = '"schedule"'
_NONE = Extras()
_EXPIRED: Final = ("expired", "It was not begun before it expired.")
_ENDS: Final[Mapping[str | None, tuple[str, str]]] = {
    Cause.TTL: ("enqueue_ttl_expired", "It waited for longer than it was to wait."),
    Cause.OVERFLOW: ("overflow", "There was no room for it, and it was not to wait for any."),
    Cause.QUEUE_DELETED: ("queue_deleted", "Its queue was deleted."),
}
"""Why jobs are discarded that nobody has in hands, in the words of the specification."""


class _Slot(msgspec.Struct, frozen=True):
    """Where a job of a schedule says it comes from."""

    name: str
    at: str
    by_hand: bool


class Kept(msgspec.Struct, frozen=True):
    """What a job's metadata holds: what users put there, and what is kept for us."""

    meta: Raw
    extras: Extras = _NONE


def kept_of(text: str) -> Kept:
    """The two parts of the metadata."""
    if _MARK not in text and _SCHEDULE not in text:
        return Kept(Raw(text.encode()))
    fields = _OBJECT.decode(text)
    extras, *_ = (fields.pop(name, None) for name in (EXTRAS, KEEP, DROP))
    meta = Raw(msgspec.json.encode({**fields, **_slot_of(fields.get("schedule"))}))
    return Kept(meta) if extras is None else Kept(meta, _EXTRAS.decode(extras))


def _slot_of(raw: Raw | None) -> dict[str, str]:
    """The same in the words of this surface; a user's own word of that name is not meant."""
    if raw is None:
        return {}
    try:
        slot = msgspec.json.decode(raw, type=_Slot)
    except msgspec.DecodeError:
        return {}
    return {"cron_name": slot.name, "cron_triggered_at": slot.at}


def shown(stored: Stored, job_id: str, payload: str | None = None) -> dict[str, Any]:
    """The whole envelope under the id it is known by. Secrets are told only in `payload`."""
    job, body, kept = stored.job, stored.body, kept_of(stored.body.meta)
    seen = OJS.show(job)
    fields: dict[str, Any] = {
        "specversion": SPEC,
        "id": job_id,
        "type": body.type,
        "queue": job.queue,
        "args": _args(redacted(body.payload) if payload is None else payload),
        "meta": _meta(kept.meta, public_tenant(job.tenant)),
        "priority": job.priority,
        "state": seen.state,
        "retry": retry_shown(body.retry),
        "tags": body.tags,
    }
    for name, value in seen.fields.items():
        fields[name] = told(value) if name.endswith("_at") and isinstance(value, int) else value
    if "next_attempt_at" in fields:
        # Two documents of the specification have two names for it.
        fields["next_retry_at"] = fields["next_attempt_at"]
    if fields.get("worker_id") == ANONYMOUS:
        del fields["worker_id"]
    _echo(fields, job, kept.extras)
    _outcome(fields, stored)
    if body.schema is not None:
        fields["schema"] = body.schema
    if job.workflow is not None:
        fields["workflow_id"] = job.workflow
    # What nobody here knows comes back as it was sent, but never instead of what we know.
    return {**kept.extras.fields, **fields}


def _meta(meta: Raw, tenant: str) -> Raw:
    """The user's metadata; it names the job's tenant, if the job has one."""
    if not tenant:
        return meta
    return Raw(msgspec.json.encode({"tenant_id": tenant, **_OBJECT.decode(meta)}))


def _args(payload: str) -> Raw:
    """The arguments as an array; of other ways in a job may have anything else."""
    text = payload.strip()
    return Raw((text if text.startswith("[") else f"[{text}]").encode())


def _echo(fields: dict[str, Any], job: Job, extras: Extras) -> None:
    """What a client has said, byte for byte, unless it has been changed since."""
    for name, said in (("scheduled_at", extras.scheduled_at), ("expires_at", extras.expires_at)):
        now = job.run_at if name == "scheduled_at" else job.expires_at
        if said is not None and (name not in fields or instant(name, said, 0)[0] == now):
            fields[name] = said
    kept: dict[str, Any] = {
        **extras.policies,
        "timeout_ms": extras.timeout_ms,
        "visibility_timeout_ms": extras.visibility_ms,
    }
    fields.update((name, value) for name, value in kept.items() if value is not None)


def _outcome(fields: dict[str, Any], stored: Stored) -> None:
    errors = errors_shown(stored)
    if errors:
        fields["errors"] = errors
        if stored.job.state != "completed":
            fields["error"] = errors[-1]
    if stored.result is not None:
        fields["result"] = Raw(stored.result.encode())


def errors_shown(stored: Stored) -> list[dict[str, Any]]:
    """The errors of all attempts, oldest first; attempts that were handed back do not count.

    A job that was discarded while it waited has why as its last one.
    """
    as_kept = stored.job.handed_back == 0
    told_of = [
        error_shown(one, one.attempt if as_kept else number)
        for number, one in enumerate(stored.failures, start=1)
    ]
    end = _end_of(stored)
    return told_of if end is None else [*told_of, error_shown(end, counted_attempt(stored.job))]


def _end_of(stored: Stored) -> Failure | None:
    """Why a job that nobody had was discarded, if nothing else tells."""
    job, at = stored.job, stored.job.ended_at
    if job.state is not JobState.DISCARDED or job.cause not in _ENDS or at is None:
        return None
    if stored.failures and stored.failures[-1].at >= at:
        return None
    is_absolute = kept_of(stored.body.meta).extras.expires_at is not None
    code, why = _EXPIRED if job.cause == Cause.TTL and is_absolute else _ENDS[job.cause]
    return Failure(job.attempt, at, code, why)


def error_shown(failure: Failure, attempt: int) -> dict[str, Any]:
    """One error of the history."""
    told_of: dict[str, Any] = {
        "code": failure.code,
        "type": failure.code if failure.type in ("", LOST) else failure.type,
        "message": failure.message or failure.code,
        "attempt": attempt,
        "occurred_at": told(failure.at),
    }
    if failure.details is not None:
        told_of["details"] = Raw(failure.details.encode())
    if failure.backtrace is not None:
        told_of["backtrace"] = failure.backtrace
    return told_of
