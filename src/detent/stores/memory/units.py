"""Units: judged by the fences, written whole, and followed by what their workflows ask for."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.stores import api, flows
from detent.stores.api import Key, Move, New, Outcome, Own, Stored, Unit, key_of, name_of
from detent.stores.fences import is_alive, is_over
from detent.stores.legal import fault
from detent.stores.memory.tables import Tables
from detent.stores.siblings import Siblings, counts

__all__ = ["Units"]


class Units:
    """Commits units, one after the other."""

    def __init__(self) -> None:
        self._all = Tables()

    def _commit(self, unit: Unit, now: int) -> Outcome:
        """All of the unit, or none: everything is asked before anything is written."""
        refused = self._refused(unit, now)
        if refused is None:
            self._write(unit, now)
        return refused or api.Committed()

    # --- what is asked before --------------------------------------------------------------------

    def _refused(self, unit: Unit, now: int) -> Outcome | None:
        for move in unit.moves:
            fenced = self._fenced(unit, move) or self._fenced_by_row(move, now)
            if fenced is not None:
                return fenced
        refused = self._flow_fenced(unit) or self._puts_fenced(unit) or self._taken(unit, now)
        return refused or self._illegal(unit)

    def _fenced(self, unit: Unit, move: Move) -> Outcome | None:
        """The version, and the lease where one is named. One's own success is seen first."""
        key = key_of(move.job)
        stored = self._all.jobs.get(key)
        if stored is None:
            return api.Stale(key, None)
        if move.version == stored.job.version and move.lease in (None, stored.job.lease):
            return None
        return Own() if self._is_own(unit, key) else api.Stale(key, stored.job)

    def _is_own(self, unit: Unit, key: Key) -> bool:
        return any(fed.event.command_id == unit.command_id for fed in self._all.events.get(key, ()))

    def _is_born(self, unit: Unit) -> bool:
        """A job that came with the unit tells that it was committed, whatever went on since."""
        return any(self._is_own(unit, key_of(new.job)) for new in unit.new)

    def _fenced_by_row(self, move: Move, now: int) -> Outcome | None:
        """The third fence: renewal moves no version, so the row itself is looked at again."""
        key, job = key_of(move.job), self._all.jobs[key_of(move.job)].job
        held_by = self._all.lease_of(job) if move.lost else None
        if held_by is not None and not is_over(held_by, wire=job.wire, now=now):
            return api.LeaseAlive(key, held_by)
        taker = None if move.taken_by is None else self._all.worker_lease(move.taken_by)
        return None if taker is None or is_alive(taker, now) else api.LeaseAlive(key, taker)

    def _flow_fenced(self, unit: Unit) -> Outcome | None:
        """Every version of the workflow and its steps that the decision was made on."""
        if unit.flow is None:
            return None
        key = key_of(unit.flow.answer.flow.workflow)
        stored = self._all.flows.get(key)
        if not flows.is_stale(unit.flow, stored):
            return None
        keys = [key, *((key[0], step) for step in (stored.steps if stored else ()))]
        is_own = any(self._is_own(unit, one) for one in keys) or self._is_born(unit)
        return Own() if is_own else api.StaleFlow(key, stored)

    def _puts_fenced(self, unit: Unit) -> Outcome | None:
        for record in unit.puts:
            stored, command_id = self._all.records.get(name_of(record), (None, ""))
            if record.version == (stored.version if stored else 0) + 1:
                continue
            is_own = stored and (stored.version, command_id) == (record.version, unit.command_id)
            return Own() if is_own or self._is_born(unit) else api.StaleRecord(record, stored)
        return None

    def _taken(self, unit: Unit, now: int) -> Outcome | None:
        """What must be the only one of its kind."""
        moved = {key_of(move.job): move.job for move in unit.moves}
        siblings = Siblings()
        for new in unit.new:
            found = self._id_taken(unit, new) or self._promised(new, now)
            found = siblings.judge(new, found or self._not_unique(new, moved), now)
            if found is not None:
                return found
        return None

    def _id_taken(self, unit: Unit, new: New) -> Outcome | None:
        stored = self._all.jobs.get(key_of(new.job))
        if stored is None:
            return None
        return Own() if self._is_own(unit, key_of(new.job)) else api.Taken("id", stored.job)

    def _promised(self, new: New, now: int) -> api.Taken | None:
        """An idempotency key that is still alive answers the job it was used for."""
        asked = new.idempotency
        found = asked and self._all.promises.get((new.job.tenant, asked.key))
        if not asked or not found or found[0].expires_at <= now:
            return None
        differs = found[0].digest != asked.digest
        return api.Taken("idempotency", self._all.jobs[found[1]].job, differs=differs)

    def _not_unique(self, new: New, moved: dict[Key, Job]) -> api.Taken | None:
        unique, alike = new.unique, self._all.fingerprints.items()
        if unique is None:
            return None
        keys = [k for k, one in alike if (k[0], one) == (new.job.tenant, unique.fingerprint)]
        jobs = [self._all.jobs[key].job for key in keys]
        there = [job for job in jobs if self._counts(moved.get(key_of(job), job), unique)]
        return api.Taken("unique", min(there, key=lambda job: job.created_at)) if there else None

    def _counts(self, job: Job, unique: api.Unique) -> bool:
        return counts(job, unique)

    def _illegal(self, unit: Unit) -> api.Rejected | None:
        """What a check or a trigger refuses in a database: the fault is the caller's code."""
        why = fault(
            unit, lambda key: self._all.jobs[key].job.ended_at is not None, self._all.flows.get
        )
        events = [event for new in unit.new for event in new.events]
        for event in (*events, *(unit.flow.answer.events if unit.flow else ())):
            if event.version <= len(self._all.events.get((event.tenant, event.record), ())):
                why = why or f"version {event.version} of {event.record} exists already"
        if self._is_held_twice(unit):
            why = why or "its holder has that lease already, for another job"
        return None if why is None else api.Rejected(why)

    def _is_held_twice(self, unit: Unit) -> bool:
        """A lease is made once per claim: its holder has it for one job and for no other."""
        jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
        after = {key_of(job): job for job in jobs}
        given = [(job.holder, job.lease) for job in after.values() if job.lease is not None]
        others = [one.job for key, one in self._all.jobs.items() if given and key not in after]
        held = {(job.holder, job.lease) for job in others}
        return len(given) != len(set(given)) or not held.isdisjoint(given)

    # --- writing ---------------------------------------------------------------------------------

    def _write(self, unit: Unit, now: int) -> None:
        before = [
            (self._all.jobs[key_of(one.job)].job, one.job) for one in unit.moves if one.events
        ]
        moved: list[flows.Moved] = [*before, *((None, new.job) for new in unit.new)]
        changes = flows.changes_of(moved)
        if unit.flow is not None:
            self._write_flow(unit.flow.answer)
            key = key_of(unit.flow.answer.flow.workflow)
            changes[key] = flows.touched_by(unit.flow) | changes.get(key, {})
        for move in unit.moves:
            self._write_move(move, now)
        for new in unit.new:
            self._write_new(new, now)
        self._all.records |= {name_of(record): (record, unit.command_id) for record in unit.puts}
        for record in (record for record in unit.puts if record.data is None):
            del self._all.records[name_of(record)]
        if unit.gates or unit.limits:
            self._all.switch(unit.gates, unit.limits)
        heard = [job for earlier, job in moved if flows.is_heard(earlier, job)]
        self._follow(changes, heard, now, unit.command_id)

    def _write_move(self, move: Move, now: int) -> None:
        key = key_of(move.job)
        before = self._all.jobs[key]
        after = Stored(
            job=move.job if move.events else before.job,
            body=before.body if move.meta is None else replace(before.body, meta=move.meta),
            wake_at=self._in_time(before.job, move),
            result=before.result if move.result is None else move.result,
            failures=(*before.failures, move.failure) if move.failure else before.failures,
            note=before.note,
            checkpoint=before.checkpoint if move.checkpoint is None else move.checkpoint,
        )
        if move.result is not None:
            self._all.results_until[key] = move.result_until
        self._all.jobs[key] = after if after.job.erased_at is None else self._erased(after)
        self._after_write(before.job, after.job, move.events, now)
        for line in move.lines:
            self._all.log(key, line)

    def _in_time(self, job: Job, move: Move) -> int | None:
        """No later than the end of the wire lease that goes on, which the caller may not know."""
        until = self._all.leases.get(job.lease or "") if job.lease == move.job.lease else None
        return min((at for at in (move.wake_at, until) if at is not None), default=None)

    def _erased(self, stored: Stored) -> Stored:
        """Nothing is left of what the job was about or said, and no later move brings any."""
        self._all.lines = [one for one in self._all.lines if one.key != key_of(stored.job)]
        body = api.Body(stored.body.type, "null", key=stored.body.key, retry=stored.body.retry)
        return Stored(stored.job, body, stored.wake_at)

    def _write_new(self, new: New, now: int) -> None:
        key = key_of(new.job)
        self._all.jobs[key] = Stored(new.job, new.body, new.wake_at)
        if new.unique is not None:
            self._all.fingerprints[key] = new.unique.fingerprint
        if new.idempotency is not None:
            self._all.promises[new.job.tenant, new.idempotency.key] = (new.idempotency, key)
        self._after_write(None, new.job, new.events, now)

    def _after_write(self, before: Job | None, job: Job, events: Sequence[Event], now: int) -> None:
        """The history, and the lease if the job has got one or lost it. Who waits is woken."""
        self._all.record(events)
        self._all.handed_out.pop(key_of(job), None)
        had = before.lease if before is not None else None
        if had != job.lease:
            self._all.leases.pop(had or "", None)
            if job.lease is not None and job.wire:
                self._all.leases[job.lease] = now + (job.lease_us or 0)
        has_ended = had not in (None, job.lease)
        if (events and job.state is JobState.AVAILABLE) or (has_ended and self._all.limits):
            self._all.bell.ring()

    def _write_flow(self, answer: w.Accepted) -> None:
        """Workflow and steps; what a step counts is nobody's to say but ours."""
        key = key_of(answer.flow.workflow)
        tallies = self._all.flows[key].tallies if key in self._all.flows else {}
        self._all.flows[key] = replace(answer.flow, tallies=tallies)
        self._all.swept |= {(*key, step) for step in answer.sweep}
        self._all.record(answer.events)
        if answer.opened:
            self._all.bell.ring()

    def _follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> None:
        """What the moves of these jobs ask of their workflows, and then of themselves."""
        for key in sorted(changes):
            answer = flows.follow(self._all.flows[key], changes[key], now, command_id)
            self._write_flow(answer)
            tallies = {step: tally for step, tally in answer.flow.tallies.items() if tally.total}
            self._all.flows[key] = replace(answer.flow, tallies=tallies)
            for job in (job for job in jobs if (job.tenant, job.workflow) == key):
                self._recall(job, now, command_id)

    def _recall(self, job: Job, now: int, command_id: str) -> None:
        flow = self._all.flows[job.tenant, job.workflow or ""]
        answer = flows.recalled(flow, job, now, command_id)
        if answer is not None:
            self._write_move(Move(job.version, answer.job, answer.events), now)
            change = w.delta(job, answer.job)
            self._all.flows[key_of(flow.workflow)] = flow.counting(job.step or "", change)
