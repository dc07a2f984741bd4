"""Function workers: a coroutine function, or a plain one in a thread, as the body of an instance.

A function is asked to stop through its context and, if it is a coroutine, by cancelling it. Nobody
can force it: one that does not come back is left behind, and its slot goes on without it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any, Final

from detent.errors import BadSpec, DetentError
from detent.lifecycle.worker import Ending, Exit
from detent.runtime.supervisor.body import Born, Handover, Usage

_log: Final = logging.getLogger("detent.supervisor")


class Gate:
    """Between two units of work: closed means wait here. Usable from a loop and from a thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._loop = asyncio.get_running_loop()
        self._opened = asyncio.Event()
        self._opened.set()
        self._quiet = asyncio.Event()
        self._is_closed = False
        self._is_over = False

    async def aenter(self) -> None:
        """Wait while it is closed, in a loop; raises `CancelledError` when it is time to stop."""
        while self._is_closed and not self._is_over:
            self._quiet.set()
            await self._opened.wait()
        if self._is_over:
            raise asyncio.CancelledError

    def enter(self) -> None:
        """The same in a thread."""
        with self._condition:
            while self._is_closed and not self._is_over:
                self._loop.call_soon_threadsafe(self._quiet.set)
                self._condition.wait()
            if self._is_over:
                raise asyncio.CancelledError

    async def close(self) -> None:
        """Let nothing more through; come back when the worker stands at the gate."""
        with self._condition:
            self._is_closed = True
            self._opened.clear()
            self._quiet.clear()
        await self._quiet.wait()

    def open(self) -> None:
        """Let it go on."""
        self._wake(closed=False)

    def end(self) -> None:
        """It is time to stop: whoever waits here is sent home."""
        with self._condition:
            self._is_over = True
        self._wake(closed=True)

    def _wake(self, *, closed: bool) -> None:
        with self._condition:
            self._is_closed = closed
            self._quiet.clear()
            self._condition.notify_all()
        self._opened.set()


class WorkerContext:
    """The argument of a function worker: who it is, when to pause, and when to stop.

    `handover` tells the slot, the attempt, and how the attempt before it ended. `stopping` is set
    when the worker is asked to stop. `done` counts finished units of work, if the function does so.
    """

    def __init__(self, handover: Handover) -> None:
        self.handover = handover
        self.gate = Gate()
        self.stopping = threading.Event()
        self.done = 0
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def acheckpoint(self) -> None:
        """Wait here while the worker is suspended. Raises `CancelledError` when it must stop."""
        await self.gate.aenter()

    def checkpoint(self) -> None:
        """The same for a function that runs in a thread."""
        self.gate.enter()

    def ready(self) -> None:
        """Report that the worker is ready; only waited for with `wait_ready`. Thread-safe."""
        self._loop.call_soon_threadsafe(self._ready.set)

    async def readied(self) -> None:
        await self._ready.wait()


WorkerFunction = Callable[[WorkerContext], Awaitable[Any] | Any]


