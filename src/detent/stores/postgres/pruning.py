"""Forgetting: ended jobs that a rule lets go, and workflows that have none left."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from detent.stores.api import Key, Retention
from detent.stores.bounds import AGAIN_US, TURNS_US
from detent.stores.legal import is_storable
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection


async def prune(connection: Connection, rules: Sequence[Retention], now: int, limit: int) -> int:
    """How many jobs went; the oldest ends first."""
    rules = [rule for rule in rules if is_storable(rule)]
    async with connection.transaction():
        await connection.fetch("may_forget")
        row = await connection.fetch_row("sealed")
        sealed = 0 if row is None else row[0]
        found: set[tuple[int, str, str]] = set()
        for rule in rules:
            rows = await connection.fetch("over", **asdict(rule), sealed=sealed, most=limit)
            found.update((ended_at, tenant, id_) for ended_at, tenant, id_ in rows)
        keys = [(tenant, id_) for _, tenant, id_ in sorted(found)[:limit]]
        # Something may have happened to one before it was locked; what happened is seen only now.
        told = columns(("tenants", "ids"), keys)
        rows = await connection.fetch("still_over", **told, sealed=sealed) if keys else []
        gone = [(tenant, id_) for tenant, id_ in rows]
        await _forget_jobs(connection, gone)
        await _forget_workflows(connection, rules, sealed, limit)
        await connection.fetch("forget_promises", now=now, most=limit)
        await connection.fetch("forget_turns", before=now - TURNS_US, most=limit)
    return len(gone)


async def _forget_jobs(connection: Connection, gone: Sequence[Key]) -> None:
    if gone:
        await connection.fetch("forget_jobs", **columns(("tenants", "ids"), gone))
        await forget_events(connection, gone)


async def _forget_workflows(
    connection: Connection, rules: Sequence[Retention], sealed: int, limit: int
) -> None:
    """An ended workflow goes when it has no jobs left and is older than some rule asks for."""
    found: set[Key] = set()
    for rule in rules:
        told = {"before": rule.before, "tenant": rule.tenant, "sealed": sealed, "most": limit}
        rows = await connection.fetch("empty_workflows", **told)
        found.update((tenant, id_) for tenant, id_ in rows)
    gone = sorted(found)[:limit]
    if gone:
        rows = await connection.fetch("forget_workflows", **columns(("tenants", "ids"), gone))
        keys = [*gone, *((tenant, id_) for tenant, id_ in rows)]
        await forget_events(connection, keys)


async def forget_events(connection: Connection, gone: Sequence[Key]) -> None:
    """First the events: the tables ask by their positions whether they are sealed."""
    told = columns(("tenants", "records"), gone)
    await connection.fetch("forget_events", **told)
    await connection.fetch("forget_positions", **told)


async def forget_results(connection: Connection, now: int, limit: int) -> int:
    """How many results went: all whose time is up, but for what a workflow may still ask for."""
    told = {"now": now, "most": limit, "again": now + AGAIN_US}
    row = await connection.fetch_row("forget_results", **told)
    return 0 if row is None else int(row[0])
