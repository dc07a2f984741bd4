"""One supervisor per directory: a lock that the kernel takes back when its holder dies."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from detent.errors import BadJournal, JournalLocked


class Lock:
    """Held from when it is made until it is released, or until this process is gone."""

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            self._file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise BadJournal(
                f"The directory {directory} cannot be used: {error}. Name one that is yours",
                directory=str(directory),
                error=str(error),
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise self._taken(directory) from None
        with suppress(OSError):
            # It is for people only: a disk that is full need not keep anybody from working.
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next one in. The file stays: who deletes it may delete somebody else's lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _taken(self, directory: Path) -> JournalLocked:
        told = os.pread(self._file, 32, 0).decode("ascii", "replace")
        self.release()
        pid = int(told) if told.isdigit() else None
        return JournalLocked(
            f"The supervisor with pid {told or '?'} uses {directory}. Stop it, or give this one a"
            " directory of its own",
            pid=pid,
            directory=str(directory),
        )
