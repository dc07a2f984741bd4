"""Hands things from any thread to one event loop, many with one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Crossing(Generic[T]):
    """What is put before the other side gets round to it arrives there together."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Callable[[list[T]], None]) -> None:
        self.loop = loop
        self._receive = receive
        self._things: deque[T] = deque()
        self._is_called = False

    def put(self, thing: T) -> None:
        """Hand it over, from any thread."""
        self._things.append(thing)
        if not self._is_called:
            self._is_called = True
            # Whoever closed their loop takes nothing any more.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        # Said before it is taken: what comes from now on calls again.
        self._is_called = False
        self._receive([self._things.popleft() for _ in range(len(self._things))])
