"""Bring the tables to the version that this code knows, or say why that cannot be."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from detent.errors import UnsupportedStore
from detent.stores.migrations import Migration, TableVersion, Watch, missing, need_all
from detent.stores.sqlite import place
from detent.stores.sqlite.connection import need_version, open_as_it_is, open_writer
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.legality import fill
from detent.stores.sqlite.statements import MIGRATIONS, SQL, split
from detent.stores.sqlite.turns import Turns

KNOWN = MIGRATIONS[-1].version
"""The newest version of the tables that this code has heard of."""


def pending_migrations(url: str) -> Sequence[Migration]:
    """What opening this file would run first, as complete SQL. No file is made."""
    path = place.path_of(url)
    need_version()
    tables = look(path) if path.exists() else TableVersion()
    return [_complete(one) for one in missing(MIGRATIONS, tables)]


def run_migrations(url: str, watch: Watch = lambda _: None) -> Sequence[Migration]:
    """Run it, when this process has its turn; what was run."""
    path = place.path_of(url)
    need_version()
    place.prepare(path)
    turns = Turns(path)
    try:
        with turns, closing(open_writer(path)) as connection:
            return bring_up_to_date(connection, watch=watch)
    except sqlite3.Error as error:
        raise translated(error) from error
    finally:
        turns.close()


def bring_up_to_date(
    connection: sqlite3.Connection, *, migrate: bool = True, watch: Watch = lambda _: None
) -> list[Migration]:
    """Check and migrate in one transaction; the caller has its turn, so only one process does."""
    try:
        if not missing(MIGRATIONS, _versions(connection)):
            # Whoever only looks is not to wait for somebody's open transaction on the file.
            return []
        connection.execute(SQL["begin"])
        done = _advance(connection, migrate, watch)
        connection.execute(SQL["commit"])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise UnsupportedStore(f"The tables cannot be made: {error}") from error
    finally:
        if connection.in_transaction:
            connection.execute(SQL["rollback"])
    return done


def _advance(connection: sqlite3.Connection, migrate: bool, watch: Watch) -> list[Migration]:
    tables = _versions(connection)
    if not migrate:
        need_all(MIGRATIONS, tables)
    done = [_complete(one) for one in missing(MIGRATIONS, tables)]
    for migration in done:
        watch(migration)
        for statement in split(migration.sql):
            connection.execute(statement)
    return done


def need_tables(connection: sqlite3.Connection) -> None:
    """Refuse a file that was never a store, or whose tables are behind or ahead of this code."""
    need_all(MIGRATIONS, _versions(connection))


def look(path: Path) -> TableVersion:
    """What the tables of a file say about themselves."""
    try:
        with closing(open_as_it_is(path)) as connection:
            return _versions(connection)
    except sqlite3.Error as error:
        raise translated(error) from error


def _versions(connection: sqlite3.Connection) -> TableVersion:
    """The version of the tables and the oldest code that may use them; zeros for a new file."""
    if not connection.execute(SQL["has_meta"]).fetchone()[0]:
        return TableVersion()
    version, min_code = (
        int(connection.execute(SQL["meta"], (name,)).fetchone()[0])
        for name in ("schema_version", "min_code")
    )
    return TableVersion(version, min_code)


def _complete(migration: Migration) -> Migration:
    """The migration as it is run: legality filled in, and the tables' new word on themselves."""
    stamp = SQL["stamp"]
    for word, value in (
        ("{{version}}", str(migration.version)),
        ("{{min_code}}", str(migration.min_code)),
        ("{{store_id}}", str(uuid.uuid4())),
    ):
        stamp = stamp.replace(word, value)
    return replace(migration, sql=f"{fill(migration.sql).rstrip()}\n\n{stamp}\n")
