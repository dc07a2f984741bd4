"""What the clock, the workers and the operators change: due jobs, beats, leases, gates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import astuple, replace

from detent.lifecycle.job import OPEN, Gate, Job, Lease
from detent.lifecycle.job.table import PARKED
from detent.lifecycle.workflow import Flow
from detent.stores.api import Due, Key, Note, Record, Stored, WorkerRow
from detent.stores.fences import MISSING
from detent.stores.gates import behind
from detent.stores.legal import is_storable
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.flowing import read_flows
from detent.stores.postgres.rows import stored_of
from detent.stores.postgres.workers import named

_TALLIES_MAX: Final = 1_000
_BESIDE: Final = 10
"""How many columns of a due row follow those of the job."""


async def take_due(connection: Connection, now: int, limit: int, until: int) -> list[Due]:
    """What is due, first what lost its worker or its step; nobody else gets it before `until`."""
    rows = await connection.fetch("take_due", now=now, most=limit, until=until)
    if not rows:
        await connection.fetch("lost_emptied")
        await connection.fetch("swept_emptied")
    read = [(stored_of(row), row[-_BESIDE:]) for row in rows]
    jobs = [stored.job for stored, _ in read]
    keys = {(job.tenant, job.workflow) for job in jobs if job.workflow is not None}
    flows = await read_flows(connection, keys)
    due = [_due(replace(stored, wake_at=until), flows, *beside) for stored, beside in read]
    return await _with_holders(connection, due)


async def _with_holders(connection: Connection, due: Sequence[Due]) -> list[Due]:
    """The same; those in lost hands with the rows of these."""
    lost = {one.stored.job.holder or "" for one in due if _is_in_lost_hands(one)}
    rows = await named(connection, lost)
    return [_with_holder(one, rows) if _is_in_lost_hands(one) else one for one in due]


def _with_holder(due: Due, rows: Mapping[str, WorkerRow]) -> Due:
    return replace(due, holder=rows.get(due.stored.job.holder or ""))


def _is_in_lost_hands(due: Due) -> bool:
    return due.lease is not None and due.lease.lost and not due.stored.job.wire


def _due(stored: Stored, flows: Mapping[Key, Flow], *beside: Any) -> Due:
    """The row as it is once it is handed out, with everything that `tick` asks about it."""
    alive_until, lost, lease_until, *gates, swept = beside
    job = stored.job
    worker = MISSING if alive_until is None else Lease(alive_until, bool(lost))
    wire = MISSING if lease_until is None else Lease(lease_until)
    flow = flows.get((job.tenant, job.workflow or ""))
    gate = behind(job, flow, _gate(*gates[:3]), _gate(*gates[3:]))
    return Due(stored, _lease(job, worker, wire), gate, swept > 0 and job.state in PARKED)


def _lease(job: Job, worker: Lease, wire: Lease) -> Lease | None:
    if job.lease is None:
        return None
    return wire if job.wire else worker


def _gate(closed: bool | None, opened_at: int | None, queue_deleted: bool | None) -> Gate:
    return OPEN if closed is None else Gate(closed, opened_at, bool(queue_deleted))


async def take_due_records(
    connection: Connection, now: int, limit: int, until: int
) -> list[Record]:
    """The small records that are due; nobody else gets them before `until`."""
    rows = await connection.fetch("take_due_records", now=now, most=limit, until=until)
    return [Record(*row) for row in rows]


async def note(connection: Connection, notes: Sequence[tuple[Key, str, Note]]) -> list[bool]:
    """Keep what the holders say; the newest counts."""
    kept = [number for number, one in enumerate(notes) if is_storable(one)]
    if not kept:
        return [False] * len(notes)
    rows = [(*notes[n][0], notes[n][1], *astuple(notes[n][2])) for n in kept]
    async with connection.transaction():
        told = columns(("tenants", "ids", "leases"), [row[:3] for row in rows])
        held = {kept[number - 1] for (number,) in await connection.fetch("holding", **told)}
        names = ("tenants", "ids", "leases", "ats", "attempts", "percents", "texts")
        await connection.fetch("notes_put", **columns(names, rows))
    return [number in held for number in range(len(notes))]


async def fold(connection: Connection) -> None:
    """Replace the tallies of many transactions by their sums, when they have become many."""
    row = await connection.fetch_row("tallies_many", most=_TALLIES_MAX)
    if row is not None and row[0] >= _TALLIES_MAX:
        await connection.fetch("tallies_folded")


async def extend(connection: Connection, leases: Sequence[tuple[str, int]]) -> list[bool]:
    """Move the ends of those that have a row."""
    newest = {lease: until for lease, until in leases if is_storable(lease)}
    rows = await connection.fetch("extend", **columns(("leases", "untils"), newest.items()))
    alive = {lease for (lease,) in rows}
    return [lease in alive for lease, _ in leases]
