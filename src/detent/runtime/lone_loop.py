"""A loop without a thread: a caller that waits alone runs it by itself, without the bridge.

One at a time: whoever finds it taken has company, and shares with it what the bridge makes shared.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar
from weakref import WeakSet

T = TypeVar("T")
LEAVE_S: Final = 5.0
"""How long what is called off has to end; whoever does not is left to itself."""
_SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in (
        "SIGALRM",
        "SIGHUP",
        "SIGINT",
        "SIGPROF",
        "SIGQUIT",
        "SIGTERM",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
    )
    if hasattr(signal, name)
)
_IDLE_S: Final = 30.0
"""A loop that nobody has run for so long is closed, and whatever is open in it."""


class Lone:
    """The loop, made when first needed and after a rest anew."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._used_at = 0.0
        self._watch: threading.Timer | None = None
        self._is_closed = False

    def take(self) -> bool:
        """Whether it is ours until `leave`; never if somebody has it, this very thread included."""
        if self._is_closed or _may_be_struck() or not self._turn.acquire(blocking=False):
            return False
        try:
            self._loop = self._loop or self._opened()
        except OSError:
            # There are too many open files for another loop; one can do without.
            self._turn.release()
            return False
        return True

    def leave(self) -> None:
        """Let others have it."""
        self._used_at = time.monotonic()
        self._turn.release()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The outcome, in this thread; only for whoever has taken it."""
        if self._loop is None:
            raise TypeError("nobody has taken it")
        try:
            return self._loop.run_until_complete(work())
        except Exception:
            raise
        except BaseException:
            # Ctrl-C, say. It may have struck anywhere: nothing in there is to be trusted.
            self._end()
            raise

    def close(self, within_s: float = -1) -> None:
        """Wait for whoever has it, and close it for good."""
        self._is_closed = True
        if self._turn.acquire(timeout=within_s):
            self._end()
            self._turn.release()

    def _opened(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        _LOOPS.add(loop)
        self._watch_for(_IDLE_S)
        return loop

    def _end(self) -> None:
        loop, self._loop = self._loop, None
        if self._watch is not None:
            self._watch.cancel()
        if loop is not None:
            ended(loop)

    def _watch_for(self, seconds: float) -> None:
        self._watch = threading.Timer(seconds, self._look)
        self._watch.name, self._watch.daemon = "detent lone", True
        self._watch.start()

    def _look(self) -> None:
        """Close it if it rests."""
        with self._turn:
            left = self._used_at + _IDLE_S - time.monotonic()
            if self._loop is None:
                return
            if left > 0:
                self._watch_for(left)
            else:
                self._end()


_LOOPS: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def _may_be_struck() -> bool:
    """Whether something of the program's own answers signals in this thread, and so may raise here.

    Of what is raised while a loop runs it lets only the end of the program and Ctrl-C through.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    known = (None, signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
    return any(signal.getsignal(number) not in known for number in _SIGNALS)


def is_lone(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether nobody else is held up by whoever holds this loop up."""
    return loop in _LOOPS


def ended(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop. What still runs in it is called off first: it closes what it has open."""
    until = time.monotonic() + LEAVE_S
    # What is called off may begin something else.
    while (tasks := asyncio.all_tasks(loop)) and time.monotonic() < until:
        loop.run_until_complete(_called_off(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _called_off(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=LEAVE_S)
