"""Interrupting a handler in the main thread of its process, but never in the middle of our words.

The worker sends SIGINT. A plain function gets an exception raised wherever it is; a coroutine is
called off by its loop. A message that is half sent is finished first: half of one ends a channel.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(BaseException):
    """The run has had its grace. No `except Exception` stops this, `finally` still runs."""


class Interruption:
    """Knows whether there is a handler to interrupt, and how."""

    def __init__(self) -> None:
        self._main = threading.main_thread().ident
        self._is_armed = False
        self._is_shielded = False
        self._is_pending = False
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def install(self) -> None:
        """Listen to the signal; a handler may have put its own in the place."""
        signal.signal(signal.SIGINT, self._signalled)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """In here a signal interrupts, once."""
        self._is_pending = False
        self._is_armed = True
        try:
            yield
        finally:
            self._is_armed = False
            self._task = None

    def calls_off(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        """What is interrupted is a task: it is called off instead."""
        self._task = (loop, task)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """In here nothing is interrupted; what came meanwhile interrupts at the end."""
        if threading.get_ident() != self._main or self._is_shielded:
            yield
            return
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False
        if self._is_pending:
            self._strike()

    def _signalled(self, _: int, __: FrameType | None) -> None:
        if not self._is_armed:
            return
        if self._is_shielded:
            self._is_pending = True
        else:
            self._strike()

    def _strike(self) -> None:
        self._is_pending = False
        if self._task is not None:
            loop, task = self._task
            loop.call_soon_threadsafe(task.cancel)
        elif self._is_armed:
            self._is_armed = False
            raise Interrupted("SIGINT")
