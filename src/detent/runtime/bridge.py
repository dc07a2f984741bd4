"""One event loop in a thread of its own, and the two ways to it: waiting, and awaiting.

Everything that talks to the store is written once, as a coroutine, and runs in that loop. Whoever
has no loop waits for it (`run`); whoever has one awaits it from there (`reach`). So the commits of
all threads and loops of a process are shared, and no code of users can hold them up.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from detent.errors import InsideLoop, StoreClosed
from detent.runtime.crossing import Crossing
from detent.runtime.lone_loop import LEAVE_S, Lone, ended, is_lone

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
_CLOSED: Final = "It was closed before this call was answered: whether it was done is not known"


class _Errand:
    """Something to be done in the loop of a bridge, and who awaits it in another."""

    __slots__ = ("_answered", "_begin", "_begun", "_drop", "_home", "is_off")

    def __init__(self, begin: _Begin, drop: Callable[[], None], home: Crossing[_Reply]) -> None:
        self._begin = begin
        self._drop = drop
        self._home = home
        self._answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begun: asyncio.Future[Any] | None = None
        self.is_off = False

    async def answer(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The outcome; whoever stops waiting does not want it to go on unseen."""
        try:
            return await self._answered
        except asyncio.CancelledError:
            self.is_off = True
            # A loop that is closed does nothing any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._call_off)
            raise
        except StoreClosed:
            _need_program()
            raise

    def begin(self) -> None:
        """In the loop of the bridge."""
        if self.is_off:
            self._drop()
            return
        try:
            self._begun = self._begin()
        except Exception as error:
            self._begun = asyncio.get_running_loop().create_future()
            self._begun.set_exception(error)
        self._begun.add_done_callback(self._end)

    def _call_off(self) -> None:
        if self._begun is not None:
            self._begun.cancel()

    def _end(self, begun: asyncio.Future[Any]) -> None:
        error = None if begun.cancelled() else begun.exception()
        self._home.put((self, begun, error))

    def settle(self, begun: asyncio.Future[Any], error: BaseException | None) -> None:
        """In the loop of whoever awaits it."""
        if self._answered.done():
            return
        if begun.cancelled():
            self._answered.set_exception(StoreClosed(_CLOSED))
        elif error is not None:
            self._answered.set_exception(error)
        else:
            self._answered.set_result(begun.result())


Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
_Begin: TypeAlias = Callable[[], "asyncio.Future[Any]"]
_Reply: TypeAlias = tuple[_Errand, "asyncio.Future[Any]", BaseException | None]


def _task(work: Coroutine[Any, Any, T], context: Context) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work, context=context)


def _nothing() -> None:
    """What was not begun leaves nothing behind."""


def _begin(errands: list[_Errand]) -> None:
    for errand in errands:
        errand.begin()


def _settle(replies: list[_Reply]) -> None:
    for errand, task, error in replies:
        errand.settle(task, error)


