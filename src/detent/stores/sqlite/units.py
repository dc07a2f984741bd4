"""Units: judged by the fences against what is stored, then handed over to be written."""

from __future__ import annotations

import sqlite3

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState, Lease
from detent.lifecycle.job.table import ENDED
from detent.stores import api
from detent.stores.api import Idempotency, Key, Move, New, Outcome, Unique, Unit
from detent.stores.legal import fault, is_storable
from detent.stores.siblings import Siblings
from detent.stores.sqlite import rows
from detent.stores.sqlite.pending import Head, Lane, Pending, head_of, lane_of
from detent.stores.sqlite.statements import SQL

__all__ = ["MISSING", "Units"]

MISSING = Lease(0, lost=True)
"""A row that is not there counts as lost."""
_ENDED = frozenset(state.value for state in ENDED)
_encode = msgspec.json.Encoder().encode


class Units:
    """Commits the units of one transaction. What it answers holds once the transaction does."""

    def __init__(self, connection: sqlite3.Connection, pending: Pending) -> None:
        self._connection = connection
        self._pending = pending
        self.has_made_available = False

    def commit(self, unit: Unit, now: int) -> Outcome:
        """Judge all of the unit, then write all of it, or answer why nothing is written."""
        refused = self._refused(unit, now)
        if refused is not None:
            return refused
        for move in unit.moves:
            self._write_move(move, now)
        for new in unit.new:
            self._write_new(new, now)
        return api.Committed()

    def seq_of(self, key: Key) -> int | None:
        """The row number of a job, if there is one."""
        head = self._head(key)
        return None if head is None else head.seq

    def stored_job(self, seq: int) -> Job:
        """The whole record as it stands in the table."""
        self._pending.flush()
        return rows.job_of(self._connection.execute(SQL["stored_seq"], (seq,)).fetchone())

    # --- the fences ---------------------------------------------------------------------------

    def _refused(self, unit: Unit, now: int) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        return self._any_taken(unit, now) or self._illegal(unit)

    def _head(self, key: Key) -> Head | None:
        found = self._pending.heads.get(key)
        if found is None:
            row = self._connection.execute(SQL["head"], key).fetchone()
            if row is None:
                return None
            found = self._pending.heads[key] = Head._make(row)
        return found

    def _known(self, key: Key) -> Head:
        """The head of a job that has passed the first fence."""
        head = self._head(key)
        if head is None:
            raise LookupError(key)
        return head

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        key = (move.job.tenant, move.job.id)
        head = self._head(key)
        if head is None:
            return api.Stale(key, None)
        if head.version == move.version and move.lease in (None, head.lease):
            return None
        return self._own(unit, key) or api.Stale(key, self.stored_job(head.seq))

    def _own(self, unit: Unit, key: Key) -> api.Own | None:
        self._pending.flush()
        found = self._connection.execute(SQL["is_own"], (*key, unit.command_id)).fetchone()
        return None if found is None else api.Own()

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        if not move.lost and move.taken_by is None:
            return None
        key = (move.job.tenant, move.job.id)
        if move.lost:
            head = self._known(key)
            row = self.lease_of(head.lease, head.wire, head.holder)
            if row is not None and not (row.lost or (head.wire and row.until <= now)):
                return api.LeaseAlive(key, row)
        if move.taken_by is not None:
            row = self.worker_lease(move.taken_by)
            if row.lost or row.until <= now:
                return api.LeaseAlive(key, row)
        return None

    def lease_of(self, lease: str | None, wire: int, holder: str | None) -> Lease | None:
        """The row behind a lease."""
        if lease is None:
            return None
        if not wire:
            return self.worker_lease(holder or "")
        self._pending.flush_leases()
        found = self._connection.execute(SQL["lease"], (lease,)).fetchone()
        return MISSING if found is None else Lease(found[0])

    def worker_lease(self, worker: str) -> Lease:
        """The row of a worker instance."""
        found = self._connection.execute(SQL["worker"], (worker,)).fetchone()
        return MISSING if found is None else Lease(found[0], bool(found[1]))

    # --- what must be the only one of its kind --------------------------------------------------

    def _any_taken(self, unit: Unit, now: int) -> Outcome | None:
        siblings = Siblings() if len(unit.new) > 1 else None
        for new in unit.new:
            taken = self._taken(unit, new, now)
            if siblings is not None:
                taken = siblings.judge(new, taken, now)
            if taken is not None:
                return taken
        return None

    def _taken(self, unit: Unit, new: New, now: int) -> Outcome | None:
        key = (new.job.tenant, new.job.id)
        head = self._head(key)
        if head is not None:
            return self._own(unit, key) or api.Taken("id", self.stored_job(head.seq))
        if new.idempotency is None and new.unique is None:
            return None
        self._pending.flush()
        taken = None if new.idempotency is None else self._promised(new, new.idempotency, now)
        if taken is None and new.unique is not None:
            taken = self._not_unique(unit, new, new.unique)
        return taken

    def _promised(self, new: New, asked: Idempotency, now: int) -> api.Taken | None:
        """An idempotency key that is still alive answers the job it was used for."""
        values = (new.job.tenant, asked.key, now)
        found = self._connection.execute(SQL["idempotency_find"], values).fetchone()
        if found is None:
            return None
        return api.Taken("idempotency", self.stored_job(found[0]), differs=found[1] != asked.digest)

    def _not_unique(self, unit: Unit, new: New, unique: Unique) -> api.Taken | None:
        """The oldest job of this fingerprint that counts after the moves of this very unit."""
        where = (new.job.tenant, unique.fingerprint)
        since = unique.since or 0
        moved = {self._known((m.job.tenant, m.job.id)).seq: m.job for m in unit.moves}
        counting = [
            found
            for state in unique.states
            for found in self._holders(where, state, since, len(moved) + 1)
            if found[1] not in moved
        ]
        for seq, job in moved.items():
            found = self._connection.execute(SQL["unique_of"], (seq, *where, since)).fetchone()
            if found is not None and job.state in unique.states:
                counting.append(found)
        return api.Taken("unique", self.stored_job(min(counting)[1])) if counting else None

    def _holders(
        self, where: tuple[str, str], state: str, since: int, limit: int
    ) -> list[tuple[int, int]]:
        values = (*where, str.__str__(state), since, limit)
        return self._connection.execute(SQL["unique_holders"], values).fetchall()

    # --- what no store may hold -----------------------------------------------------------------

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """What the tables cannot see by themselves; undeclared moves and second ends they can."""
        if self._is_sound(unit):
            return None
        why = fault(unit, lambda key: self._known(key).state in _ENDED)
        return None if why is None else api.Rejected(why)

    def _is_sound(self, unit: Unit) -> bool:
        """Cheap, and sure when it says yes."""
        if len(unit.moves) + len(unit.new) != 1:
            jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
            if len(jobs) != len({(job.tenant, job.id) for job in jobs}):
                return False
        # JSON cannot hide a NUL and cannot be made of a broken text, and is made in no time.
        if b"\\u0000" in _encode(unit) and not is_storable(unit):
            return False
        return all(self._follows(m.job, m.events, m.version) for m in unit.moves) and all(
            new.events and self._follows(new.job, new.events, 0) for new in unit.new
        )

    def _follows(self, job: Job, events: tuple[Event, ...], version: int) -> bool:
        for event in events:
            version += 1
            if event.version != version or event.record != job.id or event.tenant != job.tenant:
                return False
        if job.version != version:
            return False
        head = self._pending.heads.get((job.tenant, job.id))
        return head is None or head.state not in _ENDED

    # --- writing ------------------------------------------------------------------------------

    def _write_move(self, move: Move, now: int) -> None:
        job, pending = move.job, self._pending
        key = (job.tenant, job.id)
        head = self._known(key)
        wake_at = self._in_time(head, move)
        if move.events:
            pending.add_row("job_move", rows.move_row(job, wake_at, head.seq, move.version))
            before = Lane(job.tenant, head.queue, head.state, head.type, job.profile)
            self._moved(key, head, job, now)
            pending.count(before, lane_of(job, head.type))
            self._record(job, move.events)
        else:
            pending.add("job_rearm", wake_at, head.seq, move.version)
        if pending.has_handed:
            pending.add("unhand", head.seq)
        self._write_beside(head.seq, move)

    def _in_time(self, head: Head, move: Move) -> int | None:
        """No later than the end of the wire lease that goes on, which the caller may not know."""
        if not head.wire or head.lease is None or head.lease != move.job.lease:
            return move.wake_at
        row = self.lease_of(head.lease, head.wire, head.holder)
        if row is None or row.lost:
            return move.wake_at
        return row.until if move.wake_at is None else min(move.wake_at, row.until)

    def _moved(self, key: Key, head: Head, job: Job, now: int) -> None:
        self._keep_lease_row(head.seq, head.lease if head.wire else None, job, now)
        if job.lease not in (None, head.lease) and not job.wire:
            # Put into the hands of a lost worker whose hands were empty: somebody must look again.
            self._pending.add("worker_reopen", job.holder)
        if head.is_unique:
            self._pending.add("unique_move", str.__str__(job.state), head.seq)
        self._pending.heads[key] = head_of(head.seq, job, head.type, head.is_unique)

    def _write_beside(self, seq: int, move: Move) -> None:
        pending = self._pending
        if move.result is not None:
            pending.add("result_put", seq, move.result)
        if move.failure is not None:
            pending.add_row("failure_insert", rows.failure_row(seq, move.failure))
        for line in move.lines:
            pending.add("log_insert", seq, pending.next_cursor(seq), line.at, line.level, line.text)

    def _write_new(self, new: New, now: int) -> None:
        job, pending, body = new.job, self._pending, new.body
        seq = pending.next_seq()
        is_unique = int(new.unique is not None)
        row = (seq, *rows.job_row(job), body.type, new.wake_at, is_unique)
        pending.add_row("job_insert", row)
        pending.add_row("body_insert", rows.body_row(seq, body))
        self._record(job, new.events)
        pending.count(None, lane_of(job, body.type))
        self._keep_lease_row(seq, None, job, now)
        self._promise(seq, new)
        pending.heads[job.tenant, job.id] = head_of(seq, job, body.type, is_unique)

    def _promise(self, seq: int, new: New) -> None:
        tenant, pending = new.job.tenant, self._pending
        if new.unique is not None:
            state = str.__str__(new.job.state)
            fingerprint = new.unique.fingerprint
            pending.add("unique_insert", seq, tenant, fingerprint, state, new.job.created_at)
        if new.idempotency is not None:
            asked = new.idempotency
            pending.add("idempotency_put", tenant, asked.key, asked.digest, asked.expires_at, seq)

    def _record(self, job: Job, events: tuple[Event, ...]) -> None:
        for event in events:
            self._pending.add_row("event_insert", rows.event_row(event))
        if job.state is JobState.AVAILABLE:
            self.has_made_available = True

    def _keep_lease_row(self, seq: int, before: str | None, job: Job, now: int) -> None:
        """A wire lease has a row of its own, from the moment it begins until it ends."""
        after = job.lease if job.wire else None
        if before == after:
            return
        if before is not None:
            self._pending.add("lease_end", before)
        if after is not None:
            self._pending.add("lease_put", after, now + (job.lease_us or 0), seq)
