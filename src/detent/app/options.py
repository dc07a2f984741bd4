"""The options of a job: those of one call win over its type's, and these over the app's.

People give lengths of time in seconds or as a timedelta, and moments as datetimes with a zone; here
they become what the engine goes by.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypedDict

from detent.app.checking import is_whole, need, need_kinds
from detent.app.policies import Backoff, Limit, Unique
from detent.app.tracing import TraceLike
from detent.engine.asks import OnConflict, Uniqueness
from detent.errors import BadOption
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.job.values import TRIES_MAX
from detent.lifecycle.profile import CANCEL_GRACE_US, Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.runtime.executors.means import Kind, Means
from detent.runtime.hiding import Hidden, Redact
from detent.runtime.outcomes import Span, us_of
from detent.runtime.signature import Signature

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEMORY_BYTES_MIN = 16 * 1024 * 1024
"""Less than this is not enough for Python to say that it was not enough."""
_LIVE = tuple(state for state in JobState if state not in ENDED)


class CallOptions(TypedDict, total=False):
    """What can be said about any job.

    `key` is what limits count it under; names of arguments in braces stand for their values.
    `timeout` bounds a run, `queue_timeout` the wait for a worker, `expires` the life before one.
    `losses` is how many workers may die on it before it is discarded as poison; usually 3.
    `trace` is a W3C traceparent, or headers with one; otherwise that of OpenTelemetry, if active.
    `None` takes back what the job or the app says: `using(timeout=None)`.
    """

    queue: str
    priority: int
    delay: Span | None
    at: datetime | None
    retry: int | Backoff | None
    losses: int | None
    timeout: Span | None
    queue_timeout: Span | None
    expires: Span | datetime | None
    unique: bool | Unique | None
    key: str | None
    limit: Limit | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    tenant: str
    idempotency_key: str | None
    trace: TraceLike


class JobOptions(CallOptions, total=False):
    """The same, and what is said about all jobs of a type.

    `name` is that of the type, if it is not that of the function. `secret` are arguments
    (`"token"`) or parts of them (`"card.number"`) that are locked before they are stored and shown
    to nobody but the function; so is whatever `redact`, a function that is handed the arguments by
    name and gives them back as anybody may see them, has changed or left out. `executor` is where
    it runs, if not where its kind of function usually does. `memory` is how many bytes a run may
    add to its process, which it then has. `grace` is how long a run that should stop has until it
    is interrupted, and from there until it is killed.
    """

    name: str
    secret: Sequence[str]
    redact: Redact
    executor: Literal["async", "thread", "process"]
    memory: int
    grace: Span


DECLARED = JobOptions.__annotations__.keys() - CallOptions.__annotations__.keys()
"""What is said about a type, and not about one of its calls."""


class UsingOptions(CallOptions, total=False):
    """The same and `conn`: a connection of yours, in whose transaction the jobs are enqueued."""

    conn: Any


ELSEWHERE = {
    "countdown": "delay",
    "eta": "at",
    "max_retries": "retry",
    "retries": "retry",
    "schedule_in": "delay",
    "soft_time_limit": "timeout",
    "time_limit": "timeout",
    "concurrency": "slots",
}
"""What others call them: whoever comes from there is told our word."""


OPTIONS = UsingOptions.__annotations__.keys()
"""What can be said about one call."""


def need_known(options: Mapping[str, Any], kind: type[Any] = JobOptions) -> None:
    """Refuse an option that there is not; the types say so too, to those who ask them.

    Those that there are must be of their kind.
    """
    known = kind.__annotations__.keys()
    for name in options.keys() - known:
        near = [ELSEWHERE.get(name, ""), *get_close_matches(name, known, n=1, cutoff=0.7)]
        meant = next((one for one in near if one in known), None)
        hint = f" Did you mean {meant}?" if meant else f" There are {', '.join(sorted(known))}."
        raise BadOption(f"No option is called {name!r}.{hint}", option=name)
    need_kinds(options)
    if options.get("retry") is not None:
        is_right = isinstance(options["retry"], Backoff) or is_whole(options["retry"], 0)
        need("retry", options["retry"], is_right, "how often it is tried again, or a Backoff")
    for name, value_kind in (("unique", bool | Unique), ("limit", Limit)):
        value = options.get(name)
        need(name, value, value is None or isinstance(value, value_kind), _shown(value_kind))


def _shown(kind: Any) -> str:
    return "a Limit" if kind is Limit else "True, False or a Unique"


def merged(options: Mapping[str, Any], nearer: Mapping[str, Any]) -> dict[str, Any]:
    """Both, the nearest word counts; `None` takes back what was said further away.

    No trace is something else than nothing said about it: then the active one counts.
    """
    both = {**options, **nearer}
    return {name: value for name, value in both.items() if value is not None or name == "trace"}


def need_arguments(signature: Signature, options: CallOptions) -> None:
    """Refuse to count jobs by what is no argument of theirs: they would all be alike."""
    unique = options.get("unique")
    by = unique.by or () if isinstance(unique, Unique) else ()
    for name in by:
        if not signature.takes(name):
            why = f"unique goes by {name!r}, which is no argument of it"
            raise BadOption(f"{signature.name}: {why}", option="unique", value=name)


def hidden_of(options: JobOptions) -> Hidden:
    """What is secret about its jobs; taken out of the options."""
    return Hidden(tuple(options.pop("secret", ())), options.pop("redact", None))


def means_of(name: str, function: Callable[..., Any], options: JobOptions) -> Means:
    """Where its jobs run; taken out of the options, and refused if it cannot be."""
    executor, memory = options.pop("executor", None), options.pop("memory", None)
    grace = options.pop("grace", None)
    grace_us = None if grace is None else us_of(grace)
    _need_executor(name, executor, inspect.iscoroutinefunction(function))
    if memory is not None:
        _need_memory(name, memory, executor)
    if grace_us is not None and not 0 <= grace_us <= CANCEL_GRACE_US:
        most = f"{CANCEL_GRACE_US // 1_000_000} seconds, after which nobody waits for its answer"
        why = f"grace is from 0 to {most}"
        raise BadOption(f"{name}: {why}", option="grace", value=str(grace))
    return Means(None if executor is None else Kind(executor), memory, grace_us)


def _need_executor(name: str, executor: str | None, is_async: bool) -> None:
    if executor is not None and executor not in tuple(Kind):
        why = f"executor is one of {', '.join(Kind)}, not {executor!r}"
    elif executor == Kind.ASYNC and not is_async:
        why = "a plain function would hold up the loop: write async def, or leave executor out"
    elif executor == Kind.THREAD and is_async:
        why = "a coroutine runs in a loop, not in a thread: leave executor out, or say process"
    else:
        return
    raise BadOption(f"{name}: {why}", option="executor", value=executor)


def _need_memory(name: str, memory: Any, executor: str | None) -> None:
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < MEMORY_BYTES_MIN:
        why = f"memory is a number of bytes, {MEMORY_BYTES_MIN} at least"
    elif executor not in (None, Kind.PROCESS):
        why = "memory can be limited only for a process: leave executor out, or say process"
    else:
        return
    raise BadOption(f"{name}: {why}", option="memory", value=str(memory))


def instant_of(option: str, at: datetime) -> int:
    """The moment in microseconds."""
    if at.tzinfo is None:
        why = f"{option} has no time zone: say datetime.now(UTC) or give a zone"
        raise BadOption(why, option=option, value=str(at))
    return (at - _EPOCH) // timedelta(microseconds=1)


def start_of(options: CallOptions, now: int) -> int | None:
    """When it may start; `None` is at once."""
    delay, at = options.get("delay"), options.get("at")
    if delay is not None and at is not None:
        why = "delay and at both say when it starts: give one of them"
        raise BadOption(why, option="delay")
    if at is not None:
        return instant_of("at", at)
    delay_us = us_of(delay or 0)
    return now + delay_us if delay_us > 0 else None


def retry_of(options: CallOptions) -> RetryPolicy | None:
    """The policy; a number is how often it is tried again."""
    retry = options.get("retry")
    if retry is None:
        return None
    return (retry if isinstance(retry, Backoff) else Backoff(retries=retry)).policy()


def losses_of(options: CallOptions) -> int | None:
    """How many workers may die on the job before it is given up."""
    losses: Any = options.get("losses")
    if losses is not None and not (isinstance(losses, int) and 1 <= losses <= TRIES_MAX):
        why = f"losses is how many workers may die on it: a whole number from 1 to {TRIES_MAX}"
        raise BadOption(why, option="losses", value=str(losses))
    return None if losses is None else int(losses)


def deadlines_of(options: CallOptions) -> Deadlines | None:
    """The limits of its states, if it has any."""
    spans = [options.get("queue_timeout"), options.get("timeout")]
    waiting, running = (None if span is None else us_of(span) for span in spans)
    if waiting is None and running is None:
        return None
    return Deadlines(available_us=waiting, active_us=running)


def uniqueness_of(options: CallOptions, fingerprint: str) -> Uniqueness | None:
    """What the option `unique` asks of the engine."""
    unique = options.get("unique")
    if not unique:
        return None
    if unique is True:
        unique = Unique()
    states = unique.states or (_LIVE if unique.within is None else tuple(JobState))
    period_us = None if unique.within is None else us_of(unique.within)
    return Uniqueness(fingerprint, tuple(states), period_us, OnConflict(unique.on_conflict))
