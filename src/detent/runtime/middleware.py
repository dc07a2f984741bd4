"""What is done around every enqueue and every run: generators that yield once, in between.

    @app.around_run
    def timed(ctx: Context) -> Iterator[None]:
        begun = perf_counter()
        yield
        ctx.log(f"took {perf_counter() - begun:.1f} s")

The first that is registered is the outermost. What is raised before the yield refuses the thing;
what the thing raises arrives at the yield, as in any context manager.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Generic, TypeVar

from detent.errors import BadSignature
from detent.runtime.bridge import Bridge

T = TypeVar("T")
Around = Callable[[T], Iterator[None]] | Callable[[T], AsyncIterator[None]]
"""A generator function that yields once; asynchronous or not."""


class Arounds(Generic[T]):
    """The middleware around one kind of thing, in the order of registration."""

    def __init__(self, made: Sequence[Around[T]] = ()) -> None:
        self._made: list[Around[T]] = list(made)

    def __bool__(self) -> bool:
        return bool(self._made)

    def add(self, function: Any) -> None:
        """Register it behind those that are there."""
        if not inspect.isgeneratorfunction(function) and not inspect.isasyncgenfunction(function):
            name = getattr(function, "__qualname__", repr(function))
            why = f"{name} cannot stand around anything: write a generator that yields once"
            raise BadSignature(why, function=name)
        self._made.append(function)

    def within(self, function: Around[T]) -> Arounds[T]:
        """These, with `function` around all of them."""
        return Arounds([function, *self._made])

    @asynccontextmanager
    async def awaited(self, things: Sequence[T]) -> AsyncIterator[None]:
        """All of them around all of these, in the running loop."""
        async with AsyncExitStack() as stack:
            for thing in things:
                for around in self._made:
                    if _is_async(around):
                        await stack.enter_async_context(_async(around, thing))
                    else:
                        stack.enter_context(_sync(around, thing))
            yield

    @contextmanager
    def waited(self, things: Sequence[T], bridge: Bridge) -> Iterator[None]:
        """The same where no loop runs: asynchronous ones run in the loop of the bridge."""
        with ExitStack() as stack:
            for thing in things:
                for around in self._made:
                    if _is_async(around):
                        stack.enter_context(_Across(_async(around, thing), bridge))
                    else:
                        stack.enter_context(_sync(around, thing))
            yield

    def sync_ones(self) -> Arounds[T]:
        """Those that run where a plain function runs: in its thread, with its thread's things."""
        return Arounds([one for one in self._made if not _is_async(one)])

    def async_ones(self) -> Arounds[T]:
        """Those that run in the loop."""
        return Arounds([one for one in self._made if _is_async(one)])

    @contextmanager
    def here(self, thing: T) -> Iterator[None]:
        """All of them around one thing, in this thread; there must be no asynchronous ones."""
        with ExitStack() as stack:
            for around in self._made:
                stack.enter_context(_sync(around, thing))
            yield


class _Across:
    """An asynchronous context manager, entered and left across a bridge."""

    def __init__(self, manager: AbstractAsyncContextManager[None], bridge: Bridge) -> None:
        self._manager = manager
        self._bridge = bridge

    def __enter__(self) -> None:
        self._bridge.run(self._enter())

    def __exit__(self, *told: Any) -> bool:
        return self._bridge.run(self._leave(*told))

    async def _enter(self) -> None:
        await self._manager.__aenter__()

    async def _leave(self, *told: Any) -> bool:
        return bool(await self._manager.__aexit__(*told))


def _is_async(around: Any) -> bool:
    return inspect.isasyncgenfunction(around)


def _sync(around: Any, thing: T) -> AbstractContextManager[None]:
    return contextmanager(around)(thing)


def _async(around: Any, thing: T) -> AbstractAsyncContextManager[None]:
    return asynccontextmanager(around)(thing)
