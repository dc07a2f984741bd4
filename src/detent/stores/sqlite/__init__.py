"""One SQLite file as a store: `sqlite:///absolute/path` or `sqlite:relative/path`."""

from __future__ import annotations

from detent.stores.sqlite.migrate import migrate, pending
from detent.stores.sqlite.store import SqliteStore, connect

__all__ = ["SqliteStore", "connect", "migrate", "pending"]
