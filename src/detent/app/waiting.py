"""When to look at the store again while waiting for it, and moments as people see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from detent.runtime.outcomes import Span, us_of

POLL_S_MAX = 0.25
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_POLL_S_MIN, _POLL_GROWTH = 0.005, 1.5


async def looks(within: Span | None) -> AsyncIterator[float]:
    """The moments at which to look, in seconds from now, ever rarer; they end with the time."""
    clock = asyncio.get_running_loop().time
    since = clock()
    until = None if within is None else since + us_of(within) / 1_000_000
    pause = _POLL_S_MIN
    while True:
        yield clock() - since
        left = pause if until is None else until - clock()
        if left <= 0:
            return
        await asyncio.sleep(min(pause, left))
        pause = min(pause * _POLL_GROWTH, POLL_S_MAX)


def moment(at: int) -> datetime:
    """Microseconds as people see them; arithmetic on integers, so that none is lost."""
    return _EPOCH + timedelta(microseconds=at)
