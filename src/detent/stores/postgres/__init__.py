"""The store on a PostgreSQL database."""

from __future__ import annotations

from detent.stores.postgres.store import PostgresStore, connect

__all__ = ["PostgresStore", "connect"]
