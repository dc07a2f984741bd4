"""The fences: what is stored is asked for under locks, then every unit is judged against it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from detent.lifecycle.job import Job, Lease
from detent.lifecycle.workflow import Flow
from detent.stores import flows, judging
from detent.stores.api import Key, Move, Named, New, Outcome, Record, Unique, Unit, key_of, name_of
from detent.stores.fences import MISSING
from detent.stores.legal import is_storable
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.flowing import Flows, read_flows
from detent.stores.postgres.rows import JOB_END, job_of
from detent.stores.postgres.sorting import flow_keys

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


class Judge(judging.Judge):
    """Judges units that do not ask about each other, inside one transaction."""

    def __init__(self, connection: Connection, now: int) -> None:
        self._connection = connection
        self._now = now
        self.heads: dict[Key, Head] = {}
        self._own: set[tuple[str, Key]] = set()
        self._leases: dict[str, Lease] = {}
        self._workers: dict[str, Lease] = {}
        self._promises: dict[tuple[str, str], tuple[str, Job]] = {}
        self.flows = Flows({})
        self._records: dict[Named, tuple[Record, str]] = {}
        self._counting: defaultdict[int, list[tuple[_Candidate, Job]]] = defaultdict(list)

    async def outcomes(self, units: Sequence[Unit]) -> list[Outcome | None]:
        """Why each may not be committed, or `None` if nothing speaks against it."""
        asked = units
        units = [unit for unit in units if is_storable(_names(unit))]
        await self._ask_heads(units)
        await self._ask_flows(units)
        await self._ask_records(units)
        await self._ask_own(units)
        await self._ask_rows(units)
        await self._ask_promises(units)
        await self._ask_counting(units)
        return [self.refused(unit, self._now) for unit in asked]

    # --- asking -------------------------------------------------------------------------------

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

    async def _ask_flows(self, units: Sequence[Unit]) -> None:
        keys = {key for unit in units for key in flow_keys(unit)}
        self.flows = Flows(await read_flows(self._connection, keys, lock=True))

    async def _ask_records(self, units: Sequence[Unit]) -> None:
        names = {name_of(record) for unit in units for record in unit.puts}
        if not names:
            return
        told = columns(("kinds", "tenants", "ids"), names)
        for row in await self._connection.fetch("records_locked", **told):
            kind, tenant, id_, version, data, wake_at, command_id = row
            found = Record(kind, id_, version, data, wake_at, tenant)
            self._records[kind, tenant, id_] = (found, command_id)

    async def _ask_own(self, units: Sequence[Unit]) -> None:
        """Which of the refused were committed before: their command stands in the history."""
        asked: list[tuple[str, Key]] = []
        for unit in units:
            keys = [key_of(move.job) for move in unit.moves if not self._fits(move)]
            keys += [key_of(new.job) for new in unit.new]
            asked += [(unit.command_id, key) for key in keys if key in self.heads]
            asked += [(unit.command_id, key) for key in self._flow_records(unit)]
        if not asked:
            return
        rows = [(number, *key, command) for number, (command, key) in enumerate(asked)]
        names = ("numbers", "tenants", "records", "commands")
        found = await self._connection.fetch("own", **columns(names, rows))
        self._own = {asked[number] for (number,) in found}

    def _flow_records(self, unit: Unit) -> list[Key]:
        """The workflow and the steps whose histories tell whether the unit was committed."""
        if unit.flow is None:
            return []
        key = key_of(unit.flow.answer.flow.workflow)
        stored = self.flows.get(key)
        if stored is None or not flows.is_stale(unit.flow, stored):
            return []
        return [key, *((key[0], step) for step in stored.steps)]

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
            self._promises[row[0], row[1]] = (row[2], job_of(row[3:]))

    async def _ask_counting(self, units: Sequence[Unit]) -> None:
        """The oldest of each fingerprint and state, one more than the unit itself moves."""
        rows: list[tuple[object, ...]] = []
        numbers: dict[int, int] = {}
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

    # --- what is stored -----------------------------------------------------------------------

    def head(self, key: Key) -> Job | None:
        return self.heads[key].job if key in self.heads else None

    def job(self, key: Key) -> Job:
        return self.heads[key].job

    def is_own(self, unit: Unit, key: Key) -> bool:
        return (unit.command_id, key) in self._own

    def wire_lease(self, lease: str) -> Lease:
        return self._leases.get(lease, MISSING)

    def worker_lease(self, worker: str) -> Lease:
        return self._workers.get(worker, MISSING)

    def flow(self, key: Key) -> Flow | None:
        return self.flows.get(key)

    def record_of(self, name: Named) -> tuple[Record | None, str]:
        return self._records.get(name, (None, ""))

    def promised(self, name: Key, now: int) -> tuple[str, Job] | None:  # noqa: ARG002
        """Those that have run out were not read."""
        return self._promises.get(name)

    def _fits(self, move: Move) -> bool:
        """Whether nobody needs to ask if the move was made before."""
        job = self.head(key_of(move.job))
        if job is None:
            return False
        return job.version == move.version and move.lease in (None, job.lease)

    def oldest(self, unit: Unit, new: New, unique: Unique) -> Job | None:
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
        return min(counting)[1] if counting else None

    def _enters(self, head: Head, new: New, unique: Unique) -> bool:
        """Whether a job that counts after its move did not count before it."""
        same = (head.job.tenant, head.fingerprint) == (new.job.tenant, unique.fingerprint)
        in_time = unique.since is None or head.job.created_at >= unique.since
        return same and in_time and head.job.state not in unique.states


async def lock(connection: Connection, units: Sequence[Unit], *, is_alone: bool) -> None:
    """Everything that these units may have to wait for, in one order: nobody waits in a circle.

    Who wants the same fingerprint, key or small record waits here, so that of many exactly one
    gets it. Where a judge asks about all of them at once (`is_alone`), its questions lock the rest.
    """
    units = [unit for unit in units if is_storable(_names(unit))]
    wanted = [name for unit in units for name in _claims_of(unit)]
    if wanted:
        await connection.fetch("keys_locked", keys=[_lock_number(one) for one in wanted])
    jobs = {key_of(move.job) for unit in units for move in unit.moves}
    if jobs and not is_alone:
        await connection.fetch("heads", **columns(("tenants", "ids"), jobs))
    keys = {key for unit in units for key in flow_keys(unit)}
    if keys and not is_alone:
        await connection.fetch("workflows_locked", **columns(("tenants", "ids"), keys))


def _claims_of(unit: Unit) -> Iterable[tuple[str, ...]]:
    for new in unit.new:
        if new.unique is not None:
            yield "unique", new.job.tenant, new.unique.fingerprint
        if new.idempotency is not None:
            yield "idempotency", new.job.tenant, new.idempotency.key
    for record in unit.puts:
        yield "record", *name_of(record)
    if unit.flow is not None and unit.flow.before is None:
        yield "workflow", *key_of(unit.flow.answer.flow.workflow)


def _names(unit: Unit) -> tuple[object, ...]:
    """Everything of a unit that is asked about before the unit as a whole is judged."""
    jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
    kept = [(new.unique, new.idempotency) for new in unit.new]
    leases = [(move.lease, move.taken_by) for move in unit.moves]
    names = [(job.tenant, job.id, job.workflow) for job in jobs]
    flow = () if unit.flow is None else key_of(unit.flow.answer.flow.workflow)
    records = [name_of(record) for record in unit.puts]
    return (unit.command_id, *names, *kept, *leases, flow, *records)


def _news(units: Sequence[Unit]) -> Iterable[New]:
    return [new for unit in units for new in unit.new]


def _lock_number(name: tuple[str, ...]) -> int:
    return int.from_bytes(sha256(msgspec.json.encode(name)).digest()[:8], signed=True)
