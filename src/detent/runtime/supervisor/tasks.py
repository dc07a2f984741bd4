"""Background work that is never forgotten: every task is kept, and its failure is heard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from detent.errors import DetentError
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless

_log = logging.getLogger("detent.supervisor")
T = TypeVar("T")


class Tasks:
    """Everything that one supervisor does beside answering."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = harmless(metrics)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._kept: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start it, and remember it until it is done."""
        task = self._begun(work, name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def kept(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """What comes of it. Whoever waits no longer has not taken it back: it goes on to its end.

        It has somebody who asked for it, so it is not called off with the rest either.
        """
        task = self._begun(work, name)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._done)
            raise

    async def close(self) -> None:
        """Cancel what is left, and wait until it is gone. Who closes is not cancelled."""
        mine = asyncio.current_task()
        left = [task for task in self._tasks if task is not mine]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _begun(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        self._metrics.count(f"{PREFIX}tasks_started_total", {})
        return asyncio.get_running_loop().create_task(work, name=name)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._metrics.count(f"{PREFIX}tasks_failed_total", {})
        if isinstance(error, DetentError):
            # It says itself what is wrong; where in here that was seen helps nobody.
            _log.error("%s failed: %s", task.get_name(), error)
        else:
            _log.error("%s failed", task.get_name(), exc_info=error)
