"""What runs between a supervisor and one child: its output, its channel, and a pipe for dumps."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

from detent.runtime.process.inside import CHANNEL_FD, DUMP_FD

_FIRST_S: Final = 2.0
"""So long a child may take to begin with a dump; one that is stopped never will."""
_QUIET_S: Final = 0.1
"""A dump has no end mark: it is over when nothing more comes."""
_DUMP_BYTES_MAX: Final = 1024 * 1024


class Wiring:
    """Both ends of everything. Whoever takes one of our ends closes it; `close` does the rest."""

    def __init__(self) -> None:
        self._theirs = contextlib.ExitStack()
        self._ours = contextlib.ExitStack()
        with contextlib.ExitStack() as failing:
            failing.callback(self.close)
            self.stdout, self._stdout = self._pipe()
            self.stderr, self._stderr = self._pipe()
            self.dump, self._dump = self._pipe()
            self.channel, self._channel = socket.socketpair()
            self._ours.callback(self.channel.close)
            self._theirs.callback(self._channel.close)
            failing.pop_all()

    @property
    def files(self) -> tuple[int, int]:
        """What the child inherits by number."""
        return self._channel.fileno(), self._dump

    @property
    def output(self) -> tuple[int, int]:
        """Where the child's standard output and error go."""
        return self._stdout, self._stderr

    def environment(self) -> dict[str, str]:
        """How the child learns the numbers."""
        return {CHANNEL_FD: str(self._channel.fileno()), DUMP_FD: str(self._dump)}

    def taken(self) -> None:
        """Our ends are in use, and closed by their users."""
        self._ours.pop_all()

    def outlast(self, launching: Future[Any]) -> None:
        """Keep the ends of a child open that is being started: their numbers are spoken for.

        Closed before, they could be those of somebody else when it inherits them.
        """
        theirs = self._theirs.pop_all()
        launching.add_done_callback(lambda _: theirs.close())

    def close(self) -> None:
        """Close what nobody has taken."""
        self._theirs.close()
        self._ours.close()

    def _pipe(self) -> tuple[int, int]:
        ours, theirs = os.pipe()
        self._ours.callback(os.close, ours)
        self._theirs.callback(os.close, theirs)
        return ours, theirs


class Dumps:
    """Stacks that a child writes when it is signalled, even while its main thread hangs."""

    def __init__(self, file: int) -> None:
        os.set_blocking(file, False)
        self._file: int | None = file
        self._data = bytearray()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(file, self._read)

    async def take(self, signal_it: Callable[[], bool]) -> str:
        """Ask for the stacks, and wait until they are here."""
        async with self._turn:
            self._data.clear()
            self._news.clear()
            limit = _FIRST_S if signal_it() else 0
            while limit and await self._more(limit):
                limit = _QUIET_S
            return self._data.decode("utf-8", "replace")

    def close(self) -> None:
        """Stop reading dumps and close the pipe."""
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None

    async def _more(self, limit: float) -> bool:
        try:
            await asyncio.wait_for(self._news.wait(), limit)
        except TimeoutError:
            return False
        self._news.clear()
        return self._file is not None

    def _read(self) -> None:
        data = os.read(self._file, 65536) if self._file is not None else b""
        if data:
            self._data += data[: _DUMP_BYTES_MAX - len(self._data)]
        else:
            self.close()
        self._news.set()
