"""Placing: jobs that were enqueued without a lane get one, once they are committed.

Inside somebody's own transaction no lane is made, because everybody else who wants to make the same
lane would have to wait for its end. Here it is made in a short transaction of our own.
"""

from __future__ import annotations

from typing import Final

from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.lanes import Lane, numbers_of

_MOST: Final = 1_000
_NAMES: Final = ("tenants", "queues", "types", "profiles", "deliveries", "keys", "lanes")


async def place(connection: Connection) -> int:
    """How many jobs were placed; there is hardly ever one to be."""
    placed = 0
    while lanes := {Lane(*row) for row in await connection.fetch("unplaced", most=_MOST)}:
        numbers = await numbers_of(connection, lanes)
        told = columns(_NAMES, [(*lane, number) for lane, number in numbers.items()])
        row = await connection.fetch_row("place", **told, most=_MOST)
        found = row[0] if row else 0
        placed += found
        if found < _MOST:
            break
    return placed
