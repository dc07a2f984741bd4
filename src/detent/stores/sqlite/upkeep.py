"""What the clock, the workers and the operators change: due jobs, beats, leases, gates, logs."""

from __future__ import annotations

from collections.abc import Sequence

from detent.stores.api import Due, GateRow, Key, Line, Stored, WorkerRow
from detent.stores.legal import is_storable
from detent.stores.sqlite.transaction import Transaction, gate_of, stored_at

__all__ = ["append_logs", "beat", "declare_lost", "extend", "set_gates", "take_due"]


def take_due(tx: Transaction, now: int, limit: int, until: int) -> list[Due]:
    """What is due, first the jobs of lost workers; nobody else gets them before `until`."""
    lost = [seq for (seq,) in tx.execute("lost_due", now, limit)]
    due = [seq for (seq,) in tx.execute("due", now, limit)]
    if not lost:
        tx.execute("lost_emptied")
    chosen = list(dict.fromkeys([*lost, *due]))[:limit]
    tx.execute_many("due_hold", [(until, seq) for seq in chosen])
    tx.execute_many("hand", [(seq, until) for seq in chosen if seq in set(lost)])
    return [_due(tx, stored) for stored in stored_at(tx.connection, chosen)]


def _due(tx: Transaction, stored: Stored) -> Due:
    job = stored.job
    lease = tx.units.lease_of(job.lease, job.wire, job.holder)
    return Due(stored, lease, gate_of(tx.connection, job.tenant, job.queue, stored.body.type))


def beat(tx: Transaction, workers: Sequence[WorkerRow]) -> list[bool]:
    """Renew all that are not lost."""
    answers = []
    for worker in workers:
        found = tx.execute("worker", worker.id).fetchone()
        alive = found is None or not found[1]
        if alive:
            tx.execute("worker_put", worker.id, worker.alive_until)
        answers.append(alive)
    return answers


def declare_lost(tx: Transaction, workers: Sequence[str], now: int) -> list[bool]:
    """Mark those whose time is over; what is unknown or marked already is lost as well."""
    answers = []
    for worker in workers:
        found = tx.execute("worker", worker).fetchone()
        over = found is None or bool(found[1]) or found[0] <= now
        if over and found is not None and not found[1]:
            tx.execute("worker_lose", worker)
        answers.append(over)
    return answers


def extend(tx: Transaction, leases: Sequence[tuple[str, int]]) -> list[bool]:
    """Move the ends of those that have a row."""
    return [_extend(tx, lease, until) for lease, until in leases]


def _extend(tx: Transaction, lease: str, until: int) -> bool:
    """An end that comes earlier than anybody would look makes the job due earlier."""
    found = tx.execute("lease_extend", until, lease).fetchall() if is_storable(lease) else []
    for (seq,) in found:
        tx.execute("wake_earlier", until, seq, until)
    return bool(found)


def set_gates(tx: Transaction, gates: Sequence[GateRow]) -> None:
    """The newest word about each gate; whoever waits for jobs looks again."""
    for row in gates:
        gate = row.gate
        values = (gate.closed, gate.opened_at, gate.queue_deleted)
        tx.execute("gate_put", row.tenant, str(row.kind), row.name, *values)
    tx.may_be_claimable = True


def append_logs(tx: Transaction, lines: Sequence[tuple[Key, Line]]) -> list[int]:
    """The cursor of each line; 0 where there is no such job or no real text."""
    return [_append(tx, key, line) for key, line in lines]


def _append(tx: Transaction, key: Key, line: Line) -> int:
    found = tx.units.seq_of(key) if is_storable((key, line)) else None
    if found is None:
        return 0
    cursor = tx.pending.next_cursor(found)
    tx.pending.add("log_insert", found, cursor, line.at, line.level, line.text)
    return cursor
