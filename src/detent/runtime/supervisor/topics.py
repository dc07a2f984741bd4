"""A short queue of topics: a source for one router, and a bridge out of another."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from detent.errors import SourceClosed

BUFFER: Final = 10


class Topics:
    """What is put in at one end is iterated over at the other, until it is closed.

    `router.listen(topics)` takes topics from it, `router.handle("command/*", topics.put)` puts them
    in for whoever iterates. For one loop: another thread goes through `call_soon_threadsafe`.
    """

    def __init__(self, room: int = BUFFER) -> None:
        self.is_closed = False
        self._room = room
        self._topics: deque[str] = deque()
        self._changed = asyncio.Event()

    def offer(self, topic: str) -> bool:
        """Put it in if there is room now; whether there was."""
        if self.is_closed or len(self._topics) >= self._room:
            return False
        self._topics.append(topic)
        self._wake()
        return True

    async def put(self, topic: str) -> None:
        """Put it in; waits while there is no room."""
        while not self.offer(topic):
            if self.is_closed:
                raise SourceClosed(f"Nobody takes {topic!r} any more: it is ending", topic=topic)
            await self._changed.wait()

    def close(self) -> None:
        """Take nothing more in. What is there already is still handed out."""
        self.is_closed = True
        self._wake()

    def __aiter__(self) -> Topics:
        return self

    async def __anext__(self) -> str:
        while not self._topics:
            if self.is_closed:
                raise StopAsyncIteration
            await self._changed.wait()
        topic = self._topics.popleft()
        self._wake()
        return topic

    def _wake(self) -> None:
        """Everybody looks again; who waits from now on waits for the next change."""
        self._changed.set()
        self._changed = asyncio.Event()
