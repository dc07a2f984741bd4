"""Time as a supervisor sees it: an instant to write down, a duration to measure, and waiting.

Handed in, so that hours of backoff can be tested in no time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

_US = 1_000
_STEP_S: Final = 1.0
"""A process that stands still, stopped or on a machine that is, is charged so much at most."""


class Clock(Protocol):
    """Instants are for people and may jump; durations never do."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Come back when that much time has passed."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        return time.time_ns() // _US

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Come back when that much time has passed."""
        await asyncio.sleep(max(seconds, 0))


async def done_within(clock: Clock, seconds: float, *awaited: asyncio.Future[Any]) -> bool:
    """Whether one of them is done before the time is over; none is cancelled if not."""
    if any(one.done() for one in awaited):
        return True
    timer = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait({timer, *awaited}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
    return any(one.done() for one in awaited)


class Patience:
    """So much time for something, of which only what we are awake for is used up.

    Whoever was stopped has not heard what came meanwhile, and has not answered it.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._left_s = seconds

    async def lasts_until(
        self, *awaited: asyncio.Future[Any], spared: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether one of them is done before it is used up. What is `spared` uses up nothing."""
        while self._left_s > 0 and not any(one.done() for one in awaited):
            step_s = min(self._left_s, _STEP_S)
            begun = self._clock.monotonic()
            is_done = await done_within(self._clock, step_s, *awaited)
            used_s = self._clock.monotonic() - begun if is_done else step_s
            self._left_s -= 0.0 if spared() else min(used_s, step_s)
        return any(one.done() for one in awaited)
