"""One SQLite file as a store: `sqlite:///absolute/path` or `sqlite:relative/path`."""

from __future__ import annotations

from detent.stores.sqlite.migrate import pending_migrations, run_migrations
from detent.stores.sqlite.place import path_of
from detent.stores.sqlite.store import SqliteStore, connect

__all__ = ["SqliteStore", "connect", "path_of", "pending_migrations", "run_migrations"]
