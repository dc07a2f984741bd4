"""Units: judged by the fences against what is stored, then handed over to be written."""

from __future__ import annotations

import sqlite3

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, Lease
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.workflow import Flow
from detent.stores import api
from detent.stores.api import Key, New, Outcome, Record, Unique, Unit, key_of
from detent.stores.judging import Judge
from detent.stores.legal import is_storable
from detent.stores.sqlite.known import Known
from detent.stores.sqlite.pending import Head, Pending
from detent.stores.sqlite.plain import Plain
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.writing import Writing

_ENDED = frozenset(state.value for state in ENDED)
COMMITTED = api.Committed()
_encode = msgspec.json.Encoder().encode


class Units(Judge):
    """Commits the units of one transaction. What it answers holds once the transaction does."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        pending: Pending,
        known: Known,
        writing: Writing,
        *,
        is_careful: bool,
    ) -> None:
        self._is_trusting = not is_careful
        self._connection = connection
        self._pending = pending
        self._known = known
        self._writing = writing
        self._plain = Plain(pending, known, writing)

    def commit(self, unit: Unit, now: int) -> Outcome:
        """Judge all of the unit, then write all of it, or answer why nothing is written."""
        if self._is_trusting and self._plain.take(unit):
            return COMMITTED
        refused = self.refused(unit, now)
        if refused is None:
            self._writing.write(unit, now)
        return refused or COMMITTED

    # --- what is stored -------------------------------------------------------------------------

    def head(self, key: Key) -> Head | None:
        return self._known.head(key)

    def job(self, key: Key) -> Job:
        return self._known.job(self._known.must(key).seq)

    def is_own(self, unit: Unit, key: Key) -> bool:
        return self._known.has_moved(key, unit.command_id)

    def wire_lease(self, lease: str) -> Lease:
        return self._known.wire_lease(lease)

    def worker_lease(self, worker: str) -> Lease:
        return self._known.worker_lease(worker)

    def flow(self, key: Key) -> Flow | None:
        return self._known.flow(key)

    def record_of(self, name: api.Named) -> tuple[Record | None, str]:
        return self._known.record(name)

    def has_ended(self, key: Key) -> bool:
        return self._known.must(key).state in _ENDED

    # --- what must be the only one of its kind --------------------------------------------------

    def _taken(self, unit: Unit, new: New, now: int) -> Outcome | None:
        # An id that was made for this very command: should it be taken, the table says so.
        is_made = self._is_trusting and unit.command_id == new.job.id
        if is_made and new.idempotency is None and new.unique is None:
            return None
        return super()._taken(unit, new, now)

    def promised(self, name: Key, now: int) -> tuple[str, Job] | None:
        self._pending.flush()
        found = self._connection.execute(SQL["idempotency_find"], (*name, now)).fetchone()
        return None if found is None else (found[1], self._known.job(found[0]))

    def oldest(self, unit: Unit, new: New, unique: Unique) -> Job | None:
        self._pending.flush()
        where = (new.job.tenant, unique.fingerprint)
        since = unique.since or 0
        moved = {self._known.must(key_of(move.job)).seq: move.job for move in unit.moves}
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
        return self._known.job(min(counting)[1]) if counting else None

    def _holders(
        self, where: tuple[str, str], state: str, since: int, limit: int
    ) -> list[tuple[int, int]]:
        values = (*where, str.__str__(state), since, limit)
        return self._connection.execute(SQL["unique_holders"], values).fetchall()

    # --- what no store may hold -----------------------------------------------------------------

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """What the tables cannot see by themselves; undeclared moves and second ends they can."""
        return None if self._is_sound(unit) else super()._illegal(unit)

    def _is_sound(self, unit: Unit) -> bool:
        """Cheap, and sure when it says yes."""
        if unit.flow is not None or unit.puts or unit.gates or unit.limits:
            return False
        if len(unit.moves) + len(unit.new) != 1:
            jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
            if len(jobs) != len({(job.tenant, job.id) for job in jobs}):
                return False
        # JSON cannot hide a NUL and cannot be made of a broken text, and is made in no time.
        if b"\\u0000" in _encode(unit) and not is_storable(unit):
            return False
        return all(self._follows(m.job, m.events, m.version) for m in unit.moves) and all(
            new.events
            and new.job.workflow is new.job.step is None
            and self._follows(new.job, new.events, 0)
            for new in unit.new
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
