"""A supervisor that is steered from its terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Final

from detent.runtime.supervisor.hearing import signalled
from detent.runtime.supervisor.router import Escalator, Handler, NotHandled, Router
from detent.runtime.supervisor.sources import commands, steer
from detent.runtime.supervisor.supervisor import Supervisor

_STDIN: Final = 0
_PART_BYTES: Final = 4_096


async def typed(descriptor: int = _STDIN) -> AsyncIterator[str]:
    """`command/<line>` for every line that is typed there.

    The terminal is left as it is: made non-blocking, it would be so for whoever else has it open,
    as our own output.
    """
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()

    def read() -> None:
        if part := _part(descriptor):
            reader.feed_data(part)
        else:
            loop.remove_reader(descriptor)
            reader.feed_eof()

    loop.add_reader(descriptor, read)
    try:
        async for topic in commands(reader):
            yield topic
    finally:
        loop.remove_reader(descriptor)


def _part(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PART_BYTES)
    except OSError:
        return b""  # Its window was closed.


class Keys:
    """What a person at the terminal means: Ctrl-C suspends, and once more it quits."""

    def __init__(self, supervisor: Supervisor, leave: Handler | None = None) -> None:
        self.quit = leave or self._stop
        self._supervisor = supervisor
        self._was_asked = False
        self.interrupt = Escalator(self._suspend_first, self.quit)

    async def suspend(self, _: str) -> None:
        """Everything that can go quiet."""
        self._was_asked = True
        await self._supervisor.suspend_all()

    async def resume(self, _: str) -> None:
        """Everything goes on, and the next Ctrl-C suspends again."""
        self._was_asked = False
        self.interrupt.reset()
        await self._supervisor.resume_all()

    async def _stop(self, _: str) -> None:
        await self._supervisor.stop()

    async def _suspend_first(self, topic: str) -> None:
        """Once is enough: one that never goes quiet must not keep us from quitting."""
        if self._was_asked or self._supervisor.snapshot().is_suspended:
            raise NotHandled
        await self.suspend(topic)


def interactive(
    router: Router,
    supervisor: Supervisor,
    *,
    leave: Handler | None = None,
    descriptor: int = _STDIN,
) -> Keys:
    """Have it steered by Ctrl-C and by the lines `suspend`, `resume`, `q` and `quit`.

    To quit is to stop the supervisor, unless `leave` is to do more. Beside `Signals` that wants
    `Rules(force_after=3, cancel_on_interrupt=False)`, or the first Ctrl-C would do both.
    """
    keys = Keys(supervisor, leave)
    steer(router, supervisor)
    for verb in (keys.suspend, keys.resume):
        router.handle(f"lifecycle/{verb.__name__}", verb)
        router.handle(f"command/{verb.__name__}", verb)
    for word in ("q", "quit"):
        router.handle(f"command/{word}", keys.quit)
    router.handle("Signal(interrupt)", keys.interrupt)
    router.listen(signalled(signal.SIGINT))
    router.listen(typed(descriptor))
    return keys
