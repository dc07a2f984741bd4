"""A store, a table of somebody else's beside ours, and callers with transactions of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Coroutine
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import psycopg

from detent import stores
from detent.engine.verify import Verification
from detent.stores.api import Outcome, Unit
from tests.contract.making import Clock
from tests.contract.world import Session, World
from tests.inside.callers import CALLERS, Caller
from tests.postgres.server import databases

_TABLE = (
    "DROP TABLE IF EXISTS orders",
    "CREATE TABLE orders (what text)",
)
BOTH = {
    "sqlite": "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM detent_jobs)",
    "postgresql": "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM detent.jobs)",
}


class Yard:
    """One store and the callers beside it; what they leave open is closed."""

    def __init__(self, way: str, folder: Path) -> None:
        self.way = way
        self.database = CALLERS[way][0]
        self.url = url_of(self.database, folder)
        clock = Clock()
        self.session = Session(stores.open(self.url, clock=clock), clock)
        self._left = AsyncExitStack()
        for statement in _TABLE:
            self.ask(statement)

    @property
    def world(self) -> World:
        return self.session.world

    async def caller(self) -> Caller:
        """Somebody with a connection of their own."""
        caller = CALLERS[self.way][1]()
        await caller.open(self.url)
        self._left.push_async_callback(caller.close)
        return caller

    async def run(self, test: Coroutine[Any, Any, None]) -> None:
        """The test, and the end of everybody it has brought along."""
        async with self._left:
            await test

    async def put(self, caller: Caller, unit: Unit) -> Outcome:
        """A row of the caller's and a unit of ours."""
        await caller.run("INSERT INTO orders (what) VALUES ('a')")
        return await caller.enqueue(unit, self.world.now)

    def ask(self, statement: str) -> list[Any]:
        """What anybody else sees, of our tables and of theirs."""
        if self.database == "sqlite":
            path = self.url.removeprefix("sqlite://")
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                return connection.execute(statement).fetchall()
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> tuple[int, int]:
        """How many rows there are of the caller's and how many jobs, at one moment."""
        [(orders, jobs)] = self.ask(BOTH[self.database])
        return orders, jobs

    async def verify(self) -> None:
        """Whatever was done, `detent verify` finds nothing."""
        found = [one async for one in Verification(self.world.store).findings()]
        assert found == []
        await self.world.audit()

    def close(self) -> None:
        """The store goes last."""
        self.session.close()


def url_of(database: str, folder: Path) -> str:
    """The address of a store in this folder, or that belongs to it."""
    return f"sqlite://{folder}/jobs.db" if database == "sqlite" else databases().of(folder)
