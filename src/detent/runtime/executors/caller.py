"""Calls plain functions in the thread that waits for a loop, between two turns of it.

Tests have things that belong to their thread: a transaction that is rolled back afterwards, a
database in memory, a connection that no other thread may use.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class CallersThread:
    """Runs a loop in this thread, and whatever it hands over while the loop stands still."""

    def __init__(self) -> None:
        self._work: deque[Callable[[], None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_interrupted = False

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """The outcome; Ctrl-C calls it off."""
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            loop = self._loop = runner.get_loop()
            task = loop.create_task(main)
            task.add_done_callback(lambda _: loop.stop())
            try:
                while not task.done():
                    self._turn(loop, task)
                    self._do_all()
            finally:
                # What is called off now is handed back to nobody.
                self._loop = None
        if self._is_interrupted and task.cancelled():
            raise KeyboardInterrupt
        return task.result()

    def _turn(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[T]) -> None:
        """Until something is handed over. Ctrl-C goes to the whole and not to the coroutine that it
        happens to meet, as in `asyncio.run`; a plain function is interrupted by it as everywhere.
        """

        def interrupted(*_: object) -> None:
            self._is_interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        is_ours = threading.current_thread() is threading.main_thread()
        if not is_ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            loop.run_forever()
            return
        signal.signal(signal.SIGINT, interrupted)
        try:
            loop.run_forever()
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def do(self, work: Callable[[], None]) -> None:
        """After this turn of the loop."""
        if self._loop is not None:
            self._work.append(work)
            self._loop.stop()

    def end(self) -> None:
        """Nothing: the thread is the caller's own."""

    def _do_all(self) -> None:
        while self._work:
            self._work.popleft()()
