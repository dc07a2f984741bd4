"""Where topics come from, and the ones that every supervisor understands."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

from detent.runtime.supervisor.clock import Clock, SystemClock
from detent.runtime.supervisor.router import Handler, Router
from detent.runtime.supervisor.supervisor import Supervisor

_log = logging.getLogger("detent.supervisor")
CHECK_S: Final = 30.0
LOOK_S: Final = 1.0


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


async def ticks(name: str, interval_s: float, clock: Clock | None = None) -> AsyncIterator[str]:
    """`tick/<name>` after every interval, for as long as somebody listens."""
    clock = clock or SystemClock()
    while True:
        await clock.sleep(interval_s)
        yield f"tick/{name}"


async def changes(
    name: str, path: Path, *, interval_s: float = LOOK_S, clock: Clock | None = None
) -> AsyncIterator[str]:
    """`file/<name>/changed` when it is written, put there, replaced or removed."""
    clock, known = clock or SystemClock(), _looks(path)
    while True:
        await clock.sleep(interval_s)
        if (found := _looks(path)) != known:
            known = found
            yield f"file/{name}/changed"


async def commands(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """`command/<line>` for every line with something in it, until there are no more."""
    async for line in reader:
        if word := line.decode("utf-8", "replace").strip():
            yield f"command/{word}"


def _looks(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


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
    """The standard topics: suspend, resume, shutdown, terminate (suspend, then shut down), and
    clear-line.
    """

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
    router.handle("lifecycle/clear-line", clear_line)


async def clear_line(_: str) -> None:
    """Wipe the line that the cursor is in, such as the `^C` of a terminal; files get nothing."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            stream.write("\r\x1b[K")
            stream.flush()
            return
