"""Names that nobody else gives: ids of records, leases and commands, and places in a queue.

Ids are UUIDs of version 7: the time in front makes them sort by age, the chance behind makes them
safe to give out without asking anybody.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
from collections.abc import Callable

__all__ = ["Identity", "derived_id"]

_CHANCE = 62
_FRACTION = 12
_DRAWN = 256
_COUNT = 20
"""Bits of a derived id that hold its number."""


class Identity:
    """Gives names at the time of a clock; none twice, and later ones sort after earlier ones."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._last_id = 0
        self._last_place = 0
        self._chances: list[int] = []
        self._process = 0

    def id(self) -> str:
        """A new UUID of version 7."""
        with self._lock:
            self._last_id = max(_stamp(self._now()), self._last_id + 1)
            stamp = self._last_id
            chance = self._chance()
        at_ms, fraction = divmod(stamp, 1 << _FRACTION)
        return _written((at_ms << 80) | (7 << 76) | (fraction << 64) | (2 << _CHANCE) | chance)

    def _chance(self) -> int:
        """Asked for in bulk: each question to the system lets another thread go first.

        What a fork copies is not used again.
        """
        if not self._chances or self._process != os.getpid():
            self._process, drawn = os.getpid(), os.urandom(8 * _DRAWN)
            numbers = struct.unpack(f">{_DRAWN}Q", drawn)
            self._chances = [number >> (64 - _CHANCE) for number in numbers]
        return self._chances.pop()

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
    return _written((at_ms << 80) | (7 << 76) | (high << 64) | (2 << _CHANCE) | tail)


def _written(number: int) -> str:
    """The number as a UUID is written; two are needed per job, and `uuid.UUID` takes its time."""
    told = f"{number:032x}"
    return f"{told[:8]}-{told[8:12]}-{told[12:16]}-{told[16:20]}-{told[20:]}"


def _stamp(now: int) -> int:
    """Milliseconds and a fraction of 12 bits, as the version prescribes."""
    at_ms, us = divmod(max(now, 0), 1_000)
    return (at_ms << _FRACTION) | (us * (1 << _FRACTION) // 1_000)
