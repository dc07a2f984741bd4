"""Caches answers of the store for a moment.

Of those who ask for the same at once, one goes to the store and all hear what it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

FRESH_US: Final = 1_000_000
"""How long an answer is good for."""
_KNOWN_MAX: Final = 10_000

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """What `ask` said about each key, as of a moment ago."""

    def __init__(self, ask: Callable[[K], Awaitable[V]], now: Callable[[], int]) -> None:
        self._ask = ask
        self._now = now
        self._known: dict[K, tuple[int, V]] = {}
        self._asking: dict[K, asyncio.Future[V]] = {}

    async def get(self, key: K) -> V:
        """The answer for this key."""
        found = self.fresh(key, self._now())
        if found is not None:
            return found[0]
        asking = self._asking.get(key)
        if asking is None:
            asking = self._asking[key] = asyncio.ensure_future(self._asked(key))
        # Whoever is called off takes nobody with them.
        return await asyncio.shield(asking)

    def fresh(self, key: K, now: int) -> tuple[V] | None:
        """The answer, if it is known and nobody needs to ask again."""
        found = self._known.get(key)
        # The clock may have been set back since.
        return (found[1],) if found is not None and 0 <= now - found[0] < FRESH_US else None

    def forget(self, key: K | None = None) -> None:
        """What is known of the key, or of all, is not true any more."""
        if key is None:
            self._known.clear()
            self._asking.clear()
        else:
            self._known.pop(key, None)
            self._asking.pop(key, None)

    async def _asked(self, key: K) -> V:
        me, begun_at = asyncio.current_task(), self._now()
        try:
            found = await self._ask(key)
            if self._asking.get(key) is me:
                if len(self._known) >= _KNOWN_MAX:
                    self._known.clear()
                self._known[key] = (begun_at, found)
        finally:
            if self._asking.get(key) is me:
                del self._asking[key]
        return found
