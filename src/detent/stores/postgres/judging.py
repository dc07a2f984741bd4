"""The fences: what is stored is asked for under locks, then every unit is judged against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from detent.lifecycle.job import Job, Lease
from detent.stores import api
from detent.stores.api import Key, Move, New, Outcome, Unique, Unit, key_of
from detent.stores.legal import fault
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.rows import JOB_END, job_of

__all__ = ["MISSING", "Head", "Judge"]

MISSING: Final = Lease(0, lost=True)
"""A row that is not there counts as lost."""
_EVER: Final = -(2**63)


class Head(msgspec.Struct, frozen=True):
    """A stored job, with what a fence and a move ask about it."""

    job: Job
    lane: int | None
    fingerprint: str | None


class _Candidate(msgspec.Struct, frozen=True, order=True):
    """A job that may stand in the way of a unique one; the oldest comes first."""

    created_at: int
    seq: int
    key: Key


class Judge:
    """Judges units that do not ask about each other, inside one transaction."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self.heads: dict[Key, Head] = {}
        self._own: set[tuple[str, Key]] = set()
        self._leases: dict[str, Lease] = {}
        self._workers: dict[str, Lease] = {}
        self._promised: dict[tuple[str, str], tuple[str, Job]] = {}
        self._counting: defaultdict[int, list[tuple[_Candidate, Job]]] = defaultdict(list)

    async def outcomes(self, units: Sequence[Unit]) -> list[Outcome | None]:
        """Why each may not be committed, or `None` if nothing speaks against it."""
        await self._lock_keys(units)
        await self._ask_heads(units)
        await self._ask_own(units)
        await self._ask_rows(units)
        await self._ask_promises(units)
        await self._ask_counting(units)
        return [self._refused(unit) for unit in units]

    # --- asking -------------------------------------------------------------------------------

    async def _lock_keys(self, units: Sequence[Unit]) -> None:
        """Who wants the same fingerprint or key waits here, so that of many exactly one gets it."""
        wanted: list[tuple[str, str, str]] = []
        for new in _news(units):
            if new.unique is not None:
                wanted.append(("unique", new.job.tenant, new.unique.fingerprint))
            if new.idempotency is not None:
                wanted.append(("idempotency", new.job.tenant, new.idempotency.key))
        if wanted:
            await self._connection.fetch("keys_locked", keys=[_lock_number(one) for one in wanted])

    async def _ask_heads(self, units: Sequence[Unit]) -> None:
        jobs = [move.job for unit in units for move in unit.moves]
        jobs += [new.job for new in _news(units)]
        keys = {key_of(job) for job in jobs}
        if not keys:
            return
        rows = await self._connection.fetch("heads", **columns(("tenants", "ids"), keys))
        for row in rows:
            head = Head(job_of(row), row[JOB_END], row[JOB_END + 1])
            self.heads[key_of(head.job)] = head

    async def _ask_own(self, units: Sequence[Unit]) -> None:
        """Which of the refused were committed before: their command stands in the history."""
        asked: list[tuple[str, Key]] = []
        for unit in units:
            keys = [key_of(move.job) for move in unit.moves if not self._fits(move)]
            keys += [key_of(new.job) for new in unit.new]
            asked += [(unit.command_id, key) for key in keys if key in self.heads]
        if not asked:
            return
        rows = [(number, *key, command) for number, (command, key) in enumerate(asked)]
        names = ("numbers", "tenants", "records", "commands")
        found = await self._connection.fetch("own", **columns(names, rows))
        self._own = {asked[number] for (number,) in found}

    async def _ask_rows(self, units: Sequence[Unit]) -> None:
        """The rows behind leases, only where a move relies on one."""
        leases, workers = set(), set()
        for move in (move for unit in units for move in unit.moves):
            head = self.heads.get(key_of(move.job))
            if move.lost and head is not None and head.job.lease is not None:
                if head.job.wire:
                    leases.add(head.job.lease)
                else:
                    workers.add(head.job.holder or "")
            if move.taken_by is not None:
                workers.add(move.taken_by)
        if leases:
            rows = await self._connection.fetch("leases_locked", leases=list(leases))
            self._leases = {lease: Lease(until) for lease, until in rows}
        if workers:
            rows = await self._connection.fetch("workers_shared", workers=list(workers))
            self._workers = {id_: Lease(until, bool(lost)) for id_, until, lost in rows}

    async def _ask_promises(self, units: Sequence[Unit]) -> None:
        asked = [(new.job.tenant, one.key) for new in _news(units) if (one := new.idempotency)]
        if not asked:
            return
        told = columns(("tenants", "keys"), asked)
        for row in await self._connection.fetch("promised", **told, now=self._now):
            self._promised[row[0], row[1]] = (row[2], job_of(row[3:]))

    async def _ask_counting(self, units: Sequence[Unit]) -> None:
        """The oldest of each fingerprint and state, one more than the unit itself moves."""
        rows, numbers = [], {}
        for unit in units:
            for new in unit.new:
                if new.unique is not None:
                    number = numbers[id(new)] = len(numbers)
                    since = _EVER if new.unique.since is None else new.unique.since
                    where = (number, new.job.tenant, new.unique.fingerprint)
                    most = len(unit.moves) + 1
                    rows += [(*where, str(state), since, most) for state in new.unique.states]
        if not numbers:
            return
        names = ("numbers", "tenants", "fingerprints", "states", "sinces", "mosts")
        found: dict[int, list[tuple[_Candidate, Job]]] = defaultdict(list)
        for number, seq, *row in await self._connection.fetch("counting", **columns(names, rows)):
            job = job_of(row)
            found[number].append((_Candidate(job.created_at, seq, key_of(job)), job))
        self._counting.update({key: found[number] for key, number in numbers.items()})

    # --- judging ------------------------------------------------------------------------------

    def _refused(self, unit: Unit) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move)
            if fenced is not None:
                return fenced
        for new in unit.new:
            taken = self._taken(unit, new)
            if taken is not None:
                return taken
        why = fault(unit, self._has_ended, lambda _: None)
        return None if why is None else api.Rejected(why)

    def _has_ended(self, key: Key) -> bool:
        return self.heads[key].job.ended_at is not None

    def _fits(self, move: Move) -> bool:
        head = self.heads.get(key_of(move.job))
        if head is None:
            return False
        return head.job.version == move.version and move.lease in (None, head.job.lease)

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        if self._fits(move):
            return None
        key = key_of(move.job)
        if (unit.command_id, key) in self._own:
            return api.Own()
        head = self.heads.get(key)
        return api.Stale(key, None if head is None else head.job)

    def _fenced_by_row(self, move: Move) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself was locked and read."""
        key = key_of(move.job)
        if move.lost:
            job = self.heads[key].job
            row = self._row_behind(job)
            if row is not None and not (row.lost or (job.wire and row.until <= self._now)):
                return api.LeaseAlive(key, row)
        if move.taken_by is not None:
            row = self._workers.get(move.taken_by, MISSING)
            if row.lost or row.until <= self._now:
                return api.LeaseAlive(key, row)
        return None

    def _row_behind(self, job: Job) -> Lease | None:
        if job.lease is None:
            return None
        if job.wire:
            return self._leases.get(job.lease, MISSING)
        return self._workers.get(job.holder or "", MISSING)

    def _taken(self, unit: Unit, new: New) -> Outcome | None:
        key = key_of(new.job)
        head = self.heads.get(key)
        if head is not None:
            own = (unit.command_id, key) in self._own
            return api.Own() if own else api.Taken("id", head.job)
        if new.idempotency is not None:
            promised = self._promised.get((new.job.tenant, new.idempotency.key))
            if promised is not None:
                digest, job = promised
                return api.Taken("idempotency", job, differs=digest != new.idempotency.digest)
        return None if new.unique is None else self._not_unique(unit, new, new.unique)

    def _not_unique(self, unit: Unit, new: New, unique: Unique) -> api.Taken | None:
        """The oldest job of this fingerprint that counts after the moves of this very unit."""
        moved = {key_of(move.job): move.job for move in unit.moves}
        counting = [
            (candidate, job)
            for candidate, job in self._counting[id(new)]
            if candidate.key not in moved or moved[candidate.key].state in unique.states
        ]
        for key, job in moved.items():
            head = self.heads[key]
            if job.state in unique.states and self._enters(head, new, unique):
                counting.append((_Candidate(head.job.created_at, 0, key), head.job))
        return api.Taken("unique", min(counting)[1]) if counting else None

    def _enters(self, head: Head, new: New, unique: Unique) -> bool:
        """Whether a job that counts after its move did not count before it."""
        same = (head.job.tenant, head.fingerprint) == (new.job.tenant, unique.fingerprint)
        in_time = unique.since is None or head.job.created_at >= unique.since
        return same and in_time and head.job.state not in unique.states


def _news(units: Sequence[Unit]) -> Iterable[New]:
    return [new for unit in units for new in unit.new]


def _lock_number(name: tuple[str, str, str]) -> int:
    return int.from_bytes(sha256(msgspec.json.encode(name)).digest()[:8], signed=True)
