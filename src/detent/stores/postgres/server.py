"""What a server must be before we trust it, and what its clock says."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from detent.errors import UnsupportedStore
from detent.stores.postgres.connection import Connection

OLDEST: Final = 130_000


async def need_fit(connection: Connection) -> Callable[[], int]:
    """Refuse a server that lacks what we promise; otherwise its clock, as far as we can tell."""
    before = time.monotonic_ns()
    row = await connection.fetch_row("about")
    after = time.monotonic_ns()
    if row is None:
        raise UnsupportedStore("The server says nothing about itself")
    version, encoding, is_read_only, clock_us = row
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
    return synchronised(clock_us, (before + after) // 2_000)


def synchronised(server_us: int, own_us: int) -> Callable[[], int]:
    """The server's clock, told by our own steady one from the moment when both were read."""
    offset_us = server_us - own_us
    return lambda: time.monotonic_ns() // 1_000 + offset_us
