"""Why a process could not be started, as the error that says what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from detent.errors import (
    CommandNotFound,
    CommandRefused,
    ForkFailed,
    ProcessError,
    TooManyFiles,
)

_FAULTS: Final[dict[int, tuple[type[ProcessError], str]]] = {
    errno.ENOENT: (CommandNotFound, "check its name, PATH and the working directory"),
    errno.ENOTDIR: (CommandNotFound, "check its name, PATH and the working directory"),
    errno.EACCES: (CommandRefused, "make the file executable (chmod +x)"),
    errno.EPERM: (CommandRefused, "this user may not do that"),
    errno.ENOEXEC: (CommandRefused, "it is no program for this machine, or has no #! line"),
    errno.E2BIG: (CommandRefused, "its arguments and environment are too large"),
    errno.EAGAIN: (ForkFailed, "too many processes (ulimit -u, pids.max)"),
    errno.ENOMEM: (ForkFailed, "no memory is left"),
    errno.EMFILE: (TooManyFiles, "raise the limit (ulimit -n)"),
    errno.ENFILE: (TooManyFiles, "raise the limit of the machine (fs.file-max)"),
}


def spawn_fault(number: int | None, why: str, command: Sequence[str]) -> ProcessError:
    """The coded error for what the system answered."""
    kind, remedy = _FAULTS.get(number or 0, (ProcessError, "see the reason"))
    name = command[0] if command else ""
    return kind(f"{name!r} could not be started: {why}; {remedy}", command=name, errno=number)