class FunctionBody:
    """One call of the function. `says_ready`: it calls `work.ready()` itself."""

    kind = "function"

    def __init__(
        self,
        function: WorkerFunction,
        *,
        suspendable: bool = False,
        says_ready: bool = False,
        probe: Callable[[], bool] | None = None,
    ) -> None:
        self.suspendable = suspendable
        self._function = function
        self._says_ready = says_ready
        self._probe = probe
        self._work: WorkerContext | None = None
        self._task: asyncio.Task[Exit] | None = None
        self._thread: threading.Thread | None = None
        self._end: asyncio.Future[Exit] | None = None

    async def spawn(self, handover: Handover) -> Born | None:
        """Call it, in this loop or in a thread of its own."""
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        self._work = WorkerContext(handover)
        if inspect.iscoroutinefunction(self._function):
            doing = self._ended(self._function(self._work))
            self._task = loop.create_task(doing, name=handover.instance)
            self._task.add_done_callback(lambda task: self._settle(_seen(task)))
            return None
        # A daemon: one that is left behind must not keep the process from ending.
        self._thread = threading.Thread(
            target=self._in_thread, args=(loop, self._work), name=handover.instance, daemon=True
        )
        self._thread.start()
        return None

    async def ready(self) -> None:
        """At once, unless it says so itself."""
        if self._says_ready and self._work is not None:
            await self._work.readied()

    async def ended(self) -> Exit:
        """How the call ended."""
        assert self._end is not None  # noqa: S101 - the protocol: spawned first
        return await asyncio.shield(self._end)

    async def ask(self, grace_s: float) -> None:  # noqa: ARG002 - a function has no clock of ours
        """Tell its context, send it home from its gate, and cancel it if it is a coroutine."""
        if self._work is not None:
            self._work.stopping.set()
            self._work.gate.end()
        if self._task is not None:
            self._task.cancel()

    async def hasten(self, grace_s: float) -> None:
        """It has been asked; there is no more to say."""

    async def dump(self) -> str:
        """Where it stands."""
        if self._thread is not None and self._thread.ident is not None:
            frame = sys._current_frames().get(self._thread.ident)  # noqa: SLF001 - the only way
            return "" if frame is None else "".join(traceback.format_stack(frame))
        if self._task is not None:
            frames = _frames(self._task.get_coro())
            return "".join("".join(traceback.format_stack(frame, 1)) for frame in frames)
        return ""

    async def force(self) -> None:
        """There is no such thing for a function; see `abandon`."""

    def abandon(self) -> Exit:
        """Leave it behind: it may go on, but nobody waits for it any more."""
        left = Exit(Ending.RAISED, code="abandoned")
        self._settle(left)
        return left

    async def suspend(self) -> None:
        """Come back when it stands at its gate."""
        if self._work is not None:
            await self._work.gate.close()

    async def resume(self) -> None:
        """Open the gate."""
        if self._work is not None:
            self._work.gate.open()

    async def probe(self) -> bool:
        """What its own probe says; without one, that it has not ended."""
        return self._probe() if self._probe is not None else not self._is_over

    def usage(self) -> Usage | None:
        """Only what it counts itself: it shares its process with others."""
        return None if self._work is None else Usage(done=self._work.done)

    def tail(self, lines: int) -> list[str]:  # noqa: ARG002 - it writes nothing of its own
        """Nothing: it writes where its process writes."""
        return []

    @property
    def _is_over(self) -> bool:
        return self._end is None or self._end.done()

    def _in_thread(self, loop: asyncio.AbstractEventLoop, work: WorkerContext) -> None:
        try:
            _refuse_coroutine(self._function(work))
            seen = Exit(Ending.RETURNED)
        except BaseException as error:
            seen = self._raised(error)
        try:
            loop.call_soon_threadsafe(self._settle, seen)
        except RuntimeError:
            return  # It was left behind, and even the loop is gone.

    async def _ended(self, doing: Awaitable[Any]) -> Exit:
        """How it ended, as a value: what a task does not keep to itself ends the loop of all."""
        try:
            await doing
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return self._raised(error)
        return Exit(Ending.RETURNED)

    def _raised(self, error: BaseException) -> Exit:
        if isinstance(error, asyncio.CancelledError):
            return Exit(Ending.CANCELLED)
        if isinstance(error, KeyboardInterrupt):
            return Exit(Ending.INTERRUPTED)
        if isinstance(error, TimeoutError):
            return Exit(Ending.TIMED_OUT, code=type(error).__name__)
        slot = self._work.handover.slot if self._work is not None else ""
        _log.warning("the function of %s raised", slot, exc_info=error)
        code = error.code if isinstance(error, DetentError) else type(error).__name__
        return Exit(Ending.RAISED, code=code)

    def _settle(self, seen: Exit) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(seen)


def _frames(waiting: Any) -> Iterator[FrameType]:
    """Where each of those stands that wait for one another, the first of them first."""
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        yield frame
        waiting = waiting.cr_await


def _seen(task: asyncio.Task[Exit]) -> Exit:
    return Exit(Ending.CANCELLED) if task.cancelled() else task.result()


def _refuse_coroutine(result: object) -> None:
    """Fail a plain function that returns a coroutine: nobody would ever run it."""
    if inspect.iscoroutine(result):
        result.close()
        raise BadSpec(
            "The function returned a coroutine, which nobody awaits. Define it with `async def`",
            field="function",
        )
