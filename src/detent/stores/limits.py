"""Limits: how many more jobs may start now, and when time lets the next one through. Pure.

A limit may bound how many jobs are in hands at once (`concurrency`), how many start within a period
(`rate`), and how far apart starts are (`spacing_us`); all that is set holds together. The period
begins with its first start: within it `rate` jobs start, and the first start after it opens the
next. Whoever wants starts spread evenly sets the spacing instead.
"""

from __future__ import annotations

import msgspec

from detent.errors import BadPolicy
from detent.lifecycle.profile import SPAN_US_MAX

COUNT_MAX = 1_000_000
"""The most that a limit may allow; whoever wants more wants none."""
_AHEAD_US = 5_000_000
"""Clocks may differ by so much."""


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is allowed; `None` means any."""

    concurrency: int | None = None
    rate: int | None = None
    period_us: int = 1_000_000
    spacing_us: int | None = None

    def __post_init__(self) -> None:
        _need("concurrency", self.concurrency, COUNT_MAX)
        _need("rate", self.rate, COUNT_MAX)
        _need("period_us", self.period_us, SPAN_US_MAX)
        _need("spacing_us", self.spacing_us, SPAN_US_MAX)


class Used(msgspec.Struct, frozen=True, omit_defaults=True):
    """What has started: in the period that began at `period_at`, and when last."""

    period_at: int | None = None
    starts: int = 0
    last_at: int | None = None


FRESH = Used()


def room(limit: Limit, used: Used, active: int, now: int) -> int:
    """How many jobs may start at this moment, beside those in hands."""
    rooms = [COUNT_MAX]
    if limit.concurrency is not None:
        rooms.append(limit.concurrency - active)
    if limit.rate is not None:
        rooms.append(limit.rate - _started(limit, used, now))
    if limit.spacing_us is not None:
        rooms.append(0 if _runs(used.last_at, limit.spacing_us, now) else 1)
    return max(min(rooms), 0)


def free_at(limit: Limit, used: Used, active: int, now: int) -> int | None:
    """When time alone will make room; `None` if somebody must finish first, or there is room."""
    if limit.concurrency is not None and active >= limit.concurrency:
        return None
    ends = []
    if limit.rate is not None and _started(limit, used, now) >= limit.rate:
        ends.append((used.period_at or 0) + limit.period_us)
    if limit.spacing_us is not None and _runs(used.last_at, limit.spacing_us, now):
        ends.append((used.last_at or 0) + limit.spacing_us)
    return max((at for at in ends if at > now), default=None)


def spent(limit: Limit, used: Used, starts: int, now: int) -> Used:
    """What is used after that many more starts."""
    before = _started(limit, used, now)
    return Used(used.period_at if before else now, before + starts, now)


def _started(limit: Limit, used: Used, now: int) -> int:
    """The starts that still count: those of a period that is not over."""
    return used.starts if _runs(used.period_at, limit.period_us, now) else 0


def _runs(at: int | None, length_us: int, now: int) -> bool:
    """Whether what began then is not over. What begins in the future, a clock has begun that was
    set back since, and would keep jobs back until then."""
    return at is not None and at <= now + _AHEAD_US and now < at + length_us


def _need(name: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        why = f"{name} of a limit must be between 1 and {most}, not {value}"
        raise BadPolicy(why, field=name, value=value)
