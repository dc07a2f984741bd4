"""Bring the tables to the version that this code knows, or say why that cannot be."""

from __future__ import annotations

import sqlite3
import uuid

from detent.errors import SchemaAhead, SchemaBehind, UnsupportedStore
from detent.stores.sqlite.legality import fill
from detent.stores.sqlite.statements import MIGRATIONS, SQL, Migration, split

__all__ = ["KNOWN", "bring_up_to_date"]

KNOWN = MIGRATIONS[-1].version
"""The newest version of the tables that this code has heard of."""


def bring_up_to_date(connection: sqlite3.Connection, *, migrate: bool = True) -> None:
    """Check and migrate in one transaction; the caller has its turn, so only one process does."""
    connection.execute(SQL["begin"])
    try:
        _advance(connection, migrate)
        connection.execute(SQL["commit"])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise UnsupportedStore(f"The tables cannot be made: {error}") from error
    finally:
        if connection.in_transaction:
            connection.execute(SQL["rollback"])


def _advance(connection: sqlite3.Connection, migrate: bool) -> None:
    version, min_code = _versions(connection)
    if min_code > KNOWN:
        raise SchemaAhead(
            f"The tables have version {version}, this code knows {KNOWN}; update Detent",
            version=version,
            known=KNOWN,
            min_code=min_code,
        )
    missing = [one for one in MIGRATIONS if one.version > version]
    if missing and not migrate:
        raise SchemaBehind(
            f"The tables have version {version}, this code needs {KNOWN}; migrate them first",
            version=version,
            known=KNOWN,
        )
    for migration in missing:
        _apply(connection, migration)


def _versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """The version of the tables and the oldest code that may use them; zeros for a new file."""
    if not connection.execute(SQL["has_meta"]).fetchone()[0]:
        return 0, 0
    version, min_code = (
        int(connection.execute(SQL["meta"], (name,)).fetchone()[0])
        for name in ("schema_version", "min_code")
    )
    return version, min_code


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    for statement in split(fill(migration.text)):
        connection.execute(statement)
    for name, value in (("schema_version", migration.version), ("min_code", migration.min_code)):
        connection.execute(SQL["put_meta"], (name, str(value)))
    if connection.execute(SQL["meta"], ("store_id",)).fetchone() is None:
        connection.execute(SQL["put_meta"], ("store_id", str(uuid.uuid4())))
