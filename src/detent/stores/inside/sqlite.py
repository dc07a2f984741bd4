"""SQLite: the store's own code writes, on the caller's connection and in their transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from detent.stores.shapes import Outcome, Unit
from detent.stores.sqlite.connection import need_version
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.migrate import need_tables
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction


class _Plain:
    """A connection whose rows are tuples, whatever the caller makes of theirs."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = self._cursor()
        cursor.execute(statement, values)
        return cursor

    def executemany(self, statement: str, values: Sequence[Sequence[Any]]) -> None:
        if values:
            self._cursor().executemany(statement, values)

    def _cursor(self) -> Any:
        cursor = self._connection.cursor()
        if isinstance(cursor, sqlite3.Cursor):
            cursor.row_factory = None
        return cursor


def write(connection: sqlite3.Connection, unit: Unit, now: int) -> Outcome:
    """The answer to the unit, on a connection of the standard library."""
    with _texts_of(connection):
        return write_through(connection, connection, unit, now)


def write_through(connection: Any, driver: Any, unit: Unit, now: int) -> Outcome:
    """The same through an adapter that has the cursors of such a connection.

    `driver` is what knows of transactions.
    """
    need_version()
    plain = cast(sqlite3.Connection, _Plain(connection))
    try:
        need_tables(plain)
        if not driver.in_transaction and _begins_by_itself(driver):
            # We write at once, so that the file is not found locked half-way.
            plain.execute(SQL["begin"])
        [outcome] = Transaction(plain, is_careful=True).commit((unit,), now)
    except sqlite3.Error as error:
        raise translated(error) from error
    return outcome


def _begins_by_itself(driver: Any) -> bool:
    """Whether a write opens a transaction that stays open; if not, ours is one of its own."""
    # Since Python 3.12 a connection may say so in another way; -1 means that it does not.
    is_told_otherwise = getattr(driver, "autocommit", -1) != -1
    return driver.isolation_level is not None and not is_told_otherwise


@contextmanager
def _texts_of(connection: sqlite3.Connection) -> Iterator[None]:
    """Texts come as texts while we read, whatever the caller wants them to be."""
    kept, connection.text_factory = connection.text_factory, str
    try:
        yield
    finally:
        connection.text_factory = kept
