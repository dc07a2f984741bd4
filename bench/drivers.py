"""asyncpg beside psycopg 3 on the shapes that the PostgreSQL store sends, on a server of their own.

Both speak to the same server over the same socket, with prepared statements, in binary where the
driver can. The server keeps its promises (fsync is on), as it would for a user.
"""

from __future__ import annotations

import asyncio
import atexit
import re
from collections.abc import Awaitable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
import psycopg

from bench.measure import Bench, Case
from tools.postgres import Server

__all__ = ["bench"]

T = TypeVar("T")
NOW = 1_700_000_000_000_000
BATCHES = (1, 100, 1_000)
STEP = 100
BACKLOG = 60_000
_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Driver(Protocol):
    """One connection: rows of a statement with numbered parameters."""

    def run(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        """Execute, commit, and fetch everything."""


class Asyncpg:
    """asyncpg, which is asynchronous only."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection: Any = self._wait(asyncpg.connect(url))

    def _wait(self, asked: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asked)

    def run(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        rows: Sequence[Sequence[Any]] = self._wait(self._connection.fetch(sql, *values))
        return rows


class AsyncPsycopg:
    """psycopg in an event loop."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        opening = psycopg.AsyncConnection.connect(url, autocommit=True)
        self._connection = self._loop.run_until_complete(opening)
        self._cursor = psycopg.AsyncRawCursor(self._connection)

    def run(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        return self._loop.run_until_complete(self._run(sql, values))

    async def _run(self, sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        await self._cursor.execute(sql, values, prepare=True, binary=True)
        return await self._cursor.fetchall() if self._cursor.description else ()


class Psycopg:
    """psycopg without a loop."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._cursor = psycopg.RawCursor(self._connection)

    def run(self, sql: str, *values: Any) -> Sequence[Sequence[Any]]:
        self._cursor.execute(sql, values, prepare=True, binary=True)
        return self._cursor.fetchall() if self._cursor.description else ()


class Life:
    """Pushes and steps through one driver, in a database of its own."""

    def __init__(self, driver: Driver, sql: dict[str, str]) -> None:
        self._driver = driver
        self._sql = sql
        self._numbers = count(1)
        self._active: list[tuple[str, str]] = []

    def push(self, number: int) -> None:
        """New jobs with their first event, in one commit."""
        numbers = [next(self._numbers) for _ in range(number)]
        ids = [f"{one:032}" for one in numbers]
        times, payloads = [NOW] * number, ['["somebody@example.org"]'] * number
        self._driver.run(self._sql["push"], ids, numbers, times, payloads)

    def step(self) -> None:
        """Complete what was claimed, claim as many again, in one commit."""
        leases = [f"lease-{next(self._numbers)}" for _ in range(STEP)]
        ids, held = zip(*self._active, strict=True) if self._active else ((), ())
        rows = self._driver.run(self._sql["step"], [*ids], [*held], NOW, STEP, leases)
        assert len(rows) == STEP, "the backlog is used up"
        self._active = [(row[0], row[6]) for row in rows]


def bench() -> Bench:
    """The same lives through three drivers."""
    server = Server(shared_buffers="512MB")
    atexit.register(server.close)
    _, *parts = _NAME.split(Path(__file__).with_suffix(".sql").read_text("utf-8"))
    sql = dict(zip(parts[::2], parts[1::2], strict=True))
    lives = {one.__name__: _life(server, one, sql) for one in (Asyncpg, AsyncPsycopg, Psycopg)}
    cases = [
        Case(f"insert {number} per commit: {name}", f"life.push({number})", {"life": life}, number)
        for number in BATCHES
        for name, life in lives.items()
    ]
    for name, life in lives.items():
        life.push(BACKLOG)
        cases.append(
            Case(f"complete and claim {STEP}: {name}", "life.step()", {"life": life}, STEP)
        )
    return Bench(tuple(cases))


def _life(server: Server, driver: Any, sql: dict[str, str]) -> Life:
    name = driver.__name__.lower()
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute(sql["tables"])
    return Life(driver(server.url(name)), sql)