class Bridge:
    """The loop and its thread, started when first needed and anew after a fork."""

    def __init__(self) -> None:
        self.new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
        """What makes its loop, for whoever wants another kind."""
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._over: Crossing[_Errand] | None = None
        self._lone = Lone()
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, Crossing[_Reply]]
        self._homes = WeakKeyDictionary()
        _BRIDGES.add(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome, waited for; refused where a loop runs, because that would stand still."""
        try:
            need_no_loop()
        except InsideLoop:
            work.close()
            raise
        return self.wait(work)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The same also where a loop runs: for what takes no time, as a look into memory does."""
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(work, self._running().loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except CancelledError:
            _need_program()
            raise StoreClosed(_CLOSED) from None
        except BaseException:
            # Whoever stops waiting (a signal, say) does not want it to go on unseen.
            future.cancel()
            raise

    def run_alone(self, here: Work[T], there: Work[T]) -> T:
        """The same without crossing, by `here`; by `there` if somebody else waits like that."""
        need_no_loop()
        lone = self._lone
        if not lone.take():
            return self.run(there())
        try:
            return lone.run(here)
        finally:
            lone.leave()

    def rest(self, within_s: float = -1) -> None:
        """Whoever waits alone is waited for; all others cross until it is stopped."""
        self._lone.close(within_s)

    async def reach(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome, awaited from any loop."""
        if asyncio.get_running_loop() is self._loop:
            return await work
        # It is done as if the caller did it: what is said about them goes along.
        answer: T = await self._cross(partial(_task, work, copy_context()), work.close)
        return answer

    async def ask(self, begin: Callable[[], asyncio.Future[T]]) -> T:
        """The outcome of what a plain call over there begins: no task is made for it.

        A loop turns twice less often for that, and a lone caller waits for every turn.
        """
        if asyncio.get_running_loop() is self._loop:
            return await begin()
        answer: T = await self._cross(begin, _nothing)
        return answer

    async def _cross(self, begin: _Begin, drop: Callable[[], None]) -> Any:
        here = asyncio.get_running_loop()
        home = self._homes.get(here)
        if home is None:
            home = self._homes[here] = Crossing(here, _settle)
        # All who cross before the other side gets round to it cross with one call, and so return.
        errand = _Errand(begin, drop, home)
        try:
            with self._lock:
                over = self._running()
                over.put(errand)
        except BaseException:
            drop()
            raise
        return await errand.answer(over.loop)

    def stop(self, within_s: float | None = None) -> None:
        """End the thread; the next call starts another."""
        self.rest(-1 if within_s is None else within_s)
        with self._lock:
            self._lone = Lone()
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is not None:
                # Whatever was handed over until now comes before this, and is called off after it.
                loop.call_soon_threadsafe(loop.stop)
        if thread is not None:
            thread.join(within_s)

    def _running(self) -> Crossing[_Errand]:
        """The way over; whoever takes it holds the lock, so that nobody stops it meanwhile."""
        if self._loop is None or self._over is None:
            _need_program()
            self._loop = self.new_loop()
            self._over = Crossing(self._loop, _begin)
            # A daemon, so that a program that forgets to close still ends.
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="detent", daemon=True
            )
            self._thread.start()
        return self._over

    def forget(self) -> None:
        """After a fork: the thread has stayed behind, and somebody may have held the lock."""
        self._lock = threading.RLock()
        if self._loop is not None:
            _hush(self._loop)
        _LEFT_BEHIND.append((self._loop, self._over, self._homes, self._lone))
        self._lone = Lone()
        self._homes = WeakKeyDictionary()
        self._loop = self._thread = None


_BRIDGES: WeakSet[Bridge] = WeakSet()
_LEFT_BEHIND: list[object] = []
"""Loops of the parent process: closing them here would close what it still uses."""


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped."""
    while not _is_stopped(loop):
        _log.error("the loop of the store goes on")
    ended(loop)


def _is_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Run it; false if that ended by something that a task in there has let fall.

    What users hand over runs here too, and `sys.exit()` in it is no word to everybody else.
    """
    try:
        loop.run_forever()
    except BaseException:
        _log.exception("a task has ended the loop of the store")
        return _ENDING.is_set()
    return True


def _hush(loop: asyncio.AbstractEventLoop) -> None:
    """What waits in the loop of the parent goes on there: it is not lost when this process ends."""
    for task in asyncio.all_tasks(loop):
        # There is no public word for it; asyncio itself uses this one.
        setattr(task, "_log_destroy_pending", False)  # noqa: B010 - types do not know it


def _forget_all() -> None:
    for bridge in list(_BRIDGES):
        bridge.forget()


_ENDING = threading.Event()
"""The program is at its end, and waits for none of the threads that are left."""


def _need_program() -> None:
    """End a thread that the program leaves behind, without a word, as it will in a moment anyway.

    Functions that are called at the end of the program may still use the store.
    """
    if _ENDING.is_set() and threading.current_thread() is not threading.main_thread():
        raise SystemExit("The program ends, and this thread with it")


def _stop_all() -> None:
    """A program that just ends says nothing about what its loop still waited for."""
    _ENDING.set()
    for bridge in list(_BRIDGES):
        bridge.stop(LEAVE_S)


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_stop_all)


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


def _known_as(call: Any, method: Any, prefix: str = "") -> None:
    """Give both the name that people use: help and complaints about arguments show it."""
    name = method.__name__.removeprefix("_")
    owner = method.__qualname__.rpartition(".")[0]
    call.__name__ = f"{prefix}{name}"
    call.__qualname__ = f"{owner}.{prefix}{name}"
    method.__qualname__ = f"{owner}.{name}"


def blocking(method: Method[B, P, T]) -> Callable[Concatenate[B, P], T]:
    """The twin of a coroutine method that waits."""

    @wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.bridge.run(method(self, *args, **kwargs))

    _known_as(call, method)
    return call


def awaiting(method: Method[B, P, T]) -> Callable[Concatenate[B, P], Coroutine[Any, Any, T]]:
    """The twin of a coroutine method that can be awaited from any loop."""

    @wraps(method)
    async def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.bridge.reach(method(self, *args, **kwargs))

    _known_as(call, method, "a")
    return call


def blocking_each(method: Each[B, P, T]) -> Callable[Concatenate[B, P], Iterator[T]]:
    """The twin of an asynchronous generator that waits for each item."""

    @wraps(method)
    def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self, *args, **kwargs)
        while found := self.bridge.run(_next(items)):
            yield from found

    _known_as(call, method)
    return call


def awaiting_each(method: Each[B, P, T]) -> Callable[Concatenate[B, P], AsyncIterator[T]]:
    """The twin of an asynchronous generator for any loop."""

    @wraps(method)
    async def call(self: B, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        items = method(self, *args, **kwargs)
        while found := await self.bridge.reach(_next(items)):
            yield found[0]

    _known_as(call, method, "a")
    return call


async def _next(items: AsyncIterator[T]) -> tuple[T, ...]:
    """The next item alone, or nothing: an end is an exception that crosses no bridge."""
    async for item in items:
        return (item,)
    return ()


def need_no_loop() -> None:
    """Refuse to wait where a loop runs: everything in it would stand still."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if is_lone(running):
        # Somebody who waits alone was interrupted by this, and waits for it as well.
        return
    raise InsideLoop(
        "This call waits, and an event loop is running in this thread: it would stand"
        " still. Await the twin of the method instead, whose name begins with an a, or loop over it"
        " with `async for`"
    )
