"""Reading what a pool process writes to its descriptors, as it comes and without ever waiting."""

from __future__ import annotations

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from detent.runtime.context import Context
from detent.runtime.executors.capture import Splitter, say

_CHUNK: Final = 65_536
_DRAIN_MAX: Final = 32
"""Chunks that are taken at the end of a run; somebody left behind may be writing for ever."""
_TAIL_LINES: Final = 50


class Pipe:
    """The reading end of a pipe, and its writing end until somebody else has it."""

    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._read, self.write = os.pipe()
        self._heard = heard
        self._is_open = True
        os.set_blocking(self._read, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read, self._readable)

    def hand_over(self) -> None:
        """The writing end is in the other process."""
        os.close(self.write)

    def drain(self) -> None:
        """Take what is there now."""
        for _ in range(_DRAIN_MAX):
            if not self._is_open or not self._readable():
                return

    def close(self) -> None:
        """Take what is there now, and no more."""
        self.drain()
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._read)
            os.close(self._read)

    def _readable(self) -> bool:
        with suppress(BlockingIOError):
            data = os.read(self._read, _CHUNK)
            if data:
                self._heard(data)
                return True
            self._loop.remove_reader(self._read)
        return False


class Voice:
    """One stream of a pool process: lines for the run that is under way, or for `outside`."""

    def __init__(self, level: str, outside: Callable[[str], object]) -> None:
        self.ctx: Context | None = None
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._level = level
        self._outside = outside
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._lines = Splitter()

    def begin(self, ctx: Context) -> None:
        """From now on it is this run that speaks."""
        self.ctx = ctx
        self.tail.clear()

    def hear(self, data: bytes) -> None:
        """Some of it has come."""
        if self.ctx is not None and self.ctx.heard.is_full:
            self._lines.end()
            self.ctx.heard.drop(data.count(b"\n"))
            return
        text = self._decoder.decode(data)
        if self.ctx is None:
            self._outside(text)
        self._say(self._lines.feed(text))

    def end(self) -> None:
        """The run is over, and with it the line."""
        self._say(self._lines.end())
        self.ctx = None

    def _say(self, lines: list[str]) -> None:
        self.tail.extend(lines)
        if self.ctx is not None:
            say(self.ctx, self._level, lines)
