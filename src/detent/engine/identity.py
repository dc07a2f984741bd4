"""Names that nobody else gives: ids of records, leases and commands, and places in a queue.

Ids are UUIDs of version 7: the time in front makes them sort by age, the chance behind makes them
safe to give out without asking anybody.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator

__all__ = ["Identity", "derived_id"]

_CHANCE = 62
_FRACTION = 12
_PIECES = 512
_COUNT = 20
"""Bits of a derived id that hold its number."""


class _Chances:
    """Chance from the system, fetched in pieces: asking for each would cost more than all else."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: parent and child must not use the same."""
        self._pieces: Iterator[bytes] = iter(())

    def take(self) -> bytes:
        """Eight bytes that nobody else gets; taking one is atomic under threads."""
        piece = next(self._pieces, None)
        if piece is None:
            fresh = os.urandom(_PIECES * 8)
            mine, *rest = (fresh[at : at + 8] for at in range(0, len(fresh), 8))
            self._pieces = iter(rest)
            return mine
        return piece


_CHANCES = _Chances()
os.register_at_fork(after_in_child=_CHANCES.forget)


class Identity:
    """Gives names at the time of a clock; none twice, and later ones sort after earlier ones."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._last_id = 0
        self._last_place = 0

    def id(self) -> str:
        """A new UUID of version 7."""
        with self._lock:
            self._last_id = max(_stamp(self._now()), self._last_id + 1)
            stamp = self._last_id
        at_ms, fraction = divmod(stamp, 1 << _FRACTION)
        chance = int.from_bytes(_CHANCES.take(), "big") >> (64 - _CHANCE)
        return _told((at_ms << 80) | (7 << 76) | (fraction << 64) | (2 << _CHANCE) | chance)

    def place(self) -> int:
        """The next position in a queue: neither ids nor times are good enough for first come."""
        with self._lock:
            self._last_place = max(self._now(), self._last_place + 1)
            return self._last_place


def derived_id(at: int, number: int, *parts: str) -> str:
    """The id that follows from an instant, a number and some texts: whoever asks gets the same.

    It is a UUID of version 7 like all others; of one instant those with lower numbers come first.
    """
    digest = hashlib.sha256("\0".join((str(at), str(number), *parts)).encode()).digest()
    chance = int.from_bytes(digest[:8], "big") >> (64 - _CHANCE + _COUNT - _FRACTION)
    high, low = divmod(number % (1 << _COUNT), 1 << (_COUNT - _FRACTION))
    tail = (low << (_CHANCE - _COUNT + _FRACTION)) | chance
    at_ms = max(at, 0) // 1_000
    return _told((at_ms << 80) | (7 << 76) | (high << 64) | (2 << _CHANCE) | tail)


def _told(number: int) -> str:
    """The number as UUIDs are written."""
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _stamp(now: int) -> int:
    """Milliseconds and a fraction of 12 bits, as the version prescribes."""
    at_ms, us = divmod(max(now, 0), 1_000)
    return (at_ms << _FRACTION) | (us * (1 << _FRACTION) // 1_000)
