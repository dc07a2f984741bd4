"""Plain functions, each in a thread. Nothing can stop a thread: one that must end is given up."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from detent.runtime.context import Context
from detent.runtime.ending import Raised
from detent.runtime.executors.api import Ended, Returned, Run, Rung, Stopped, settle
from detent.runtime.executors.capture import captured
from detent.runtime.executors.forks import Forks, original
from detent.runtime.executors.means import Kind
from detent.runtime.middleware import Arounds


class Hand(Protocol):
    """What does one thing at a time, elsewhere."""

    def do(self, work: Callable[[], None]) -> None:
        """Do it, when what was asked for before is done."""
        ...

    def end(self) -> None:
        """End once all that was asked for is done."""
        ...


class _Thread:
    """One thread that does one thing at a time. A daemon: it never keeps a process from ending."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def do(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def end(self) -> None:
        """When what it does is done, if ever."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work


class ThreadExecutor:
    """Threads of its own, so many at most; one that is given up is replaced when it is needed.

    `first` is one that there is already.
    """

    kind = Kind.THREAD

    def __init__(self, most: int = 32, first: Hand | None = None) -> None:
        self._free = asyncio.Semaphore(most)
        self._idle: list[Hand] = [] if first is None else [first]
        self._ends: dict[Run, asyncio.Future[Ended]] = {}
        self._made = 0
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """How many threads go on although nobody listens to them."""
        return self._abandoned

    async def run(self, run: Run) -> Ended:
        """Run it in a thread, with what is as plain as it around it in there."""
        end: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._ends[run] = end
        work = asyncio.create_task(self._worked(run))
        work.add_done_callback(lambda done: settle(end, _end_of(done)))
        try:
            return await end
        finally:
            del self._ends[run]
            work.cancel()

    def ask(self, run: Run) -> None:
        """It sees `ctx.cancelled`."""
        run.ctx.heard.is_cancelled = True

    def interrupt(self, run: Run) -> bool:
        """There is no way to raise anything in a thread that waits, so it is not tried."""
        del run
        return False

    async def kill(self, run: Run) -> Rung:
        """Stop listening to it."""
        end = self._ends.get(run)
        if end is not None:
            settle(end, Stopped(Rung.ABANDONED))
        return Rung.ABANDONED

    async def close(self) -> None:
        """Give up what is under way; idle threads end."""
        for run in list(self._ends):
            await self.kill(run)
        while self._idle:
            self._idle.pop().end()

    async def _worked(self, run: Run) -> Ended:
        """What it returned or raised; if something around it swallows its error, it is nothing."""
        inner, outer = run.around.sync_ones(), run.around.async_ones()
        ended: Ended = Returned(None)
        async with self._free:
            run.begun()
            with captured(run.ctx):
                try:
                    call = run.call()
                    async with outer.awaited([run.ctx]):
                        told = await self._in_thread(partial(_called, inner, run.ctx, call))
                        _tell(outer, told)
                        ended = told
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    return Raised(error)
        return ended

    async def _in_thread(self, call: Callable[[], Ended]) -> Ended:
        """The answer of the call; whoever calls this off leaves the thread to itself."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Ended] = loop.create_future()
        context = contextvars.copy_context()
        thread = self._idle.pop() if self._idle else self._new()

        def work() -> None:
            ended = context.run(call)
            try:
                loop.call_soon_threadsafe(settle, answer, ended)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.

        thread.do(work)
        try:
            ended = await answer
        except asyncio.CancelledError:
            self._abandon(thread, loop)
            raise
        self._idle.append(thread)
        return ended

    def _new(self) -> Hand:
        self._made += 1
        return _Thread(f"detent-job-{self._made}")

    def _abandon(self, thread: Hand, loop: asyncio.AbstractEventLoop) -> None:
        self._abandoned += 1

        def back() -> None:
            self._abandoned -= 1

        def work() -> None:
            try:
                loop.call_soon_threadsafe(back)
            except RuntimeError:
                return

        thread.do(work)
        thread.end()


def _end_of(work: asyncio.Task[Ended]) -> Ended:
    return Raised(asyncio.CancelledError()) if work.cancelled() else work.result()


def _tell(outer: Arounds[Context], ended: Ended) -> None:
    """Those around it hear of its error; what no coroutine could carry ends the run as it is."""
    if outer and isinstance(ended, Raised) and ended.is_plain:
        raise ended.error


def _called(around: Arounds[Context], ctx: Context, call: Callable[[], Any]) -> Ended:
    forks = Forks.count
    ended: Ended = Returned(None)
    try:
        with around.here(ctx):
            ended = Returned(call())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and _is_main():
            # It ran in the thread of whoever waits for it, and they have pressed Ctrl-C.
            raise
        # As a value: a future takes neither StopIteration nor what would end this process.
        return original(forks, Raised(error))
    return original(forks, ended)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
