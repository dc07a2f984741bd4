"""When a failed job may run again, and after how long.

`judge` is asked once per failure that is charged to the job. It knows neither clock nor chance: the
caller hands in how many failures there have been and a random number for the jitter. A worker that
gives a job back unharmed has not failed it, so that never comes here.

Everywhere below `failures` counts the charged failures *including* the one being judged: it is 1
for the first failure of a job. Durations are whole microseconds (`_us`).
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Final, cast

import msgspec

from detent.errors import BadPolicy

EXHAUSTED: Final = "exhausted"
NOT_RETRYABLE: Final = "not_retryable"
DISCARD_ASKED: Final = "discard_asked"
DEAD_LETTER_ASKED: Final = "dead_letter_asked"

# Without limits one policy could keep a job alive for centuries, or make every failure of it an
# expensive one to judge.
_ATTEMPTS_MAX = 100_000
_DURATION_US_MAX = 366 * 24 * 3600 * 1_000_000
_COEFFICIENT_MAX = 1_000.0
_PATTERNS_MAX = 100
_PATTERN_CHARS_MAX = 256

# Above this an integer is no longer exact as a float; every growing delay is capped long before.
_FAILURES_MAX = 2**53

# What a handler may ask for by the code of its error. "RETRY" asks for what happens anyway.
_ASKED: Final = {
    "DISCARD": DISCARD_ASKED,
    "FAIL": DISCARD_ASKED,
    "DEAD_LETTER": DEAD_LETTER_ASKED,
}


class Strategy(StrEnum):
    """How the delay grows with the number of failures."""

    EXPONENTIAL = "exponential"
    LINEAR = "linear"
    CONSTANT = "constant"
    POLYNOMIAL = "polynomial"


class Exhaustion(StrEnum):
    """Where a job goes when nothing is left: merely discarded, or also among the dead letters."""

    DISCARD = "discard"
    DEAD_LETTER = "dead_letter"


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often and how patiently a job is tried; an impossible one raises `BadPolicy`.

    `max_attempts` is the total number of runs, so 0 and 1 both mean that nothing is tried again.
    `coefficient` is the base of exponential and the power of polynomial growth; linear and
    constant delays ignore it. An entry of `non_retryable` is an error type, or a prefix of types
    when it ends in `.*`. `total_us` is how long all attempts may take together, waits included,
    from the moment the job was made.
    """

    max_attempts: int = 3
    initial_us: int = 1_000_000
    coefficient: float = 2.0
    max_us: int = 300_000_000
    jitter: bool = True
    non_retryable: tuple[str, ...] = ()
    on_exhaustion: Exhaustion = Exhaustion.DISCARD
    strategy: Strategy = Strategy.EXPONENTIAL
    total_us: int | None = None

    def __post_init__(self) -> None:
        _check_numbers(self)
        _check_words(self)


class ErrorInfo(msgspec.Struct, frozen=True):
    """What is known about a failure as far as the decision needs it.

    `type` is what the reporter says it is, `error_class` what its details say; the first that is
    set is matched against the policy, and `code` when neither is. `retryable` is `None` when the
    reporter did not say.
    """

    code: str
    type: str | None = None
    error_class: str | None = None
    retryable: bool | None = None


class Verdict(msgspec.Struct, frozen=True):
    """Try again after `delay_us`, or end for `cause`."""

    retry: bool
    delay_us: int
    cause: str | None


def allowed(policy: RetryPolicy) -> int:
    """Which charged failure is the final one; at least the first."""
    return max(1, policy.max_attempts)


def judge(policy: RetryPolicy, error: ErrorInfo, failures: int, jitter: float) -> Verdict:
    """What a charged failure leads to; `failures` includes it, `jitter` is from [0, 1).

    The handler's own wish comes first, then what it says about the error, then the policy's list,
    and only then the count. So the cause is the strongest reason, not the last one found.

        judge(RetryPolicy(), ErrorInfo(code="handler_error"), failures=1, jitter=0.5)
    """
    cause = _cause_to_end(policy, error, failures)
    if cause is not None:
        return Verdict(retry=False, delay_us=0, cause=cause)
    return Verdict(retry=True, delay_us=delay_us(policy, failures, jitter), cause=None)


def total_end(policy: RetryPolicy, created_at: int) -> int | None:
    """When all attempts must be over; `None` if nobody says so."""
    return None if policy.total_us is None else created_at + policy.total_us


def within(verdict: Verdict, end: int | None, now: int) -> Verdict:
    """The same verdict, unless the retry it grants would begin when all must be over."""
    if end is None or not verdict.retry or now + verdict.delay_us < end:
        return verdict
    return Verdict(retry=False, delay_us=0, cause=EXHAUSTED)


