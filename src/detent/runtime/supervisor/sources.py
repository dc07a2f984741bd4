"""Where topics come from, and the ones that every supervisor understands."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from detent.runtime.supervisor.clock import Clock, SystemClock
from detent.runtime.supervisor.router import Handler, Router
from detent.runtime.supervisor.supervisor import Supervisor

_log = logging.getLogger("detent.supervisor")
CHECK_S: Final = 30.0


async def checks(
    name: str,
    check: Callable[[], Awaitable[bool]],
    *,
    interval_s: float = CHECK_S,
    every: bool = False,
    clock: Clock | None = None,
) -> AsyncIterator[str]:
    """`health/<name>/up` or `/down`, on a change; with `every`, after each check.

    The first check comes after one interval. A check that raises is a no.
    """
    clock, known = clock or SystemClock(), None
    while True:
        await clock.sleep(interval_s)
        try:
            found = await check()
        except Exception:
            _log.exception("the check %s failed", name)
            found = False
        if every or found is not known:
            known = found
            yield f"health/{name}/{'up' if found else 'down'}"


def debounced(handler: Handler, quiet_s: float, clock: Clock | None = None) -> Handler:
    """Handle the first topic, and no further one until it was quiet for that long."""
    watch, last = clock or SystemClock(), float("-inf")

    async def call(topic: str) -> None:
        nonlocal last
        before, last = last, watch.monotonic()
        if last - before >= quiet_s:
            await handler(topic)

    return call


def steer(router: Router, supervisor: Supervisor) -> None:
    """The standard topics: suspend, resume, shutdown, and terminate (suspend, then shut down)."""

    async def suspend(_: str) -> None:
        await supervisor.suspend_all()

    async def resume(_: str) -> None:
        await supervisor.resume_all()

    async def shutdown(_: str) -> None:
        await supervisor.stop()

    async def terminate(topic: str) -> None:
        await suspend(topic)
        await shutdown(topic)

    for handler in (suspend, resume, shutdown, terminate):
        router.handle(f"lifecycle/{handler.__name__}", handler)
