"""What a server must be before we trust it, and what its clock says."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

from detent.errors import UnsupportedStore
from detent.stores.checks import Check, harm
from detent.stores.postgres.connection import Connection, Row

_log = logging.getLogger(__name__)
OLDEST: Final = 130_000
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It goes on while this machine is suspended, where a system tells that."""
_APART_US: Final = 1_000_000
"""So far it may be from what it was without being believed: a measurement takes time, too."""

LOSES: Final = {
    "fsync": "a power failure may destroy the whole database",
    "full_page_writes": "a power failure may leave pages that are half old and half new",
    "synchronous_commit": "a job is said to be stored before it is on the disk: the last ones"
    " are gone if the server falls",
}
"""What is lost while a setting is off."""


class ServerClock:
    """The server's clock, told by our own steady one from the moment when both were read.

    It is read again now and then. The server's may be set, or another server may have taken over;
    ours stands still while this machine is paused. Whoever kept to what it was would live in
    another time than those who came later: to them its workers had been silent for hours.
    """

    def __init__(self) -> None:
        self._ahead_us: int | None = None

    def __call__(self) -> int:
        """Microseconds."""
        return _steady_us() + (self._ahead_us or 0)

    async def read(self, connection: Connection) -> Row:
        """What the server says about itself; what time it is there is taken from that."""
        before = _steady_us()
        row = await connection.fetch_row("about")
        after = _steady_us()
        if row is None:
            raise UnsupportedStore("The server says nothing about itself")
        self._hear(row[-1] - (before + after) // 2, after - before)
        return row

    def _hear(self, ahead_us: int, took_us: int) -> None:
        if self._ahead_us is None:
            self._ahead_us = ahead_us
            return
        step_us = ahead_us - self._ahead_us
        if abs(step_us) > max(_APART_US, took_us):
            self._ahead_us = ahead_us
            _log.warning("the clock of PostgreSQL has moved by %+.1f s", step_us / 1_000_000)


def _steady_us() -> int:
    """Is set by nobody."""
    return time.clock_gettime_ns(_STEADY) // 1_000


async def need_fit(connection: Connection) -> ServerClock:
    """Refuse a server that lacks what we promise; otherwise its clock, as far as we can tell."""
    clock = ServerClock()
    version, encoding, is_read_only, _ = await clock.read(connection)
    if version < OLDEST:
        major = version // 10_000
        raise UnsupportedStore(
            f"PostgreSQL {major} is too old; 13 or newer is needed", version=major
        )
    if encoding != "UTF8":
        why = f"The database is encoded in {encoding}; create it with ENCODING 'UTF8'"
        raise UnsupportedStore(why, encoding=encoding)
    if is_read_only:
        raise UnsupportedStore("The server is read-only, a replica perhaps; name the primary")
    return clock


def promises(rows: Sequence[Row]) -> list[Check]:
    """Those settings under which something is lost that was said to be stored."""
    mend = "set it to on, for the server, the database and the role"
    off = [name for name, setting in rows if setting == "off"]
    return [harm(name, f"{name} is off", LOSES[name], mend) for name in off]
