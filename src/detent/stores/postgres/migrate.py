"""Bring the tables to the version that this code knows, or say why that cannot be."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec.structs import replace

from detent.errors import UnsupportedStore
from detent.stores.migrations import Migration, TableVersion, Watch, missing, need_all
from detent.stores.postgres.address import Address, read
from detent.stores.postgres.connection import LOCK_MS, Connection, open_connection
from detent.stores.postgres.faults import FAULTS, translated
from detent.stores.postgres.legality import fill
from detent.stores.postgres.server import need_fit
from detent.stores.postgres.statements import MIGRATIONS, STAMP

_Work = Callable[[Connection], Awaitable[list[Migration]]]


def pending_migrations(url: str) -> Sequence[Migration]:
    """What the tables at this address still need, as complete SQL; nothing is changed."""
    return _waited_for(_connected(read(url), _pending))


def run_migrations(url: str, watch: Watch = lambda _: None) -> Sequence[Migration]:
    """Run it in one transaction, while no other process does; what was run."""
    return _waited_for(_connected(read(url), partial(_advance, watch=watch)))


def _waited_for(work: Coroutine[None, None, list[Migration]]) -> list[Migration]:
    """The answer to something asynchronous; the caller's thread may have a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def prepare(connection: Connection) -> None:
    """Make the tables in a database that has none; refuse tables that are behind."""
    if await _is_empty(connection):
        await _advance(connection)
    need_all(MIGRATIONS, await versions(connection))


async def _connected(address: Address, work: _Work) -> list[Migration]:
    try:
        connection = await open_connection(address, answer_s=None)
        try:
            await need_fit(connection)
            return await work(connection)
        finally:
            await connection.close()
    except FAULTS as error:
        raise translated(error) from error


async def _pending(connection: Connection) -> list[Migration]:
    return [complete(one) for one in missing(MIGRATIONS, await versions(connection))]


async def _advance(connection: Connection, watch: Watch = lambda _: None) -> list[Migration]:
    async with connection.transaction():
        # Whoever else migrates is waited for; somebody's open transaction is not, because everybody
        # would wait behind us meanwhile.
        await connection.fetch("lock_timeout", milliseconds="0")
        await connection.fetch("migration_lock")
        await connection.fetch("lock_timeout", milliseconds=str(LOCK_MS))
        await connection.fetch("take_your_time")
        done = await _pending(connection)
        for migration in done:
            watch(migration)
            await connection.driver.execute(migration.sql)
    return done


async def _is_empty(connection: Connection) -> bool:
    row = await connection.fetch_row("has_tables")
    return row is not None and not row[0]


async def versions(connection: Connection) -> TableVersion:
    """The version of the tables and the oldest code that may use them; zeros where none are."""
    row = await connection.fetch_row("has_meta")
    if row is None or not row[0]:
        if not await _is_empty(connection):
            raise UnsupportedStore("The schema `detent` has tables that are not ours; rename it")
        return TableVersion()
    version, min_code = (
        await _meta(connection, "schema_version"),
        await _meta(connection, "min_code"),
    )
    return TableVersion(version, min_code)


async def _meta(connection: Connection, name: str) -> int:
    row = await connection.fetch_row("meta", name=name)
    return 0 if row is None else int(row[0])


def complete(migration: Migration) -> Migration:
    """The migration as it is run: legality filled in, and the tables' new word on themselves."""
    stamp = STAMP
    for word, value in (
        ("{{version}}", str(migration.version)),
        ("{{min_code}}", str(migration.min_code)),
        ("{{store_id}}", str(uuid.uuid4())),
    ):
        stamp = stamp.replace(word, value)
    return replace(migration, sql=f"{fill(migration.sql).rstrip()}\n\n{stamp}")
