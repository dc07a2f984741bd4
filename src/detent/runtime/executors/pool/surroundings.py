"""What all jobs of a pool process share, and a handler may change: put back after every run."""

from __future__ import annotations

import locale
import os
import signal
from contextlib import suppress
from typing import Final

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


class Surroundings:
    """Working directory, umask, environment, locale, signals, as they were when it was made."""

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
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def restore(self) -> None:
        """As far as it is different: this is done after every job."""
        self._calm()
        # A folder that was removed meanwhile, or a descriptor that the handler has closed.
        with suppress(OSError):
            os.fchdir(self._folder)
        os.umask(self._umask)
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if locale.setlocale(locale.LC_ALL) != self._locale:
            locale.setlocale(locale.LC_ALL, self._locale)

    def _calm(self) -> None:
        """No signal that the last job has ordered, or kept back, comes to the next one."""
        for timer in _TIMERS:
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
        for number in signal.sigpending():
            # Whoever ignores a signal forgets what was kept back of it.
            signal.signal(number, signal.SIG_IGN)
        for number, handler in self._signals.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)


def _umask() -> int:
    """There is no way to ask for it without setting it."""
    now = os.umask(0o077)
    os.umask(now)
    return now
