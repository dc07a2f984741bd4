"""Seals new events every minute, so that changing them later is noticed.

One of all who look after a store does it, a piece with every turn, so that what is due never waits
for it. Whatever is too much for that is sealed when old jobs are forgotten, at the latest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from detent.stores.api import Store

EVERY_US: Final = 60_000_000
PIECE: Final = 1_000
"""How many events one turn seals: 7 milliseconds on SQLite and 10 on PostgreSQL, quiet."""
PIECES_MAX: Final = 200
"""How many pieces a minute: more would be taken from the jobs of a machine that is busy."""


class Sealing:
    """Seals a piece of the feed with each turn of one upkeep."""

    def __init__(self, store: Store, is_our_turn: Callable[[int], Awaitable[bool]]) -> None:
        self._store = store
        self._is_our_turn = is_our_turn
        self._due_at: int | None = None
        self._left = 0

    async def turn(self, now: int) -> None:
        """Seal a piece, if it is time and somebody must."""
        if self._due_at is None or self._due_at > now + EVERY_US:
            # Whoever has just come has better things to do, and a clock may be set back.
            self._due_at = now + EVERY_US
        if now >= self._due_at:
            self._due_at = now + EVERY_US
            self._left = PIECES_MAX if await self._is_our_turn(now) else 0
        if self._left:
            block = await self._store.seal(limit=PIECE)
            has_more = block is not None and block.count == PIECE
            self._left = self._left - 1 if has_more else 0
