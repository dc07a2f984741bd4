"""What a handler prints and logs becomes lines of its job.

For handlers in this process the streams of Python and one logging handler stand in between, and a
context variable says whose word it is. Whatever is said outside of any run passes through.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, Self, TextIO

from detent.engine import limits
from detent.runtime.context import Context

_EMIT: Final = logging.StreamHandler.emit.__code__
_HEARD: Final = "_detent_heard"


class Splitter:
    """Puts lines together from pieces; a line that never ends is cut where lines are cut."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > limits.LINE_CHARS_MAX:
            lines.append(self._rest)
            self._rest = ""
        return [line.removesuffix("\r") for line in lines]

    def end(self) -> list[str]:
        """What is left, as if a line ended here."""
        rest, self._rest = self._rest, ""
        return [rest] if rest else []


def say(ctx: Context, level: str, lines: Sequence[str]) -> None:
    """Lines for the log of a run; once that is full they are not even looked at."""
    for at, line in enumerate(lines):
        if ctx.heard.is_full:
            ctx.heard.drop(len(lines) - at)
            return
        ctx.log(line, level)


_LOCK = threading.RLock()
"""Threads of one run may speak at once."""


class _Speech:
    """What one run says through the streams; threads of its own may speak too."""

    __slots__ = ("_ctx", "_streams", "_token")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._streams: dict[str, Splitter] = {}

    def __enter__(self) -> None:
        self._token = _SPEECH.set(self)

    def __exit__(self, *_: object) -> None:
        _SPEECH.reset(self._token)
        if self._streams:
            self.end()

    def write(self, stream: str, text: str) -> None:
        heard = self._ctx.heard
        if heard.is_full:
            self._streams.pop(stream, None)
            heard.drop(text.count("\n"))
            return
        with _LOCK:
            lines = self._streams.setdefault(stream, Splitter()).feed(text)
        say(self._ctx, stream, lines)

    def mask(self, text: str) -> str:
        return self._ctx.heard.mask(text)

    def log(self, record: logging.LogRecord, text: str) -> None:
        self._ctx.log(text, record.levelname.lower())

    def end(self) -> None:
        with _LOCK:
            rest = {name: one.end() for name, one in self._streams.items()}
        for name, lines in rest.items():
            say(self._ctx, name, lines)


_SPEECH: ContextVar[_Speech | None] = ContextVar("detent_speech", default=None)


def captured(ctx: Context) -> AbstractContextManager[None]:
    """Whatever is printed and logged in here, and in tasks begun in here, is said by this run."""
    return _Speech(ctx)


class _Stream(io.TextIOBase):
    """A standard stream that listens to runs, and otherwise is the one it stands for."""

    def __init__(self, name: str, under: TextIO) -> None:
        self._name = name
        self._under = under

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)

    # What TextIOBase has by itself would hide what is underneath.
    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As underneath."""
        return self._under.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """As underneath."""
        return self._under.errors

    def isatty(self) -> bool:
        """A run speaks to no terminal."""
        return _SPEECH.get() is None and self._under.isatty()

    def fileno(self) -> int:
        """As underneath: what is written there is not heard here."""
        return self._under.fileno()

    def writable(self) -> bool:
        """It is."""
        return True

    def flush(self) -> None:
        """A run is heard line by line; the rest is flushed underneath."""
        if _SPEECH.get() is None:
            self._under.flush()

    def write(self, text: str, /) -> int:
        """Said by the run that is under way, or written underneath."""
        speech = _SPEECH.get()
        if speech is None:
            return self._under.write(text)
        record = _record_in(sys._getframe(1))  # noqa: SLF001 (the documented way to ask for one)
        if record is None:
            speech.write(self._name, text)
        elif _is_first(record):
            speech.log(record, text.rstrip("\n"))
        return len(text)


class _Handler(logging.Handler):
    """Takes what is logged in a run; elsewhere it is as if it were not there."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        speech = _SPEECH.get()
        if speech is None:
            self._pass_by(record)
        elif _is_first(record):
            try:
                speech.log(record, self.format(record))
            except Exception:
                # The arguments do not fit the message: logging says so, and nobody fails of it.
                self.handleError(record)

    def _pass_by(self, record: logging.LogRecord) -> None:
        """Where nothing is configured, logging has a last resort; we must not hide it."""
        last = logging.lastResort
        if last is not None and logging.root.handlers == [self] and record.levelno >= last.level:
            last.handle(record)


class Masking(logging.Formatter):
    """What another formatter makes of a record, without the secrets of the run that says it."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Called by logging."""
        speech, text = _SPEECH.get(), self._inner.format(record)
        return text if speech is None else speech.mask(text)


class Streams:
    """Stands between the streams of this process and whoever speaks, until it is left."""

    def __init__(self) -> None:
        self._under = (sys.stdout, sys.stderr)
        self._over = (_Stream("stdout", sys.stdout), _Stream("stderr", sys.stderr))

    def __enter__(self) -> Self:
        sys.stdout, sys.stderr = self._over
        return self

    def __exit__(self, *_: object) -> None:
        # Somebody who has put another stream there since then keeps it.
        if sys.stdout is self._over[0]:
            sys.stdout = self._under[0]
        if sys.stderr is self._over[1]:
            sys.stderr = self._under[1]


class Records:
    """Listens to logging, until it is left.

    Not before the program is imported: `basicConfig` does nothing where somebody listens already.
    """

    def __init__(self) -> None:
        self._handler = _Handler()

    def __enter__(self) -> Self:
        logging.root.addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        logging.root.removeHandler(self._handler)


class Capture:
    """Both of them, for a process that has imported its program."""

    def __enter__(self) -> Self:
        self._streams, self._records = Streams().__enter__(), Records().__enter__()
        return self

    def __exit__(self, *told: object) -> None:
        self._records.__exit__(*told)
        self._streams.__exit__(*told)


def _record_in(frame: FrameType) -> logging.LogRecord | None:
    """The record that a logging handler is writing to the stream, if it is one that writes."""
    found = frame.f_locals.get("record") if frame.f_code is _EMIT else None
    return found if isinstance(found, logging.LogRecord) else None


def _is_first(record: logging.LogRecord) -> bool:
    """Whether nobody has heard of it yet: a program may have a handler that prints, beside ours."""
    if _HEARD in record.__dict__:
        return False
    record.__dict__[_HEARD] = True
    return True
