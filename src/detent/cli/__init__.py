"""The command line: one module per command, exit codes are a contract.

0 done; 1 it could not be done, or the answer is no; 2 the question could not be asked: the command
line was wrong, or the store it names cannot be used.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process."""
    _fill_descriptors()
    with _called_off_at_once():
        # It takes most of the time of a short command, in which nothing is begun yet.
        from detent.cli.application import command_line  # noqa: PLC0415

        run = command_line()
    run()


@contextmanager
def _called_off_at_once() -> Iterator[None]:
    """Let Ctrl-C simply end us, without telling which module was being read."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _fill_descriptors() -> None:
    """Whoever starts us may have closed the first three: then a database would be among them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest that is free: those before it are taken.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
