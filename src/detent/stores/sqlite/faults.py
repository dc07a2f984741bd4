"""What SQLite says when something is wrong, in our words, and what we do about it."""

from __future__ import annotations

import sqlite3
from typing import Final

from detent.errors import (
    ReadTooLong,
    StoreBroken,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
)

UNFIT: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)
"""Somebody handed in what the database does not take; everything else can still be committed."""

_MASK = 0xFF
_FATAL: Final = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN}
)
_FORBIDDEN: Final = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)


def translated(error: sqlite3.Error) -> StoreError:
    """The error that a caller hears; the original stays attached as its cause."""
    code = _code(error)
    name = getattr(error, "sqlite_errorname", "unknown")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("The disk is full; nothing was committed. Free some space, try again")
    if is_busy(error):
        return StoreBusy(
            "A write transaction holds the file for too long: one of another program, or one that"
            " this program itself has open; end it first, or take part in it with conn=..."
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or _is_no_text(error):
        fix = "check that the address names it; if so stop, keep the file, and restore a backup"
        return StoreCorrupt(f"The database file is damaged ({error}); {fix}", sqlite=name)
    if code == sqlite3.SQLITE_INTERRUPT:
        return ReadTooLong("The answer took too long to find; ask for less")
    if code in _FORBIDDEN:
        why = f"SQLite may not open the file, or not write beside it ({error})"
        return StoreUnavailable(f"{why}; see who owns it and its folder", sqlite=name)
    return StoreUnavailable(f"SQLite failed ({error}); try again", sqlite=name)


def broken(error: sqlite3.Error) -> StoreError:
    """What everybody hears who writes after a fatal error, until the store is opened again."""
    told = translated(error)
    if isinstance(told, StoreCorrupt):
        return told
    return StoreBroken(
        f"SQLite failed ({error}) and the store has stopped; open it again", **told.fields
    )


def is_ours(error: Exception) -> bool:
    """Whether it is the whole transaction that failed, not something that one caller handed in."""
    return isinstance(error, sqlite3.Error) and not isinstance(error, UNFIT)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else is at it, who will be done in a while."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_fatal(error: sqlite3.Error) -> bool:
    """After this nothing may be acknowledged: a later sync that works proves nothing."""
    return _code(error) in _FATAL


def _is_no_text(error: sqlite3.Error) -> bool:
    # The driver's own complaint about bytes that are no UTF-8, which has no code.
    return str(error).startswith("Could not decode")


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _MASK
