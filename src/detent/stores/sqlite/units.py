"""Units: judged by the fences against what is stored, then handed over to be written."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED
from detent.stores import api, flows
from detent.stores.api import Idempotency, Key, Move, New, Outcome, Unique, Unit, key_of, name_of
from detent.stores.fences import is_alive, is_over
from detent.stores.legal import fault, is_storable
from detent.stores.siblings import Siblings
from detent.stores.sqlite.known import Known
from detent.stores.sqlite.pending import Pending
from detent.stores.sqlite.plain import Plain
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.writing import Writing

__all__ = ["COMMITTED", "Units"]

_ENDED = frozenset(state.value for state in ENDED)
COMMITTED = api.Committed()
_encode = msgspec.json.Encoder().encode


class Units:
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
        refused = self._refused(unit, now)
        if refused is None:
            self._writing.write(unit, now)
        return refused or COMMITTED

    # --- the fences ---------------------------------------------------------------------------

    def _refused(self, unit: Unit, now: int) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        refused = self._flow_fenced(unit) or self._puts_fenced(unit)
        return refused or self._any_taken(unit, now) or self._illegal(unit)

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        key = (move.job.tenant, move.job.id)
        head = self._known.head(key)
        if head is None:
            return api.Stale(key, None)
        if head.version == move.version and move.lease in (None, head.lease):
            return None
        if self._known.has_moved(key, unit.command_id):
            return api.Own()
        return api.Stale(key, self._known.job(head.seq))

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        if not move.lost and move.taken_by is None:
            return None
        key = (move.job.tenant, move.job.id)
        if move.lost:
            head = self._known.must(key)
            row = self._known.lease_of(head.lease, head.wire, head.holder)
            if row is not None and not is_over(row, wire=bool(head.wire), now=now):
                return api.LeaseAlive(key, row)
        if move.taken_by is not None:
            row = self._known.worker_lease(move.taken_by)
            if not is_alive(row, now):
                return api.LeaseAlive(key, row)
        return None

    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        """Every version of the workflow and its steps that the decision was made on."""
        if unit.flow is None:
            return None
        key = key_of(unit.flow.answer.flow.workflow)
        stored = self._known.flow(key)
        if not flows.is_stale(unit.flow, stored):
            return None
        steps = [] if stored is None else [(key[0], step) for step in stored.steps]
        born = [key_of(new.job) for new in unit.new]
        is_own = self._has_moved(unit, [key, *steps, *born])
        return api.Own() if is_own else api.StaleFlow(key, stored)

    def _has_moved(self, unit: Unit, keys: Sequence[Key]) -> bool:
        """What came with the unit tells that it was committed, whatever went on since."""
        return any(self._known.has_moved(key, unit.command_id) for key in keys)

    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        for record in unit.puts:
            stored, command_id = self._known.record(name_of(record))
            if record.version == (stored.version if stored else 0) + 1:
                continue
            is_own = stored and (stored.version, command_id) == (record.version, unit.command_id)
            is_own = is_own or self._has_moved(unit, [key_of(new.job) for new in unit.new])
            return api.Own() if is_own else api.StaleRecord(record, stored)
        return None

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
        # An id that was made for this very command: should it be taken, the table says so.
        is_made = self._is_trusting and unit.command_id == new.job.id
        head = None if is_made else self._known.head(key)
        if head is not None:
            is_own = self._known.has_moved(key, unit.command_id)
            return api.Own() if is_own else api.Taken("id", self._known.job(head.seq))
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
        differs = found[1] != asked.digest
        return api.Taken("idempotency", self._known.job(found[0]), differs=differs)

    def _not_unique(self, unit: Unit, new: New, unique: Unique) -> api.Taken | None:
        """The oldest job of this fingerprint that counts after the moves of this very unit."""
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
        return api.Taken("unique", self._known.job(min(counting)[1])) if counting else None

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
        why = fault(unit, lambda key: self._known.must(key).state in _ENDED, self._known.flow)
        return None if why is None else api.Rejected(why)

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
