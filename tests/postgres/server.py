"""Databases for tests: one server per test process, and a clean store in it for every folder.

The server is started when it is first needed and ends with the process. Copying a database takes a
third of a second on a busy machine, so a few are used in turns, cleaned before they are used again.
`DETENT_TEST_POSTGRES_URL` names a server to be used instead.
"""

from __future__ import annotations

import atexit
import os
from collections import deque
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from detent import stores
from tools.postgres import QUICK, Server

_KEPT = 8
_CLEAN = (Path(__file__).parent / "clean.sql").read_text("utf-8")


class Databases:
    """Clean databases on one server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = psycopg.connect(url, autocommit=True)
        self._prefix = f"detent_test_{os.getpid()}"
        self._numbers = 0
        self._made: deque[str] = deque()
        self._kept: list[str] = []
        self._template = self._make(None)
        stores.run_migrations(self.address(self._template))

    def of(self, folder: Path) -> str:
        """The address of the database that belongs to this folder."""
        # The names of folders come back; what stands in them does not.
        note = folder / "database"
        if not note.exists():
            note.write_text(self._next(), "utf-8")
        return self.address(note.read_text("utf-8"))

    def kept(self) -> str:
        """The address of a clean one for somebody who stays: nobody else ever gets it."""
        self._kept.append(self._make(self._template))
        return self.address(self._kept[-1])

    def _next(self) -> str:
        """A clean database: a new one, or the one that has not been used for longest."""
        if len(self._made) < _KEPT:
            name = self._make(self._template)
        else:
            name = self._made.popleft()
            with psycopg.connect(self.address(name), autocommit=True) as connection:
                connection.execute(_CLEAN)
        self._made.append(name)
        return name

    def empty(self) -> str:
        """The address of a database in which there is nothing yet."""
        return self.address(self._make(None))

    def address(self, name: str) -> str:
        """The address of a database by its name."""
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def close(self) -> None:
        """Leave nothing behind on a server that is not ours."""
        for name in (*self._made, *self._kept, self._template):
            self._drop(name)
        self._admin.close()

    def _make(self, template: str | None) -> str:
        self._numbers += 1
        name = f"{self._prefix}_{self._numbers}"
        copied = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
            sql.Identifier(name), sql.Identifier(template or "template0")
        )
        # Since PostgreSQL 15 the quick way to copy must be asked for.
        quick = sql.SQL(" STRATEGY FILE_COPY" if self._admin.info.server_version >= 150_000 else "")
        self._admin.execute(copied + quick)
        return name

    def _drop(self, name: str) -> None:
        forced = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
        self._admin.execute(forced)


@cache
def databases() -> Databases:
    """The databases of this process."""
    url = os.environ.get("DETENT_TEST_POSTGRES_URL")
    if url is None:
        server = Server(**QUICK, wal_level="minimal", max_wal_senders="0")
        atexit.register(server.close)
        url = server.url("postgres")
    made = Databases(url)
    atexit.register(made.close)
    return made
