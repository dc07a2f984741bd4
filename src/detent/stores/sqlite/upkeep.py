"""What the clock, the workers and the operators change: due jobs, beats, leases, gates, logs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple, replace

from detent.lifecycle.job import Job, Lease
from detent.lifecycle.job.table import PARKED
from detent.stores.api import (
    Due,
    Key,
    Line,
    Note,
    Record,
    Stored,
    WorkerRow,
    name_of,
)
from detent.stores.gates import behind
from detent.stores.legal import is_storable
from detent.stores.sqlite.claim import let_in
from detent.stores.sqlite.transaction import Transaction, gate_of, stored_at
from detent.stores.sqlite.workers import row_of


def take_due(tx: Transaction, now: int, limit: int, until: int) -> list[Due]:
    """What is due, first what lost its worker or its step; nobody else gets it before `until`."""
    let_in(tx)
    lost = tx.execute("lost_due", now, limit).fetchall()
    swept = tx.execute("swept_due", now, limit).fetchall()
    if not lost:
        tx.execute("lost_emptied")
    if not swept:
        tx.execute("swept_emptied")
    since_ever = [seq for *_, seq in sorted({*lost, *swept})]
    due = [seq for (seq,) in tx.execute("due", now, limit)]
    chosen = list(dict.fromkeys([*since_ever, *due]))[:limit]
    tx.execute_many("due_hold", [(until, seq) for seq in chosen])
    found = stored_at(tx.connection, chosen)
    handed = [(s, until) for s, one in zip(chosen, found, strict=True) if _may_be_since_ever(one)]
    tx.execute_many("hand", handed)
    return [_due(tx, stored) for stored in found]


def _may_be_since_ever(stored: Stored) -> bool:
    """Whether it may lose its worker or its step while it is handed out: then it is due at once."""
    job = stored.job
    return job.step is not None or (job.lease is not None and not job.wire)


def _due(tx: Transaction, stored: Stored) -> Due:
    job = stored.job
    lease = tx.units.row_behind(job)
    holder = _lost_holder(tx, job, lease)
    gate = gate_of(tx.connection, job.tenant, job.queue, stored.body.type)
    if job.workflow is None or job.step is None:
        return Due(stored, lease, gate, holder=holder)
    flow = tx.known.flow_of(job.tenant, job.workflow)
    is_swept = tx.execute("is_swept", job.tenant, job.step).fetchone()[0] > 0
    gate = behind(job, flow, gate)
    return Due(stored, lease, gate, is_swept and job.state in PARKED, holder)


def _lost_holder(tx: Transaction, job: Job, lease: Lease | None) -> WorkerRow | None:
    """The row of the instance that has the job, if it is marked lost."""
    if lease is None or job.wire or not lease.lost:
        return None
    return row_of(tx, job.holder or "")


def take_due_records(tx: Transaction, now: int, limit: int, until: int) -> list[Record]:
    """The small records that are due; nobody else gets them before `until`."""
    due = [Record(*row) for row in tx.execute("records_due", now, limit)]
    tx.execute_many("record_hold", [(until, *name_of(record)) for record in due])
    return [replace(record, wake_at=until) for record in due]


def note(tx: Transaction, notes: Sequence[tuple[Key, str, Note]]) -> list[bool]:
    """Keep what the holders say."""
    return [_note(tx, *one) for one in notes]


def _note(tx: Transaction, key: Key, lease: str, said: Note) -> bool:
    head = tx.known.head(key) if is_storable((key, lease, said)) else None
    if head is None or head.lease != lease:
        return False
    tx.pending.add_row("note_put", (head.seq, *astuple(said)))
    return True


def extend(tx: Transaction, leases: Sequence[tuple[str, int]]) -> list[bool]:
    """Move the ends of those that have a row."""
    return [_extend(tx, lease, until) for lease, until in leases]


def _extend(tx: Transaction, lease: str, until: int) -> bool:
    """An end that comes earlier than anybody would look makes the job due earlier."""
    found = tx.execute("lease_extend", until, lease).fetchall() if is_storable(lease) else []
    for (seq,) in found:
        tx.execute("wake_earlier", until, seq, until)
    return bool(found)


def append_logs(tx: Transaction, lines: Sequence[tuple[Key, Line]]) -> list[int]:
    """The cursor of each line; 0 where it cannot be kept."""
    return [_append(tx, key, line) for key, line in lines]


def _append(tx: Transaction, key: Key, line: Line) -> int:
    head = tx.known.head(key) if is_storable((key, line)) else None
    if head is None or head.erased_at is not None:
        return 0
    cursor = tx.pending.next_cursor(head.seq)
    tx.pending.add("log_insert", head.seq, cursor, line.at, line.level, line.text)
    return cursor
