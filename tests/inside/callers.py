"""Somebody's own transaction, through every driver that is promised: one small class each.

All of them speak the same words, so that one test holds for all. Those that block live in a thread
of their own, as they would in a program with several of them.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Protocol, TypeVar

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from detent.stores.api import Outcome, Unit
from detent.stores.inside import acomplete, aenqueue, complete, enqueue

T = TypeVar("T")


class Caller(Protocol):
    """A connection of somebody who has tables of their own beside ours."""

    async def open(self, url: str) -> None: ...
    async def begin(self) -> None: ...
    async def run(self, statement: str) -> None: ...
    async def enqueue(self, unit: Unit, now: int) -> Outcome: ...
    async def complete(self, unit: Unit, now: int) -> Outcome: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def close(self) -> None: ...


class _Threaded:
    """Whatever blocks does so in one thread, and nobody else has to wait."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self.connection: Any = None

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *args))

    async def open(self, url: str) -> None:
        self.connection = await self._do(self._open, url)

    def _open(self, url: str) -> Any:
        raise NotImplementedError

    async def begin(self) -> None:
        """Those that begin by themselves have nothing to do."""

    async def run(self, statement: str) -> None:
        await self._do(self.connection.execute, statement)

    async def enqueue(self, unit: Unit, now: int) -> Outcome:
        return await self._do(enqueue, self.connection, unit, now)

    async def complete(self, unit: Unit, now: int) -> Outcome:
        return await self._do(complete, self.connection, unit, now)

    async def commit(self) -> None:
        await self._do(self.connection.commit)

    async def rollback(self) -> None:
        await self._do(self.connection.rollback)

    async def close(self) -> None:
        await self._do(self.connection.close)
        self._thread.shutdown()


class Sqlite3(_Threaded):
    def _open(self, url: str) -> Any:
        return sqlite3.connect(url.removeprefix("sqlite://"))


class Sqlite3ByHand(Sqlite3):
    """Who begins by hand, at once for writing."""

    def _open(self, url: str) -> Any:
        return sqlite3.connect(url.removeprefix("sqlite://"), isolation_level=None)

    async def begin(self) -> None:
        await self.run("BEGIN IMMEDIATE")


class Psycopg(_Threaded):
    def _open(self, url: str) -> Any:
        return psycopg.connect(url)


class Alchemy(_Threaded):
    """A connection of SQLAlchemy; `dialect` says through what."""

    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect
        self._engine: Any = None

    def _open(self, url: str) -> Any:
        self._engine = sqlalchemy.create_engine(_through(self._dialect, url))
        return self._engine.connect()

    async def run(self, statement: str) -> None:
        await self._do(self.connection.execute, sqlalchemy.text(statement))

    async def close(self) -> None:
        await self._do(self.connection.close)
        await self._do(self._engine.dispose)
        self._thread.shutdown()


class AlchemySession(Alchemy):
    def _open(self, url: str) -> Any:
        self._engine = sqlalchemy.create_engine(_through(self._dialect, url))
        return Session(self._engine)


class Django(_Threaded):
    """Django's own connection, inside `atomic`."""

    def _open(self, url: str) -> Any:
        if not settings.configured:
            settings.configure(DATABASES={})
            django.setup()
        self._alias = f"of {url}"
        connections.databases[self._alias] = connections.configure_settings(
            {"default": {}, self._alias: _django_settings(url)}
        )[self._alias]
        return connections[self._alias]

    async def begin(self) -> None:
        self._atomic = transaction.atomic(using=self._alias)
        await self._do(self._atomic.__enter__)

    async def run(self, statement: str) -> None:
        await self._do(self._run, statement)

    def _run(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)

    async def commit(self) -> None:
        await self._do(self._atomic.__exit__, None, None, None)

    async def rollback(self) -> None:
        await self._do(transaction.set_rollback, True, self._alias)
        await self._do(self._atomic.__exit__, None, None, None)

    async def close(self) -> None:
        # A connection that is inside `atomic` does not let itself be closed twice or forgotten.
        self.connection.in_atomic_block = False
        await super().close()


