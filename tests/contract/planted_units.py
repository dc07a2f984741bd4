"""Bugs in how units are judged and written, and in what follows from them."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import OPEN, Gate, Job
from detent.stores import api, flows
from detent.stores.api import Key, Move, New, Outcome, Stored, Unit, key_of, name_of
from detent.stores.memory.tables import Tables
from detent.stores.memory.units import Units

# --- fences ---------------------------------------------------------------------------------------


class NoVersionFence(Units):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self._tables.jobs.get(key_of(move.job))
        if stored is None:
            return api.Stale(key_of(move.job), None)
        return super()._fenced(unit, replace(move, version=stored.job.version))


class OnlyOlderVersionsAreFenced(Units):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        stored = self._tables.jobs.get(key_of(move.job))
        if stored is not None and move.version > stored.job.version:
            return None
        return super()._fenced(unit, move)


class RearmingIsNotFenced(Units):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, move) if move.events else None


class NoLeaseFence(Units):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        return super()._fenced(unit, replace(move, lease=None))


class NoLostFence(Units):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, lost=False), now)


class SilentWorkersAreLost(Units):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        found = super()._fenced_by_row(move, now)
        if move.lost and isinstance(found, api.LeaseAlive) and found.lease is not None:
            return None if found.lease.until <= now else found
        return found


class WireLeasesEndOneMicrosecondLate(Units):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(move, now - 1 if move.lost else now)


class TakersNeedNotBeAlive(Units):
    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        return super()._fenced_by_row(replace(move, taken_by=None), now)


class ALeaseIsGivenTwice(Units):
    def _held_twice(self, unit: Unit) -> str | None:
        return None


class GatesOfAUnitAreForgotten(Units):
    def _write_switches(self, unit: Unit) -> None:
        super()._write_switches(replace(unit, gates=()))


class LimitsOfAUnitAreForgotten(Units):
    def _write_switches(self, unit: Unit) -> None:
        super()._write_switches(replace(unit, limits=()))


class SwitchesOfARefusedUnitStay(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        self._write_switches(unit)
        return super().commit(unit, now)


class OwnIsNotRecognised(Units):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        return False


class OwnIsOnlyTheLastEvent(Units):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        events = self._tables.events.get(key, [])
        return any(event.command_id == unit.command_id for event in events[-1:])


class AnybodysCommandIsOwn(Units):
    def _is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self._tables.feed)


class StaleSaysWhatItWas(Units):
    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        found = super()._fenced(unit, move)
        return api.Stale(found.key, move.job) if isinstance(found, api.Stale) else found


class StaleFlowsAreAccepted(Units):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        return None


class OnlyTheWorkflowIsFenced(Units):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._flow_fenced(unit)
        before = unit.flow.before if unit.flow else None
        if isinstance(found, api.StaleFlow) and before and found.now:
            return None if before.workflow.version == found.now.workflow.version else found
        return found


class StaleFlowsSayWhatTheyWere(Units):
    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._flow_fenced(unit)
        if isinstance(found, api.StaleFlow) and unit.flow and unit.flow.before:
            return replace(found, now=unit.flow.before)
        return found


class AddedJobsAreNotRecognised(Units):
    def _is_born(self, unit: Unit) -> bool:
        return False


class PutsAreNotFenced(Units):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        return None


class OnlyOlderPutsAreFenced(Units):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        if isinstance(found, api.StaleRecord):
            return None if found.record.version > (found.now.version if found.now else 0) else found
        return found


class AnybodysPutIsOwn(Units):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        is_same = isinstance(found, api.StaleRecord) and found.now is not None
        return api.Own() if is_same and found.record.version == found.now.version else found  # type: ignore[union-attr]


class OwnPutsAreNotRecognised(Units):
    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        found = super()._puts_fenced(unit)
        if isinstance(found, api.Own):
            record = unit.puts[0]
            return api.StaleRecord(record, self._tables.records[name_of(record)][0])
        return found


# --- all or nothing -------------------------------------------------------------------------------


class HalfAUnitIsCommitted(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        for move in unit.moves[:-1]:
            super().commit(Unit(unit.command_id, moves=(move,)), now)
        return super().commit(replace(unit, moves=unit.moves[-1:]), now)


class MovesGoBeforeInserts(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        moved = super().commit(replace(unit, new=()), now)
        if not isinstance(moved, api.Committed) or not unit.new:
            return moved
        return super().commit(replace(unit, moves=(), flow=None, puts=()), now)


class PutsSurviveARefusal(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        outcome = super().commit(unit, now)
        if not isinstance(outcome, api.Committed | api.Own):
            super().commit(Unit(unit.command_id, puts=unit.puts), now)
        return outcome


class PutsGoOneByOne(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        for record in unit.puts[:-1]:
            super().commit(Unit(unit.command_id, puts=(record,)), now)
        return super().commit(replace(unit, puts=unit.puts[-1:]), now)


class LinesOfRefusedUnitsAreKept(Units):
    def commit(self, unit: Unit, now: int) -> Outcome:
        outcome = super().commit(unit, now)
        if not isinstance(outcome, api.Committed):
            for move in unit.moves:
                for line in move.lines:
                    self._tables.log(key_of(move.job), line)
        return outcome


class NothingIsIllegal(Units):
    def _illegal(self, unit: Unit) -> api.Rejected | None:
        return None


class IdsOfStepsMayBeUsedAgain(Units):
    def _illegal(self, unit: Unit) -> api.Rejected | None:
        found = super()._illegal(unit)
        return None if found is not None and "exists already" in found.why else found


class SettlingEventsAreForgotten(Tables):
    def record(self, events: Sequence[Event]) -> None:
        super().record([event for event in events if event.actor_id != "settle"])


# --- writing --------------------------------------------------------------------------------------


class TheResultIsForgottenByTheNextMove(Units):
    def _write_move(self, move: Move, now: int) -> None:
        super()._write_move(move, now)
        key = key_of(move.job)
        self._tables.jobs[key] = replace(self._tables.jobs[key], result=move.result)


class CheckpointsAreForgottenByTheNextMove(Units):
    def _write_move(self, move: Move, now: int) -> None:
        super()._write_move(move, now)
        key = key_of(move.job)
        self._tables.jobs[key] = replace(self._tables.jobs[key], checkpoint=move.checkpoint)


class NotesAreForgottenByTheNextMove(Units):
    def _write_move(self, move: Move, now: int) -> None:
        super()._write_move(move, now)
        key = key_of(move.job)
        self._tables.jobs[key] = replace(self._tables.jobs[key], note=None)


class MetadataIsNotReplaced(Units):
    def _write_move(self, move: Move, now: int) -> None:
        super()._write_move(replace(move, meta=None), now)


class WakeTimesOnlyMoveEarlier(Units):
    def _write_move(self, move: Move, now: int) -> None:
        before = self._tables.jobs[key_of(move.job)].wake_at
        super()._write_move(replace(move, wake_at=move.wake_at or before), now)


class PayloadsAreWrittenAnew(Units):
    def _write_new(self, new: New, now: int) -> None:
        try:
            text = json.dumps(json.loads(new.body.payload))
        except ValueError:
            text = new.body.payload
        super()._write_new(replace(new, body=replace(new.body, payload=text)), now)


class DeletedRecordsStay(Units):
    def _write(self, unit: Unit, now: int) -> None:
        super()._write(unit, now)
        for record in unit.puts:
            self._tables.records[name_of(record)] = (record, unit.command_id)


class LeaseRowsOutliveTheirLease(Units):
    def after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        rows = dict(self._tables.leases)
        super().after_write(before, job, events, now)
        self._tables.leases |= rows


class EveryMoveRenewsTheLease(Units):
    def after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        super().after_write(before, job, events, now)
        if job.wire and job.lease is not None:
            self._tables.leases[job.lease] = now + (job.lease_us or 0)


class EndsUnderALimitWakeNobody(Units):
    def after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        limits, self._tables.limits = self._tables.limits, {}
        super().after_write(before, job, events, now)
        self._tables.limits = limits


# --- erasing --------------------------------------------------------------------------------------


class ErasedJobsKeepTheirLog(Units):
    def _erase(self, key: Key) -> None:
        lines = self._tables.lines
        super()._erase(key)
        self._tables.lines = lines


class ErasingOneLogErasesAll(Units):
    def _erase(self, key: Key) -> None:
        super()._erase(key)
        self._tables.lines = []


class ErasedJobsKeepTheirPayload(Units):
    def _erase(self, key: Key) -> None:
        body = self._tables.jobs[key].body
        super()._erase(key)
        self._tables.jobs[key] = replace(self._tables.jobs[key], body=body)


class ErasedJobsKeepTheirFailures(Units):
    def _erase(self, key: Key) -> None:
        failures = self._tables.jobs[key].failures
        super()._erase(key)
        self._tables.jobs[key] = replace(self._tables.jobs[key], failures=failures)


class ErasedJobsKeepTheirNoteAndCheckpoint(Units):
    def _erase(self, key: Key) -> None:
        before = self._tables.jobs[key]
        super()._erase(key)
        kept = {"note": before.note, "checkpoint": before.checkpoint}
        self._tables.jobs[key] = replace(self._tables.jobs[key], **kept)


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


class NothingFollows(Units):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        for key, steps in changes.items():
            for step, change in steps.items():
                flow = self._tables.flows[key].counting(step, change)
                kept = {name: tally for name, tally in flow.tallies.items() if tally.total}
                self._tables.flows[key] = replace(flow, tallies=kept)


class ClaimsAreNotCounted(Units):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        if jobs:
            super().follow(changes, jobs, now, command_id)


class WhatFollowsHasACommandOfItsOwn(Units):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        super().follow(changes, jobs, now, "cascade")


class OnlyOneWorkflowOfAUnitFollows(Units):
    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        super().follow(dict(sorted(changes.items())[:1]), jobs, now, command_id)


class TalliesAreTheDeciders(Units):
    def _write_flow(self, answer: w.Accepted) -> None:
        super()._write_flow(answer)
        self._tables.flows[key_of(answer.flow.workflow)] = answer.flow


class NothingIsSwept(Units):
    def _write_flow(self, answer: w.Accepted) -> None:
        super()._write_flow(replace(answer, sweep=()))


class OpenedStepsWakeNobody(Units):
    def _write_flow(self, answer: w.Accepted) -> None:
        super()._write_flow(replace(answer, opened=()))


class NothingIsRecalled(Units):
    def _recall(self, job: Job, now: int, command_id: str) -> None:
        """Forgotten."""


class RecalledJobsAreNotCounted(Units):
    def _recall(self, job: Job, now: int, command_id: str) -> None:
        key = (job.tenant, job.workflow or "")
        flow = self._tables.flows[key]
        super()._recall(job, now, command_id)
        self._tables.flows[key] = flow


class OnlyEndedStepsRecall(Units):
    def _recall(self, job: Job, now: int, command_id: str) -> None:
        flow = self._tables.flows[job.tenant, job.workflow or ""]
        if flow.steps[job.step or ""].ended_at is not None:
            super()._recall(job, now, command_id)


class TalliesForgetNewJobs(Units):
    def _write(self, unit: Unit, now: int) -> None:
        super()._write(unit, now)
        if unit.flow is None:
            for new in unit.new:
                self._uncount(new.job)

    def _uncount(self, job: Job) -> None:
        if job.workflow is not None and job.step is not None:
            flow = self._tables.flows[job.tenant, job.workflow]
            self._tables.flows[key_of(flow.workflow)] = flow.counting(job.step, -w.delta(None, job))


# --- uniqueness -----------------------------------------------------------------------------------


class UniqueIgnoresWhen(Units):
    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return super()._counts(job, replace(unique, since=None))


class UniqueIgnoresStates(Units):
    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return super()._counts(job, replace(unique, states=(job.state,)))


class TheReplacedJobStillCounts(Units):
    def _not_unique(self, new: New, moved: dict[Key, Job]) -> api.Taken | None:
        return super()._not_unique(new, {})


class IdempotencyIgnoresTheDigest(Units):
    def _promised(self, new: New, now: int) -> api.Taken | None:
        found = super()._promised(new, now)
        return found and replace(found, differs=False)


class IdempotencyKeysLiveForEver(Units):
    def _promised(self, new: New, now: int) -> api.Taken | None:
        return super()._promised(new, 0)


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
        if len(self.feed) > 1:
            self.feed[-1] = replace(self.feed[-1], pos=self.feed[-1].pos + 1)


class TheFeedForgetsAmendments(Tables):
    def record(self, events: Sequence[Event]) -> None:
        super().record(events)
        if events and events[-1].target is None:
            del self.feed[-1]


class CursorsAreShared(Tables):
    def log(self, key: Key, line: api.Line) -> int:
        cursor = super().log(key, line)
        if cursor:
            cursor = self.lines[-1].pos
            self.lines[-1] = replace(self.lines[-1], cursor=cursor)
        return cursor


class SiblingsAreNotCompared(Units):
    def _taken(self, unit: Unit, now: int) -> Outcome | None:
        alone = [
            super(SiblingsAreNotCompared, self)._taken(replace(unit, new=(n,)), now)
            for n in unit.new
        ]
        return next((found for found in alone if found), None)


class ALateWordPutsTheEndOff(Units):
    def _in_time(self, move: Move) -> int | None:
        return move.wake_at
