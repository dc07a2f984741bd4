"""Signals of the process: the first asks for an end, a further one forces it, HUP reloads.

What a signal means is decided without a process in sight (`Taps`); `Signals` only listens. Forcing
kills every worker's session before this process exits: nobody is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final

import msgspec

from detent.errors import DetentError
from detent.host import is_echo
from detent.runtime.supervisor.clock import Clock, SystemClock, done_within
from detent.runtime.supervisor.hooks import Hooks
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless

_log = logging.getLogger("detent.supervisor")
STACKS_S: Final = 2.0
"""How long an end may take before it is shown where everything stands."""
_FORCE_S: Final = 5.0
"""How long the killing of all workers may take before the process exits without more ado."""
_FORCED: Final = 1


class Reason(StrEnum):
    """Why the process is to end; the first one sticks."""

    NONE = "None"
    INTERRUPT = "Signal:Interrupt"
    TERMINATE = "Signal:Terminate"
    STOP = "Manual:Stop"
    CANCEL = "Manual:Cancel"
    TIMEOUT = "System:Timeout"


class Act(StrEnum):
    """What one signal calls for."""

    IGNORE = "ignore"
    CANCEL = "cancel"
    FORCE = "force"


class Rules(msgspec.Struct, frozen=True):
    """How many signals force the end; 0 never does. A pause longer than `gap_s` counts anew, but
    not once the end was asked for: from then on every further signal counts.

    Without `cancel_on_interrupt` an interrupt only counts; it is for programs that use Ctrl-C for
    something else. `streams` are the descriptors whose terminal is that of the program, if any.
    """

    force_after: int = 1
    cancel_on_interrupt: bool = True
    gap_s: float = 5.0
    streams: tuple[int, ...] = (0, 1, 2)


class Taps:
    """Counts signals. With the usual rules the first cancels, and any second one forces."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.is_cancelled = False
        self._count = 0
        self._last = (0, -math.inf)
        """Which signal it was that counted last, and when."""

    def tap(self, number: int, now: float) -> Act:
        """What this signal calls for, at this moment of the monotonic clock."""
        before, at = self._last
        # Where an interrupt does not end anything, who turns it into something else means that.
        is_known = number == before or self.is_cancelled
        if is_known and is_echo(number, before, now - at):
            return Act.IGNORE
        if now - at > self.rules.gap_s and not self.is_cancelled:
            self._count = 0
        self._last = (number, now)
        self._count += 1
        if self._forces():
            return Act.FORCE
        if self.is_cancelled or (number == signal.SIGINT and not self.rules.cancel_on_interrupt):
            return Act.IGNORE
        self.is_cancelled = True
        return Act.CANCEL

    def _forces(self) -> bool:
        limit = self.rules.force_after
        if limit <= 0:
            return False
        # The signal that cancels is not among those that force.
        return self._count > limit if self.rules.cancel_on_interrupt else self._count >= limit


