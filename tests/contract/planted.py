"""Stores that are wrong in one small way each, to see whether anybody would notice.

Every class is the model with one rule broken, the way rules get broken: a condition left out, a
sign turned round, a row forgotten, a check and its write torn apart.
"""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from detent.lifecycle.event import Event
from detent.lifecycle.job import OPEN, Gate, Job, Lease
from detent.lifecycle.seal import Block
from detent.stores import api
from detent.stores.api import Due, Key, Move, New, Outcome, Stored, Unit, Want
from detent.stores.memory import MemoryStore
from detent.stores.select import FIRST_PAGE, Filter, Page

# --- fences ---------------------------------------------------------------------------------------


class NoVersionFence(MemoryStore):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self._jobs.get((move.job.tenant, move.job.id))
        if stored is None:
            return api.Stale((move.job.tenant, move.job.id), None)
        return super()._fenced(unit, replace(move, version=stored.job.version))


class OnlyOlderVersionsAreFenced(MemoryStore):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self._jobs.get((move.job.tenant, move.job.id))
        if stored is not None and move.version > stored.job.version:
            return None
        return super()._fenced(unit, move)


class RearmingIsNotFenced(MemoryStore):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, move) if move.events else None


class NoLeaseFence(MemoryStore):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, replace(move, lease=None))


class NoLostFence(MemoryStore):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, lost=False), now)


class SilentWorkersAreLost(MemoryStore):
    def _is_over(self, job: Job, row: Lease, now: int) -> bool:
        return row.lost or row.until <= now


class WireLeasesEndOneMicrosecondLate(MemoryStore):
    def _is_over(self, job: Job, row: Lease, now: int) -> bool:
        return super()._is_over(job, row, now - 1)


class TakersNeedNotBeAlive(MemoryStore):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, taken_by=None), now)


class OwnIsNotRecognised(MemoryStore):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        return False


class OwnIsOnlyTheLastEvent(MemoryStore):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        return self._events[key][-1].event.command_id == unit.command_id


class AnybodysCommandIsOwn(MemoryStore):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self._feed)


class StaleSaysWhatItWas(MemoryStore):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        found = super()._fenced(unit, move)
        return api.Stale(found.key, move.job) if isinstance(found, api.Stale) else found


# --- units ----------------------------------------------------------------------------------------


class HalfAUnitIsCommitted(MemoryStore):
    def _commit(self, unit: Unit, now: int) -> Outcome:
        for move in unit.moves[:-1]:
            super()._commit(Unit(unit.command_id, moves=(move,)), now)
        return super()._commit(replace(unit, moves=unit.moves[-1:]), now)


class MovesGoBeforeInserts(MemoryStore):
    def _commit(self, unit: Unit, now: int) -> Outcome:
        moved = super()._commit(replace(unit, new=()), now)
        if not isinstance(moved, api.Committed) or not unit.new:
            return moved
        return super()._commit(replace(unit, moves=()), now)


