"""Reading: what is committed, each call one statement, and so one moment."""

from __future__ import annotations

from collections.abc import Sequence

from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.stores.api import Counted, Fed, Key, Logged, Stored
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.rows import event_of, fed_of, logged_of, stored_of
from detent.stores.select import Filter, Page

__all__ = [
    "counts",
    "find",
    "get",
    "held_by",
    "histories",
    "history",
    "keys",
    "leases",
    "log_tail",
    "logs",
]


async def get(connection: Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The jobs of these keys, in order."""
    told = columns(("tenants", "ids"), dict.fromkeys(wanted))
    found = [stored_of(row) for row in await connection.fetch("stored", **told)]
    by_key = {(one.job.tenant, one.job.id): one for one in found}
    return [by_key.get(key) for key in wanted]


async def find(connection: Connection, chosen: Filter, page: Page) -> list[Stored]:
    """The jobs that fit, newest first."""
    rows = await connection.fetch(
        "found",
        tenant=chosen.tenant,
        queue=chosen.queue,
        state=chosen.state,
        type=chosen.type,
        profile=chosen.profile,
        after=page.after,
        most=max(page.limit, 0),
    )
    return [stored_of(row) for row in rows]


async def held_by(connection: Connection, holder: str, limit: int) -> list[Stored]:
    """Jobs in the hands of one holder."""
    rows = await connection.fetch("held_by", holder=holder, most=max(limit, 0))
    return [stored_of(row) for row in rows]


async def counts(connection: Connection, tenant: str | None) -> list[Counted]:
    """Exact numbers by queue and state."""
    return [Counted(*row) for row in await connection.fetch("counts", tenant=tenant)]


async def history(connection: Connection, key: Key) -> list[Event]:
    """All events of a record, oldest first."""
    rows = await connection.fetch("history", tenant=key[0], record=key[1])
    return [event_of(row) for row in rows]


async def histories(connection: Connection, wanted: Sequence[Key]) -> list[list[Fed]]:
    """The histories of these keys, in order, each event at its position."""
    found: list[list[Fed]] = [[] for _ in wanted]
    told = columns(("tenants", "records"), wanted)
    for number, *row in await connection.fetch("histories", **told):
        found[number - 1].append(fed_of(row))
    return found


async def leases(connection: Connection, wanted: Sequence[str]) -> list[Lease | None]:
    """The rows of these wire leases, in order."""
    found = dict(await connection.fetch("leases", leases=list(wanted)))
    return [Lease(found[one]) if one in found else None for one in wanted]


async def logs(connection: Connection, key: Key, after: int, limit: int) -> list[Logged]:
    """The log of a job after a cursor."""
    told = {"tenant": key[0], "id": key[1], "after": after, "most": limit}
    return [logged_of(row) for row in await connection.fetch("logs", **told)]


async def log_tail(connection: Connection, after: int, limit: int) -> list[Logged]:
    """The lines of all jobs after a position."""
    rows = await connection.fetch("log_tail", after=after, most=limit)
    return [logged_of(row) for row in rows]


async def keys(connection: Connection, after: Key, limit: int) -> list[Key]:
    """A page of all keys, in their order."""
    rows = await connection.fetch("keys", tenant=after[0], id=after[1], most=limit)
    return [(tenant, job) for tenant, job in rows]
