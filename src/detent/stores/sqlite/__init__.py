"""One SQLite file as a store: `sqlite:///absolute/path` or `sqlite:relative/path`."""

from __future__ import annotations

import time
from collections.abc import Callable

from detent.stores.api import Store
from detent.stores.sqlite.place import path_of
from detent.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "connect"]


def connect(url: str, clock: Callable[[], int] | None = None) -> Store:
    """The store of this file, not opened yet."""
    return SqliteStore(path_of(url), clock or (lambda: time.time_ns() // 1_000))
