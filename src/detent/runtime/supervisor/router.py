"""The control plane: topics come in, the first route that fits handles them.

A topic is a line of text: `lifecycle/suspend`, `command/quit`, `Signal(hangup)`. An exact route
wins over patterns; of those, the one that was registered first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from fnmatch import fnmatchcase
from time import monotonic
from typing import Final

import msgspec

from detent.errors import BadRoute
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless

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
        self._metrics = harmless(metrics)
        self._handlers: dict[str, Handler] = {}
        self._around: list[Middleware] = []
        self._sources: list[AsyncIterator[str]] = []
        self._topics: asyncio.Queue[str] = asyncio.Queue(_BUFFER)
        self._pumps: list[asyncio.Future[None]] = []
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
        """Take topics from there as well, as soon as the router runs."""
        self._sources.append(source)
        if self._is_running:
            self._begin(source)

    async def send(self, topic: str) -> None:
        """Put a topic in; waits while too many are there."""
        self._metrics.observe(f"{PREFIX}events_waiting", self._topics.qsize(), {})
        if self._topics.full():
            self._count("events_blocked_total")
        await self._topics.put(topic)

    async def dispatch(self, topic: str) -> bool:
        """Handle it now; whether somebody did. An error of a handler is counted and logged."""
        handler = self._match(topic)
        if handler is None:
            self.unmatched += 1
            return False
        self._count("events_routed_total")
        begun = monotonic()
        try:
            await self._handled(handler, topic)
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            # Not we: the handler waited for something that was called off.
            self._fail(topic)
        except Exception:
            self._fail(topic)
        self._count("handlers_executed_total")
        self._metrics.observe(f"{PREFIX}handler_duration_seconds", monotonic() - begun, {})
        return True

    async def run(self) -> None:
        """Until it is cancelled."""
        self._is_running = True
        for source in self._sources:
            self._begin(source)
        try:
            while True:
                await self.dispatch(await self._topics.get())
        finally:
            self._is_running = False
            pumps, self._pumps = self._pumps, []
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

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

    async def _handled(self, handler: Handler, topic: str) -> None:
        for middleware in reversed(self._around):
            handler = middleware(handler)
        await handler(topic)

    def _fail(self, topic: str) -> None:
        self.failed += 1
        self._count("handler_errors_total")
        _log.exception("the handler of %s failed", topic)

    def _begin(self, source: AsyncIterator[str]) -> None:
        self._pumps.append(asyncio.ensure_future(self._pump(source)))

    async def _pump(self, source: AsyncIterator[str]) -> None:
        """One that fails is heard no more, and the others are."""
        try:
            async for topic in source:
                self._count("events_emitted_total")
                await self.send(topic)
        except Exception:
            self._count("sources_failed_total")
            _log.exception("a source of topics failed, and is heard no more")
        finally:
            # Called off while a topic waits, it has not heard of that: a signal would stay its own.
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    def _count(self, name: str) -> None:
        self._metrics.count(PREFIX + name, {})


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
