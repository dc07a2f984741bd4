"""Functions of a program that are told what has happened: registered with `app.on`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from detent.engine.engine import Engine
from detent.engine.subscribers import Subscriber, one_by_one
from detent.errors import BadOption
from detent.lifecycle import MACHINES
from detent.lifecycle.event import Event

F = TypeVar("F", bound=Callable[[Event], Any])


class Listener(msgspec.Struct, frozen=True):
    """A function, and what it wants to hear of; no words mean everything of that kind."""

    name: str
    function: Callable[[Event], Any]
    words: tuple[str, ...] = ()
    kind: str = "job"
    from_start: bool = False

    def wants(self, event: Event) -> bool:
        """Whether the event leads to one of the states, or is one of the events, that it named."""
        if event.kind != self.kind:
            return False
        return not self.words or event.target in self.words or event.name in self.words


class Listening:
    """All listeners of one app."""

    def __init__(self) -> None:
        self._listeners: dict[str, Listener] = {}
        self._home: asyncio.AbstractEventLoop | None = None

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, listener: Listener) -> None:
        """Register it; its name is what its cursor is kept under."""
        machine = MACHINES.get(listener.kind)
        if machine is None:
            why = f"There are events of {', '.join(MACHINES)}, not of {listener.kind!r}"
            raise BadOption(why, option="kind", value=listener.kind)
        known = {*machine.events, *(state.name for state in machine.states)}
        for word in set(listener.words) - known:
            why = f"Nothing that happens to a {listener.kind} is called {word!r}"
            raise BadOption(f"{why}: there are {', '.join(sorted(known))}", option="on", value=word)
        if listener.name in self._listeners:
            why = f"Two listeners are called {listener.name!r}: give one of them another name="
            raise BadOption(why, option="name", value=listener.name)
        self._listeners[listener.name] = listener

    def join(self, engine: Engine, home: asyncio.AbstractEventLoop) -> None:
        """Let the engine deliver to them; coroutines run in that loop, functions in threads.

        Neither runs in the loop of the bridge: what blocks there would hold up everybody's commits.
        """
        self._home = home
        for listener in self._listeners.values():
            if listener.name not in engine.subscribers.names:
                engine.subscribers.add(self._subscriber(listener))

    def _subscriber(self, listener: Listener) -> Subscriber:
        async def hear(event: Event) -> None:
            if not inspect.iscoroutinefunction(listener.function):
                await asyncio.to_thread(_told, listener, event)
                return
            assert self._home is not None  # noqa: S101 - it is joined before it is told
            work = _atold(listener, event)
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

        return Subscriber(listener.name, listener.wants, one_by_one(hear), listener.from_start)


def _told(listener: Listener, event: Event) -> None:
    try:
        listener.function(event)
    except Exception:
        raise
    except BaseException as error:
        raise _odd(listener, error) from error


async def _atold(listener: Listener, event: Event) -> None:
    """The same in its own loop, where it may also be we who call it off."""
    mine = asyncio.current_task()
    try:
        await listener.function(event)
    except Exception:
        raise
    except BaseException as error:
        if mine is not None and mine.cancelling():
            raise
        raise _odd(listener, error) from error


def _odd(listener: Listener, error: BaseException) -> RuntimeError:
    """As an error like any other: what else it is would end the loop of the store, or its task."""
    return RuntimeError(f"The listener {listener.name} raised {type(error).__name__}")
