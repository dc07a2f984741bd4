"""The control plane: topics come in, the first route that fits handles them.

A topic is a line of text: `lifecycle/suspend`, `command/quit`, `Signal(hangup)`. An exact route
wins over patterns; of those, the one that was registered first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from detent.errors import BadRoute
from detent.runtime.supervisor.metrics import PREFIX, Metrics, NoMetrics

_log = logging.getLogger("detent.supervisor")
_BUFFER: Final = 100
Handler = Callable[[str], Awaitable[None]]
Middleware = Callable[[Handler], Handler]
_WILD: Final = frozenset("*?[")


class NotHandled(Exception):
    """A handler says that this was not for it."""


class Route(msgspec.Struct, frozen=True):
    """One route, as people are shown it."""

    topic: str
    handler: str


class Routes(msgspec.Struct, frozen=True):
    """What a router knows at one moment."""

    routes: tuple[Route, ...]
    middleware: int
    sources: int
    is_running: bool
    unmatched: int
    failed: int


class Router:
    """Takes topics from any number of sources and handles them one at a time."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.unmatched = 0
        self.failed = 0
        self._metrics = metrics or NoMetrics()
        self._handlers: dict[str, Handler] = {}
        self._around: list[Middleware] = []
        self._sources: list[AsyncIterator[str]] = []
        self._topics: asyncio.Queue[str] = asyncio.Queue(_BUFFER)
        self._is_running = False

    def handle(self, topic: str, handler: Handler) -> None:
        """Send what fits there; a topic that is registered again gets the new handler."""
        if not topic or not callable(handler):
            raise BadRoute("A route needs a topic and something to call", topic=topic)
        self._handlers[topic] = handler

    def use(self, middleware: Middleware) -> None:
        """Wrap every handler; the first that is registered is the outermost."""
        self._around.append(middleware)

    def listen(self, source: AsyncIterator[str]) -> None:
        """Take topics from there as well, once the router runs."""
        self._sources.append(source)

    async def send(self, topic: str) -> None:
        """Put a topic in; waits while too many are there."""
        await self._topics.put(topic)

    async def dispatch(self, topic: str) -> bool:
        """Handle it now; whether somebody did. An error of a handler is counted and logged."""
        handler = self._match(topic)
        if handler is None:
            self.unmatched += 1
            return False
        for middleware in reversed(self._around):
            handler = middleware(handler)
        try:
            await handler(topic)
        except Exception:
            self.failed += 1
            self._count("handler_errors_total")
            _log.exception("the handler of %s failed", topic)
        self._count("handlers_executed_total")
        return True

    async def run(self) -> None:
        """Until it is cancelled."""
        self._is_running = True
        pumps = [asyncio.ensure_future(self._pump(source)) for source in self._sources]
        try:
            while True:
                await self.dispatch(await self._topics.get())
        finally:
            self._is_running = False
            for pump in pumps:
                pump.cancel()

    def routes(self) -> Routes:
        """What there is."""
        known = tuple(
            Route(topic, getattr(handler, "__qualname__", repr(handler)))
            for topic, handler in self._handlers.items()
        )
        sources = len(self._sources)
        return Routes(
            known, len(self._around), sources, self._is_running, self.unmatched, self.failed
        )

    def _match(self, topic: str) -> Handler | None:
        if topic in self._handlers:
            return self._handlers[topic]
        fitting = (
            handler
            for pattern, handler in self._handlers.items()
            if not _WILD.isdisjoint(pattern) and fnmatchcase(topic, pattern)
        )
        return next(fitting, None)

    async def _pump(self, source: AsyncIterator[str]) -> None:
        async for topic in source:
            self._count("events_emitted_total")
            await self.send(topic)

    def _count(self, name: str) -> None:
        self._metrics.count(PREFIX + name, {})


class Escalator:
    """Tries the first handler; once that says it was not for it, the other takes over for good.

    So the first Ctrl-C suspends, and the next one, when there is nothing left to suspend, quits.
    """

    def __init__(self, first: Handler, then: Handler) -> None:
        self._first = first
        self._then = then
        self._is_over = False

    async def __call__(self, topic: str) -> None:
        if not self._is_over:
            try:
                await self._first(topic)
            except NotHandled:
                self._is_over = True
            else:
                return
        await self._then(topic)

    def reset(self) -> None:
        """Begin with the first one again."""
        self._is_over = False


def once(handler: Handler) -> Handler:
    """Only the first time; later topics are dropped."""
    done = False

    async def call(topic: str) -> None:
        nonlocal done
        if not done:
            done = True
            await handler(topic)

    return call
