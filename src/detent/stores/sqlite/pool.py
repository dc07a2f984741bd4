"""A few threads that read, each with its own connection."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from detent.stores.sqlite.connection import open_reader
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.statements import SQL

__all__ = ["Pool"]

P = ParamSpec("P")
T = TypeVar("T")
READERS: Final = 4


class Pool:
    """Runs read functions beside the event loop, each inside a transaction of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = ThreadPoolExecutor(READERS, "detent-sqlite-reader")

    async def read(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What the function finds, at one moment."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._at_one_moment(function, *args, **kwargs)
        )

    def close(self) -> None:
        """Wait for what is being read, then close every connection."""
        self._threads.shutdown()
        for connection in self._opened:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        """The connection of this thread, opened when it is first needed."""
        if not hasattr(self._own, "connection"):
            self._own.connection = open_reader(self._path)
            self._opened.append(self._own.connection)
        connection: sqlite3.Connection = self._own.connection
        return connection

    def _at_one_moment(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            connection = self._connection()
            connection.execute(SQL["begin_read"])
            try:
                return function(connection, *args, **kwargs)
            finally:
                connection.execute(SQL["rollback"])
        except sqlite3.Error as error:
            raise translated(error) from error