class Signals:
    """Listens for the process, from when it is entered until it is left."""

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        force: Callable[[], Awaitable[None]],
        reload: Callable[[], Awaitable[None]] | None = None,
        metrics: Metrics | None = None,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self.reason = Reason.NONE
        self.clock: Clock = SystemClock()
        self.hooks = Hooks(self.clock, metrics)
        self.taps = Taps(rules)
        self.cancelled = asyncio.Event()
        """Set when the process is to end."""
        self.is_forced = False
        self._metrics = harmless(metrics)
        self._force = force
        self._reload = reload
        self._leave = leave
        self._terminals = [number for number in self.taps.rules.streams if os.isatty(number)]
        self._is_stale = self._is_reloading = False
        """Whether a reload is due, and whether one is under way."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> Signals:
        self._listen(signal.SIGINT, lambda: self.heard(signal.SIGINT))
        self._listen(signal.SIGTERM, lambda: self.heard(signal.SIGTERM))
        if self._reload is not None:
            self._listen(signal.SIGHUP, self.heard_reload)
        return self

    def __exit__(self, *_: object) -> None:
        self._handlers.close()

    def _listen(self, number: signal.Signals, handler: Callable[[], None]) -> None:
        """Handle a signal in the running loop until this context is left."""
        loop, before = asyncio.get_running_loop(), signal.getsignal(number)
        loop.add_signal_handler(number, handler)
        # The loop resets a removed signal to its default action, not to its former handler.
        if before is not None:
            self._handlers.callback(signal.signal, number, before)
        self._handlers.callback(loop.remove_signal_handler, number)

    def heard(self, number: int) -> None:
        """A signal has come. It goes on listening: the second one must be heard too."""
        self._count("signals_total", signal=signal.Signals(number).name)
        act = self.taps.tap(number, self.clock.monotonic())
        if act is Act.FORCE:
            self._run(self._forced())
        elif act is Act.CANCEL:
            interrupt = number == signal.SIGINT
            self.cancel(Reason.INTERRUPT if interrupt else Reason.TERMINATE)

    def cancel(self, reason: Reason = Reason.CANCEL) -> None:
        """End the process in order; the same as a signal, from inside."""
        if self.reason is Reason.NONE:
            self.reason = reason
        self.cancelled.set()

    def heard_reload(self) -> None:
        """Read the settings again. One that cannot be applied leaves everything as it was.

        However often it is said meanwhile, it is done once more: that reads what is there by then.
        """
        self._count("signals_total", signal="SIGHUP")
        if self._terminals and not any(map(os.isatty, self._terminals)):
            # The window was closed that it ran in. Nobody sees it there, and nobody expects it.
            self.cancel(Reason.TERMINATE)
            return
        self._is_stale = True
        if not self._is_reloading:
            self._is_reloading = True
            self._run(self._reload_all())

    async def unless_cancelled(self, doing: Awaitable[object]) -> bool:
        """Whether it came to its end; if the process is to end before that, it is called off."""
        work = asyncio.ensure_future(doing)
        told = asyncio.ensure_future(self.cancelled.wait())
        try:
            await asyncio.wait([work, told], return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not work.done():
                work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()
        return not work.cancelled()

    async def shut_down(self, doing: Awaitable[None], stacks_s: float = STACKS_S) -> None:
        """Await the end of everything, then the hooks; what takes long is shown where it stands."""
        ending = asyncio.ensure_future(doing)
        if not await done_within(self.clock, stacks_s, ending):
            _log.warning("still stopping; the tasks stand here:\n%s", _stacks())
        try:
            await ending
        finally:
            await self.hooks.run()

    async def _forced(self) -> None:
        """Every worker's session first, then this process."""
        self.is_forced = True
        _log.error("forced: killing all workers, then exiting")
        self._count("force_exit_triggered_total")
        killing = asyncio.ensure_future(self._force())
        if not await done_within(self.clock, _FORCE_S, killing):
            _log.error("not all workers could be killed in time")
        elif (error := killing.exception()) is not None:
            _log.error("not all workers could be killed", exc_info=error)
        else:
            _log.error("all workers are killed")
        self._leave(_FORCED)

    async def _reload_all(self) -> None:
        try:
            while self._is_stale and not self.cancelled.is_set():
                self._is_stale = False
                await self._reloaded()
        finally:
            self._is_reloading = False

    async def _reloaded(self) -> None:
        if self._reload is None:
            return
        try:
            await self._reload()
            _log.info("reloaded")
        except DetentError as error:
            _log.error("the new settings are not used: %s", error)
        except Exception:
            _log.exception("the new settings are not used")

    def _run(self, work: Awaitable[None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _count(self, name: str, **labels: str) -> None:
        self._metrics.count(PREFIX + name, labels)


def _stacks() -> str:
    """Where every task and every thread of this process stands."""
    told = []
    for task in asyncio.all_tasks():
        frames = (
            line for frame in task.get_stack(limit=3) for line in traceback.format_stack(frame, 1)
        )
        told.append(f"{task.get_name()}\n{''.join(frames)}")
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - the only way
        told.append(f"thread {ident}\n{''.join(traceback.format_stack(frame, 3))}")
    return "\n".join(told)
