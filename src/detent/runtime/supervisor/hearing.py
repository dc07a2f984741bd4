"""Signals of this process for any number of listeners: a loop has room for one only."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import AsyncIterator, Callable
from typing import Final

from detent.errors import BadRoute
from detent.host import is_echo
from detent.runtime.supervisor.clock import Clock, SystemClock
from detent.runtime.supervisor.topics import Topics

Hearer = Callable[[int], None]
NAMES: Final = {
    signal.SIGINT: "interrupt",
    signal.SIGHUP: "hangup",
    signal.SIGTERM: "terminated",
    signal.SIGQUIT: "quit",
    signal.SIGUSR1: "user1",
    signal.SIGUSR2: "user2",
}
"""The signals that can be topics, by what stands in the brackets."""


class _Ear:
    """One signal of the main loop, and everybody who hears it."""

    def __init__(self, number: int) -> None:
        self.hearers: list[Hearer] = []
        self._number = number

    def add(self, hearer: Hearer) -> None:
        if not self.hearers:
            self._loop = asyncio.get_running_loop()
            self._before = signal.getsignal(self._number)
            self._loop.add_signal_handler(self._number, self._tell)
        self.hearers.append(hearer)

    def remove(self, hearer: Hearer) -> None:
        self.hearers.remove(hearer)
        if not self.hearers:
            self._loop.remove_signal_handler(self._number)
            # The loop leaves what a signal does by default, not what it did before.
            if self._before is not None:
                signal.signal(self._number, self._before)

    def _tell(self) -> None:
        for hearer in tuple(self.hearers):
            hearer(self._number)


_ears: Final = dict[int, _Ear]()
"""Only the loop of the main thread can hear signals, so there is one of each."""


def hear(number: int, hearer: Hearer) -> Callable[[], None]:
    """Call it whenever that signal comes, beside all others who hear it; answers how to end that.

    When the last one has gone, the signal means again what it meant before the first.
    """
    ear = _ears.setdefault(number, _Ear(number))
    ear.add(hearer)
    return lambda: ear.remove(hearer)


async def signalled(*numbers: signal.Signals, clock: Clock | None = None) -> AsyncIterator[str]:
    """`Signal(interrupt)`, `Signal(hangup)` and the like, whenever one of these comes.

    Of more than ten that nobody has handled yet the last are dropped, and of two within a tenth of
    a second the second: both a terminal and a parent may have told us.
    """
    if unknown := set(numbers) - set(NAMES):
        names = ", ".join(one.name for one in unknown)
        raise BadRoute(f"There is no topic for {names}", topic=names)
    watch, topics, last = clock or SystemClock(), Topics(), (0, -math.inf)

    def heard(number: int) -> None:
        nonlocal last
        now, (before, at) = watch.monotonic(), last
        last = (number, now)
        if number != before or not is_echo(number, before, now - at):
            topics.offer(f"Signal({NAMES[signal.Signals(number)]})")

    leave = [hear(number, heard) for number in numbers]
    try:
        async for topic in topics:
            yield topic
    finally:
        for leaving in leave:
            leaving()
