"""What holds a start back: backoff and breaker of a slot (or of a group), and the start rate."""

from __future__ import annotations

from collections import deque
from random import Random

import msgspec

from detent.lifecycle.worker import Governor
from detent.runtime.supervisor import breaker as b
from detent.runtime.supervisor.backoff import Backoff, next_interval, waited
from detent.runtime.supervisor.breaker import Breaker, Circuit, Gauge
from detent.runtime.supervisor.clock import Clock
from detent.runtime.supervisor.spec import StartRate


class Held(msgspec.Struct, frozen=True):
    """Which governor holds a start, and until when on the monotonic clock."""

    governor: Governor
    due: float


class Pacing:
    """Backoff and breaker together. A group that falls and rises as one shares one of these."""

    def __init__(
        self, backoff: Backoff, breaker: Breaker | None, clock: Clock, chance: Random
    ) -> None:
        self.backoff = backoff
        self.breaker = breaker
        self.gauge = Gauge()
        self.total = 0
        """Restarts since the supervisor started; the gauge counts those of its window."""
        self._clock = clock
        self._chance = chance
        self._interval: float | None = None
        self._due = 0.0

    @property
    def in_window(self) -> int:
        """Restarts that the breaker counts now."""
        if self.breaker is None:
            return 0
        since = self._clock.monotonic() - self.breaker.window_s
        return sum(at > since for at in self.gauge.falls)

    def fell(self, uptime_s: float) -> float:
        """One more restart is called for; answers the wait before it, breaker apart."""
        now = self._clock.monotonic()
        self.total += 1
        self._interval = next_interval(self.backoff, self._interval, uptime_s)
        delay = waited(self.backoff, self._interval, self._chance.random())
        self._due = now + delay
        if self.breaker is not None:
            self.gauge = b.fall(self.breaker, self.gauge, now)
        return delay

    def held(self) -> Held | None:
        """What holds a start now. An open breaker outlasts any backoff."""
        now = self._clock.monotonic()
        if self.breaker is not None and self.gauge.circuit is Circuit.OPEN:
            due = self.gauge.opened + self.breaker.cool_down_s
            if now < due:
                return Held(Governor.BREAKER, due)
        return Held(Governor.BACKOFF, self._due) if now < self._due else None

    def tried(self) -> bool:
        """A start goes through; true if that is the one trial after the cool-down."""
        if self.gauge.circuit is not Circuit.OPEN:
            return False
        self.gauge = b.half_open(self.gauge)
        return True

    def prospered(self) -> bool:
        """The trial has held; true if that closes the breaker."""
        if self.gauge.circuit is not Circuit.HALF_OPEN:
            return False
        self.gauge = b.close(self.gauge)
        return True

    def reset(self) -> None:
        """Somebody says that the fault is mended: start now, and count from nothing."""
        self.gauge = b.close(self.gauge)
        self._interval, self._due = None, 0.0


class Rate:
    """Starts of a whole supervisor within a sliding window."""

    def __init__(self, limit: StartRate, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._starts: deque[float] = deque()

    def held(self) -> Held | None:
        """Until when the next start must wait, if it must."""
        self._forget()
        if len(self._starts) < self.limit.most:
            return None
        return Held(Governor.RATE, self._starts[0] + self.limit.window_s)

    def took(self) -> None:
        """A start goes through."""
        self._starts.append(self._clock.monotonic())

    def _forget(self) -> None:
        since = self._clock.monotonic() - self.limit.window_s
        while self._starts and self._starts[0] <= since:
            self._starts.popleft()
