"""An engine as a server has it: opened in the server's own loop, with all that time moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from detent.complaining import Complaint
from detent.engine.engine import Engine
from detent.errors import StoreError
from detent.surfaces.http.json_schema import SchemaChecker

_log = logging.getLogger(__name__)
_AGAIN_S = 1.0
Opening = Callable[[AsyncExitStack], Awaitable[Engine]]
"""Opens an engine; what must be closed afterwards is left on the stack."""


class Service:
    """What a server serves. Between `start` and `stop` there is an engine."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._parting: list[Callable[[], Awaitable[None]]] = []
        self._engine: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = False
        self.schemas = SchemaChecker()
        self.stopping = asyncio.Event()
        """Set as soon as the server is to stop: whoever waits for something stops waiting."""

    @property
    def engine(self) -> Engine:
        """The engine, which is there while the server runs."""
        assert self._engine is not None  # noqa: S101 - no request comes before the start
        return self._engine

    @property
    def is_running(self) -> bool:
        """Whether there is an engine, and nobody has asked to stop."""
        return self._engine is not None and not self.stopping.is_set()

    def opened(self, engine: Engine) -> None:
        """The engine is there."""
        self._engine = engine

    def begin_stop(self) -> None:
        """Let everybody who waits stop waiting; from any thread, or from a signal."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stopping.set)

    async def start(self) -> None:
        """Open the store and begin to look after it."""
        self._loop = asyncio.get_running_loop()
        engine = await self._opening(self._stack)
        self.keep("upkeep", engine.upkeep.run)
        self.keep("webhooks", self._webhooks)

    async def _webhooks(self) -> None:
        """Tell webhooks of events, once there is any: the feed is not followed for nobody."""
        if await self.engine.webhooks.has_begun():
            await self.engine.webhooks.run()

    def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Go on with some work until the server stops, whatever happens to it."""
        self._tasks.append(asyncio.create_task(self._kept(name, work)))

    async def _kept(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        complaint = Complaint(_log, f"{name} cannot go on")
        # Whoever is called off just when what it waits for comes may not hear of it.
        while not self._is_over:
            try:
                await work()
            except StoreError as error:
                complaint.say(error.message)
            except Exception:
                _log.exception("%s has failed and goes on in a moment", name)
            if not self._is_over:
                await asyncio.sleep(_AGAIN_S)

    def before_stop(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do this once when the server is to stop, while everything is still there."""
        self._parting.append(work)

    async def stop(self) -> None:
        """End all work, finish what was asked of the engine, and close the store."""
        self.stopping.set()
        for work in self._parting:
            try:
                await work()
            except Exception:
                _log.exception("the server stops without having finished what it wanted to")
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.schemas.close()
        await self._stack.aclose()
        self._engine = None

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until the server is to stop: then false."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)
        return not self.stopping.is_set()

    async def wait_for_work(
        self, seconds: float, seen: int | None, leaving: asyncio.Future[Any] | None = None
    ) -> None:
        """Until something may be there to claim, the time is over, or the server is to stop.

        Or until whoever waits has left. Nobody who waits here holds a connection to the database.
        """
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self.engine.store.wait(seconds, seen)),
            asyncio.ensure_future(self.stopping.wait()),
        ]
        watched = waits if leaving is None else [*waits, leaving]
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
