"""The kinds of connection that are known, and how a unit is written through each of them.

A kind is recognised by the package and the name of its class, or of one it is derived from. So
nothing is imported to find out, and what is imported afterwards is in use already.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import msgspec

from detent.errors import UnknownConnection
from detent.stores.inside.postgres import answered, in_our_words, told
from detent.stores.inside.statements import SQL
from detent.stores.shapes import Outcome, Rejected, Unit


def _sqlite(connection: Any, unit: Unit, now: int) -> Outcome:
    # It brings the store along: megabytes in every process that has another one.
    from detent.stores.inside.sqlite import write  # noqa: PLC0415

    return write(connection, unit, now)


def _sqlite_through(connection: Any, driver: Any, unit: Unit, now: int) -> Outcome:
    from detent.stores.inside.sqlite import write_through  # noqa: PLC0415

    return write_through(connection, driver, unit, now)


def _call(words: str, unit: Unit) -> str:
    """The statement that calls the function for such a unit."""
    return SQL[f"{'complete' if unit.moves else 'enqueue'}_{words}"]


def _psycopg(connection: Any, unit: Unit, now: int) -> Outcome:
    units = told(unit)
    if isinstance(units, Rejected):
        return units
    as_tuple = import_module("psycopg.rows").tuple_row
    with in_our_words(), connection.cursor(row_factory=as_tuple) as cursor:
        [said] = cursor.execute(_call("in_format", unit), (units, now)).fetchone()
    return answered(said, unit)


async def _psycopg_async(connection: Any, unit: Unit, now: int) -> Outcome:
    units = told(unit)
    if isinstance(units, Rejected):
        return units
    as_tuple = import_module("psycopg.rows").tuple_row
    with in_our_words():
        async with connection.cursor(row_factory=as_tuple) as cursor:
            await cursor.execute(_call("in_format", unit), (units, now))
            [said] = await cursor.fetchone()
    return answered(said, unit)


async def _asyncpg(connection: Any, unit: Unit, now: int) -> Outcome:
    units = told(unit)
    if isinstance(units, Rejected):
        return units
    with in_our_words():
        said = await connection.fetchval(_call("by_number", unit), units, now)
    return answered(said, unit)


def _django(connection: Any, unit: Unit, now: int) -> Outcome:
    connection.validate_no_broken_transaction()
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        return _sqlite(connection.connection, unit, now)
    if connection.vendor != "postgresql":
        raise _unknown(f"Django on {connection.vendor}")
    units = told(unit)
    if isinstance(units, Rejected):
        return units
    with in_our_words(), connection.cursor() as cursor:
        cursor.execute(_call("in_format", unit), (units, now))
        [said] = cursor.fetchone()
    return answered(said, unit)


def _alchemy(connection: Any, unit: Unit, now: int) -> Outcome:
    if connection.dialect.name == "sqlite":
        return _alchemy_on_sqlite(connection, unit, now)
    if connection.dialect.name != "postgresql":
        raise _unknown(f"SQLAlchemy on {connection.dialect.name}")
    units = told(unit)
    if isinstance(units, Rejected):
        return units
    statement = import_module("sqlalchemy").text(_call("by_name", unit))
    with in_our_words():
        said = connection.execute(statement, {"units": units, "now": now}).scalar_one()
    return answered(said, unit)


def _alchemy_on_sqlite(connection: Any, unit: Unit, now: int) -> Outcome:
    if not connection.in_transaction():
        # As every other statement does; otherwise its `commit` would see nothing to commit.
        connection.begin()
    pooled = connection.connection
    if pooled.dbapi_connection is pooled.driver_connection:
        return _sqlite(pooled.dbapi_connection, unit, now)
    return _sqlite_through(pooled.dbapi_connection, pooled.driver_connection, unit, now)


def _session(session: Any, unit: Unit, now: int) -> Outcome:
    return _alchemy(session.connection(), unit, now)


async def _alchemy_async(connection: Any, unit: Unit, now: int) -> Outcome:
    outcome: Outcome = await connection.run_sync(_alchemy, unit, now)
    return outcome


async def _session_async(session: Any, unit: Unit, now: int) -> Outcome:
    outcome: Outcome = await session.run_sync(_session, unit, now)
    return outcome


class _Way(msgspec.Struct, frozen=True):
    """How a unit is written, and how the kind of connection is called in a message."""

    write: Callable[[Any, Unit, int], Any]
    shown: str
    is_async: bool = False


_WAYS: Final = {
    ("sqlite3", "Connection"): _Way(_sqlite, "sqlite3.Connection"),
    ("psycopg", "Connection"): _Way(_psycopg, "psycopg.Connection"),
    ("psycopg", "AsyncConnection"): _Way(_psycopg_async, "psycopg.AsyncConnection", True),
    ("asyncpg", "Connection"): _Way(_asyncpg, "asyncpg.Connection", True),
    ("asyncpg", "PoolConnectionProxy"): _Way(_asyncpg, "asyncpg.Pool.acquire()", True),
    ("sqlalchemy", "Connection"): _Way(_alchemy, "sqlalchemy.Connection"),
    ("sqlalchemy", "Session"): _Way(_session, "sqlalchemy.orm.Session"),
    ("sqlalchemy", "scoped_session"): _Way(_session, "sqlalchemy.orm.scoped_session"),
    ("sqlalchemy", "AsyncConnection"): _Way(
        _alchemy_async, "sqlalchemy.ext.asyncio.AsyncConnection", True
    ),
    ("sqlalchemy", "AsyncSession"): _Way(
        _session_async, "sqlalchemy.ext.asyncio.AsyncSession", True
    ),
    ("django", "ConnectionProxy"): _Way(_django, "django.db.connection"),
    ("django", "BaseDatabaseWrapper"): _Way(_django, "django.db.connections[name]"),
}
KNOWN: Final = tuple(way.shown for way in _WAYS.values())
"""The kinds of connection that are known, as their own documentation calls them."""


def way_of(connection: Any, *, is_async: bool) -> Callable[[Any, Unit, int], Any]:
    """How a unit is written through this connection; `UnknownConnection` if that is not known."""
    for kind in type(connection).__mro__:
        way = _WAYS.get((kind.__module__.partition(".")[0], kind.__name__))
        if way is not None and way.is_async is is_async:
            return way.write
        if way is not None:
            asked = "await aenqueue(...)" if way.is_async else "enqueue(...)"
            raise _unknown(way.shown, f"{way.shown} goes with {asked} and its like")
    kind = type(connection)
    raise _unknown(f"{kind.__module__}.{kind.__qualname__}")


def _unknown(kind: str, why: str | None = None) -> UnknownConnection:
    why = why or f"There is no way to enqueue inside a transaction of {kind}"
    return UnknownConnection(f"{why}; known are {', '.join(KNOWN)}", kind=kind, known=KNOWN)