class _Awaited:
    """Whatever is awaited."""

    def __init__(self) -> None:
        self.connection: Any = None

    async def begin(self) -> None:
        """Those that begin by themselves have nothing to do."""

    async def run(self, statement: str) -> None:
        await self.connection.execute(statement)

    async def enqueue(self, unit: Unit, now: int) -> Outcome:
        return await aenqueue(self.connection, unit, now)

    async def complete(self, unit: Unit, now: int) -> Outcome:
        return await acomplete(self.connection, unit, now)

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()


class PsycopgAsync(_Awaited):
    async def open(self, url: str) -> None:
        self.connection = await psycopg.AsyncConnection.connect(url)


class Asyncpg(_Awaited):
    async def open(self, url: str) -> None:
        self.connection = await asyncpg.connect(url)

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class AsyncpgPool(Asyncpg):
    """What a pool of asyncpg hands out is no connection, but looks like one."""

    async def open(self, url: str) -> None:
        self._stack = AsyncExitStack()
        pool = await self._stack.enter_async_context(asyncpg.create_pool(url, min_size=1))
        self.connection = await self._stack.enter_async_context(pool.acquire())

    async def close(self) -> None:
        await self._stack.aclose()


class AlchemyAsync(_Awaited):
    def __init__(self, dialect: str) -> None:
        super().__init__()
        self._dialect = dialect

    async def open(self, url: str) -> None:
        self._engine = create_async_engine(_through(self._dialect, url))
        self.connection = await self._connected()

    async def _connected(self) -> Any:
        return await self._engine.connect()

    async def run(self, statement: str) -> None:
        await self.connection.execute(sqlalchemy.text(statement))

    async def close(self) -> None:
        await self.connection.close()
        await self._engine.dispose()


class AlchemySessionAsync(AlchemyAsync):
    async def _connected(self) -> Any:
        return AsyncSession(self._engine)


def _through(dialect: str, url: str) -> str:
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite":
        return f"{dialect}:///{rest.removeprefix('//')}"
    return f"{dialect}:{rest}"


def _django_settings(url: str) -> dict[str, Any]:
    if url.startswith("sqlite:"):
        name = url.removeprefix("sqlite://")
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": name}
    facts = psycopg.conninfo.conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": facts["dbname"],
        "USER": facts.get("user", ""),
        "HOST": facts.get("host", ""),
        "PORT": facts.get("port", ""),
        "PASSWORD": facts.get("password", ""),
    }


CALLERS: dict[str, tuple[str, Callable[[], Caller]]] = {
    "sqlite3": ("sqlite", Sqlite3),
    "sqlite3 by hand": ("sqlite", Sqlite3ByHand),
    "sqlalchemy, sqlite": ("sqlite", lambda: Alchemy("sqlite")),
    "sqlalchemy session, sqlite": ("sqlite", lambda: AlchemySession("sqlite")),
    "sqlalchemy async, aiosqlite": ("sqlite", lambda: AlchemyAsync("sqlite+aiosqlite")),
    "sqlalchemy async session, aiosqlite": (
        "sqlite",
        lambda: AlchemySessionAsync("sqlite+aiosqlite"),
    ),
    "django, sqlite": ("sqlite", Django),
    "psycopg": ("postgresql", Psycopg),
    "psycopg async": ("postgresql", PsycopgAsync),
    "asyncpg": ("postgresql", Asyncpg),
    "asyncpg pool": ("postgresql", AsyncpgPool),
    "sqlalchemy, psycopg": ("postgresql", lambda: Alchemy("postgresql+psycopg")),
    "sqlalchemy session, psycopg": ("postgresql", lambda: AlchemySession("postgresql+psycopg")),
    "sqlalchemy async, psycopg": ("postgresql", lambda: AlchemyAsync("postgresql+psycopg")),
    "sqlalchemy async session, psycopg": (
        "postgresql",
        lambda: AlchemySessionAsync("postgresql+psycopg"),
    ),
    "sqlalchemy async, asyncpg": ("postgresql", lambda: AlchemyAsync("postgresql+asyncpg")),
    "sqlalchemy async session, asyncpg": (
        "postgresql",
        lambda: AlchemySessionAsync("postgresql+asyncpg"),
    ),
    "django, postgresql": ("postgresql", Django),
}
"""Every way in, by a name of its own: the database it leads to, and who goes it."""
