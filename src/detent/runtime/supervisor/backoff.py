"""How long to wait before the next start: pure, so time and chance are arguments."""

from __future__ import annotations

import math

import msgspec

from detent.errors import BadSpec


def need(holds: bool, field: str, why: str) -> None:
    """Refuse a value that cannot work, by the name of its field."""
    if not holds:
        raise BadSpec(f"{field} {why}", field=field)


class Backoff(msgspec.Struct, frozen=True):
    """The first wait, what each further one is multiplied with, and the most it grows to.

    An instance that ran longer than `reset_s` has proven itself: the wait begins anew at the first.
    `jitter` is the share by which a wait is lengthened at random, so that many do not come at once.
    """

    initial_s: float = 0.5
    most_s: float = 30.0
    factor: float = 2.0
    reset_s: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        need(self.initial_s >= 0, "backoff.initial_s", "must not be negative")
        need(self.factor >= 1, "backoff.factor", "must be 1 or more, or waits would shrink")
        need(self.factor < math.inf, "backoff.factor", "must have an end")
        need(self.most_s >= self.initial_s, "backoff.most_s", "must not be below initial_s")
        need(self.most_s < math.inf, "backoff.most_s", "must have an end")
        need(self.reset_s >= 0, "backoff.reset_s", "must not be negative")
        need(0 <= self.jitter <= 1, "backoff.jitter", "is a share between 0 and 1")


def next_interval(policy: Backoff, last_s: float | None, uptime_s: float) -> float:
    """The wait before jitter; `last_s` is the one before it, if there was one."""
    if last_s is None or uptime_s > policy.reset_s:
        return policy.initial_s
    return min(last_s * policy.factor, policy.most_s)


def waited(policy: Backoff, interval_s: float, chance: float) -> float:
    """The wait with jitter; `chance` is drawn evenly from 0 to 1."""
    return interval_s * (1 + policy.jitter * chance)
