"""Wakes whoever waits for jobs: at once after our own commits, soon after those of others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


class Bell:
    """Counts the moments after which something new may be claimable.

    A claimer notes the count before it looks and hands it in when it waits. If the bell has rung
    since then the wait ends at once, so nothing that came between a claim and a wait is slept
    through. Each claimer has a count of its own: what one has looked at is still news to another.
    """

    def __init__(self) -> None:
        # A signal may come while it is held, and who answers it may ring as well.
        self._lock = threading.RLock()
        self.rung = 0
        self._waiting: set[asyncio.Future[bool]] = set()
        self._watch: Callable[[bool], None] = lambda _: None

    def start(self, watch: Callable[[bool], None]) -> None:
        """From now on; `watch` is told whether anybody waits."""
        self._watch = watch

    def stop(self) -> None:
        """Nothing will come any more: whoever waits goes away with empty hands."""
        self._watch = lambda _: None
        self._wake(found=False)

    def ring(self, *, here: bool = False) -> None:
        """Something may be claimable; any thread may say so, and any answer to a signal.

        Whoever says it `here`, in a turn of its own loop, wakes those who wait there at once.
        """
        with self._lock:
            self.rung += 1
            if not self._waiting:
                return
        self._wake(found=True, here=here)

    async def wait(self, timeout_s: float, seen: int | None) -> bool:
        """Whether the bell rang in time, counted from `seen` or else from now on."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        with self._lock:
            if seen is not None and self.rung > seen:
                return True
            self._waiting.add(woken)
        self._watch(True)
        # By a timer of its own: whoever waits for jobs is woken two turns of the loop earlier.
        timer = loop.call_later(timeout_s, _set, woken, False)
        try:
            return await woken
        finally:
            timer.cancel()
            self._leave(woken)

    def _leave(self, woken: asyncio.Future[bool]) -> None:
        with self._lock:
            self._waiting.discard(woken)
            is_empty = not self._waiting
        if is_empty:
            self._watch(False)

    def _wake(self, *, found: bool, here: bool = False) -> None:
        with self._lock:
            woken = list(self._waiting)
            self._waiting.clear()
        for one in woken:
            if here and one.get_loop() is asyncio.get_running_loop():
                _set(one, found)
                continue
            # Whoever closed their loop is not waiting any more.
            with suppress(RuntimeError):
                one.get_loop().call_soon_threadsafe(_set, one, found)


def _set(future: asyncio.Future[bool], found: bool) -> None:
    if not future.done():
        future.set_result(found)
