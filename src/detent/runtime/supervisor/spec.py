"""What a slot is told to be: its name, how to build its workers, and every limit it lives by."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from detent.errors import BadSpec
from detent.runtime.supervisor.backoff import Backoff, need
from detent.runtime.supervisor.body import Body
from detent.runtime.supervisor.breaker import Breaker

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_DAY_S: Final = 86_400.0
KEEPER: Final = "keeper"
"""The role of a slot that serves its siblings: it is stopped when they are gone."""


class Restart(StrEnum):
    """Which ends that nobody asked for are followed by another start."""

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


class OnKilled(StrEnum):
    """What follows when somebody had an instance killed; the policy decides unless this does."""

    POLICY = "policy"
    RESTART = "restart"
    HOLD = "hold"
    ALERT = "alert"


class OnSick(StrEnum):
    """What follows when a worker is found unhealthy."""

    NONE = "none"
    ALERT = "alert"
    RESTART = "restart"


class Probe(msgspec.Struct, frozen=True):
    """How often a worker is asked whether it is well, and how many answers count.

    `hopeless` is how many bad ones in a row make a restart, where that is more than make it sick.
    """

    interval_s: float = 10.0
    timeout_s: float = 1.0
    failures: int = 3
    hopeless: int = 1
    successes: int = 1
    on_sick: OnSick = OnSick.ALERT

    def __post_init__(self) -> None:
        for field in ("interval_s", "timeout_s", "failures", "hopeless", "successes"):
            need(getattr(self, field) > 0, f"probe.{field}", "must be more than 0")


class Recycle(msgspec.Struct, frozen=True):
    """When a worker that does nothing wrong is replaced by a fresh one.

    Beyond the soft limit of memory, at the age and after so many units of work the replacement
    starts first, unless `replace_first` says that two cannot live at once. Beyond the hard limit
    there is no time for that. `variance` spreads the age, so that workers of one birth do not all
    leave at once. `grace_s` is how long one that was replaced may go on with what it runs: nothing
    hurries, and what takes longer than a stop may take would else be begun again and again.
    """

    soft_rss_bytes: int | None = None
    hard_rss_bytes: int | None = None
    age_s: float | None = None
    variance: float = 0.1
    done: int | None = None
    check_s: float = 5.0
    replace_first: bool = True
    grace_s: float = _DAY_S

    def __post_init__(self) -> None:
        for field in ("soft_rss_bytes", "hard_rss_bytes", "age_s", "done", "check_s", "grace_s"):
            value = getattr(self, field)
            need(value is None or value > 0, f"recycle.{field}", "must be more than 0")
        need(0 <= self.variance < 1, "recycle.variance", "is a share from 0 to below 1")
        soft, hard = self.soft_rss_bytes, self.hard_rss_bytes
        if soft is not None and hard is not None:
            need(soft < hard, "recycle.soft_rss_bytes", "must be below the hard limit")


class StartRate(msgspec.Struct, frozen=True):
    """At most so many starts within a window, of all slots of one supervisor together."""

    most: int = 100
    window_s: float = 10.0

    def __post_init__(self) -> None:
        need(self.most > 0, "rate.most", "must be more than 0")
        is_window = 0 < self.window_s < math.inf
        need(is_window, "rate.window_s", "must be more than 0, and not without end")


class Spec(msgspec.Struct, frozen=True):
    """One slot. `make` builds a fresh body for every instance; it must start nothing itself.

    `needs_ready_signal`: the worker says itself when it is ready, so a clean end before that is a
    failure. Without it, being alive for a while is being ready, and a short life may be a good one.
    `start_at`: not before that instant, in microseconds since the epoch. `revision` says what
    `make` builds: two specs of the same revision are the same if all else is.
    """

    name: str
    make: Callable[[], Body]
    kind: str = "process"
    role: str = "worker"
    restart: Restart = Restart.ALWAYS
    on_killed: OnKilled = OnKilled.POLICY
    backoff: Backoff = Backoff()
    breaker: Breaker | None = Breaker()
    stop_grace_s: float = 10.0
    init_timeout_s: float = 30.0
    needs_ready_signal: bool = True
    start_at: int | None = None
    probe: Probe | None = None
    recycle: Recycle | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadSpec(
                f"{self.name!r} is no name of a slot: letters, digits, '_', '.' and '-', at most"
                " 64, and a letter or digit first",
                field="name",
            )
        need(callable(self.make), "make", "must be something to call")
        need(0 <= self.stop_grace_s <= _DAY_S, "stop_grace_s", "is between 0 and a day")
        need(0 < self.init_timeout_s <= _DAY_S, "init_timeout_s", "is more than 0, up to a day")

    def is_same(self, other: Spec) -> bool:
        """Whether a slot of the one needs no change to be a slot of the other."""
        if self.revision is not None and self.revision == other.revision:
            other = msgspec.structs.replace(other, make=self.make)
        return self == other
