"""Bugs in how units are judged and written, and in what follows from them."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import OPEN, Gate, Job, JobState, Lease
from detent.stores import api, flows
from detent.stores.api import Key, Move, New, Outcome, Stored, Unit, key_of, name_of
from detent.stores.judging import Head
from detent.stores.memory import MemoryStore
from detent.stores.memory.tables import Tables

# --- fences ---------------------------------------------------------------------------------------


class NoVersionFence(Tables):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self.jobs.get(key_of(move.job))
        if stored is None:
            return api.Stale(key_of(move.job), None)
        return super()._fenced(unit, replace(move, version=stored.job.version))


class OnlyOlderVersionsAreFenced(Tables):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self.jobs.get(key_of(move.job))
        if stored is not None and move.version > stored.job.version:
            return None
        return super()._fenced(unit, move)


class RearmingIsNotFenced(Tables):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, move) if move.events else None


class NoLeaseFence(Tables):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, replace(move, lease=None))


class NoLostFence(Tables):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, lost=False), now)


class SilentWorkersAreLost(Tables):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        found = super()._fenced_by_row(move, now)
        if move.lost and isinstance(found, api.LeaseAlive) and found.lease is not None:
            return None if found.lease.until <= now else found
        return found


class WireLeasesEndOneMicrosecondLate(Tables):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(move, now - 1 if move.lost else now)


class TakersNeedNotBeAlive(Tables):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, taken_by=None), now)


class ALeaseIsGivenTwice(Tables):
    def _is_held_twice(self, unit: Unit) -> bool:
        return False


class GatesOfAUnitAreForgotten(Tables):
    def write(self, unit: Unit, now: int) -> None:
        super().write(replace(unit, gates=()), now)


class LimitsOfAUnitAreForgotten(Tables):
    def write(self, unit: Unit, now: int) -> None:
        super().write(replace(unit, limits=()), now)


class SwitchesOfARefusedUnitStay(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        self.switch(unit.gates, unit.limits)
        return super().commit(unit, now)


class OwnIsNotRecognised(Tables):
    def is_own(self, unit: Unit, key: Key) -> bool:
        return False


class OwnIsOnlyTheLastEvent(Tables):
    def is_own(self, unit: Unit, key: Key) -> bool:
        events = self.events.get(key, [])
        return any(fed.event.command_id == unit.command_id for fed in events[-1:])


class AnybodysCommandIsOwn(Tables):
    def is_own(self, unit: Unit, key: Key) -> bool:
        known = [fed.event for events in self.events.values() for fed in events]
        return any(event.command_id == unit.command_id for event in known)


class StaleSaysWhatItWas(Tables):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        found = super()._fenced(unit, move)
        return api.Stale(found.key, move.job) if isinstance(found, api.Stale) else found


class StaleFlowsAreAccepted(Tables):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        return None


class OnlyTheWorkflowIsFenced(Tables):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._flow_fenced(unit)
        before = unit.flow.before if unit.flow else None
        if isinstance(found, api.StaleFlow) and before and found.now:
            return None if before.workflow.version == found.now.workflow.version else found
        return found


class StaleFlowsSayWhatTheyWere(Tables):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._flow_fenced(unit)
        if isinstance(found, api.StaleFlow) and unit.flow and unit.flow.before:
            return replace(found, now=unit.flow.before)
        return found


class AddedJobsAreNotRecognised(Tables):
    def _is_born(self, unit: Unit) -> bool:
        return False


class PutsAreNotFenced(Tables):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        return None


class OnlyOlderPutsAreFenced(Tables):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        if isinstance(found, api.StaleRecord):
            return None if found.record.version > (found.now.version if found.now else 0) else found
        return found


class AnybodysPutIsOwn(Tables):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        is_same = isinstance(found, api.StaleRecord) and found.now is not None
        return api.Own() if is_same and found.record.version == found.now.version else found  # type: ignore[union-attr]


class OwnPutsAreNotRecognised(Tables):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        if isinstance(found, api.Own):
            record = unit.puts[0]
            return api.StaleRecord(record, self.records[name_of(record)][0])
        return found


# --- all or nothing -------------------------------------------------------------------------------


class HalfAUnitIsCommitted(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        for move in unit.moves[:-1]:
            super().commit(Unit(unit.command_id, moves=(move,)), now)
        return super().commit(replace(unit, moves=unit.moves[-1:]), now)


class MovesGoBeforeInserts(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        moved = super().commit(replace(unit, new=()), now)
        if not isinstance(moved, api.Committed) or not unit.new:
            return moved
        return super().commit(replace(unit, moves=(), flow=None, puts=()), now)


class PutsSurviveARefusal(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        outcome = super().commit(unit, now)
        if not isinstance(outcome, api.Committed | api.Own):
            super().commit(Unit(unit.command_id, puts=unit.puts), now)
        return outcome


class PutsGoOneByOne(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        for record in unit.puts[:-1]:
            super().commit(Unit(unit.command_id, puts=(record,)), now)
        return super().commit(replace(unit, puts=unit.puts[-1:]), now)


class LinesOfRefusedUnitsAreKept(Tables):
    def commit(self, unit: Unit, now: int) -> Outcome:
        outcome = super().commit(unit, now)
        if not isinstance(outcome, api.Committed):
            for move in unit.moves:
                for line in move.lines:
                    self.log(key_of(move.job), line)
        return outcome


class NothingIsIllegal(Tables):
    def _illegal(self, unit: Unit) -> api.Rejected | None:
        return None


class IdsOfStepsMayBeUsedAgain(Tables):
    def _illegal(self, unit: Unit) -> api.Rejected | None:
        found = super()._illegal(unit)
        return None if found is not None and "exists already" in found.why else found


class SettlingEventsAreForgotten(Tables):
    def record(self, events: Sequence[Event]) -> None:
        super().record([event for event in events if event.actor_id != "settle"])


# --- writing --------------------------------------------------------------------------------------


class TheResultIsForgottenByTheNextMove(Tables):
    def write_move(self, move: Move, now: int) -> None:
        super().write_move(move, now)
        key = key_of(move.job)
        self.jobs[key] = replace(self.jobs[key], result=move.result)


class CheckpointsAreForgottenByTheNextMove(Tables):
    def write_move(self, move: Move, now: int) -> None:
        super().write_move(move, now)
        key = key_of(move.job)
        self.jobs[key] = replace(self.jobs[key], checkpoint=move.checkpoint)


class NotesAreForgottenByTheNextMove(Tables):
    def write_move(self, move: Move, now: int) -> None:
        super().write_move(move, now)
        key = key_of(move.job)
        self.jobs[key] = replace(self.jobs[key], note=None)


class MetadataIsNotReplaced(Tables):
    def write_move(self, move: Move, now: int) -> None:
        super().write_move(replace(move, meta=None), now)


class WakeTimesOnlyMoveEarlier(Tables):
    def write_move(self, move: Move, now: int) -> None:
        before = self.jobs[key_of(move.job)].wake_at
        super().write_move(replace(move, wake_at=move.wake_at or before), now)


class PayloadsAreWrittenAnew(Tables):
    def write_new(self, new: New, now: int) -> None:
        try:
            text = json.dumps(json.loads(new.body.payload))
        except ValueError:
            text = new.body.payload
        super().write_new(replace(new, body=replace(new.body, payload=text)), now)


class DeletedRecordsStay(Tables):
    def write(self, unit: Unit, now: int) -> None:
        super().write(unit, now)
        for record in unit.puts:
            self.records[name_of(record)] = (record, unit.command_id)


class LeaseRowsOutliveTheirLease(Tables):
    def _put(self, stored: Stored, events: Sequence[Event], now: int) -> None:
        rows = dict(self.leases)
        super()._put(stored, events, now)
        self.leases |= rows


class EveryMoveRenewsTheLease(Tables):
    def _put(self, stored: Stored, events: Sequence[Event], now: int) -> None:
        super()._put(stored, events, now)
        job = stored.job
        if job.wire and job.lease is not None:
            self.leases[job.lease] = Lease(now + (job.lease_us or 0))


class EndsUnderALimitWakeNobody(Tables):
    def _put(self, stored: Stored, events: Sequence[Event], now: int) -> None:
        limits, self.limits = self.limits, {}
        super()._put(stored, events, now)
        self.limits = limits


# --- erasing --------------------------------------------------------------------------------------


class ErasedJobsKeepTheirLog(Tables):
    def _erased(self, stored: Stored) -> Stored:
        lines = self.lines
        erased = super()._erased(stored)
        self.lines = lines
        return erased


class ErasingOneLogErasesAll(Tables):
    def _erased(self, stored: Stored) -> Stored:
        self.lines = []
        return super()._erased(stored)


class ErasedJobsKeepTheirPayload(Tables):
    def _erased(self, stored: Stored) -> Stored:
        return replace(super()._erased(stored), body=stored.body)


class ErasedJobsKeepTheirFailures(Tables):
    def _erased(self, stored: Stored) -> Stored:
        return replace(super()._erased(stored), failures=stored.failures)


class ErasedJobsKeepTheirNoteAndCheckpoint(Tables):
    def _erased(self, stored: Stored) -> Stored:
        kept = {"note": stored.note, "checkpoint": stored.checkpoint}
        return replace(super()._erased(stored), **kept)


class LinesMayBeAddedToWhatIsErased(Tables):
    def log(self, key: Key, line: api.Line) -> int:
        stored = self.jobs.get(key)
        if stored is None:
            return 0
        self.jobs[key] = replace(stored, job=replace(stored.job, erased_at=None))
        cursor = super().log(key, line)
        self.jobs[key] = stored
        return cursor


# --- what follows ---------------------------------------------------------------------------------


class NothingFollows(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        for key, steps in changes.items():
            for step, change in steps.items():
                flow = self.flows[key].counting(step, change)
                kept = {name: tally for name, tally in flow.tallies.items() if tally.total}
                self.flows[key] = replace(flow, tallies=kept)


class ClaimsAreNotCounted(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        if not all(job.lease for job in jobs):
            super().follow(changes, jobs, now, command_id)


class WhatFollowsHasACommandOfItsOwn(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        super().follow(changes, jobs, now, "cascade")


class OnlyOneWorkflowOfAUnitFollows(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        super().follow(dict(sorted(changes.items())[:1]), jobs, now, command_id)


class TalliesAreTheDeciders(Tables):
    def write_flow(self, answer: w.Accepted, flow: w.Flow, counted: Iterable[str]) -> None:
        super().write_flow(answer, flow if counted else answer.flow, counted)


class NothingIsSwept(Tables):
    def write_flow(self, answer: w.Accepted, flow: w.Flow, counted: Iterable[str]) -> None:
        super().write_flow(replace(answer, sweep=()), flow, counted)


class OpenedStepsWakeNobody(Tables):
    def write_flow(self, answer: w.Accepted, flow: w.Flow, counted: Iterable[str]) -> None:
        super().write_flow(replace(answer, opened=()), flow, counted)


class NothingIsRecalled(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        super().follow(changes, [], now, command_id)


class RecalledJobsAreNotCounted(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        told = [(self.flows[key], steps) for key, steps in changes.items()]
        left = [flows.followed(*one, [], now, command_id).flow for one in told]
        super().follow(changes, jobs, now, command_id)
        self.flows |= {key_of(flow.workflow): flow for flow in left}


class OnlyEndedStepsRecall(Tables):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        told = [(self.flows[key], steps) for key, steps in changes.items()]
        left = [flows.followed(*one, [], now, command_id).flow for one in told]
        ended = {one.id for flow in left for one in flow.steps.values() if one.ended_at is not None}
        super().follow(changes, [job for job in jobs if job.step in ended], now, command_id)


class TalliesForgetNewJobs(Tables):
    def write(self, unit: Unit, now: int) -> None:
        super().write(unit, now)
        if unit.flow is None:
            for new in unit.new:
                self._uncount(new.job)

    def _uncount(self, job: Job) -> None:
        if job.workflow is not None and job.step is not None:
            flow = self.flows[job.tenant, job.workflow]
            self.flows[key_of(flow.workflow)] = flow.counting(job.step, -w.delta(None, job))


# --- uniqueness -----------------------------------------------------------------------------------


class UniqueIgnoresWhen(Tables):
    def oldest(self, unit: Unit, new: New, unique: api.Unique) -> Job | None:
        return super().oldest(unit, new, replace(unique, since=None))


class UniqueIgnoresStates(Tables):
    def oldest(self, unit: Unit, new: New, unique: api.Unique) -> Job | None:
        return super().oldest(unit, new, replace(unique, states=tuple(JobState)))


class TheReplacedJobStillCounts(Tables):
    def oldest(self, unit: Unit, new: New, unique: api.Unique) -> Job | None:
        return super().oldest(replace(unit, moves=()), new, unique)


class IdempotencyIgnoresTheDigest(Tables):
    def _taken(self, unit: Unit, new: New, now: int) -> Outcome | None:
        found = super()._taken(unit, new, now)
        return replace(found, differs=False) if isinstance(found, api.Taken) else found


class IdempotencyKeysLiveForEver(Tables):
    def promised(self, name: Key, now: int) -> tuple[str, Job] | None:
        return super().promised(name, 0)


# --- gates, histories and logs --------------------------------------------------------------------


class GatesOfTypesAreIgnored(Tables):
    def gate_of(self, stored: Stored) -> Gate:
        return super().gate_of(replace(stored, body=replace(stored.body, type="")))


class GatesForgetTheTenant(Tables):
    def gate_of(self, stored: Stored) -> Gate:
        if stored.job.workflow is not None:
            return super().gate_of(stored)
        return super().gate_of(replace(stored, job=replace(stored.job, tenant="")))


class GatesOfStepsAreIgnored(Tables):
    def gate_of(self, stored: Stored) -> Gate:
        return super().gate_of(replace(stored, job=replace(stored.job, workflow=None)))


class StepsDoNotSayWhenTheyOpened(Tables):
    def gate_of(self, stored: Stored) -> Gate:
        gate = super().gate_of(stored)
        if stored.job.workflow is None or gate is OPEN:
            return gate
        return replace(gate, opened_at=None)


class TheFeedHasAGap(Tables):
    def record(self, events: Sequence[Event]) -> None:
        super().record(events)
        next(self._positions)


class TheFeedForgetsAmendments(MemoryStore):
    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[api.Fed]:
        found = await super().feed(after, limit)
        return [fed for fed in found if fed.event.target is not None]


class CursorsAreShared(Tables):
    def log(self, key: Key, line: api.Line) -> int:
        cursor = super().log(key, line)
        if cursor:
            cursor = self.lines[-1].pos
            self.lines[-1] = replace(self.lines[-1], cursor=cursor)
        return cursor


class SiblingsAreNotCompared(Tables):
    def _any_taken(self, unit: Unit, now: int) -> Outcome | None:
        alone = [self._taken(unit, new, now) for new in unit.new]
        return next((found for found in alone if found), None)


class ALateWordPutsTheEndOff(Tables):
    def in_time(self, before: Head, move: Move) -> int | None:
        return move.wake_at
