"""Coroutines, each in a task of the worker's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from detent.runtime.ending import Raised
from detent.runtime.executors.api import Ended, Returned, Run, Rung, Stopped, settle
from detent.runtime.executors.capture import captured
from detent.runtime.executors.forks import Forks, original
from detent.runtime.executors.means import Kind

PATIENCE_S = 0.05
"""How long a task that is called off for the last time has to end."""


class AsyncExecutor:
    """A handler that blocks holds up all others: what cannot be awaited belongs elsewhere."""

    kind = Kind.ASYNC

    def __init__(self) -> None:
        self._tasks: dict[Run, asyncio.Task[Ended]] = {}
        self._ends: dict[Run, Callable[[Ended], None]] = {}
        self._interrupted: set[Run] = set()

    @property
    def abandoned(self) -> int:
        """How many handlers go on although nobody listens to them."""
        return len(self._tasks) - len(self._ends)

    def start(self, run: Run, end: Callable[[Ended], None]) -> None:
        """Run it in a task of its own, and tell once how it ended: `run` without a second task."""
        run.begun()
        task = asyncio.get_running_loop().create_task(_handled(run))
        self._tasks[run], self._ends[run] = task, end
        task.add_done_callback(partial(self._done, run))

    def is_current(self, run: Run) -> bool:
        """Whether its task is the one that runs at this moment; asked from another thread."""
        task = self._tasks.get(run)
        return task is not None and asyncio.current_task(task.get_loop()) is task

    async def run(self, run: Run) -> Ended:
        """The same, awaited."""
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.start(run, partial(settle, end))
        try:
            return await end
        finally:
            if self._ends.pop(run, None) is not None:
                self._tasks[run].cancel()

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
        task = self._tasks.get(run)
        if task is None or not self.interrupt(run):
            return Rung.KILLED
        await asyncio.wait([task], timeout=PATIENCE_S)
        if task.done():
            return Rung.KILLED
        end = self._ends.pop(run, None)
        if end is not None:
            end(Stopped(Rung.ABANDONED))
        return Rung.ABANDONED

    async def close(self) -> None:
        """Kill what is under way."""
        await asyncio.gather(*(self.kill(run) for run in list(self._tasks)))

    def _done(self, run: Run, task: asyncio.Task[Ended]) -> None:
        del self._tasks[run]
        end = self._ends.pop(run, None)
        ended = self._ended(run, task)
        self._interrupted.discard(run)
        if end is not None:
            end(ended)

    def _ended(self, run: Run, task: asyncio.Task[Ended]) -> Ended:
        if not task.cancelled():
            return task.result()
        if run in self._interrupted:
            return Stopped(Rung.INTERRUPTED)
        # Not we called it off: the handler let somebody else's end escape.
        return Raised(asyncio.CancelledError())


async def _handled(run: Run) -> Ended:
    """What it returned or raised; if something around it swallows its error, it is nothing."""
    forks = Forks.count
    with captured(run.ctx):
        try:
            call = run.call()
            if not run.around:
                return original(forks, Returned(await call()))
            ended: Ended = Returned(None)
            async with run.around.awaited([run.ctx]):
                ended = Returned(await call())
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Whatever a task does not keep to itself ends the loop, and everybody in it.
            return original(forks, Raised(error))
    return original(forks, ended)
