"""What the clock, the workers and the operators change: due jobs, beats, leases, gates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from detent.lifecycle.job import OPEN, Gate, Job, Lease
from detent.stores.api import Due, GateRow, WorkerRow
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.judging import MISSING
from detent.stores.postgres.rows import stored_of

__all__ = ["beat", "declare_lost", "extend", "fold", "set_gates", "take_due"]

_TALLIES_MAX: Final = 1_000
_BESIDE: Final = 8
"""How many columns of a due row follow those of the job."""


async def take_due(connection: Connection, now: int, limit: int, until: int) -> list[Due]:
    """What is due, first the jobs of lost workers; nobody else gets them before `until`."""
    rows = await connection.fetch("take_due", now=now, most=limit, until=until)
    if not rows:
        await connection.fetch("lost_emptied")
    return [_due(row, until) for row in rows]


def _due(row: Sequence[Any], until: int) -> Due:
    alive_until, lost, lease_until, *gates = row[-_BESIDE:]
    stored = stored_of(row)
    # The row was read as it stood before it was handed out.
    handed = type(stored)(stored.job, stored.body, until, stored.result, stored.failures)
    worker = MISSING if alive_until is None else Lease(alive_until, bool(lost))
    wire = MISSING if lease_until is None else Lease(lease_until)
    return Due(handed, _lease(stored.job, worker, wire), _gate(*gates))


def _lease(job: Job, worker: Lease, wire: Lease) -> Lease | None:
    if job.lease is None:
        return None
    return wire if job.wire else worker


def _gate(
    queue_closed: bool | None,
    queue_opened_at: int | None,
    queue_deleted: bool | None,
    type_closed: bool | None,
    type_opened_at: int | None,
) -> Gate:
    """The gates of a queue and of a type, as the one that a job of both stands behind."""
    if queue_closed is None and type_closed is None:
        return OPEN
    opened = [at for at in (queue_opened_at, type_opened_at) if at is not None]
    closed = bool(queue_closed) or bool(type_closed)
    return Gate(closed, max(opened, default=None), bool(queue_deleted))


async def fold(connection: Connection) -> None:
    """Replace the tallies of many transactions by their sums, when they have become many."""
    row = await connection.fetch_row("tallies_many", most=_TALLIES_MAX)
    if row is not None and row[0] >= _TALLIES_MAX:
        await connection.fetch("tallies_folded")


async def beat(connection: Connection, workers: Sequence[WorkerRow]) -> list[bool]:
    """Renew all that are not lost."""
    newest = {worker.id: worker.alive_until for worker in workers}
    rows = await connection.fetch("beat", **columns(("workers", "untils"), newest.items()))
    alive = {name for (name,) in rows}
    return [worker.id in alive for worker in workers]


async def declare_lost(connection: Connection, workers: Sequence[str], now: int) -> list[bool]:
    """Mark those whose time is over; what is unknown or marked already is lost as well."""
    rows = await connection.fetch("declare_lost", workers=list(workers), now=now)
    alive = {name for (name,) in rows}
    return [worker not in alive for worker in workers]


async def extend(connection: Connection, leases: Sequence[tuple[str, int]]) -> list[bool]:
    """Move the ends of those that have a row."""
    newest = dict(leases)
    rows = await connection.fetch("extend", **columns(("leases", "untils"), newest.items()))
    alive = {lease for (lease,) in rows}
    return [lease in alive for lease, _ in leases]


async def set_gates(connection: Connection, gates: Sequence[GateRow]) -> None:
    """The newest word about each gate."""
    newest = {(row.tenant, row.kind.value, row.name): row.gate for row in gates}
    rows = [(*key, one.closed, one.opened_at, one.queue_deleted) for key, one in newest.items()]
    names = ("tenants", "kinds", "names", "closed", "opened_at", "deleted")
    await connection.fetch("gates_put", **columns(names, rows))
