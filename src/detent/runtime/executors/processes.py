"""Handlers in processes of their own: warm ones, each for one job at a time.

A process can be interrupted and killed, and when one dies, nobody else is hurt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from detent.errors import DetentError
from detent.host import working_folder
from detent.runtime.ending import Told
from detent.runtime.executors.api import Died, Ended, Run, Rung, Stopped, settle
from detent.runtime.executors.means import Kind
from detent.runtime.executors.pooled import Pooled

STARTS_MAX: Final = 5
"""So often a process may fail to begin, one after the other; then nobody tries again."""
_WAIT_S: Final = 1.0


class Pool(msgspec.Struct, frozen=True):
    """How many processes there may be, and how long each is used.

    `memory_bytes` is what a run may add to its process, if its type says nothing about that.
    """

    most: int = 4
    jobs_max: int = 1_000
    rss_bytes_max: int | None = 1_073_741_824
    age_s_max: float = 3_600.0
    memory_bytes: int | None = None


class _Place:
    """Where a run is: waiting, or in a process."""

    def __init__(self, end: asyncio.Future[Ended]) -> None:
        self.end = end
        self.process: Pooled | None = None
        self.work: asyncio.Task[None] | None = None


class ProcessExecutor:
    """A pool of processes that have imported the program that `reference` names.

    They are started when they are needed, and kept. Each begins in the folder `home`, or in the one
    that this process is in now, wherever that is by then. `run` raises a coded error when there is
    no process to be had: the job has not begun then, and no fault of it is known. `broken` is the
    error, once it is clear that trying again is of no use.
    """

    kind = Kind.PROCESS

    def __init__(self, reference: str, pool: Pool | None = None, home: str | None = None) -> None:
        self._reference = reference
        self._home = home or working_folder()
        self._pool = pool or Pool()
        self._free = asyncio.Semaphore(self._pool.most)
        self._idle: list[Pooled] = []
        self._places: dict[Run, _Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: DetentError | None = None
        self._failures = 0
        self._again_at = 0.0

    @property
    def broken(self) -> DetentError | None:
        """Why no process will ever begin, if that is so."""
        return self._failed if self._failures >= STARTS_MAX else None

    async def run(self, run: Run) -> Ended:
        """Run it in a process that is idle, or in a new one."""
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._places[run] = place = _Place(end)
        place.work = self._kept(self._worked(run, place))
        try:
            return await end
        finally:
            del self._places[run]
            place.work.cancel()

    def ask(self, run: Run) -> None:
        """It sees `ctx.cancelled` over there."""
        run.ctx.heard.is_cancelled = True
        place = self._places.get(run)
        if place is not None and place.process is not None:
            place.process.halt()

    def interrupt(self, run: Run) -> bool:
        """Raise something in it; what only waits for a process needs none any more."""
        place = self._places.get(run)
        if place is None:
            return False
        if place.process is None:
            settle(place.end, Stopped(Rung.INTERRUPTED))
        else:
            place.process.interrupt()
        return True

    async def kill(self, run: Run) -> Rung:
        """Kill its process, and everything that was started in there."""
        place = self._places.get(run)
        if place is not None and place.process is None:
            settle(place.end, Stopped(Rung.KILLED))
        elif place is not None and place.process is not None:
            await place.process.kill()
        return Rung.KILLED

    async def close(self) -> None:
        """Kill what runs, and let go of what is idle."""
        await asyncio.gather(*(self.kill(run) for run in list(self._places)))
        while self._idle:
            self._retire(self._idle.pop())
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _worked(self, run: Run, place: _Place) -> None:
        try:
            async with self._free:
                process = await self._process(run)
                place.process = process
                ended = await self._ran(process, run)
        except DetentError as error:
            if not place.end.done():
                place.end.set_exception(error)
        else:
            settle(place.end, ended)

    async def _ran(self, process: Pooled, run: Run) -> Ended:
        try:
            ended = await process.run(run, self._pool.memory_bytes)
        except asyncio.CancelledError:
            # Whoever waited for it does not any more.
            self._kept(process.force())
            raise
        if run.is_alone or process.is_gone or _is_spent(ended) or self._is_worn(process):
            self._retire(process)
        else:
            self._idle.append(process)
        return ended

    async def _process(self, run: Run) -> Pooled:
        while self._idle and not run.is_alone:
            process = self._idle.pop()
            if not process.is_gone and not self._is_worn(process):
                return process
            self._retire(process)
        return await self._started()

    async def _started(self) -> Pooled:
        if self._failed is not None and (self.broken or time.monotonic() < self._again_at):
            raise self._failed
        process = Pooled(self._home)
        try:
            await process.start(self._reference)
        except BaseException as error:
            self._kept(process.force())
            if isinstance(error, DetentError):
                self._count(error)
            raise
        self._failed, self._failures = None, 0
        return process

    def _count(self, error: DetentError) -> None:
        """Processes that fail together fail once; each time it takes longer until the next try."""
        if self._failed is None or time.monotonic() >= self._again_at:
            self._failures += 1
            self._again_at = time.monotonic() + _WAIT_S * 2 ** (self._failures - 1)
        self._failed = error

    def _is_worn(self, process: Pooled) -> bool:
        pool = self._pool
        is_fat = pool.rss_bytes_max is not None and process.rss_bytes > pool.rss_bytes_max
        is_old = time.monotonic() - process.born > pool.age_s_max
        return is_fat or is_old or process.jobs >= pool.jobs_max

    def _retire(self, process: Pooled) -> None:
        self._kept(process.hang_up() if process.is_gone else process.leave())

    def _kept(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that `close` waits for: no process is left to itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_spent(ended: Ended) -> bool:
    """Whether what happened may have left traces in the process."""
    if isinstance(ended, Told):
        return "MemoryError" in ended.names
    return isinstance(ended, Stopped | Died)
