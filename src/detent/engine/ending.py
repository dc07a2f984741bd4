"""Who holds a job that runs, and how one that has ended came to its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from detent.engine.telling import told_at, told_span
from detent.lifecycle.event import Event
from detent.lifecycle.job import JOB, Job, Lease
from detent.lifecycle.job.waking import limit_end
from detent.stores.api import Stored


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Who has the job, since when, and until when they are trusted without another sign of life.

    `limit_at` is when its time in this state is up; `force_at` when a cancel is enforced.
    """

    holder: str
    since: int
    until: int | None
    says: str
    is_wire: bool = False
    limit_at: int | None = None
    cancel_at: int | None = None
    force_at: int | None = None
    percent: int | None = None
    note: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended: the cause, who ended it and why, and the last error if there was one."""

    state: str
    at: int
    says: str
    cause: str | None = None
    actor: str = ""
    actor_id: str = ""
    reason: str | None = None
    code: str | None = None
    message: str = ""


def holding_of(stored: Stored, lease: Lease | None, now: int) -> Holding:
    """Who has it; `lease` is the row it is held by, if there is one to look at."""
    job, note = stored.job, stored.note
    until = None if lease is None else lease.until
    is_of_now = note is not None and note.attempt == job.attempt
    return Holding(
        holder=job.holder or "",
        since=job.claimed_at or job.state_at,
        until=until,
        says=_held(job, until, now),
        is_wire=job.wire,
        limit_at=limit_end(job),
        cancel_at=job.cancel_at,
        force_at=job.force_at,
        percent=note.percent if note and is_of_now else None,
        note=note.text if note and is_of_now else "",
    )


def _held(job: Job, until: int | None, now: int) -> str:
    since = job.claimed_at or job.state_at
    has = "was offered it" if job.state == "pending" else "runs it"
    # Before it began, it was later by a clock that was set back since.
    told = f"{job.holder} {has} for {told_span(max(now - since, 0))}, as attempt {job.attempt}"
    return f"{told}; {_trusted(until, now)}.{_asked(job)}"


def _trusted(until: int | None, now: int) -> str:
    if until is None:
        return "it is lost, and the job goes back in a moment"
    if until <= now:
        return f"it was silent since {told_at(until)} and may be lost"
    return f"it is trusted until {told_at(until)} without another sign of life"


def _asked(job: Job) -> str:
    if job.cancel_at is None:
        return ""
    forced = "" if job.force_at is None else f" and is forced to at {told_at(job.force_at)}"
    return f" It was asked to stop at {told_at(job.cancel_at)}{forced}."


def ending_of(stored: Stored, history: Sequence[Event]) -> Ending:
    """How it ended, from the event that ended it."""
    job = stored.job
    last = next(event for event in reversed(history) if event.target in JOB.terminal)
    error = stored.failures[-1] if stored.failures and job.state == "discarded" else None
    return Ending(
        state=job.state.value,
        at=last.at,
        says=_ended(job, last, error.message if error else ""),
        cause=job.cause,
        actor=last.actor,
        actor_id=last.actor_id,
        reason=last.reason,
        code=last.code,
        message=error.message if error else "",
    )


def _ended(job: Job, last: Event, message: str) -> str:
    who = f"{last.actor} {last.actor_id}".strip()
    why = f": {last.reason}" if last.reason else ""
    code = f" [{last.code}]" if last.code else ""
    broke = f" {message}" if message else ""
    how = f"{job.state.value.capitalize()} at {told_at(last.at)} by {who} ({job.cause}{why})"
    return f"{how}.{code}{broke}"