def delay_us(policy: RetryPolicy, failures: int, jitter: float) -> int:
    """How long to wait after that many failures: from 0 to `policy.max_us`, whatever is asked.

    `jitter` spreads the capped delay over [0.5, 1.5) of itself and is ignored by a policy without
    jitter. A count below 1 or a number outside [0, 1) raises `BadPolicy`.
    """
    _need(failures >= 1, "failures", failures, "count the failure being judged: at least 1")
    _need(0.0 <= jitter < 1.0, "jitter", jitter, "hand in a number from 0 up to, not including, 1")
    delay = _capped_us(policy, min(failures, _FAILURES_MAX))
    if not policy.jitter:
        return delay
    # Half and spread are added apart: 0.5 + jitter would round up to 1.5 for the largest jitter.
    return min((delay + 1) // 2 + int(delay * jitter), policy.max_us)


def _capped_us(policy: RetryPolicy, failures: int) -> int:
    try:
        factor = _factor(policy, failures)
    except OverflowError:
        return policy.max_us
    # A factor near the largest float makes the product infinite, which no integer can hold.
    return int(min(policy.initial_us * factor, float(policy.max_us)))


def _factor(policy: RetryPolicy, failures: int) -> float:
    """How many times the initial delay; `OverflowError` where no float is large enough."""
    if policy.strategy is Strategy.EXPONENTIAL:
        return math.pow(policy.coefficient, failures - 1)
    if policy.strategy is Strategy.LINEAR:
        return float(failures)
    if policy.strategy is Strategy.POLYNOMIAL:
        return math.pow(failures, policy.coefficient)
    return 1.0


def _cause_to_end(policy: RetryPolicy, error: ErrorInfo, failures: int) -> str | None:
    asked = _ASKED.get(error.code)
    if asked is not None:
        return asked
    if error.retryable is False or _is_listed(policy, error):
        return NOT_RETRYABLE
    return EXHAUSTED if failures >= allowed(policy) else None


def _is_listed(policy: RetryPolicy, error: ErrorInfo) -> bool:
    kind = error.type or error.error_class or error.code
    return any(_matches(pattern, kind) for pattern in policy.non_retryable)


def _matches(pattern: str, kind: str) -> bool:
    # The dot belongs to the prefix, so that "auth.*" covers "auth.expired" but not "auth".
    return kind == pattern or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))


def _check_numbers(policy: RetryPolicy) -> None:
    _need_whole("max_attempts", policy.max_attempts, 0, _ATTEMPTS_MAX)
    _need_whole("initial_us", policy.initial_us, 1, _DURATION_US_MAX)
    _need_whole("max_us", policy.max_us, 1, _DURATION_US_MAX)
    if policy.total_us is not None:
        _need_whole("total_us", policy.total_us, 1, _DURATION_US_MAX)
    _need(
        policy.max_us >= policy.initial_us,
        "max_us",
        policy.max_us,
        f"raise it to at least initial_us ({policy.initial_us}) or lower initial_us",
    )
    _need(
        _is_number(policy.coefficient) and 1.0 <= policy.coefficient <= _COEFFICIENT_MAX,
        "coefficient",
        policy.coefficient,
        f"use a finite number from 1.0 to {_COEFFICIENT_MAX}",
    )


def _check_words(policy: RetryPolicy) -> None:
    choices: tuple[tuple[str, object, type, str], ...] = (
        ("jitter", policy.jitter, bool, "True or False"),
        ("on_exhaustion", policy.on_exhaustion, Exhaustion, _members(Exhaustion)),
        ("strategy", policy.strategy, Strategy, _members(Strategy)),
    )
    for field, value, kind, good in choices:
        _need(isinstance(value, kind), field, value, f"use {good}")
    _check_patterns(policy.non_retryable)


def _check_patterns(patterns: object) -> None:
    _need(
        isinstance(patterns, tuple) and len(patterns) <= _PATTERNS_MAX,
        "non_retryable",
        patterns,
        f"use a tuple of at most {_PATTERNS_MAX} error types; a prefix with .* covers many",
    )
    for pattern in cast("tuple[object, ...]", patterns):
        _need(
            isinstance(pattern, str) and 1 <= len(pattern) <= _PATTERN_CHARS_MAX,
            "non_retryable",
            pattern,
            f"use an error type of 1 to {_PATTERN_CHARS_MAX} characters",
        )


def _members(words: type[StrEnum]) -> str:
    return " or ".join(f"{words.__name__}.{word.name}" for word in words)


def _need_whole(field: str, value: object, least: int, most: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    _need(is_whole, field, value, f"use a whole number from {least} to {most}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _need(holds: bool, field: str, value: object, remedy: str) -> None:
    if not holds:
        shown = repr(value)[:100]
        raise BadPolicy(
            f"retry policy: {field} cannot be {shown}; {remedy}.",
            field=field,
            value=shown,
            remedy=remedy,
        )
