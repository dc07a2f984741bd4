"""A PostgreSQL database as a store: `postgresql://user:password@host/name`."""

from __future__ import annotations

from detent.stores.postgres.migrate import pending_migrations, run_migrations
from detent.stores.postgres.store import PostgresStore, connect

__all__ = ["PostgresStore", "connect", "pending_migrations", "run_migrations"]
