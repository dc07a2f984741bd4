"""Units: judged by the fences, written whole, and followed by what their workflows ask for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.stores import api, flows
from detent.stores.api import Key, Move, New, Outcome, Stored, Unit, key_of, name_of
from detent.stores.fences import is_alive, is_over
from detent.stores.legal import fault
from detent.stores.memory.tables import Tables
from detent.stores.siblings import Siblings, counts

__all__ = ["Units"]


class Units:
    """Commits units, one after the other."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def commit(self, unit: Unit, now: int) -> Outcome:
        """All of the unit, or none: everything is asked before anything is written."""
        refused = self._refused(unit, now)
        if refused is None:
            self._write(unit, now)
        return refused or api.Committed()

    def _refused(self, unit: Unit, now: int) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        refused = self._flow_fenced(unit) or self._puts_fenced(unit) or self._taken(unit, now)
        return refused or self._illegal(unit)

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """What a check or a trigger refuses in a database: the fault is the caller's code."""
        why = fault(
            unit,
            lambda key: self._tables.jobs[key].job.ended_at is not None,
            self._tables.flows.get,
        )
        events = [event for new in unit.new for event in new.events]
        events += unit.flow.answer.events if unit.flow else ()
        for event in events:
            if event.version <= len(self._tables.events.get((event.tenant, event.record), ())):
                why = why or f"version {event.version} of {event.record} exists already"
        why = why or self._held_twice(unit)
        return None if why is None else api.Rejected(why)

    def _held_twice(self, unit: Unit) -> str | None:
        """A lease is made once per claim: its holder has it for one job and for no other."""
        jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
        after = {key_of(job): job for job in jobs}
        given = [(one.holder, one.lease) for one in after.values() if one.lease is not None]
        others = (one.job for key, one in self._tables.jobs.items() if given and key not in after)
        held = {(one.holder, one.lease) for one in others if one.lease is not None}
        is_twice = len(given) != len(set(given)) or not held.isdisjoint(given)
        return "its holder has that lease already, for another job" if is_twice else None

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        key = key_of(move.job)
        stored = self._tables.jobs.get(key)
        if stored is None:
            return api.Stale(key, None)
        if move.version == stored.job.version and move.lease in (None, stored.job.lease):
            return None
        return api.Own() if self._is_own(unit, key) else api.Stale(key, stored.job)

    def _is_own(self, unit: Unit, key: Key) -> bool:
        events = self._tables.events.get(key, ())
        return any(event.command_id == unit.command_id for event in events)

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        key = key_of(move.job)
        if move.lost:
            job = self._tables.jobs[key].job
            held_by = self._tables.lease_of(job)
            if held_by is not None and not is_over(held_by, wire=job.wire, now=now):
                return api.LeaseAlive(key, held_by)
        if move.taken_by is not None:
            row = self._tables.worker_lease(move.taken_by)
            if not is_alive(row, now):
                return api.LeaseAlive(key, row)
        return None

    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        """Every version of the workflow and its steps that the decision was made on."""
        if unit.flow is None:
            return None
        key = key_of(unit.flow.answer.flow.workflow)
        stored = self._tables.flows.get(key)
        if not flows.is_stale(unit.flow, stored):
            return None
        steps = [] if stored is None else [(key[0], step) for step in stored.steps]
        is_own = any(self._is_own(unit, one) for one in [key, *steps]) or self._is_born(unit)
        return api.Own() if is_own else api.StaleFlow(key, stored)

    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        for record in unit.puts:
            stored, command_id = self._tables.records.get(name_of(record), (None, ""))
            if record.version == (stored.version if stored else 0) + 1:
                continue
            is_own = stored and (stored.version, command_id) == (record.version, unit.command_id)
            is_own = is_own or self._is_born(unit)
            return api.Own() if is_own else api.StaleRecord(record, stored)
        return None

    def _is_born(self, unit: Unit) -> bool:
        """A job that came with the unit tells that it was committed, whatever went on since."""
        return any(self._is_own(unit, key_of(new.job)) for new in unit.new)

    # --- step: what must be the only one of its kind --------------------------------------------

    def _taken(self, unit: Unit, now: int) -> Outcome | None:
        moved = {key_of(move.job): move.job for move in unit.moves}
        siblings = Siblings()
        for new in unit.new:
            taken = self._id_taken(unit, new) or self._promised(new, now)
            taken = siblings.judge(new, taken or self._not_unique(new, moved), now)
            if taken is not None:
                return taken
        return None

    def _id_taken(self, unit: Unit, new: New) -> Outcome | None:
        key = key_of(new.job)
        if key not in self._tables.jobs:
            return None
        return api.Own() if self._is_own(unit, key) else api.Taken("id", self._tables.jobs[key].job)

    def _promised(self, new: New, now: int) -> api.Taken | None:
        """An idempotency key that is still alive answers the job it was used for."""
        asked = new.idempotency
        if asked is None or (new.job.tenant, asked.key) not in self._tables.promises:
            return None
        earlier, key = self._tables.promises[new.job.tenant, asked.key]
        if earlier.expires_at <= now:
            return None
        differs = earlier.digest != asked.digest
        return api.Taken("idempotency", self._tables.jobs[key].job, differs=differs)

    def _not_unique(self, new: New, moved: dict[Key, Job]) -> api.Taken | None:
        unique = new.unique
        if unique is None:
            return None
        keys = self._tables.fingerprints[new.job.tenant, unique.fingerprint]
        there = [k for k in keys if self._counts(moved.get(k, self._tables.jobs[k].job), unique)]
        jobs = [self._tables.jobs[key].job for key in there]
        return api.Taken("unique", min(jobs, key=lambda one: one.created_at)) if jobs else None

    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return counts(job, unique)

    # --- step: writing ------------------------------------------------------------------------

    def _write(self, unit: Unit, now: int) -> None:
        moved: list[flows.Moved] = []
        if unit.flow is not None:
            self._write_flow(unit.flow.answer)
        for move in unit.moves:
            if move.events:
                moved.append((self._tables.jobs[key_of(move.job)].job, move.job))
            self._write_move(move, now)
        for new in unit.new:
            moved.append((None, new.job))
            self._write_new(new, now)
        for record in unit.puts:
            self._tables.records[name_of(record)] = (record, unit.command_id)
            if record.data is None:
                del self._tables.records[name_of(record)]
        if unit.gates or unit.limits:
            self._write_switches(unit)
        changes = flows.changes_of(moved)
        if unit.flow is not None:
            key = key_of(unit.flow.answer.flow.workflow)
            changes[key] = flows.touched_by(unit.flow) | changes.get(key, {})
        heard = [job for before, job in moved if flows.is_heard(before, job)]
        self.follow(changes, heard, now, unit.command_id)

    def _write_switches(self, unit: Unit) -> None:
        self._tables.set_gates(unit.gates)
        self._tables.set_limits(unit.limits)

    def _write_move(self, move: Move, now: int) -> None:
        key = key_of(move.job)
        before = self._tables.jobs[key]
        meta = before.body.meta if move.meta is None else move.meta
        self._tables.jobs[key] = replace(
            before,
            job=move.job if move.events else before.job,
            body=replace(before.body, meta=meta),
            wake_at=self._in_time(move),
            result=before.result if move.result is None else move.result,
            failures=(*before.failures, move.failure) if move.failure else before.failures,
            checkpoint=before.checkpoint if move.checkpoint is None else move.checkpoint,
        )
        if self._tables.jobs[key].job.erased_at is not None:
            self._erase(key)
        self.after_write(before.job, self._tables.jobs[key].job, move.events, now)
        for line in move.lines:
            self._tables.log(key, line)

    def _in_time(self, move: Move) -> int | None:
        """No later than the end of the wire lease that goes on, which the caller may not know."""
        job = self._tables.jobs[key_of(move.job)].job
        until = self._tables.leases.get(job.lease or "") if job.lease == move.job.lease else None
        return min((at for at in (move.wake_at, until) if at is not None), default=None)

    def _erase(self, key: Key) -> None:
        """Nothing is left of what the job was about or said, and no later move brings any."""
        stored = self._tables.jobs[key]
        body = api.Body(stored.body.type, "null", key=stored.body.key, retry=stored.body.retry)
        self._tables.jobs[key] = Stored(stored.job, body, stored.wake_at)
        self._tables.lines = [one for one in self._tables.lines if one.key != key]

    def _write_new(self, new: New, now: int) -> None:
        key = key_of(new.job)
        self._tables.jobs[key] = Stored(new.job, new.body, new.wake_at)
        if new.unique is not None:
            self._tables.fingerprints[new.job.tenant, new.unique.fingerprint].append(key)
        if new.idempotency is not None:
            self._tables.promises[new.job.tenant, new.idempotency.key] = (new.idempotency, key)
        self.after_write(None, new.job, new.events, now)

    def after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        self._tables.record(events)
        self._tables.handed_out.pop(key_of(job), None)
        has_ended = before is not None and before.lease not in (None, job.lease)
        if before is not None and before.lease != job.lease:
            self._tables.leases.pop(before.lease or "", None)
        if job.lease is not None and job.wire and (before is None or before.lease != job.lease):
            self._tables.leases[job.lease] = now + (job.lease_us or 0)
        if (events and job.state is JobState.AVAILABLE) or (has_ended and self._tables.limits):
            self._tables.bell.ring()

    def _write_flow(self, answer: w.Accepted) -> None:
        key = key_of(answer.flow.workflow)
        tallies = self._tables.flows[key].tallies if key in self._tables.flows else {}
        self._tables.flows[key] = replace(answer.flow, tallies=tallies)
        self._tables.swept |= {(*key, step) for step in answer.sweep}
        self._tables.record(answer.events)
        if answer.opened:
            self._tables.bell.ring()

    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        """What the moves of these jobs ask of their workflows, and then of themselves."""
        for key in sorted(changes):
            answer = flows.follow(self._tables.flows[key], changes[key], now, command_id)
            self._write_flow(answer)
            tallies = {step: tally for step, tally in answer.flow.tallies.items() if tally.total}
            self._tables.flows[key] = replace(answer.flow, tallies=tallies)
            for job in jobs:
                if (job.tenant, job.workflow) == key:
                    self._recall(job, now, command_id)

    def _recall(self, job: Job, now: int, command_id: str) -> None:
        flow = self._tables.flows[job.tenant, job.workflow or ""]
        answer = flows.recalled(flow, job, now, command_id)
        if answer is not None:
            self._write_move(Move(job.version, answer.job, answer.events), now)
            change = w.delta(job, answer.job)
            self._tables.flows[key_of(flow.workflow)] = flow.counting(job.step or "", change)
