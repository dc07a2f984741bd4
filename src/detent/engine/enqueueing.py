"""New jobs: what a caller asks for becomes a unit, and a conflict becomes an answer.

A unique job that meets another is refused, dropped in favour of the other, or put in its place, as
the caller chose. A request with an idempotency key that was made before answers the job of then.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias, cast

import msgspec

from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.identity import Identity
from detent.engine.secrets import Secrets
from detent.errors import NoSecretKey, StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import (
    Body,
    Committed,
    Idempotency,
    Move,
    New,
    Outcome,
    Own,
    Stale,
    Store,
    Taken,
    Unique,
    Unit,
)

__all__ = ["Ask", "Clash", "Enqueued", "Enqueueing", "OnConflict", "Uniqueness", "born"]

_ANY_STATE = tuple(state.name for state in j.JOB.states)


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

    `secret` are the places in the payload (`kwargs.card.number`) that are to be locked.
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
    secret: tuple[str, ...] = ()


class Enqueued(msgspec.Struct, frozen=True):
    """The job that answers the request: a new one, or one that was there (`is_new` false)."""

    job: Job
    is_new: bool = True
    replaced: str | None = None


class Clash(msgspec.Struct, frozen=True):
    """Another job is in the way: `what` is `id`, `unique` or `idempotency`."""

    what: str
    by: Job


Answer: TypeAlias = Enqueued | Clash | Refusal


class _Open:
    """A request without an answer; `rival` is the job that it is to replace."""

    __slots__ = ("answer", "ask", "command_id", "job_id", "rival")

    def __init__(self, ask: Ask, command_id: str, job_id: str) -> None:
        self.ask = ask
        self.command_id = command_id
        self.job_id = job_id
        self.rival: Job | None = None
        self.answer: Answer | None = None


class Enqueueing:
    """Makes jobs. Those with keys go apart: they may have to wait for somebody's transaction."""

    def __init__(self, store: Store, identity: Identity, secrets: Secrets) -> None:
        self._store = store
        self._identity = identity
        self._secrets = secrets
        self._plain = Coalescer(store)
        self._keyed = Coalescer(store)

    async def enqueue(self, asks: Sequence[Ask], by: By) -> list[Answer]:
        """The answer to each request, in order; new jobs are durable."""
        asked = [self._opened(ask) for ask in asks]
        for _ in range(TRIES_MAX):
            left = [one for one in asked if one.answer is None]
            if not left:
                break
            await self._try([one for one in left if not _is_keyed(one.ask)], by, self._plain)
            await self._try([one for one in left if _is_keyed(one.ask)], by, self._keyed)
        return [_answered(one) for one in asked]

    async def close(self) -> None:
        """Finish what was asked for."""
        await self._plain.close()
        await self._keyed.close()

    def _opened(self, ask: Ask) -> _Open:
        job_id = ask.id or self._identity.id()
        return _Open(self._secrets.sealed(ask, job_id), self._identity.id(), job_id)

    async def _try(self, asked: Sequence[_Open], by: By, coalescer: Coalescer) -> None:
        units: list[tuple[_Open, Unit]] = []
        for one in asked:
            made = self._made(one, by)
            if isinstance(made, Unit):
                units.append((one, made))
            else:
                one.answer = made
        outcomes = await coalescer.commit([unit for _, unit in units]) if units else []
        for (one, unit), outcome in zip(units, outcomes, strict=True):
            _hear(one, unit, outcome)

    def _made(self, one: _Open, by: By) -> Unit | Clash | Refusal:
        now = self._store.now()
        ctx = j.Context(by, one.command_id, place=self._identity.place(), reason=one.ask.reason)
        new = born(one.ask, one.job_id, now, ctx)
        if isinstance(new, Refusal):
            return new
        replacing = _replacing(one, by, now)
        if isinstance(replacing, Clash):
            return replacing
        return Unit(one.command_id, moves=replacing, new=(new,))


def _replacing(one: _Open, by: By, now: int) -> tuple[Move, ...] | Clash:
    """The end of the job that this one takes the place of; one that runs is left alone."""
    if one.rival is None:
        return ()
    ctx = j.Context(by, one.command_id, reason=f"replaced by {one.job_id}")
    answer = j.decide(one.rival, j.Cancel(Cause.REPLACED), now, ctx)
    if not isinstance(answer, j.Accepted) or answer.job.ended_at is None:
        return Clash("unique", one.rival)
    return (Move(one.rival.version, answer.job, answer.events),)


def born(ask: Ask, job_id: str, now: int, ctx: j.Context) -> New | Refusal:
    """The job that is asked for, decided but not stored yet."""
    answer = j.decide(None, _command(ask, job_id), now, ctx)
    if not isinstance(answer, j.Accepted):
        # A new job is never unchanged.
        return cast("Refusal", answer)
    wake_at, unique = j.next_wake(answer.job, now), _unique(ask, now)
    return New(answer.job, answer.events, body_of(ask), wake_at, unique, ask.idempotency)


def body_of(ask: Ask) -> Body:
    """What the job is about. Nothing gets by here with a secret in the clear."""
    if ask.secret:
        raise NoSecretKey(f"{ask.type}: its secrets must be locked first", type=ask.type)
    policy = ask.retry or RetryPolicy()
    return Body(ask.type, ask.payload, ask.meta, ask.tags, policy, ask.schema, ask.key)


def _command(ask: Ask, job_id: str) -> j.Enqueue:
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


def _is_keyed(ask: Ask) -> bool:
    return ask.unique is not None or ask.idempotency is not None or ask.id is not None


def _hear(one: _Open, unit: Unit, outcome: Outcome) -> None:
    replaced = None if one.rival is None else one.rival.id
    match outcome:
        case Committed() | Own():
            one.answer = Enqueued(unit.new[0].job, replaced=replaced)
        case Taken(what="idempotency", by=job, differs=False):
            one.answer = Enqueued(job, is_new=False)
        case Taken(what="unique", by=job) if one.ask.unique is not None:
            _clash(one, one.ask.unique.on_conflict, job)
        case Taken(what=what, by=job):
            one.answer = Clash(what, job)
        case Stale():
            # The job that was to be replaced has moved on: who is in the way is asked anew.
            one.rival = None
        case _:
            raise Unstorable(f"{one.job_id} cannot be stored: {outcome}", id=one.job_id)


def _clash(one: _Open, choice: OnConflict, job: Job) -> None:
    if choice is OnConflict.REPLACE and one.rival is None:
        one.rival = job
    elif choice is OnConflict.IGNORE:
        one.answer = Enqueued(job, is_new=False)
    else:
        one.answer = Clash("unique", job)


def _answered(one: _Open) -> Answer:
    if one.answer is None:
        raise StoreBusy(f"{one.job_id} was in somebody's way {TRIES_MAX} times", id=one.job_id)
    return one.answer
