"""The policies of a job as they are sent: retries, what it is unique by, and its limits."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from detent.engine.asks import OnConflict, Uniqueness
from detent.errors import BadPolicy
from detent.lifecycle.retry import Exhaustion, RetryPolicy, Strategy
from detent.stores.api import Limit
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.faults import invalid, unsupported
from detent.surfaces.ojs.wire import duration, span, span_ms

_DIMENSIONS = ("type", "queue", "args", "meta")
_STATES = ("available", "active", "scheduled", "retryable", "pending")
_ALL_STATES = frozenset({*_STATES, "completed", "cancelled", "discarded"})
_CONFLICTS = {
    "reject": OnConflict.REJECT,
    "ignore": OnConflict.IGNORE,
    "use_existing": OnConflict.IGNORE,
    "replace": OnConflict.REPLACE,
    "replace_except_schedule": OnConflict.REJECT,
}
_STRATEGIES = {"none": "constant", **{one.value: one.value for one in Strategy}}
_KEY = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:-]*")
_PERIODS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_DEFAULT = RetryPolicy()
_ON_LIMIT = ("wait", "reschedule", "drop")
_STEEP = 1_000
"""What the lifecycle takes at most; a whole number may be larger than any double."""


# --- retry ------------------------------------------------------------------------------------


def retry_of(value: object) -> RetryPolicy:
    """The policy, completed with what the specification says; a partial one is enough."""
    if value is None:
        return _DEFAULT
    if not isinstance(value, dict):
        raise _bad_retry("retry", "must be an object")
    given = {name: one for name, one in value.items() if one is not None}
    initial = _interval(given, "initial_interval", _DEFAULT.initial_us)
    most = _interval(given, "max_interval", max(_DEFAULT.max_us, initial))
    if most < initial:
        raise _bad_retry("max_interval", "must not be less than initial_interval")
    try:
        return RetryPolicy(
            max_attempts=_attempts(given.get("max_attempts", _DEFAULT.max_attempts)),
            initial_us=initial,
            coefficient=_coefficient(given.get("backoff_coefficient", _DEFAULT.coefficient)),
            max_us=most,
            jitter=_flag(given.get("jitter", True)),
            non_retryable=_texts(given.get("non_retryable_errors", [])),
            on_exhaustion=_exhaustion(given.get("on_exhaustion", "discard")),
            strategy=_strategy(given.get("backoff_strategy", given.get("backoff_type"))),
        )
    except BadPolicy as error:
        raise _bad_retry(str(error.fields.get("field", "retry")), error.message) from None


@lru_cache(1_000)
def retry_shown(policy: RetryPolicy) -> Raw:
    """The whole policy, as everybody may see it; written once, because most jobs share one."""
    return Raw(msgspec.json.encode(_retry_shown(policy)))


def _retry_shown(policy: RetryPolicy) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "max_attempts": policy.max_attempts,
        "initial_interval": duration(policy.initial_us),
        "backoff_coefficient": policy.coefficient,
        "max_interval": duration(policy.max_us),
        "jitter": policy.jitter,
        "non_retryable_errors": list(policy.non_retryable),
        "on_exhaustion": policy.on_exhaustion.value,
    }
    if policy.strategy is not Strategy.EXPONENTIAL:
        shown["backoff_strategy"] = policy.strategy.value
    return shown


def _interval(given: Mapping[str, Any], name: str, default: int) -> int:
    try:
        if f"{name}_ms" in given and name not in given:
            return span_ms(name, given[f"{name}_ms"])
        length = span(name, given[name]) if name in given else default
    except Problem as problem:
        raise _bad_retry(name, problem.message) from None
    if length < 1:
        raise _bad_retry(name, "must be longer than nothing")
    return length


def _attempts(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _bad_retry("max_attempts", "must be a whole number, 0 or more")
    return value


def _coefficient(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= _STEEP:
        raise _bad_retry("backoff_coefficient", f"must be a number from 1.0 to {_STEEP}")
    return float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad_retry("jitter", "must be true or false")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(map(_is_text, value)):
        raise _bad_retry("non_retryable_errors", "must be an array of strings without NUL")
    return tuple(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _exhaustion(value: object) -> Exhaustion:
    if not isinstance(value, str) or value not in tuple(Exhaustion):
        raise _bad_retry("on_exhaustion", "must be discard or dead_letter")
    return Exhaustion(value)


def _strategy(value: object) -> Strategy:
    if value is None:
        return Strategy.EXPONENTIAL
    if not isinstance(value, str) or value not in _STRATEGIES:
        known = ", ".join(_STRATEGIES)
        raise _bad_retry("backoff_strategy", f"must be one of {known}")
    return Strategy(_STRATEGIES[value])


def _bad_retry(field: str, why: str) -> Problem:
    message = why if why.startswith(field) else f"retry.{field} {why}"
    return Problem(422, "validation_error", message, field=f"retry.{field}")


# --- unique -----------------------------------------------------------------------------------


class Facts(msgspec.Struct, frozen=True):
    """What a job can be unique by."""

    type: str
    queue: str
    args: Sequence[Any]
    meta: Mapping[str, Any]


def unique_of(value: object, facts: Facts) -> Uniqueness | None:
    """What the job is unique by, among which, and for how long."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid("unique must be an object", field="unique")
    keys, args_keys = _dimensions(value)
    states = value.get("states") or list(_STATES)
    if not isinstance(states, list) or not set(map(str, states)) <= _ALL_STATES:
        raise invalid("unique.states must be an array of job states", field="unique.states")
    given = value.get("on_conflict")
    conflict = "reject" if given is None else given
    if not isinstance(conflict, str) or conflict not in _CONFLICTS:
        known = ", ".join(_CONFLICTS)
        raise invalid(f"unique.on_conflict must be one of {known}", field="unique.on_conflict")
    period = value.get("period")
    return Uniqueness(
        _fingerprint(facts, keys, args_keys, value.get("meta_keys") or ()),
        tuple(states),
        None if period is None else span("unique.period", period),
        _CONFLICTS[conflict],
    )


