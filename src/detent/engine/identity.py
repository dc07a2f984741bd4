"""Makes unique ids for records, leases and commands, and places in a queue.

Ids are UUIDs of version 7: the time in front makes them sort by age, the chance behind makes them
safe to give out without asking anybody.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from weakref import WeakSet

_CHANCE = 62
_FRACTION = 12
_FRACTIONS = (1 << _FRACTION) - 1
_DRAWN = 1_024
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""What the first digit of chance becomes: two of its bits say how the rest is to be read."""
_COUNT = 20
"""Bits of a derived id that hold its number."""


_copied_by_fork: WeakSet[Identity] = WeakSet()


class Identity:
    """Gives names at the time of a clock; none twice, and later ones sort after earlier ones."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        # A signal may come while it is held, and who answers it may need a name as well.
        self._lock = threading.RLock()
        self._last_id = 0
        self._last_place = 0
        self._tails: list[str] = []
        self._front = 0, ""
        _copied_by_fork.add(self)

    def id(self) -> str:
        """A new UUID of version 7."""
        return self.ids(1)[0]

    def ids(self, number: int) -> list[str]:
        """So many of them, in order."""
        now = self._now()
        with self._lock:
            return self._ids(number, now)

    def births(self, number: int) -> tuple[list[str], int, int]:
        """Ids for so many new jobs, the first of as many places in a row, and the time."""
        now = self._now()
        with self._lock:
            return self._ids(number, now), self._places(number, now), now

    def _ids(self, number: int, now: int) -> list[str]:
        first = max(_stamp(now), self._last_id + 1)
        self._last_id = first + number - 1
        return [self._named(first + at, tail) for at, tail in enumerate(self._drawn(number))]

    def _named(self, stamp: int, tail: str) -> str:
        """The UUID of a stamp and a tail; `uuid.UUID` takes its time."""
        at_ms, fraction = stamp >> _FRACTION, stamp & _FRACTIONS
        if self._front[0] != at_ms:
            # All of one millisecond begin alike.
            told = f"{at_ms:012x}"
            self._front = at_ms, f"{told[:8]}-{told[8:]}-7"
        return f"{self._front[1]}{fraction:03x}{tail}"

    def _drawn(self, number: int) -> list[str]:
        """Asked for in bulk: each question to the system lets another thread go first."""
        tails = self._tails
        if len(tails) < number:
            drawn = os.urandom(8 * (number + _DRAWN)).hex()
            tails += [_tail(drawn[at : at + 16]) for at in range(0, len(drawn), 16)]
        if number == 1:
            return [tails.pop()]
        left = len(tails) - number
        taken = tails[left:]
        del tails[left:]
        return taken

    def forget_chances(self) -> None:
        """What a fork copies is not used again."""
        self._lock = threading.RLock()
        self._tails = []

    def place(self) -> int:
        """The next position in a queue: neither ids nor times are good enough for first come."""
        now = self._now()
        with self._lock:
            return self._places(1, now)

    def _places(self, number: int, now: int) -> int:
        """The first of so many positions in a row."""
        first = max(now, self._last_place + 1)
        self._last_place = first + number - 1
        return first


def _begin_anew() -> None:
    for one in _copied_by_fork:
        one.forget_chances()


os.register_at_fork(after_in_child=_begin_anew)


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


def _tail(chance: str) -> str:
    """What 16 digits of chance come to at the end of a UUID."""
    return f"-{_VARIANT[chance[0]]}{chance[1:4]}-{chance[4:]}"


def _written(number: int) -> str:
    """The number as a UUID is written."""
    told = f"{number:032x}"
    return f"{told[:8]}-{told[8:12]}-{told[12:16]}-{told[16:20]}-{told[20:]}"


def _stamp(now: int) -> int:
    """Milliseconds and a fraction of 12 bits, as the version prescribes."""
    at_ms, us = divmod(max(now, 0), 1_000)
    return (at_ms << _FRACTION) | (us * (1 << _FRACTION) // 1_000)
