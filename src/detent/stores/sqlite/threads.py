"""Threads that do for a loop what blocks, until the very end of the program.

The usual pools take nothing more as soon as the main thread is over. But then other threads may
still be at work, and functions that are called at the end of a program still want to close a store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
_Work: TypeAlias = Callable[[], None]


class Threads:
    """At most so many, started when all others are busy; nothing waits for them to end."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._asked: SimpleQueue[_Work | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []

    async def run(self, function: Callable[[], T]) -> T:
        """Call the function in a thread; its answer."""
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.put(partial(_answer, function, answered))
        with self._lock:
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}_{len(self._threads)}"
                self._threads.append(_start(partial(_serve, self._asked, self._idle), name))
        return await answered

    def close(self) -> None:
        """Wait for what was asked, and end them."""
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads:
            thread.join()


async def beside(function: Callable[[], T]) -> T:
    """What the function answers, in a thread of its own."""
    answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _start(partial(_answer, function, answered), "detent-sqlite")
    return await answered


def _start(work: _Work, name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _serve(asked: SimpleQueue[_Work | None], idle: threading.Semaphore) -> None:
    while (work := asked.get()) is not None:
        work()
        del work
        idle.release()


def _answer(function: Callable[[], Any], answered: asyncio.Future[Any]) -> None:
    settle: _Work
    try:
        settle = partial(_settle, answered, function())
    except BaseException as error:
        settle = partial(_fail, answered, error)
    # Whoever closed their loop waits for nothing any more.
    with suppress(RuntimeError):
        answered.get_loop().call_soon_threadsafe(settle)


def _settle(answered: asyncio.Future[Any], answer: object) -> None:
    if not answered.done():
        answered.set_result(answer)


def _fail(answered: asyncio.Future[Any], error: BaseException) -> None:
    if not answered.done():
        answered.set_exception(error)
