"""What is done on the way out: last registered first, one at a time, whatever the others do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from detent.runtime.supervisor.clock import Clock, SystemClock, done_within
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless

_log = logging.getLogger("detent.supervisor")
_SLOW_S: Final = 5.0
Hook = Callable[[], Awaitable[None] | None]


class Hooks:
    """Shutdown hooks. One that a hook adds is the next to run."""

    def __init__(self, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        self._clock = clock or SystemClock()
        self._metrics = harmless(metrics)
        self._hooks: list[Hook] = []

    def add(self, hook: Hook) -> None:
        """To be run before all that are there already."""
        self._hooks.append(hook)

    async def run(self) -> None:
        """All of them. A slow one is complained about and awaited all the same."""
        while self._hooks:
            hook = self._hooks.pop()
            begun = self._clock.monotonic()
            running = asyncio.ensure_future(_call(hook))
            if not await done_within(self._clock, _SLOW_S, running):
                _log.warning("%s takes longer than %g s", _name(hook), _SLOW_S)
                await asyncio.wait({running})
            self._metrics.count(f"{PREFIX}hooks_executed_total", {})
            taken = self._clock.monotonic() - begun
            self._metrics.observe(f"{PREFIX}hook_duration_seconds", taken, {})
            if not running.cancelled() and (error := running.exception()) is not None:
                self._metrics.count(f"{PREFIX}hooks_panicked_total", {})
                _log.error("%s failed", _name(hook), exc_info=error)


async def _call(hook: Hook) -> None:
    found = hook()
    if found is not None:
        await found


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))
