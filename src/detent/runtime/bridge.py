"""One event loop in a thread of its own, and the two ways to it: waiting, and awaiting.

Everything that talks to the store is written once, as a coroutine, and runs in that loop. Whoever
has no loop waits for it (`run`); whoever has one awaits it from there (`reach`). So the commits of
all threads and loops of a process are shared, and no code of users can hold them up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

from detent.errors import InsideLoop

__all__ = ["Bridge", "Bridged", "awaiting", "awaiting_each", "blocking", "blocking_each"]

P = ParamSpec("P")
T = TypeVar("T")
_LEAVE_S: Final = 5.0
"""How long what is called off has to end; whoever does not is left to itself."""


class Bridge:
    """The loop and its thread, started when first needed and anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _BRIDGES.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome, waited for; refused where a loop runs, because that would stand still."""
        if _is_in_loop():
            work.close()
            raise InsideLoop(
                "This call waits, and an event loop is running in this thread: it would stand"
                " still. Await the twin of the method instead, whose name begins with an a"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            # Whoever stops waiting (a signal, say) does not want it to go on unseen.
            future.cancel()
            raise

    async def reach(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome, awaited from any loop."""
        loop = self._running()
        if asyncio.get_running_loop() is loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def stop(self) -> None:
        """End the thread; the next call starts another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon, so that a program that forgets to close still ends.
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="detent", daemon=True
                )
                self._thread.start()
            return self._loop

    def forget(self) -> None:
        """After a fork: the thread has stayed behind, and somebody may have held the lock."""
        self._lock = threading.Lock()
        _LEFT_BEHIND.append(self._loop)
        self._loop = self._thread = None


_BRIDGES: WeakSet[Bridge] = WeakSet()
_LEFT_BEHIND: list[object] = []
"""Loops of the parent process: closing them here would close what it still uses."""


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped. What still runs then is called off: it closes what it has open."""
    loop.run_forever()
    loop.run_until_complete(_called_off(asyncio.all_tasks(loop)))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _called_off(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_LEAVE_S)


def _forget_all() -> None:
    for bridge in list(_BRIDGES):
        bridge.forget()


os.register_at_fork(after_in_child=_forget_all)


class Bridged(Protocol):
    """Whatever does its work across a bridge."""

    @property
    def bridge(self) -> Bridge:
        """The way there."""
        ...


B = TypeVar("B", bound=Bridged)
Method = Callable[Concatenate[B, P], Coroutine[Any, Any, T]]
"""It is called where the caller is, and only the coroutine that it answers crosses the bridge."""
Each = Callable[Concatenate[B, P], AsyncIterator[T]]


def blocking(method: Method[B, P, T]) -> Callable[Concatenate[B, P], T]:
    """The twin of a coroutine method that waits."""

    @wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.bridge.run(method(self, *args, **kwargs))

    return call


def awaiting(method: Method[B, P, T]) -> Callable[Concatenate[B, P], Coroutine[Any, Any, T]]:
    """The twin of a coroutine method that can be awaited from any loop."""

    @wraps(method)
    async def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.bridge.reach(method(self, *args, **kwargs))

    return call


def blocking_each(method: Each[B, P, T]) -> Callable[Concatenate[B, P], Iterator[T]]:
    """The twin of an asynchronous generator that waits for each item."""

    @wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self, *args, **kwargs)
        while found := self.bridge.run(_next(items)):
            yield from found

    return call


def awaiting_each(method: Each[B, P, T]) -> Callable[Concatenate[B, P], AsyncIterator[T]]:
    """The twin of an asynchronous generator for any loop."""

    @wraps(method)
    async def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = method(self, *args, **kwargs)
        while found := await self.bridge.reach(_next(items)):
            yield found[0]

    return call


async def _next(items: AsyncIterator[T]) -> tuple[T, ...]:
    """The next item alone, or nothing: an end is an exception that crosses no bridge."""
    async for item in items:
        return (item,)
    return ()


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
