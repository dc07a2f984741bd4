"""Bugs in the rest of the protocol: time, waiting, notes, limits, reading, and torn commits."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle.job import Job
from detent.lifecycle.seal import Block
from detent.stores import api
from detent.stores.api import Due, Key, Record, Stored, Unit, Want, key_of
from detent.stores.memory import MemoryStore
from detent.stores.memory.tables import Tables
from detent.stores.select import FIRST_PAGE, Filter, Page

# --- torn commits ---------------------------------------------------------------------------------


class OneBadUnitStopsTheBatch(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        outcomes: list[api.Outcome] = []
        for unit in units:
            stepped = await super().step([unit], now=now)
            outcomes += stepped.outcomes
            if not isinstance(stepped.outcomes[0], api.Committed):
                return api.Stepped((*outcomes, *outcomes[-1:] * (len(units) - len(outcomes))))
        return replace(await super().step([], now=now, want=want), outcomes=tuple(outcomes))


class TwoClaimersReadBeforeEitherWrites(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        if want is None:
            return await super().step(units, now=now)
        stepped, before = await super().step(units, now=now), dict(self._all.jobs)
        await asyncio.sleep(0)
        later, self._all.jobs = self._all.jobs, before
        claimed = (await super().step([], now=now, want=want)).claimed
        self._all.jobs = later | {key_of(one.job): one for one in claimed.jobs}
        return replace(stepped, claimed=claimed)


class ChecksAndWritesAreTornApart(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        fingerprints, promises = dict(self._all.fingerprints), dict(self._all.promises)
        await asyncio.sleep(0)
        others = self._all.fingerprints, self._all.promises
        self._all.fingerprints, self._all.promises = fingerprints, promises
        stepped = await super().step(units, now=now, want=want)
        self._all.fingerprints = others[0] | self._all.fingerprints
        self._all.promises = others[1] | self._all.promises
        return stepped


# --- time -----------------------------------------------------------------------------------------


class NoSoftLock(MemoryStore):
    def _hand_out(self, key: Key, until: int) -> Due:
        before = self._all.jobs[key]
        due = super()._hand_out(key, until)
        self._all.jobs[key] = before
        del self._all.handed_out[key]
        return due


class OneDueItemTooMany(MemoryStore):
    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        return await super().take_due(now=now, limit=limit + 1, hold_us=hold_us)


class DueGoesById(MemoryStore):
    def _due_since(self, stored: Stored) -> int | None:
        since = super()._due_since(stored)
        return None if since is None or since > self.now() else 0


class JobsOfLostWorkersAreNotDue(MemoryStore):
    def _due_since(self, stored: Stored) -> int | None:
        return 0 if self._all.is_swept(stored.job) else stored.wake_at


class SweptJobsAreDueWithoutAWord(MemoryStore):
    def _hand_out(self, key: Key, until: int) -> Due:
        return replace(super()._hand_out(key, until), swept=False)


class RunningJobsAreSweptToo(Tables):
    def is_swept(self, job: Job) -> bool:
        is_live = job.ended_at is None
        return is_live and (job.tenant, job.workflow or "", job.step or "") in self.swept


class TheLostMayComeBack(MemoryStore):
    async def beat(self, workers: Sequence[api.WorkerRow], *, now: int) -> Sequence[bool]:
        for row in workers:
            self._opened(now).workers.pop(row.id, None)
        return await super().beat(workers, now=now)


class TheLivingAreDeclaredLost(MemoryStore):
    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        known = self._opened(now).workers
        for one in workers:
            if one in known:
                known[one] = replace(known[one], lost=True)
        return await super().declare_lost(workers, now=now)


class EveryClockIsBelieved(MemoryStore):
    def _opened(self, now: int | None = None, rows: Sequence[object] = ()) -> Tables:
        return super()._opened(None, rows)


class SeenIsNotLookedAt(MemoryStore):
    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        return await super().wait(min(timeout_s, 0.01))


# --- small records, notes and limits --------------------------------------------------------------


class DueRecordsGoToEverybody(MemoryStore):
    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        before = dict(self._all.records)
        found = await super().take_due_records(now=now, limit=limit, hold_us=hold_us)
        self._all.records = before
        return found


class TheHoldMovesTheVersion(MemoryStore):
    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        found = await super().take_due_records(now=now, limit=limit, hold_us=hold_us)
        for one in found:
            name = api.name_of(one)
            record, command_id = self._all.records[name]
            self._all.records[name] = (replace(record, version=record.version + 1), command_id)
        return found


class DueRecordsGoByName(MemoryStore):
    async def take_due_records(
        self, *, now: int, limit: int, hold_us: int = 500_000
    ) -> Sequence[Record]:
        found = await super().take_due_records(now=now, limit=limit, hold_us=hold_us)
        return sorted(found, key=api.name_of)


class RecordPagesOverlap(MemoryStore):
    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        found = await super().records(kind, tenant, None, 1_000)
        return [one for one in found if after is None or one.id >= after][:limit]


class RecordsForgetTheirTenant(MemoryStore):
    async def records(
        self, kind: str, tenant: str = "", after: str | None = None, limit: int = 1_000
    ) -> Sequence[Record]:
        found = [record for record, _ in self._all.records.values() if record.kind == kind]
        ordered = sorted(found, key=lambda one: one.id)
        return [one for one in ordered if after is None or one.id > after][:limit]


class NotesAreNotFenced(MemoryStore):
    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        jobs = self._opened(now).jobs
        held = [
            (key, jobs[key].job.lease or "" if key in jobs else lease, note)
            for key, lease, note in notes
        ]
        return await super().note(held, now=now)


class NotesOutliveTheirLease(MemoryStore):
    async def note(self, notes: Sequence[tuple[Key, str, api.Note]], *, now: int) -> Sequence[bool]:
        taken = list(await super().note(notes, now=now))
        for number, (key, lease, said) in enumerate(notes):
            events = self._all.events.get(key, ())
            if not taken[number] and lease and any(fed.event.lease == lease for fed in events):
                self._all.jobs[key] = replace(self._all.jobs[key], note=said)
                taken[number] = True
        return taken


class LiftedLimitsKeepTheirUse(Tables):
    def switch(self, gates: Sequence[api.GateRow], limits: Sequence[api.LimitRow]) -> None:
        used = dict(self.used)
        super().switch(gates, limits)
        self.used |= used


class ChangedLimitsBeginAnew(Tables):
    def switch(self, gates: Sequence[api.GateRow], limits: Sequence[api.LimitRow]) -> None:
        for row in limits:
            self.used.pop((row.tenant, row.kind, row.name), None)
        super().switch(gates, limits)


# --- reading --------------------------------------------------------------------------------------


class CountsDrift(MemoryStore):
    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        found = await super().counts(tenant)
        return [replace(one, count=one.count + (one.state == "cancelled")) for one in found]


class CountsForgetTheQueueAJobMovedTo(MemoryStore):
    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        kept = dict(self._all.jobs)
        for key, stored in kept.items():
            first = self._all.events[key][0].event.queue or ""
            self._all.jobs[key] = replace(stored, job=replace(stored.job, queue=first))
        found = await super().counts(tenant)
        self._all.jobs.update(kept)
        return found


class PagesOverlap(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        found = await super().find(chosen, Page(page.limit + 1, page.after))
        again = [] if page.after is None else await self.get([page.after])
        return [*(one for one in again if one), *found][: page.limit]


class PagesSkipEqualIds(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        after = None if page.after is None else ("", page.after[1])
        return await super().find(chosen, Page(page.limit, after))


class FiltersForgetTheTenant(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        return await super().find(replace(chosen, tenant=None), page)


class TagsAreFoundByTheirBeginning(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        found = await super().find(replace(chosen, tag=None), Page(100_000, page.after))
        begins = chosen.tag or ""
        fitting = [one for one in found if any(tag.startswith(begins) for tag in one.body.tags)]
        return (list(found) if chosen.tag is None else fitting)[: page.limit]


class SealsSkipAnEvent(MemoryStore):
    async def seal(self, *, limit: int = 10_000) -> Block | None:
        key, events = next(iter(self._all.events.items()), (("", ""), []))
        self._all.events[key] = events[1:]
        try:
            return await super().seal(limit=limit)
        finally:
            self._all.events[key] = events


class AShorterLeaseIsNoticedLate(MemoryStore):
    def _extend(self, lease: str, until: int) -> bool:
        kept = dict(self._all.jobs)
        found = super()._extend(lease, until)
        self._all.jobs.update(kept)
        return found


class ExtendingOnlyLengthens(MemoryStore):
    def _extend(self, lease: str, until: int) -> bool:
        row = self._all.leases.get(lease)
        return super()._extend(lease, until if row is None else max(until, row.until))


class TheOverdueIncludeTheLost(MemoryStore):
    async def overdue(self, *, now: int, limit: int = 100) -> Sequence[api.WorkerRow]:
        rows = sorted(self._all.workers.values(), key=lambda row: (row.alive_until, row.id))
        return [row for row in rows if row.alive_until <= now][:limit]
