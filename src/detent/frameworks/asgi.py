"""FastAPI, Starlette and whatever else has a lifespan: the app opens and closes with the server.

FastAPI(lifespan=lifespan(app))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from typing import Any

from detent.app.detent import Detent

__all__ = ["lifespan"]


def lifespan(
    app: Detent, *, upkeep: bool = True
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """What a web application takes as its `lifespan`.

    The store is opened before the first request, so that a wrong address or schedule is told at
    the start. With `upkeep` the server also does what time asks for: schedules, retries, lost
    workers; any number of servers may.
    """

    @asynccontextmanager
    async def living(_: Any) -> AsyncIterator[None]:
        try:
            await app.bridge.reach(app.engine())
            async with _kept_up(app) if upkeep else nullcontext():
                yield
        finally:
            # To close waits for the bridge, which no loop may do.
            await app.aclose()

    return living


@asynccontextmanager
async def _kept_up(app: Detent) -> AsyncIterator[None]:
    await app.schedules.aput()
    task = asyncio.create_task(app.aupkeep())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
