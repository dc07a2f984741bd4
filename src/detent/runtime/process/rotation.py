"""The log files of one slot: a few of limited size, the newest without a number."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final
from urllib.parse import quote

FILE_BYTES: Final = 10 * 1024 * 1024
FILES: Final = 10
_NAME_MAX: Final = 200


class Files:
    """Written by every instance of a slot, one after the other or at the same time.

    A disk that is full, or gone, costs log lines and nothing else: `lost_bytes` counts them.
    """

    def __init__(
        self, folder: Path, slot: str, *, file_bytes: int = FILE_BYTES, files: int = FILES
    ) -> None:
        self.path = folder / f"{quote(slot, safe='')[:_NAME_MAX]}.log"
        self.lost_bytes = 0
        self._file_bytes = file_bytes
        self._files = files
        self._file: io.FileIO | None = None
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append; a piece is never cut in two."""
        try:
            if self._file is not None and self._size + len(data) > self._file_bytes:
                self._rotate()
            file = self._file or self._open()
            self._size += file.write(data) or 0
        except OSError:
            self.lost_bytes += len(data)

    def existing(self) -> list[Path]:
        """The files that are there, the newest first."""
        numbered = map(self._numbered, range(self._files))
        return [path for path in numbered if path.exists()]

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> io.FileIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = io.FileIO(self.path, "ab")
        self.path.chmod(0o600)
        self._size = self.path.stat().st_size
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            older = self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path
