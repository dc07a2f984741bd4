"""What was looked at, what was found, and whether that is as it should be.

A store knows best what can be wrong with its own database, so it says that in these words; whoever
asks puts them beside what was found elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from detent.errors import DetentError


class Grade(StrEnum):
    """How good it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at; `why` it matters and how to `mend` it where it is not good.

    `live` is what it is for something that others rely on; a laptop may be content with less.
    """

    name: str
    grade: Grade
    found: str
    why: str = ""
    mend: str = ""
    live: Grade | None = None

    def graded(self, *, production: bool) -> Grade:
        """How good it is, there or here."""
        return self.live if production and self.live is not None else self.grade


def fine(name: str, found: str) -> Check:
    """As it should be."""
    return Check(name, Grade.OK, found)


def notice(name: str, found: str, why: str, mend: str) -> Check:
    """Good enough for one person; for others it is worth a warning."""
    return Check(name, Grade.OK, found, why, mend, Grade.WARN)


def warning(name: str, found: str, why: str, mend: str) -> Check:
    """It works, and will cost somebody something."""
    return Check(name, Grade.WARN, found, why, mend)


def harm(name: str, found: str, why: str, mend: str) -> Check:
    """It does not work, or loses what was promised to be kept."""
    return Check(name, Grade.BAD, found, why, mend)


def refused(name: str, error: DetentError, why: str, mend: str) -> Check:
    """The words of an error, which already say how it can be mended in most cases."""
    return harm(name, f"{error.message.rstrip('.')} [{error.code}]", why, mend)


@runtime_checkable
class Candid(Protocol):
    """What a store has if its server can be set up so that less is kept than was promised."""

    async def doubts(self) -> Sequence[Check]:
        """What of its promises does not hold; nothing if all do."""
        ...


_UNSEALED_US = 15 * 60 * 1_000_000
"""Upkeep seals every minute; after so long it does not, or cannot keep up."""


def sealed(behind: int, waited_us: int) -> Check:
    """How far the seals are behind what has happened, and for how long the oldest of it waits."""
    if not behind:
        return fine("seals", "every event is sealed")
    found = f"{behind} events not sealed yet, the oldest for {waited_us // 1_000_000} s"
    if waited_us <= _UNSEALED_US:
        return fine("seals", found)
    why = "changing what is not sealed would not be noticed, and old jobs cannot be forgotten"
    mend = "let a worker with upkeep run, which is usual; detent prune seals everything, too"
    return warning("seals", found, why, mend)