class OneBadUnitStopsTheBatch(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        for number, unit in enumerate(units):
            refused = self._refused(unit, now)
            if refused is not None:
                return api.Stepped((refused,) * (len(units) - number))
        return await super().step(units, now=now, want=want)


class NothingIsIllegal(MemoryStore):
    def _illegal(self, unit: Unit) -> api.Rejected | None:
        return None


class SettlingEventsAreForgotten(MemoryStore):
    def _record(self, event: Event) -> None:
        if event.actor_id != "settle":
            super()._record(event)


class TheResultIsForgottenByTheNextMove(MemoryStore):
    def _write_move(self, move: Move, now: int) -> None:
        super()._write_move(move, now)
        key = (move.job.tenant, move.job.id)
        self._jobs[key] = replace(self._jobs[key], result=move.result)


class WakeTimesOnlyMoveEarlier(MemoryStore):
    def _write_move(self, move: Move, now: int) -> None:
        before = self._jobs[move.job.tenant, move.job.id].wake_at
        super()._write_move(replace(move, wake_at=move.wake_at or before), now)


class PayloadsAreWrittenAnew(MemoryStore):
    def _write_new(self, new: New, now: int) -> None:
        try:
            text = json.dumps(json.loads(new.body.payload))
        except ValueError:
            text = new.body.payload
        super()._write_new(replace(new, body=replace(new.body, payload=text)), now)


class LeaseRowsOutliveTheirLease(MemoryStore):
    def _keep_lease_row(self, before: Job | None, job: Job, now: int) -> None:
        super()._keep_lease_row(before if job.lease is not None else job, job, now)


class EveryMoveRenewsTheLease(MemoryStore):
    def _keep_lease_row(self, before: Job | None, job: Job, now: int) -> None:
        super()._keep_lease_row(replace(job, lease=None) if job.lease else before, job, now)


# --- claims ---------------------------------------------------------------------------------------


class PriorityIsIgnored(MemoryStore):
    def _turn(self, job: Job, want: Want) -> tuple[int, int, int, str]:
        return super()._turn(replace(job, priority=0), want)


class PriorityIsTurnedRound(MemoryStore):
    def _turn(self, job: Job, want: Want) -> tuple[int, int, int, str]:
        return super()._turn(replace(job, priority=-job.priority), want)


class ClaimsGoById(MemoryStore):
    def _turn(self, job: Job, want: Want) -> tuple[int, int, int, str]:
        return super()._turn(replace(job, place=0), want)


class QueuesAreOne(MemoryStore):
    def _turn(self, job: Job, want: Want) -> tuple[int, int, int, str]:
        return 0, *super()._turn(job, want)[1:]


class ClaimsForgetTheTenant(MemoryStore):
    def _fits(self, stored: Stored, want: Want) -> bool:
        return super()._fits(stored, replace(want, tenant=stored.job.tenant))


class ClaimsForgetTheType(MemoryStore):
    def _fits(self, stored: Stored, want: Want) -> bool:
        return super()._fits(stored, replace(want, types=None))


class OneLeaseTooFew(MemoryStore):
    def _claim(self, want: Want, now: int) -> api.Claimed:
        return super()._claim(
            replace(want, leases=want.leases[: max(len(want.leases) - 1, 1)]), now
        )


class GatesAreIgnoredByClaims(MemoryStore):
    def _take(self, stored: Stored, lease: str, want: Want, now: int) -> Stored | None:
        gates, self._gates = self._gates, {}
        try:
            return super()._take(stored, lease, want, now)
        finally:
            self._gates = gates


class GatesOfTypesAreIgnored(MemoryStore):
    def _gate_of(self, stored: Stored) -> Gate:
        return super()._gate_of(replace(stored, body=replace(stored.body, type="")))


class GatesForgetTheTenant(MemoryStore):
    def _gate_of(self, stored: Stored) -> Gate:
        return super()._gate_of(replace(stored, job=replace(stored.job, tenant="")))


class TheFirstBlockedJobEndsTheClaim(MemoryStore):
    def _candidates(self, want: Want) -> list[Stored]:
        found = super()._candidates(want)
        blocked = [n for n, one in enumerate(found) if self._gate_of(one) != OPEN]
        return found[: blocked[0]] if blocked else found


class ClaimsAreMadeInThePast(MemoryStore):
    def _take(self, stored: Stored, lease: str, want: Want, now: int) -> Stored | None:
        return super()._take(stored, lease, want, now - 60_000_000)


class ARepeatedClaimTakesMore(MemoryStore):
    def _claimed_before(self, want: Want) -> tuple[Stored, ...]:
        return ()


class LostWorkersMayClaim(MemoryStore):
    def _is_alive(self, row: Lease, now: int) -> bool:
        return now < row.until


class TwoClaimersReadBeforeEitherWrites(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        found = self._candidates(want) if want else []
        await asyncio.sleep(0)
        stepped = await super().step(units, now=now, want=None)
        if want is None:
            return stepped
        taken = [self._take(*pair, want, now) for pair in zip(found, want.leases, strict=False)]
        return replace(stepped, claimed=api.Claimed(tuple(one for one in taken if one)))


# --- uniqueness -----------------------------------------------------------------------------------


class ChecksAndWritesAreTornApart(MemoryStore):
    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        refused = [self._refused(unit, now) for unit in units]
        await asyncio.sleep(0)
        for unit, found in zip(units, refused, strict=True):
            for new in unit.new if found is None else ():
                self._write_new(new, now)
        rest = [replace(unit, new=()) for unit in units]
        stepped = await super().step(rest, now=now, want=want)
        outcomes = zip(refused, stepped.outcomes, strict=True)
        return replace(stepped, outcomes=tuple(found or told for found, told in outcomes))


class UniqueIgnoresWhen(MemoryStore):
    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return super()._counts(job, replace(unique, since=None))


class UniqueIgnoresStates(MemoryStore):
    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return super()._counts(job, replace(unique, states=(job.state,)))


class TheReplacedJobStillCounts(MemoryStore):
    def _not_unique(self, new: New, moved: dict[Key, Job]) -> api.Taken | None:
        return super()._not_unique(new, {})


class SiblingsAreNotCompared(MemoryStore):
    def _taken(self, unit: Unit, now: int) -> Outcome | None:
        each = (
            super(SiblingsAreNotCompared, self)._taken(replace(unit, new=(new,)), now)
            for new in unit.new
        )
        return next((found for found in each if found), None)


class IdempotencyIgnoresTheDigest(MemoryStore):
    def _promised(self, new: New, now: int) -> api.Taken | None:
        found = super()._promised(new, now)
        return found and replace(found, differs=False)


class IdempotencyKeysLiveForEver(MemoryStore):
    def _promised(self, new: New, now: int) -> api.Taken | None:
        return super()._promised(new, 0)


# --- time -----------------------------------------------------------------------------------------


class NoSoftLock(MemoryStore):
    def _hand_out(self, key: Key, until: int) -> Due:
        before = self._jobs[key]
        due = super()._hand_out(key, until)
        self._jobs[key] = before
        del self._handed_out[key]
        return due


class OneDueItemTooMany(MemoryStore):
    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        return await super().take_due(now=now, limit=limit + 1, hold_us=hold_us)


class DueGoesById(MemoryStore):
    def _due_since(self, key: Key) -> int | None:
        since = super()._due_since(key)
        return None if since is None or since > self._clock() else 0


class JobsOfLostWorkersAreNotDue(MemoryStore):
    def _due_since(self, key: Key) -> int | None:
        return self._jobs[key].wake_at


class TheLostMayComeBack(MemoryStore):
    def _renew(self, row: api.WorkerRow) -> bool:
        self._workers[row.id] = api.WorkerRow(row.id, row.alive_until)
        return True


class TheLivingAreDeclaredLost(MemoryStore):
    def _mark_lost(self, worker: str, now: int) -> bool:
        return super()._mark_lost(worker, now + 60_000_000)


class AShorterLeaseIsNoticedLate(MemoryStore):
    def _extend(self, lease: str, until: int) -> bool:
        kept = dict(self._jobs)
        found = super()._extend(lease, until)
        self._jobs.update(kept)
        return found


class ALateWordPutsTheEndOff(MemoryStore):
    def _in_time(self, move: Move) -> int | None:
        return move.wake_at


class ExtendingOnlyLengthens(MemoryStore):
    def _extend(self, lease: str, until: int) -> bool:
        return super()._extend(lease, max(until, self._leases.get(lease, until)))


class EveryClockIsBelieved(MemoryStore):
    def _need_time(self, now: int) -> None:
        self._need_open()


# --- reading --------------------------------------------------------------------------------------


class OneMemoryForAllWhoWait(MemoryStore):
    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        return await super().wait(min(timeout_s, 0.01))


class CountsDrift(MemoryStore):
    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        found = await super().counts(tenant)
        return [replace(one, count=one.count + (one.state == "cancelled")) for one in found]


class CountsForgetTheQueueAJobMovedTo(MemoryStore):
    async def counts(self, tenant: str | None = None) -> Sequence[api.Counted]:
        kept = dict(self._jobs)
        for key, stored in kept.items():
            first = self._events[key][0].event.queue or ""
            self._jobs[key] = replace(stored, job=replace(stored.job, queue=first))
        found = await super().counts(tenant)
        self._jobs.update(kept)
        return found


class TheFeedHasAGap(MemoryStore):
    def _record(self, event: Event) -> None:
        super()._record(event)
        if len(self._feed) > 1:
            self._feed[-1] = replace(self._feed[-1], pos=len(self._feed) + 1)


class TheFeedForgetsAmendments(MemoryStore):
    def _record(self, event: Event) -> None:
        super()._record(event)
        if event.target is None:
            del self._feed[-1]


class CursorsAreShared(MemoryStore):
    def _log(self, key: Key, line: api.Line) -> int:
        cursor = len(self._tail) + 1
        self._logs[key].append(api.Logged(key, cursor, line, cursor))
        self._tail.append(self._logs[key][-1])
        return cursor


class LinesOfRefusedUnitsAreKept(MemoryStore):
    def _commit(self, unit: Unit, now: int) -> Outcome:
        outcome = super()._commit(unit, now)
        if not isinstance(outcome, api.Committed):
            for move in unit.moves:
                for line in move.lines:
                    self._log((move.job.tenant, move.job.id), line)
        return outcome


class PagesOverlap(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        found = await super().find(chosen, Page(page.limit + 1, page.after))
        again = [] if page.after is None else await self.get([page.after])
        return [*(one for one in again if one), *found][: page.limit]


class PagesGoByIdAlone(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        after = None if page.after is None else ("", page.after[1])
        return await super().find(chosen, Page(page.limit, after))


class FiltersForgetTheTenant(MemoryStore):
    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        return await super().find(replace(chosen, tenant=None), page)


class SealsSkipAnEvent(MemoryStore):
    async def seal(self, *, limit: int = 10_000) -> Block | None:
        whole, self._feed = self._feed, self._feed[1:]
        try:
            return await super().seal(limit=limit)
        finally:
            self._feed = whole


def planted() -> dict[str, Any]:
    """Every wrong store by its name."""
    return {one.__name__: one for one in MemoryStore.__subclasses__() if one.__module__ == __name__}
