"""The guardian: a small process that outlives its supervisor by a moment, to clear up after it.

It is started bare (`python -I -S guardian.py`), reads from a pipe which sessions there are, and
when that pipe ends, which even `kill -9` cannot prevent, it kills every process in all of them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

PATIENCE_S = 60.0
"""A process that the kernel does not let go for so long is not waited for any more."""
_PAUSE_S = 0.01

Kill = Callable[[int, int], list[int]]


def guard(lines: Iterable[str], kill: Kill) -> None:
    """Learn the sessions (`+SESSION START`, `-SESSION`) until the end, then end them."""
    known: dict[int, int] = {}
    for line in lines:
        words = line[1:].split()
        if line.startswith("+"):
            known[int(words[0])] = int(words[1])
        else:
            known.pop(int(words[0]), None)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        # Whoever is being killed may have been forking: again, until nobody is found.
        if not [pid for session, at in known.items() for pid in kill(session, at)]:
            return
        time.sleep(_PAUSE_S)


def main() -> None:
    """Be deaf to what ends others, say that we listen, and guard."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    # Bare means that the package cannot be imported; one file in it, which needs nothing, can.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path.append(os.path.join(here, "..", ".."))  # noqa: PTH118
    kill: Kill = importlib.import_module("host").kill_session
    with contextlib.suppress(OSError):  # If nobody hears it, there is something to do.
        os.write(1, b"listening\n")
    guard(sys.stdin, kill)


if __name__ == "__main__":
    main()
