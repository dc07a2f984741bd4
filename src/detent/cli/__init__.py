"""The command line: one module per command, exit codes are a contract.

0 done; 1 it could not be done, or the answer is no; 2 the question could not be asked: the command
line was wrong, or the store it names cannot be used.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process."""
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
