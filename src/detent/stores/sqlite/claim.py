"""Claims: the database finds the next jobs in order, the lifecycle decides each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job import Gate, Lease
from detent.stores.api import Claimed, Stored, Want
from detent.stores.legal import is_storable
from detent.stores.sqlite import rows
from detent.stores.sqlite.pending import lane_of
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction, gate_of, stored_at, stored_rows

__all__ = ["claim"]

_Lane = tuple[str, str]
_Candidate = tuple[int, int, str, int]


def claim(tx: Transaction, want: Want, now: int) -> Claimed:
    """As many jobs as there are leases; the same wish again answers the jobs that hold them."""
    tx.pending.flush()
    if not is_storable(want):
        return Claimed()
    alive = tx.units.worker_lease(want.holder)
    if not want.wire and (alive.lost or alive.until <= now):
        return Claimed(lost=True)
    again = _claimed_before(tx, want)
    return Claimed(again or tuple(_Claim(tx, want, now, alive).jobs()))


def _claimed_before(tx: Transaction, want: Want) -> tuple[Stored, ...]:
    """The reply to this very wish was lost: the jobs that hold its leases are the answer."""
    leases = msgspec.json.encode(want.leases).decode()
    found = tx.execute("holding", want.holder, leases, want.tenant).fetchall()
    order = {lease: number for number, lease in enumerate(want.leases)}
    ordered = sorted(found, key=lambda one: order[one[1]])
    return tuple(stored_at(tx.connection, [seq for seq, _ in ordered]))


class _Claim:
    """One wish being granted: its leases are given away from left to right."""

    def __init__(self, tx: Transaction, want: Want, now: int, alive: Lease) -> None:
        self._tx = tx
        self._want = want
        self._now = now
        self._alive = alive
        self._taken: list[Stored] = []

    def jobs(self) -> list[Stored]:
        for queue in dict.fromkeys(self._want.queues):
            if len(self._taken) == len(self._want.leases):
                break
            lanes = self._lanes(queue)
            # All is read before anything is written: nobody walks an index that changes.
            chosen = self._next(queue, lanes)
            found = {row[0]: (row, one) for row, one in stored_rows(self._tx.connection, chosen)}
            for seq in chosen:
                self._decide(*found[seq], lanes)
            self._tx.pending.flush()
        return self._taken

    def _lanes(self, queue: str) -> dict[_Lane, Gate]:
        """The types and profiles that wait in this queue, are wanted, and stand at an open gate."""
        lanes, want, tx = {}, self._want, self._tx
        for kind, profile in tx.execute("lanes", want.tenant, queue).fetchall():
            is_wanted = want.types is None or kind in want.types
            if is_wanted and (want.profiles is None or profile in want.profiles):
                gate = gate_of(tx.connection, want.tenant, queue, kind)
                if not gate.closed and not gate.queue_deleted:
                    lanes[kind, profile] = gate
        return lanes

    def _next(self, queue: str, lanes: dict[_Lane, Gate]) -> list[int]:
        """The next jobs of the queue, its lanes merged into one order."""
        missing = len(self._want.leases) - len(self._taken)
        ordered = merge(*(self._walk(queue, lane) for lane in lanes))
        return [seq for *_, seq in islice(ordered, missing)]

    def _walk(self, queue: str, lane: _Lane) -> Iterator[_Candidate]:
        """The jobs of one lane, best first, as far as somebody asks."""
        values = (self._want.tenant, queue, *lane, self._now)
        return iter(self._tx.connection.execute(SQL["lane"], values))

    def _decide(self, row: Sequence[Any], stored: Stored, lanes: dict[_Lane, Gate]) -> None:
        want = self._want
        gate = lanes[stored.body.type, stored.job.profile]
        lease = want.leases[len(self._taken)]
        command = j.Claim(lease, want.holder, want.wire, want.lease_us)
        ctx = j.Context(want.by, want.command_id, lease=self._alive, gate=gate)
        answer = j.decide(stored.job, command, self._now, ctx)
        if isinstance(answer, j.Accepted):
            self._taken.append(self._write(row, stored, answer))

    def _write(self, row: Sequence[Any], stored: Stored, answer: j.Accepted) -> Stored:
        job, kind, pending, seq = answer.job, stored.body.type, self._tx.pending, row[0]
        wake_at = j.next_wake(job, self._now)
        pending.add_row("job_move", rows.move_row(job, wake_at, seq, stored.job.version))
        for event in answer.events:
            pending.add_row("event_insert", rows.event_row(event))
        if job.wire and job.lease is not None:
            pending.add("lease_put", job.lease, self._now + (job.lease_us or 0), seq)
        if row[-1]:
            pending.add("unique_move", str.__str__(job.state), seq)
        pending.count(lane_of(stored.job, kind), lane_of(job, kind))
        return replace(stored, job=job, wake_at=wake_at)
