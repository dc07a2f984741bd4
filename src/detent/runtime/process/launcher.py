"""The first moments of every worker process, before it becomes the command that was asked for.

It is started bare (`python -I -S launcher.py GATE PARENT MEMORY NICE FOLDER COMMAND...`) and loads
as little as it can, because every start waits for it. It ties its life to its parent's, waits at a
gate until the guardian knows about it, and becomes the command. The gate closes by itself when that
succeeds; when it does not, the reason is sent through it.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG."""


def main(gate: int, parent: int, limits: list[str], command: list[str]) -> None:
    """Arm, wait, and become the command."""
    os.set_inheritable(gate, False)
    _die_with(parent)
    if os.read(gate, 1) != b"g":
        sys.exit(1)
    try:
        _prepare(*limits)
        os.execvp(command[0], command)  # noqa: S606 (that is what we are for)
    except (OSError, ValueError) as error:
        os.write(gate, f"{getattr(error, 'errno', None) or 0} {error}".encode())
        os._exit(127)


def _die_with(parent: int) -> None:
    """Linux kills us when our parent dies; if it died before we said so, we see it here."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 (slow, and of no use elsewhere)

        ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def _prepare(memory: str, nice: str, folder: str) -> None:
    """What the command inherits: limits, and signals as a fresh program expects them."""
    if folder:
        os.chdir(folder)
    os.nice(int(nice))
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:6], sys.argv[6:])
