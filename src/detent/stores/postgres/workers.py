"""Worker instances: who is trusted, who is gone, and what happened to each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detent.lifecycle.worker import Instance
from detent.stores.api import Death, Key, Life, WorkerRow
from detent.stores.legal import is_storable
from detent.stores.postgres import arrays
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.pruning import forget_events
from detent.stores.worker_rows import beat_row, death_text, instance_of, life_row, worker_of
from detent.stores.workers import LATE_US, is_believed, newest

_BEAT = ("workers", "untils", "states", "whos", "renewing")
_LIFE = ("tenants", "ids", "slots", "versions", "states", "ended", "records", "fences")


async def beat(connection: Connection, workers: Sequence[WorkerRow], now: int) -> list[bool]:
    """Renew all that are not gone."""
    told = columns(_BEAT, map(beat_row, newest(workers).values()))
    alive = {name for (name,) in await connection.fetch("beat", **told, now=now, late=LATE_US)}
    return [worker.id in alive for worker in workers]


async def declare_lost(connection: Connection, workers: Sequence[str], now: int) -> list[bool]:
    """Mark those whose time is over; what is unknown or marked already is lost as well."""
    rows = await connection.fetch("declare_lost", workers=list(workers), now=now)
    alive = {name for (name,) in rows}
    return [worker not in alive for worker in workers]


async def bury(connection: Connection, deaths: Sequence[Death], now: int) -> list[bool]:
    """Mark those whose end somebody knows of."""
    async with connection.transaction():
        rows = await connection.fetch("workers_locked", workers=[one.id for one in deaths])
        alive = {row.id: row for row in map(worker_of, rows) if not row.lost}
        over: dict[str, Death] = {}
        answers = []
        for death in deaths:
            is_new = death.id in alive and death.id not in over
            if is_new and is_believed(alive[death.id].who, death):
                over[death.id] = death
            answers.append(death.id not in alive or death.id in over)
        told = [(name, death_text(death)) for name, death in over.items()]
        await connection.fetch("bury", **columns(("workers", "deaths"), told), now=now)
    return answers


async def named(connection: Connection, workers: Collection[str]) -> dict[str, WorkerRow]:
    """The rows of these instances by id."""
    if not workers:
        return {}
    rows = await connection.fetch("workers_named", workers=list(workers))
    return {row.id: row for row in map(worker_of, rows)}


async def ship(connection: Connection, lives: Sequence[Life]) -> list[bool]:
    """Write down what happened to those that are at the version it goes on from."""
    async with connection.transaction():
        told = columns(_LIFE, [(*life_row(life), life.version) for life in lives])
        taken = {(tenant, id_) for tenant, id_ in await connection.fetch("ship", **told)}
        kept = [(life.instance.tenant, life.instance.id) in taken for life in lives]
        some = [life for life, is_kept in zip(lives, kept, strict=True) if is_kept]
        events = [event for life in some for event in life.events]
        await connection.fetch("record", **arrays.recorded(events))
    return kept


async def forget(connection: Connection, before: int, limit: int) -> int:
    """Rows that nobody needs any more, and histories that are sealed; how many."""
    async with connection.transaction():
        await connection.fetch("may_forget")
        rows = await connection.fetch("forget_workers", before=before, most=limit)
        sealed = await connection.fetch_row("sealed")
        told = {"before": before, "sealed": sealed[0] if sealed else 0, "most": limit}
        keys = [(tenant, id_) for tenant, id_ in await connection.fetch("instances_over", **told)]
        await connection.fetch("forget_instances", **columns(("tenants", "ids"), keys))
        await forget_events(connection, keys)
    return len(rows) + len(keys)


async def overdue(connection: Connection, now: int, limit: int) -> list[WorkerRow]:
    """Worker instances that did not renew in time."""
    return [worker_of(row) for row in await connection.fetch("overdue", now=now, most=limit)]


async def listed(connection: Connection, limit: int, gone: bool) -> list[WorkerRow]:
    """Worker instances that are not gone, or those that are."""
    rows = await connection.fetch("workers_gone" if gone else "workers", most=limit)
    return [worker_of(row) for row in rows]


async def instances(connection: Connection, keys: Sequence[Key]) -> list[Instance | None]:
    """The instances of these keys, in order."""
    asked = [key for key in dict.fromkeys(keys) if is_storable(key)]
    rows = await connection.fetch("instances", **columns(("tenants", "ids"), asked))
    found = {(one.tenant, one.id): one for one in (instance_of(*row) for row in rows)}
    return [found.get(key) for key in keys]


async def find_instances(
    connection: Connection, slot: str | None, after: Key | None, limit: int
) -> list[Instance]:
    """Those of a slot, or all, by tenant and id."""
    if not is_storable((slot, after)):
        return []
    first, last = after or ("", "")
    told = {"slot": slot, "after_tenant": first, "after_id": last}
    return [
        instance_of(*row)
        for row in await connection.fetch("instances_found", **told, most=max(limit, 0))
    ]
