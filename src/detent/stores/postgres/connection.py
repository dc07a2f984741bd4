"""One connection: named statements in, rows out, transactions that end either way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from detent.stores.postgres.address import Address
from detent.stores.postgres.connecting import CONNECT_S, connect
from detent.stores.postgres.statements import SQL

ANSWER_S: Final = 30.0
"""How long one statement may take before it is called off."""
LOCK_MS: Final = 2_000
"""How long a step waits for what somebody else has locked."""
IDLE_MS: Final = 10_000
"""How long the server waits for the next statement of a transaction before it ends it."""
_STATEMENTS: Final = 200
_SETTINGS: Final = {
    # A plan that was made while the tables were empty would walk through them when they are full.
    "enable_seqscan": "off",
    # Both read all that fits before anything is left out, however little is wanted.
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    # Nobody's open transaction holds up a whole step for longer than this.
    "lock_timeout": str(LOCK_MS),
    # Whoever is stopped or cut off in the middle does not keep what it has locked for ever.
    "idle_in_transaction_session_timeout": str(IDLE_MS),
    # Compiling a statement takes longer than all of our executions of it.
    "jit": "off",
}

Row = Sequence[Any]
"""One row: a record of the driver, which is a sequence in all but its type."""


class Connection:
    """A connection of the driver that knows our statements by their names."""

    def __init__(self, driver: asyncpg.Connection[asyncpg.Record], *, is_pooled: bool) -> None:
        self.driver = driver
        self._is_pooled = is_pooled
        self._is_inside = False

    async def fetch(self, statement: str, /, **told: Any) -> list[Row]:
        """The rows of a named statement. Outside a transaction it is one of its own."""
        return await self.send(statement, SQL[statement].values(told))

    async def send(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """The same for somebody who has the values in their order."""
        if self._is_pooled and not self._is_inside:
            async with self.transaction():
                return await self.send(statement, values)
        rows: list[Any] = await self.driver.fetch(SQL[statement].text, *values)
        return rows

    async def fetch_row(self, statement: str, /, **told: Any) -> Row | None:
        """The first row, if there is any."""
        rows = await self.fetch(statement, **told)
        return rows[0] if rows else None

    async def run(self, statement: str, answer_s: float | None = None) -> None:
        """A statement without parameters and rows; it may take as long as any, or longer."""
        await self.driver.execute(SQL[statement].text, timeout=answer_s)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """All that happens inside is committed together, or rolled back when it fails."""
        # Behind a pooler settings live as long as a transaction, so each one brings them along.
        await self.run("begin_pooled" if self._is_pooled else "begin")
        self._is_inside = True
        try:
            yield
        except Exception:
            if not self.driver.is_closed():
                await self.run("rollback")
            raise
        else:
            await self.run("commit")
        finally:
            self._is_inside = False

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


async def open_connection(
    address: Address,
    url: str | None = None,
    *,
    name: str = "detent",
    answer_s: float | None = ANSWER_S,
) -> Connection:
    """A new connection; behind a pooler it brings no settings, for poolers refuse them.

    A statement on it may take so long, or if nothing is said, as long as it takes.
    """
    settings = {
        "command_timeout": answer_s,
        "statement_cache_size": _STATEMENTS if address.prepare else 0,
        # Our longest statements are longer than what is kept by default.
        "max_cacheable_statement_size": 0,
        "server_settings": {} if address.pgbouncer else {"application_name": name, **_SETTINGS},
    }
    driver = await connect(url or address.url, settings)
    return Connection(driver, is_pooled=address.pgbouncer)
