"""Gates and limits: how they are set, inside a transaction of whoever asks."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from detent.stores.api import GateRow, LimitRow
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection

_NAMES = ("tenants", "kinds", "names")


async def put_gates(connection: Connection, gates: Sequence[GateRow]) -> None:
    """The newest word about each gate."""
    newest = {(row.tenant, row.kind.value, row.name): row.gate for row in gates}
    rows = [(*key, one.closed, one.opened_at, one.queue_deleted) for key, one in newest.items()]
    if rows:
        names = (*_NAMES, "closed", "opened_at", "deleted")
        await connection.fetch("gates_put", **columns(names, rows))


async def put_limits(connection: Connection, rows: Sequence[LimitRow]) -> None:
    """The newest word about each limit; what was used of it stays used."""
    newest = {(row.tenant, row.kind.value, row.name): row.limit for row in rows}
    lifted = [name for name, limit in newest.items() if limit is None]
    kept = [(*name, *astuple(limit)) for name, limit in newest.items() if limit is not None]
    if lifted:
        await connection.fetch("limits_dropped", **columns(_NAMES, lifted))
    if kept:
        more = ("concurrencies", "rates", "periods", "spacings")
        await connection.fetch("limits_put", **columns((*_NAMES, *more), kept))
