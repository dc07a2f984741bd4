"""Connections whose settings were read back: what is not in force is not promised."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Final

from detent.errors import UnsupportedStore
from detent.stores.sqlite.statements import SQL

OLDEST: Final = (3, 35, 0)
BUSY_MS: Final = 5_000
"""How long we wait for somebody's own connection; our processes take turns before."""
_STATEMENTS = 256

_WANTED: Final[dict[str, object]] = {
    "journal_mode": "wal",
    "synchronous": 2,
    "foreign_keys": 1,
    **({"fullfsync": 1, "checkpoint_fullfsync": 1} if sys.platform == "darwin" else {}),
}


def need_version(found: tuple[int, ...] = sqlite3.sqlite_version_info) -> None:
    """Refuse a SQLite that lacks what our statements need."""
    if found < OLDEST:
        has, needs = (".".join(map(str, one)) for one in (found, OLDEST))
        raise UnsupportedStore(f"SQLite {has} is too old; {needs} or newer is needed", version=has)


def open_writer(path: Path, *, busy_ms: int = BUSY_MS) -> sqlite3.Connection:
    """The one connection that writes."""
    names = ["wal", "full", "foreign_keys", "journal_size"]
    if sys.platform == "darwin":
        names += ["fullfsync", "checkpoint_fullfsync"]
    return _configured(path, busy_ms, names, _WANTED)


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that sees what is committed and can change nothing."""
    return _configured(path, BUSY_MS, ["query_only"], {"journal_mode": "wal", "query_only": 1})


def open_as_it_is(path: Path) -> sqlite3.Connection:
    """A connection to whatever the file is, which may not be ours yet; it can change nothing."""
    return _configured(path, BUSY_MS, ["query_only"], {"query_only": 1})


def _configured(
    path: Path, busy_ms: int, names: list[str], wanted: dict[str, object]
) -> sqlite3.Connection:
    connection = _open(path, busy_ms)
    try:
        for name in names:
            connection.execute(SQL[f"set_{name}"])
        _verify(connection, {**wanted, "busy_timeout": busy_ms})
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, busy_ms: int) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=busy_ms / 1_000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )


def _verify(connection: sqlite3.Connection, wanted: dict[str, object]) -> None:
    for name, value in wanted.items():
        found = connection.execute(SQL[f"get_{name}"]).fetchone()[0]
        if found != value:
            raise UnsupportedStore(
                f"SQLite runs with {name} = {found}, not {value}; its promises would not hold",
                pragma=name,
                found=found,
                wanted=value,
            )
