"""Schedules: made, changed and fired while everything runs, on any number of servers at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from detent.engine import limits
from detent.engine.asks import born
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.declared import Declared, bared, has_arguments
from detent.engine.enqueueing import Answer, Clash, Enqueued
from detent.engine.firing import Firing, ask_for
from detent.engine.identity import Identity
from detent.engine.schedule import KIND, Overlap, Plan, Schedule, check, read, written
from detent.errors import (
    BadSchedule,
    ScheduleExists,
    StoreBusy,
    UnknownSchedule,
    UnknownType,
    Unstorable,
)
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import (
    Committed,
    Key,
    Outcome,
    Own,
    Record,
    Stale,
    StaleRecord,
    Store,
    Taken,
    Unit,
)

_log = logging.getLogger(__name__)
_HELD = "secret arguments would lie in the schedule: let the job look them up"


class Schedules:
    """Everything that can be asked of schedules. Each change says who wanted it, and why."""

    def __init__(
        self, store: Store, coalescer: Coalescer, identity: Identity, declared: Declared
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._declared = declared

    # --- reading --------------------------------------------------------------------------------

    async def get(self, key: Key) -> Schedule | None:
        """The schedule of that tenant and name."""
        record = await self._record(key)
        schedule = None if record is None else read(record)
        return None if schedule is None or schedule.removed_at is not None else schedule

    async def list(
        self, tenant: str = "", after: str | None = None, limit: int = 100
    ) -> list[Schedule]:
        """The schedules of a tenant, by name, after one."""
        found: list[Schedule] = []
        while len(found) < limit:
            page = await self._store.records(KIND, tenant, after, limit)
            found += [one for one in map(read, page) if one.removed_at is None]
            if len(page) < limit:
                break
            after = page[-1].id
        return found[:limit]

    # --- changing -------------------------------------------------------------------------------

    async def add(
        self, plan: Plan, by: By, reason: str | None = None, *, is_paused: bool = False
    ) -> Schedule:
        """A new schedule; its first slot is the next one, once it is not paused."""
        await self._need_sound(plan, by)
        for _ in range(TRIES_MAX):
            record, now = await self._record(plan.key), self._store.now()
            earlier = None if record is None else read(record)
            if earlier is not None and earlier.removed_at is None:
                raise ScheduleExists(f"Schedule {plan.name} exists; edit it", name=plan.name)
            begun = replace(_begun(plan, earlier, now), is_paused=is_paused)
            made = begun.armed(now).changed("added", now, by, reason)
            if await self._put(made, 0 if record is None else record.version):
                return made
        raise _busy(plan.key)

    async def edit(
        self, plan: Plan, by: By, reason: str | None = None, *, is_paused: bool | None = None
    ) -> Schedule:
        """Another plan for the schedule of that tenant and name; paused or not, if that is said.

        Its slots stay as they are unless the times themselves were changed.
        """
        await self._need_sound(plan, by)

        def edited(before: Schedule, now: int) -> Schedule:
            stands = before.is_paused if is_paused is None else is_paused
            after = replace(before, plan=plan, is_paused=stands)
            if (plan.expression, plan.zone) != (before.plan.expression, before.plan.zone):
                return replace(after, anchor_at=now).armed(now)
            return after if stands == before.is_paused else after.armed(now)

        return await self._change(plan.key, "edited", edited, by, reason)

    async def upsert(self, plan: Plan, by: By, *, is_paused: bool) -> tuple[Schedule, bool]:
        """The schedule as it is told, and whether it is new: to one of all who say so at once."""
        for _ in range(TRIES_MAX):
            with suppress(ScheduleExists):
                return await self.add(plan, by, is_paused=is_paused), True
            with suppress(UnknownSchedule):
                return await self.edit(plan, by, is_paused=is_paused), False
        raise _busy(plan.key)

    async def put(self, plan: Plan, by: By, reason: str | None = None) -> Schedule:
        """The schedule as planned, added or edited; one that is so already is left alone."""
        for _ in range(TRIES_MAX):
            found = await self.get(plan.key)
            if found is not None and found.plan == plan:
                return found
            change = self.add if found is None else self.edit
            # Several servers start at once: whoever is second looks again.
            with suppress(ScheduleExists, UnknownSchedule):
                return await change(plan, by, reason)
        raise _busy(plan.key)

    async def pause(self, key: Key, by: By, reason: str | None = None) -> Schedule:
        """Fire no slot until it is resumed."""

        def paused(schedule: Schedule, now: int) -> Schedule:
            return replace(schedule, is_paused=True).armed(now)

        return await self._change(key, "paused", paused, by, reason)

    async def resume(self, key: Key, by: By, reason: str | None = None) -> Schedule:
        """Go on with the next slot; those that passed under the pause are not made up for."""

        def resumed(schedule: Schedule, now: int) -> Schedule:
            if not schedule.is_paused:
                return schedule
            return replace(schedule, is_paused=False).armed(now)

        return await self._change(key, "resumed", resumed, by, reason)

    async def remove(self, key: Key, by: By, reason: str | None = None) -> Schedule:
        """The schedule as it was last; its jobs stay."""

        def removed(schedule: Schedule, now: int) -> Schedule:
            return replace(schedule, removed_at=now).armed(now)

        return await self._change(key, "removed", removed, by, reason)

    async def fire(self, key: Key, by: By, reason: str | None = None) -> Answer:
        """One job of the schedule now, whatever its slots and its overlap say, paused or not."""
        for _ in range(TRIES_MAX):
            record, schedule = await self._known(key)
            if await self._bared(schedule) is not None:
                raise BadSchedule(f"schedule: job: {_HELD}", field="job")
            firing = Firing(record, schedule, self._store.now(), self._identity)
            unit = firing.by_hand(by, reason)
            if isinstance(unit, Refusal):
                return unit
            match await self._commit(unit):
                case Committed() | Own():
                    return Enqueued(unit.new[0].job)
                case Taken(what=what, by=job):
                    return Clash(what, job)
                case _:
                    continue
        raise _busy(key)

    async def _change(
        self,
        key: Key,
        what: str,
        change: Callable[[Schedule, int], Schedule],
        by: By,
        reason: str | None,
    ) -> Schedule:
        """Change it as it is when the change is committed; what changes nothing is not recorded."""
        for _ in range(TRIES_MAX):
            record, before = await self._known(key)
            now = self._store.now()
            after = change(before, now)
            if after == before:
                return before
            after = after.changed(what, now, by, reason)
            if await self._put(after, record.version):
                return after
        raise _busy(key)

    async def _put(self, schedule: Schedule, version: int) -> bool:
        """Whether it was stored; if not, somebody else was faster."""
        unit = Unit(self._identity.id(), puts=(written(schedule, version + 1),))
        return isinstance(await self._commit(unit), Committed | Own)

    async def _need_sound(self, plan: Plan, by: By) -> None:
        """Try the plan out: a schedule that can never fire is refused when it is made."""
        limits.need_job(plan.job)
        [job] = await self._declared.applied([plan.job])
        check(replace(plan, job=job))
        now = self._store.now()
        try:
            ask = ask_for(Schedule(plan=plan, created_at=now, anchor_at=now), None, now)
        except msgspec.DecodeError as error:
            raise BadSchedule(f"schedule: job: meta is no object: {error}", field="job") from error
        new = born(ask, self._identity.id(), now, j.Context(by, self._identity.id(), place=1))
        if isinstance(new, Refusal):
            raise BadSchedule(f"schedule: job: {new.message}", field="job", refusal=new.code)

    async def need_known(self, plan: Plan) -> None:
        """Refuse arguments of a type of which nobody knows yet what is secret about it."""
        name = plan.job.type
        if has_arguments(plan.job.payload) and not await self._declared.is_known(name):
            why = f"No worker for {name} has been seen here, so its arguments may be secret ones"
            fix = "start its program once, or say --unknown-type to store what you have typed"
            raise UnknownType(f"{why}: {fix}", type=name)

    # --- firing ---------------------------------------------------------------------------------

    async def answer(self, due: Sequence[Record]) -> None:
        """Fire what is due; upkeep asks. Several servers may, at the same moment."""
        done = await asyncio.gather(*map(self._fire, due), return_exceptions=True)
        for record, fault in zip(due, done, strict=True):
            if isinstance(fault, msgspec.DecodeError):
                # Written by newer code, perhaps: whoever understands it will answer it.
                _log.warning("schedule %s cannot be read: %s", record.id, fault)
            elif fault is not None:
                raise fault

    async def _fire(self, record: Record) -> None:
        known: set[str] = set()
        for _ in range(TRIES_MAX):
            schedule = read(record)
            if (payload := await self._bared(schedule)) is not None:
                await self._hold(record, schedule, payload)
                return
            before = await self._still_live(schedule)
            unit = Firing(record, schedule, self._store.now(), self._identity).due(before, known)
            match await self._commit(unit):
                case Committed() | Own() | StaleRecord():
                    # Stale: another server answered the slot, or somebody changed the schedule.
                    return
                case Taken(what="id", by=job):
                    known.add(job.id)
                case Taken():
                    known |= {new.job.id for new in unit.new}
                case _:
                    # A job of the slot before has moved on: look at it again.
                    continue
        raise _busy((record.tenant, record.id))

    async def _bared(self, schedule: Schedule) -> str | None:
        """Its arguments without what its program has declared secret since, if they have any."""
        job = schedule.plan.job
        return bared(job.payload, (await self._declared.of([job.type]))[job.type])

    async def _hold(self, record: Record, schedule: Schedule, payload: str) -> None:
        """Fire it no more, and keep its secrets no longer."""
        name, now = schedule.plan.name, self._store.now()
        plan = replace(schedule.plan, job=replace(schedule.plan.job, payload=payload))
        by = By(Actor.SYSTEM, f"schedule {name}")
        held = replace(schedule, plan=plan, is_paused=True).armed(now)
        if await self._put(held.changed("paused", now, by, _HELD), record.version):
            _log.warning("schedule %s is paused: %s", name, _HELD)

    async def _still_live(self, schedule: Schedule) -> Sequence[Job]:
        """The jobs of the slot before that have not ended, where it matters."""
        if schedule.plan.overlap is Overlap.ALLOW or not schedule.latest:
            return []
        found = await self._store.get([(schedule.plan.tenant, one) for one in schedule.latest])
        return [stored.job for stored in found if stored and stored.job.ended_at is None]

    # --- the store ------------------------------------------------------------------------------

    async def _record(self, key: Key) -> Record | None:
        tenant, name = key
        [record] = await self._store.record([(KIND, tenant, name)])
        return record

    async def _known(self, key: Key) -> tuple[Record, Schedule]:
        record = await self._record(key)
        schedule = None if record is None else read(record)
        if record is None or schedule is None or schedule.removed_at is not None:
            tenant, name = key
            raise UnknownSchedule(f"There is no schedule {name}", tenant=tenant, name=name)
        return record, schedule

    async def _commit(self, unit: Unit) -> Outcome:
        [outcome] = await self._coalescer.commit([unit])
        if isinstance(outcome, Committed | Own | StaleRecord | Taken | Stale):
            return outcome
        raise Unstorable(f"{unit.puts[0].id} cannot be stored: {outcome}", id=unit.puts[0].id)


def _begun(plan: Plan, earlier: Schedule | None, now: int) -> Schedule:
    """One of the same name that was removed lends its history, and the slot it answered last."""
    begun = Schedule(plan=plan, created_at=now, anchor_at=now)
    if earlier is None:
        return begun
    return replace(begun, slot_at=earlier.slot_at, changes=earlier.changes)


def _busy(key: Key) -> StoreBusy:
    tenant, name = key
    why = f"Schedule {name} was changed by others {TRIES_MAX} times while it was being changed"
    return StoreBusy(why, tenant=tenant, name=name)