def _dimensions(policy: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str] | None]:
    """Which facts count, and which names inside the arguments."""
    keys, args_keys = policy.get("keys", policy.get("key")), policy.get("args_keys")
    keys = [keys] if isinstance(keys, str) else keys
    named = (("keys", keys), ("args_keys", args_keys), ("meta_keys", policy.get("meta_keys")))
    for name, some in named:
        if some is not None and not _is_names(some):
            raise invalid(f"unique.{name} must be an array of strings", field=f"unique.{name}")
    if keys is not None and not set(keys) <= set(_DIMENSIONS):
        if "key" not in policy:
            known = ", ".join(_DIMENSIONS)
            raise invalid(f"unique.keys must be among {known}", field="unique.keys")
        # An older form: names inside the arguments.
        keys, args_keys = ["args"], keys
    if "meta" in (keys or ()) and not policy.get("meta_keys"):
        raise invalid("unique.meta_keys is needed when meta counts", field="unique.meta_keys")
    counted = {"type", *(keys or ()), *(("args",) if args_keys else ())}
    return tuple(one for one in _DIMENSIONS if one in counted), args_keys


def _fingerprint(
    facts: Facts, keys: Sequence[str], args_keys: Sequence[str] | None, meta_keys: Sequence[str]
) -> str:
    told: dict[str, Any] = {"type": facts.type}
    if "queue" in keys:
        told["queue"] = facts.queue
    if "args" in keys:
        told["args"] = facts.args if not args_keys else _picked(facts.args, args_keys)
    if "meta" in keys:
        told["meta"] = {name: facts.meta.get(name) for name in meta_keys}
    return hashlib.sha256(msgspec.json.encode(_canonical(told), order="sorted")).hexdigest()


def _picked(args: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    first = next((one for one in args if isinstance(one, dict)), {})
    found = {name: first[name] for name in names if name in first}
    if not found:
        raise invalid("unique.args_keys: no argument has these keys", field="unique.args_keys")
    return found


def _canonical(value: Any) -> Any:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [_canonical(one) for one in value]
    if isinstance(value, dict):
        return {unicodedata.normalize("NFC", k): _canonical(v) for k, v in value.items()}
    return value


def _is_names(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


# --- limits -----------------------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True):
    """A limit that a job brings along: of its key, or of its queue if it names none.

    `drops`: where it has no room the job does not wait.
    """

    limit: Limit
    key: str | None = None
    drops: bool = False


def limits_of(value: object) -> Limits | None:
    """The limit; of its parts all hold together."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise invalid("rate_limit must be an object", field="rate_limit")
    told = value.get("on_limit")
    if told is not None and told not in _ON_LIMIT:
        known = ", ".join(_ON_LIMIT)
        raise invalid(f"rate_limit.on_limit must be one of {known}", field="rate_limit.on_limit")
    key = None if value.get("key") is None else need_key(value["key"])
    rate, per = _rate("rate", value.get("rate"), value.get("period"))
    number, length = _rate("throttle", value.get("throttle"), None)
    each = value.get("max_per_second")
    if each is not None:
        number, length = _count("max_per_second", each), 1_000_000
    spacing = None if number is None else max(length // number, 1)
    concurrency = value.get("concurrency")
    if concurrency is not None:
        concurrency = _count("concurrency", concurrency)
    if rate is None and spacing is None and concurrency is None:
        raise invalid("rate_limit says no limit", field="rate_limit")
    try:
        return Limits(Limit(concurrency, rate, per, spacing), key, told == "drop")
    except BadPolicy as error:
        raise invalid(error.message, field="rate_limit") from None


def limits_for_all(value: Mapping[str, Any]) -> Limits | None:
    """The same for a limit that no job brings along: what becomes of a job, the job says."""
    rate = value.get("rate")
    nested = rate.get("on_limit") if isinstance(rate, dict) else None
    if value.get("on_limit", nested) not in (None, "wait", "reschedule"):
        raise unsupported("on_limit: drop is said by a job, in its own rate_limit")
    return limits_of(value)


def need_key(value: object) -> str:
    """A name that a limit can have."""
    if isinstance(value, str) and _KEY.fullmatch(value):
        return value
    raise invalid("rate_limit.key has letters, digits and . _ : -", field="rate_limit.key")


def _rate(field: str, value: object, period: object) -> tuple[int | None, int]:
    """How many, in how long."""
    if value is None:
        return None, 1_000_000
    if isinstance(value, dict):
        period = value.get("period")
        value = value.get("limit")
    known = _PERIODS.get(period) if isinstance(period, str) else _PERIODS["second"]
    return _count(field, value), known or span(f"rate_limit.{field}.period", period)


def _count(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        name = f"rate_limit.{field}"
        raise invalid(f"{name} must be a whole number, 1 or more", field=name)
    return value
