"""The options of a job: given to the app, to its type or to one call, the nearest word counts.

People give lengths of time in seconds or as a timedelta, and moments as datetimes with a zone; here
they become what the engine goes by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

import msgspec

from detent.app.tracing import TraceLike
from detent.engine.enqueueing import OnConflict, Uniqueness
from detent.errors import BadOption
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy, Strategy
from detent.runtime.ending import type_of
from detent.runtime.outcomes import Span, us_of
from detent.stores import limits as store_limits

__all__ = [
    "Backoff",
    "CallOptions",
    "JobOptions",
    "Limit",
    "Unique",
    "UsingOptions",
    "deadlines_of",
    "instant_of",
    "need_known",
    "retry_of",
    "start_of",
    "uniqueness_of",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIVE = tuple(state for state in JobState if state not in ENDED)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently a failed job is tried again.

    It waits `first`, then `factor` times as long each time, up to `most`; with `jitter` between
    half and one and a half of that, so that jobs which failed together do not return together.
    Errors of a class in `never`, or derived from one, are not tried again.
    """

    retries: int = 2
    first: Span = 1.0
    factor: float = 2.0
    most: Span = 300.0
    jitter: bool = True
    never: Sequence[type[BaseException] | str] = ()

    def policy(self) -> RetryPolicy:
        """The same as a policy of the lifecycle."""
        return RetryPolicy(
            max_attempts=self.retries + 1,
            initial_us=us_of(self.first),
            coefficient=self.factor,
            max_us=max(us_of(self.most), us_of(self.first)),
            jitter=self.jitter,
            non_retryable=tuple(n if isinstance(n, str) else type_of(n) for n in self.never),
            strategy=Strategy.EXPONENTIAL,
        )


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one key run at once, start within `per`, or how far apart they start."""

    concurrency: int | None = None
    rate: int | None = None
    per: Span = 1.0
    spacing: Span | None = None

    def row(self) -> store_limits.Limit:
        """The same as the store has it."""
        spacing = None if self.spacing is None else us_of(self.spacing)
        return store_limits.Limit(self.concurrency, self.rate, us_of(self.per), spacing)


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """No second job like this one: of its type, with equal arguments or an equal choice of them.

    Without `within` every live job counts; with it every job of that age, ended ones too. `states`
    overrides both. A second one gives way (`ignore`, the handle is that of the first), is refused
    with `JobExists` (`reject`), or takes the place of the first, if that has not begun (`replace`).
    """

    by: tuple[str, ...] | None = None
    within: Span | None = None
    states: tuple[str, ...] | None = None
    on_conflict: Literal["ignore", "reject", "replace"] = "ignore"


class CallOptions(TypedDict, total=False):
    """What can be said about any job.

    `key` is what limits count it under; names of arguments in braces stand for their values.
    `timeout` bounds a run, `queue_timeout` the wait for a worker, `expires` the life before one.
    `trace` is a W3C traceparent, or headers with one; otherwise that of OpenTelemetry, if active.
    """

    queue: str
    priority: int
    delay: Span
    at: datetime
    retry: int | Backoff
    timeout: Span
    queue_timeout: Span
    expires: Span | datetime
    unique: bool | Unique
    key: str
    limit: Limit
    tags: Sequence[str]
    meta: Mapping[str, Any]
    tenant: str
    idempotency_key: str
    trace: TraceLike


class JobOptions(CallOptions, total=False):
    """The same, the name of the type if it is not that of the function, and what is secret.

    `secret` are arguments (`"token"`) or parts of them (`"card.number"`) that are locked before
    they are stored and shown to nobody but the function.
    """

    name: str
    secret: Sequence[str]


class UsingOptions(CallOptions, total=False):
    """The same and `conn`: a connection of yours, in whose transaction the jobs are enqueued."""

    conn: Any


def need_known(options: Mapping[str, Any], kind: type[Any] = JobOptions) -> None:
    """Refuse an option that there is not; the types say so too, to those who ask them."""
    known = kind.__annotations__.keys() | CallOptions.__annotations__.keys()
    for name in options.keys() - known:
        near = get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else f" There are {', '.join(sorted(known))}."
        raise BadOption(f"No option is called {name!r}.{hint}", option=name)


def instant_of(option: str, at: datetime) -> int:
    """The moment in microseconds."""
    if at.tzinfo is None:
        why = f"{option} has no time zone: say datetime.now(UTC) or give a zone"
        raise BadOption(why, option=option, value=str(at))
    return (at - _EPOCH) // timedelta(microseconds=1)


def start_of(options: CallOptions, now: int) -> int | None:
    """When it may start; `None` is at once."""
    if "delay" in options and "at" in options:
        why = "delay and at both say when it starts: give one of them"
        raise BadOption(why, option="delay")
    if "at" in options:
        return instant_of("at", options["at"])
    delay_us = us_of(options.get("delay", 0))
    return now + delay_us if delay_us > 0 else None


def retry_of(options: CallOptions) -> RetryPolicy | None:
    """The policy; a number is how often it is tried again."""
    retry = options.get("retry")
    if retry is None:
        return None
    return (retry if isinstance(retry, Backoff) else Backoff(retries=retry)).policy()


def deadlines_of(options: CallOptions) -> Deadlines | None:
    """The limits of its states, if it has any."""
    spans = [options.get("queue_timeout"), options.get("timeout")]
    waiting, running = (None if span is None else us_of(span) for span in spans)
    if waiting is None and running is None:
        return None
    return Deadlines(available_us=waiting, active_us=running)


def uniqueness_of(options: CallOptions, fingerprint: str) -> Uniqueness | None:
    """What the engine is told about it."""
    unique = options.get("unique")
    if not unique:
        return None
    if unique is True:
        unique = Unique()
    states = unique.states or (_LIVE if unique.within is None else tuple(JobState))
    period_us = None if unique.within is None else us_of(unique.within)
    return Uniqueness(fingerprint, tuple(states), period_us, OnConflict(unique.on_conflict))
