"""A few threads that read, each with its own connection."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from detent.stores.sqlite.connection import open_reader
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.patience import READ_S
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.threads import Threads

P = ParamSpec("P")
T = TypeVar("T")
READERS: Final = 4
_STEPS: Final = 100_000
"""Instructions of SQLite between two looks at the clock: some milliseconds."""


class Pool:
    """Runs read functions beside the event loop, each inside a transaction of its own."""

    def __init__(self, path: Path, limit_s: float = READ_S) -> None:
        self._path = path
        self._limit_s = limit_s
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._threads = Threads(READERS, "detent-sqlite-reader")

    async def read(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """What the function finds, at one moment."""
        return await self._threads.run(lambda: self._at_one_moment(function, *args, **kwargs))

    def close(self) -> None:
        """Wait for what is being read, then close every connection."""
        self._threads.close()
        for connection in self._opened:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        """The connection of this thread, opened when it is first needed."""
        if not hasattr(self._own, "connection"):
            self._own.connection = open_reader(self._path)
            self._own.connection.set_progress_handler(self._is_late, _STEPS)
            self._opened.append(self._own.connection)
        connection: sqlite3.Connection = self._own.connection
        return connection

    def _is_late(self) -> bool:
        """SQLite asks this now and then, and gives up when it is true."""
        return time.monotonic() > float(self._own.until)

    def _at_one_moment(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        try:
            self._own.until = time.monotonic() + self._limit_s
            connection = self._connection()
            connection.execute(SQL["begin_read"])
            try:
                return function(connection, *args, **kwargs)
            finally:
                connection.execute(SQL["rollback"])
        except sqlite3.Error as error:
            raise translated(error) from error
