"""The circuit breaker: too many restarts within a sliding window stop the restarting. Pure."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from detent.runtime.supervisor.backoff import need


class Breaker(msgspec.Struct, frozen=True):
    """More than `most` restarts within `window_s` open it; after `cool_down_s` one trial is made.

    With `escalate`, an open breaker ends the whole supervisor, and the one above it decides.
    """

    most: int = 5
    window_s: float = 60.0
    cool_down_s: float = 300.0
    escalate: bool = False

    def __post_init__(self) -> None:
        for field in ("most", "window_s", "cool_down_s"):
            holds = 0 < getattr(self, field) < math.inf
            need(holds, f"breaker.{field}", "must be more than 0, and not without end")


class Circuit(StrEnum):
    """Closed lets starts through, open does not, half open lets one through to see."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Gauge(msgspec.Struct, frozen=True):
    """What a breaker knows: where it stands, the falls it still counts, and when it opened."""

    circuit: Circuit = Circuit.CLOSED
    falls: tuple[float, ...] = ()
    opened: float = 0.0


def fall(policy: Breaker, gauge: Gauge, now: float) -> Gauge:
    """After one more end that calls for a restart."""
    falls = (*(at for at in gauge.falls if at > now - policy.window_s), now)
    failed_trial = gauge.circuit is Circuit.HALF_OPEN
    if failed_trial or len(falls) > policy.most:
        return Gauge(Circuit.OPEN, falls[-policy.most :], now)
    return replace(gauge, falls=falls)


def half_open(gauge: Gauge) -> Gauge:
    """The cool-down is over: one trial."""
    return replace(gauge, circuit=Circuit.HALF_OPEN)


def close(gauge: Gauge) -> Gauge:
    """The trial held, or somebody says that the fault is mended: nothing counts any more."""
    return replace(gauge, circuit=Circuit.CLOSED, falls=())
