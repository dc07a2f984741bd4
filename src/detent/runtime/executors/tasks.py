"""Coroutines, each in a task of the worker's own loop."""

from __future__ import annotations

import asyncio
from typing import Any

from detent.runtime.ending import Raised
from detent.runtime.executors.api import Ended, Returned, Run, Rung, Stopped, settle
from detent.runtime.executors.capture import captured
from detent.runtime.executors.means import Kind

__all__ = ["AsyncExecutor"]

PATIENCE_S = 0.05
"""How long a task that is called off for the last time has to end."""


class AsyncExecutor:
    """A handler that blocks holds up all others: what cannot be awaited belongs elsewhere."""

    kind = Kind.ASYNC

    def __init__(self) -> None:
        self._tasks: dict[Run, asyncio.Task[Any]] = {}
        self._ends: dict[Run, asyncio.Future[Ended]] = {}
        self._interrupted: set[Run] = set()
        self._abandoned: set[asyncio.Task[Any]] = set()

    @property
    def abandoned(self) -> int:
        """How many handlers go on although nobody listens to them."""
        return len(self._abandoned)

    async def run(self, run: Run) -> Ended:
        """Run it in a task of its own."""
        task = asyncio.create_task(_handled(run))
        self._tasks[run] = task
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._ends[run] = end
        task.add_done_callback(lambda done: settle(end, self._ended(run, done)))
        try:
            return await end
        finally:
            if not task.done():
                self._abandon(task)
            self._interrupted.discard(run)
            del self._tasks[run], self._ends[run]

    def ask(self, run: Run) -> None:
        """It sees `ctx.cancelled`."""
        run.ctx.heard.is_cancelled = True

    def interrupt(self, run: Run) -> bool:
        """Call its task off."""
        task = self._tasks.get(run)
        if task is None:
            return False
        self._interrupted.add(run)
        task.cancel()
        return True

    async def kill(self, run: Run) -> Rung:
        """Call it off once more; a task that swallows even that is left to itself."""
        task, end = self._tasks.get(run), self._ends.get(run)
        if task is None or end is None or not self.interrupt(run):
            return Rung.KILLED
        await asyncio.wait([task], timeout=PATIENCE_S)
        if task.done():
            return Rung.KILLED
        settle(end, Stopped(Rung.ABANDONED))
        return Rung.ABANDONED

    async def close(self) -> None:
        """Kill what is under way."""
        await asyncio.gather(*(self.kill(run) for run in list(self._tasks)))

    def _ended(self, run: Run, task: asyncio.Task[Any]) -> Ended:
        if not task.cancelled():
            ended: Ended = task.result()
            return ended
        if run in self._interrupted:
            return Stopped(Rung.INTERRUPTED)
        # Not we called it off: the handler let somebody else's end escape.
        return Raised(asyncio.CancelledError())

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)


async def _handled(run: Run) -> Ended:
    """What it returned or raised; if something around it swallows its error, it is nothing."""
    ended: Ended = Returned(None)
    with captured(run.ctx):
        try:
            call = run.call()
            async with run.around.awaited([run.ctx]):
                ended = Returned(await call())
        except (Exception, SystemExit) as error:
            return Raised(error)
    return ended
