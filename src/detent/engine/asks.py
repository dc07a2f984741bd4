"""`Ask`, the request for a new job, and the job that it becomes. Nothing is stored. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import cast

import msgspec
from msgspec.structs import replace

from detent.engine.trace import Trace, with_trace
from detent.errors import NoSecretKey
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Idempotency, New, Unique

_ANY_STATE = tuple(state.name for state in j.JOB.states)
_USUAL = RetryPolicy()
"""Made once: a policy checks itself, which takes as long as the rest of a new job's body."""


class OnConflict(StrEnum):
    """What becomes of a unique job that meets another one."""

    REJECT = "reject"
    IGNORE = "ignore"
    REPLACE = "replace"


class Uniqueness(msgspec.Struct, frozen=True):
    """The job must be the only one of its fingerprint, among those of these states and this age."""

    fingerprint: str
    states: tuple[str, ...] = _ANY_STATE
    period_us: int | None = None
    on_conflict: OnConflict = OnConflict.REJECT


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A job that somebody wants; what is `None` comes from the profile or is made up.

    `secret` are the places in the payload (`kwargs.card.number`) that are to be locked. Whoever
    does not know the function of the type leaves it `None`: what its program declared counts.
    `ttl_us` is how long it may wait from its making on: a template has it, and no `expires_at`.
    """

    type: str
    payload: str = "[]"
    meta: str = "{}"
    tags: tuple[str, ...] = ()
    schema: str | None = None
    key: str | None = None
    id: str | None = None
    tenant: str = ""
    profile: str = "python"
    queue: str = "default"
    priority: int = 0
    delivery: str | None = None
    run_at: int | None = None
    expires_at: int | None = None
    ttl_us: int | None = None
    deadlines: Deadlines | None = None
    held: bool = False
    retry: RetryPolicy | None = None
    losses_allowed: int | None = None
    rerun_of: str | None = None
    workflow: str | None = None
    step: str | None = None
    unique: Uniqueness | None = None
    idempotency: Idempotency | None = None
    reason: str | None = None
    secret: tuple[str, ...] | None = None
    trace: Trace | None = None


def born(ask: Ask, job_id: str, now: int, ctx: j.Context) -> New | Refusal:
    """The job that is asked for, decided but not stored yet."""
    answer = j.decide(None, command_of(_dated(ask, now), job_id), now, ctx)
    if not isinstance(answer, j.Accepted):
        # A new job is never unchanged.
        return cast("Refusal", answer)
    wake_at, unique = j.next_wake(answer.job, now), _unique(ask, now)
    return New(answer.job, answer.events, body_of(ask), wake_at, unique, ask.idempotency)


def lengths_of(ask: Ask) -> list[int]:
    """How long the job may wait from its making on, for every reason that there is."""
    total_us = None if ask.retry is None else ask.retry.total_us
    return [one for one in (ask.ttl_us, total_us) if one is not None]


def _dated(ask: Ask, now: int) -> Ask:
    """The same request, with the moment until which the job may wait if it is made now."""
    lengths = lengths_of(ask)
    if not lengths:
        return ask
    end = now + min(lengths)
    return replace(ask, expires_at=end if ask.expires_at is None else min(ask.expires_at, end))


def body_of(ask: Ask) -> Body:
    """What the job is about. Nothing gets by here with a secret in the clear."""
    if ask.secret:
        raise NoSecretKey(f"{ask.type}: its secrets must be locked first", type=ask.type)
    policy = ask.retry or _USUAL
    meta = ask.meta if ask.trace is None else with_trace(ask.meta, ask.trace)
    return Body(ask.type, ask.payload, meta, ask.tags, policy, ask.schema, ask.key)


def command_of(ask: Ask, job_id: str) -> j.Enqueue:
    """The same request, as the lifecycle is asked."""
    return j.Enqueue(
        tenant=ask.tenant,
        id=job_id,
        profile=ask.profile,
        queue=ask.queue,
        priority=ask.priority,
        delivery=ask.delivery,
        run_at=ask.run_at,
        expires_at=ask.expires_at,
        allowed=None if ask.retry is None else retry.allowed(ask.retry),
        losses_allowed=ask.losses_allowed,
        deadlines=ask.deadlines,
        held=ask.held,
        rerun_of=ask.rerun_of,
        workflow=ask.workflow,
        step=ask.step,
    )


def _unique(ask: Ask, now: int) -> Unique | None:
    if ask.unique is None:
        return None
    since = None if ask.unique.period_us is None else now - ask.unique.period_us
    return Unique(ask.unique.fingerprint, ask.unique.states, since)


def is_keyed(ask: Ask) -> bool:
    """Whether another job may be in its way."""
    return ask.unique is not None or ask.idempotency is not None or ask.id is not None
