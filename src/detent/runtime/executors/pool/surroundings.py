"""What all jobs of a pool process share, and a handler may change: put back after every run."""

from __future__ import annotations

import locale
import os
import signal
from contextlib import suppress

__all__ = ["Surroundings"]


class Surroundings:
    """Working directory, umask, environment, locale and signals, as they were when it was made."""

    def __init__(self) -> None:
        self._folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._umask = _umask()
        self._environment = dict(os.environ)
        self._locale = locale.setlocale(locale.LC_ALL)
        self._signals = {
            number: handler
            for number in signal.valid_signals()
            if (handler := signal.getsignal(number)) is not None
        }

    def restore(self) -> None:
        """As far as it is different: this is done after every job."""
        # A folder that was removed meanwhile, or a descriptor that the handler has closed.
        with suppress(OSError):
            os.fchdir(self._folder)
        os.umask(self._umask)
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)
        for number, handler in self._signals.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)


def _umask() -> int:
    """There is no way to ask for it without setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now
