"""What a process writes: drained at once, kept in a ring, written to files, and followed live.

What is kept are blocks of whole lines, in the order in which the lines were completed. They become
text only when somebody reads, so a child that writes a hundred megabytes costs the copying of them
and one megabyte of memory.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Iterable
from typing import Final

import msgspec

from detent.runtime.process.rotation import Files

RING_BYTES: Final = 1024 * 1024
LINE_BYTES_MAX: Final = 16 * 1024
"""A longer line is cut into several."""
_BLOCK: Final = 4096
_CHUNK: Final = 64 * 1024
_LAST_READS: Final = 32
"""A pipe holds 64 KiB, at most 1 MiB; whoever writes more at the end is not of the session."""


class Line(msgspec.Struct, frozen=True):
    """One line. `cursor` is where to go on reading after it.

    `missed` counts the bytes that were overwritten before anybody read them. A line that
    `is_partial` did not end: it was cut because of its length, or its writer was.
    """

    stream: str
    text: str
    cursor: int
    missed: int = 0
    is_partial: bool = False


class _Block(msgspec.Struct, frozen=True):
    """Whole lines of one stream; `at` is where they begin."""

    at: int
    stream: str
    data: bytes

    def after(self, cursor: int) -> _Block:
        """What of it lies behind the cursor."""
        skipped = cursor - self.at
        return self if skipped <= 0 else _Block(cursor, self.stream, self.data[skipped:])

    def lines(self) -> Iterable[Line]:
        """Its lines as text; what is no UTF-8 shows as a replacement mark."""
        cursor = self.at
        for raw in _split(self.data):
            cursor += len(raw)
            text = raw.rstrip(b"\r\n").decode("utf-8", "replace")
            yield Line(self.stream, text, cursor, is_partial=not raw.endswith(b"\n"))


class Output:
    """The last megabyte of one instance, both streams in the order in which they came."""

    def __init__(self, files: Files | None = None, *, ring_bytes: int = RING_BYTES) -> None:
        self._files = files
        self._room = ring_bytes
        self._blocks: deque[_Block] = deque()
        self._held = 0
        self._end = 0
        self._unfinished: dict[str, bytes] = {}
        self._news = asyncio.Event()
        self._is_over = False

    @property
    def start(self) -> int:
        """The cursor of the oldest byte that is still here."""
        return self._end - self._held

    @property
    def end(self) -> int:
        """The cursor behind everything that is complete."""
        return self._end

    def write(self, stream: str, data: bytes) -> None:
        """Take a piece of output in."""
        if self._files is not None:
            self._files.write(data)
        data = self._unfinished.pop(stream, b"") + data
        cut = data.rfind(b"\n") + 1
        if len(data) - cut > LINE_BYTES_MAX:
            cut = len(data)
        if cut < len(data):
            self._unfinished[stream] = data[cut:]
        self._keep(stream, data[:cut])

    def finish(self) -> None:
        """Nothing more will come; lines that did not end are lines too."""
        for stream, data in self._unfinished.items():
            self._keep(stream, data)
        self._unfinished.clear()
        self._is_over = True
        self._news.set()

    def tail(self, count: int) -> list[str]:
        """The last lines, those that have not ended yet included."""
        found = [line.text for line in self.read()]
        found += [data.decode("utf-8", "replace") for data in self._unfinished.values()]
        return found[-count:] if count > 0 else []

    def read(self, cursor: int = 0) -> list[Line]:
        """The complete lines behind the cursor; the first says how much was missed before it.

        The last line's cursor is where to go on. A line that has not ended comes when it has.
        """
        blocks = list(self._blocks)
        first = max(0, bisect_right(blocks, cursor, key=lambda block: block.at) - 1)
        found = [line for block in blocks[first:] for line in block.after(cursor).lines()]
        missed = self.start - cursor
        if found and missed > 0:
            found[0] = msgspec.structs.replace(found[0], missed=missed)
        return found

    async def follow(self, cursor: int = 0) -> AsyncIterator[Line]:
        """The lines from the cursor on, and every further one as it comes, until the end."""
        while True:
            self._news.clear()
            is_over = self._is_over
            for line in self.read(cursor):
                cursor = line.cursor
                yield line
            if is_over:
                return
            await self._news.wait()

    def _keep(self, stream: str, data: bytes) -> None:
        if not data:
            return
        last = self._blocks[-1] if self._blocks else None
        if last and last.stream == stream and len(last.data) < _BLOCK and last.data[-1:] == b"\n":
            self._blocks[-1] = _Block(last.at, stream, last.data + data)
        else:
            self._blocks.append(_Block(self._end, stream, data))
        self._end += len(data)
        self._held += len(data)
        while self._held > self._room and len(self._blocks) > 1:
            self._held -= len(self._blocks.popleft().data)
        self._news.set()


def _split(data: bytes) -> list[bytes]:
    """Lines end with a newline only: a progress bar's carriage returns make none."""
    *whole, rest = data.split(b"\n")
    return [line + b"\n" for line in whole] + ([rest] if rest else [])


class Drain:
    """Reads one pipe of a child as soon as there is anything in it."""

    def __init__(self, file: int, stream: str, output: Output) -> None:
        os.set_blocking(file, False)
        self._file: int | None = file
        self._stream = stream
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(file, self.read)

    def read(self) -> bool:
        """Take what there is, a limited piece of it; whether there was anything."""
        if self._file is None:
            return False
        try:
            data = os.read(self._file, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._output.write(self._stream, data)
        else:
            self._close()
        return bool(data)

    def close(self) -> None:
        """Take the rest, if it is there at once, and close."""
        for _ in range(_LAST_READS):
            if not self.read():
                break
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = None
