"""Waiting for what must come true, and never for a time: each gives up with an error."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from detent.host import ECHO_S

T = TypeVar("T")
PATIENCE_S = 60.0
"""Long enough for a machine that is busy with something else; what holds is seen at once."""
_PAUSE_S = 0.01


async def until(look: Callable[[], Any], why: str = "") -> Any:
    """What it answers, at once or awaited, as soon as that is something."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = look()
        found = await answer if isinstance(answer, Awaitable) else answer
        if found:
            return found
        assert time.monotonic() < deadline, f"in vain: {why or look}"
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), _PAUSE_S)


def eventually(look: Callable[[], T], why: str = "", patience_s: float = PATIENCE_S) -> T:
    """The same, where there is no loop."""
    deadline = time.monotonic() + patience_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"in vain: {why or look}"
        threading.Event().wait(_PAUSE_S)
    return found


def signal_again(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> None:
    """Send a further signal, when it is not taken for an echo of the one before."""
    over = time.monotonic() + ECHO_S
    eventually(lambda: time.monotonic() > over)
    process.send_signal(number)
