"""The keys that secrets are locked with. They are never in the database that they protect.

`DETENT_SECRET_KEYS` has them in base64, 32 bytes each, with commas between them, the newest first;
`DETENT_SECRET_KEY` is for one alone. A SQLite file without either gets a key file of its own. The
first key locks; all of them unlock, so that keys can be changed while jobs wait. A key is known by
an id that follows from it: nobody can give two keys one name.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from detent.errors import BadSecretKey, NoSecretKey, SecretUnreadable

_log = logging.getLogger(__name__)
KEY_BYTES = 32
_FILE_CHARS_MAX = 65_536
_HOW = (
    "Make one with: python -c 'import os, base64; print(base64.b64encode(os.urandom(32)).decode())'"
)
_KEEP = (
    "Back it up, apart from the database. If this database had one before, put that one back:"
    " what was locked with it does not open with this one"
)


class SecretKey(msgspec.Struct, frozen=True):
    """One key. Its representation says which, never what."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"<SecretKey {self.id}>"


def new_key() -> str:
    """A new key, as it is written."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


class Keyring:
    """The keys of one store; `path` is where they are kept if the environment has none."""

    def __init__(self, written: Sequence[str] = (), path: Path | None = None) -> None:
        self._given = [_read(text, "DETENT_SECRET_KEYS") for text in written]
        self._path = path
        self._kept: list[SecretKey] = []

    @classmethod
    def of(cls, environ: Mapping[str, str], path: Path | None = None) -> Keyring:
        """What the environment says, and the file beside the database."""
        told = environ.get("DETENT_SECRET_KEYS") or environ.get("DETENT_SECRET_KEY") or ""
        return cls([text.strip() for text in told.split(",") if text.strip()], path)

    @property
    def can_lock(self) -> bool:
        """Whether there is a key that locks, or a place where one would be made."""
        return bool(self._given) or self._path is not None

    def first(self) -> SecretKey:
        """The key that locks; a key file that is missing is made."""
        if self._given:
            return self._given[0]
        if self._path is None:
            why = (
                "There is no key to lock a secret argument with, and the database must not have it."
            )
            raise NoSecretKey(
                f"{why} Set DETENT_SECRET_KEY wherever jobs are enqueued or run. {_HOW}"
            )
        if not self._kept:
            _make(self._path)
            self._kept = _kept(self._path)
        return self._kept[0]

    def find(self, id: str) -> SecretKey:  # noqa: A002
        """The key that something was locked with, old ones included."""
        for key in (*self._given, *self._kept):
            if key.id == id:
                return key
        # Somebody may have made or changed the file since it was read.
        if self._path is not None and self._path.exists():
            self._kept = _kept(self._path)
        for key in self._kept:
            if key.id == id:
                return key
        why = f"It was locked with key {id}, which is not among the keys of this process."
        raise SecretUnreadable(f"{why} Add the old key behind the new one", key=id, why="no_key")


def _read(text: str, where: str) -> SecretKey:
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        # The text itself is not told: half a key in a log is half a key too many.
        why = f"{where}: a key is {KEY_BYTES} bytes in base64, and one of these is not."
        raise BadSecretKey(f"{why} {_HOW}", where=where)
    return SecretKey(hashlib.sha256(b"detent key id\0" + secret).hexdigest()[:12], secret)


def _make(path: Path) -> None:
    """A key file, unless there is one: whole or not at all, and of two processes one makes it."""
    if path.exists() or path.is_symlink():
        return
    try:
        _link(path)
    except OSError as error:
        why = f"The key file {path} cannot be made: {error.strerror}"
        raise BadSecretKey(
            f"{why}. Set DETENT_SECRET_KEY instead. {_HOW}", where=str(path)
        ) from error


def _link(path: Path) -> None:
    with NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.", encoding="ascii") as file:
        file.write(new_key() + "\n")
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(file.name, path)
            # A store that was restored without its key would otherwise get another in silence.
            _log.warning("a key for secret arguments was made: %s. %s", path, _KEEP)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _kept(path: Path) -> list[SecretKey]:
    """The keys in a file that nobody else may read; one per line, the newest first."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        why = f"The key file {path} cannot be read: {error.strerror}"
        raise BadSecretKey(why, where=str(path)) from error
    with open(descriptor, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - opened above
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        # A pipe would have somebody else's key, once.
        lines = file.read(_FILE_CHARS_MAX).split() if stat.S_ISREG(status.st_mode) else []
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        why = f"Others may read the key file {path} (mode {mode:o}); chmod 600 it first"
        raise BadSecretKey(why, where=str(path), mode=oct(mode))
    if not lines:
        raise BadSecretKey(f"The key file {path} is empty, or no file", where=str(path))
    return [_read(line, str(path)) for line in lines]
