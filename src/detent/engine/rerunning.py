"""Running an ended job again: what the new one has in common with the old one. Pure.

No edge leaves an end, so "again" is a new job that names the old one and says why. A member of a
workflow is run again on its own: its workflow has seen its end and cannot unsee it.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.event import By
from detent.lifecycle.job.table import JobEvent
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import Deadlines
from detent.stores.api import Idempotency, Stored

ONCE_US = 24 * 3_600 * 1_000_000


def unrepeatable(stored: Stored | None, by: By) -> Refusal | None:
    """Why there cannot be another one like it; what its profile has against it is asked later."""
    if stored is None:
        return refused("unknown_job", None, by, "no such job")
    if stored.job.ended_at is None:
        return refused("not_ended", stored, by, "it has not ended; cancel it first, or let it run")
    if stored.job.erased_at is not None:
        return refused("erased", stored, by, "its arguments were erased")
    return None


def unreadable(stored: Stored, by: By, why: str) -> Refusal:
    """That its secrets do not open here, so that no other job can have them."""
    return refused("secret_unreadable", stored, by, why)


def rerun_ask(stored: Stored, reason: str | None) -> Ask:
    """A job like this one, to start at once. It need not be unique: somebody asked for it."""
    job, body = stored.job, stored.body
    # A job that came without a policy has the allowance of its profile beside the usual policy.
    policy = body.retry if retry.allowed(body.retry) == job.allowed else None
    return Ask(
        type=body.type,
        payload=body.payload,
        meta=body.meta,
        tags=body.tags,
        schema=body.schema,
        key=body.key,
        tenant=job.tenant,
        profile=job.profile,
        queue=job.queue,
        priority=job.priority,
        delivery=job.delivery,
        deadlines=Deadlines(job.available_us, job.pending_us, job.active_us),
        retry=policy,
        losses_allowed=job.losses_allowed,
        rerun_of=job.id,
        reason=reason,
        # What was locked is locked; nothing else is secret about it now that was not then.
        secret=(),
    )


def once(ask: Ask, now: int) -> Ask:
    """The same, as one request: made again within a day, it is answered by the job of then."""
    told = hashlib.sha256(f"rerun {ask.rerun_of}".encode()).hexdigest()
    return replace(ask, idempotency=Idempotency(told, told, now + ONCE_US))


def refused(code: str, stored: Stored | None, by: By, why: str) -> Refusal:
    """That there is no such new job, and why."""
    state = None if stored is None else stored.job.state
    return j.JOB.refusal(code, state, JobEvent.ENQUEUE, by.kind, detail=why)
