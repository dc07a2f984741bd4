"""One connection: named statements in, rows out, transactions that end either way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from detent.stores.postgres.address import Address
from detent.stores.postgres.statements import SQL

__all__ = ["ANSWER_S", "CONNECT_S", "Connection", "open_connection"]

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""How long one statement may take before it is called off."""
_STATEMENTS: Final = 200
_SETTINGS: Final = {
    "application_name": "detent",
    # A plan that was made while the tables were empty would walk through them when they are full.
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
    # Compiling a statement takes longer than all of our executions of it.
    "jit": "off",
}

Rows = list[asyncpg.Record]


class Connection:
    """A connection of the driver that knows our statements by their names."""

    def __init__(self, driver: asyncpg.Connection[asyncpg.Record]) -> None:
        self.driver = driver

    async def fetch(self, statement: str, /, **told: Any) -> Rows:
        """The rows of a named statement. Outside a transaction it is one of its own."""
        named = SQL[statement]
        return await self.driver.fetch(named.text, *named.values(told))

    async def fetch_row(self, statement: str, /, **told: Any) -> asyncpg.Record | None:
        """The first row, if there is any."""
        rows = await self.fetch(statement, **told)
        return rows[0] if rows else None

    async def run(self, statement: str) -> None:
        """A statement without parameters and rows."""
        await self.driver.execute(SQL[statement].text)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All that happens inside is committed together, or rolled back when it fails."""
        await self.run("begin")
        try:
            yield
        except Exception:
            if not self.driver.is_closed():
                await self.run("rollback")
            raise
        await self.run("commit")

    @asynccontextmanager
    async def savepoint(self) -> AsyncIterator[None]:
        """What fails inside is undone without harm to the transaction around it."""
        await self.run("savepoint")
        try:
            yield
        except Exception:
            if not self.driver.is_closed():
                await self.run("undo")
            raise
        await self.run("release")

    def drop(self) -> None:
        """Give it up at once, whatever it is doing."""
        self.driver.terminate()

    async def close(self) -> None:
        """Say goodbye, if it is still there."""
        if not self.driver.is_closed():
            await self.driver.close(timeout=CONNECT_S)


async def open_connection(address: Address, url: str | None = None) -> Connection:
    """A new connection; behind a pooler it brings no settings, for poolers refuse them."""
    driver = await asyncpg.connect(
        url or address.url,
        timeout=CONNECT_S,
        command_timeout=ANSWER_S,
        statement_cache_size=_STATEMENTS if address.prepare else 0,
        # Our longest statements are longer than what is kept by default.
        max_cacheable_statement_size=0,
        server_settings={} if address.pgbouncer else _SETTINGS,
    )
    return Connection(driver)
