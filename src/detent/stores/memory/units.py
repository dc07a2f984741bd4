"""Units and claims: committed whole, and granted one job after the other."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.stores import api, flows
from detent.stores.api import Move, New, Stored, Unit, Want, key_of, name_of
from detent.stores.bounds import need_size
from detent.stores.fences import is_alive
from detent.stores.legal import is_grantable
from detent.stores.limits import Limit
from detent.stores.memory.reading import Reading
from detent.stores.quotas import Met, Named, Quotas

__all__ = ["Units"]


class Units(Reading):
    """Commits units and grants wishes."""

    _quotas = Quotas

    async def step(
        self, units: Sequence[Unit], *, now: int, want: Want | None = None
    ) -> api.Stepped:
        self._check(now)
        need_size(units, want)
        outcomes = tuple(self._commit(unit, now) for unit in units)
        seen = self._all.bell.rung
        claimed = api.Claimed() if want is None else replace(self._claim(want, now), seen=seen)
        return api.Stepped(outcomes, claimed)

    def _commit(self, unit: Unit, now: int) -> api.Outcome:
        """All of the unit, or none: everything is asked before anything is written."""
        refused = self._all.refused(unit, now)
        if refused is None:
            self._write(unit, now)
        return refused or api.Committed()

    # --- writing ----------------------------------------------------------------------------------

    def _write(self, unit: Unit, now: int) -> None:
        changes, heard = flows.heard_of(unit, self._all.job)
        if unit.flow is not None:
            self._write_flow(unit.flow.answer)
        for move in unit.moves:
            self._write_move(move, now)
        for new in unit.new:
            self._write_new(new, now)
        self._all.records |= {name_of(record): (record, unit.command_id) for record in unit.puts}
        for record in (record for record in unit.puts if record.data is None):
            del self._all.records[name_of(record)]
        if unit.gates or unit.limits:
            self._all.switch(unit.gates, unit.limits)
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
        self._put(after if after.job.erased_at is None else self._erased(after), move.events, now)
        for line in move.lines:
            self._all.log(key, line)

    def _in_time(self, job: j.Job, move: Move) -> int | None:
        """No later than the end of the wire lease that goes on, which the caller may not know."""
        row = self._all.leases.get(job.lease or "") if job.lease == move.job.lease else None
        ends = [move.wake_at] if row is None else [move.wake_at, row.until]
        return min((at for at in ends if at is not None), default=None)

    def _erased(self, stored: Stored) -> Stored:
        """Nothing is left of what the job was about or said, and no later move brings any."""
        self._all.lines = [one for one in self._all.lines if one.key != key_of(stored.job)]
        body = api.Body(stored.body.type, "null", key=stored.body.key, retry=stored.body.retry)
        return Stored(stored.job, body, stored.wake_at)

    def _write_new(self, new: New, now: int) -> None:
        key = key_of(new.job)
        if new.unique is not None:
            self._all.fingerprints[key] = new.unique.fingerprint
        if new.idempotency is not None:
            self._all.promises[key[0], new.idempotency.key] = (new.idempotency, key)
        self._put(Stored(new.job, new.body, new.wake_at), new.events, now)

    def _put(self, stored: Stored, events: Sequence[Event], now: int) -> None:
        """A job as it is from now on, with its history and its lease. Who waits is woken."""
        job, before = stored.job, self._all.head(key_of(stored.job))
        self._all.jobs[key_of(job)] = stored
        self._all.handed_out.pop(key_of(job), None)
        self._all.record(events)
        had = None if before is None else before.lease
        if had != job.lease:
            self._all.leases.pop(had or "", None)
            if job.lease is not None and job.wire:
                self._all.leases[job.lease] = j.Lease(now + (job.lease_us or 0))
        makes_room = had not in (None, job.lease) and self._all.limits
        if makes_room or (events and job.state is j.JobState.AVAILABLE):
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
        self, changes: flows.Changes, jobs: Sequence[j.Job], now: int, command_id: str
    ) -> None:
        """What the moves of these jobs ask of their workflows, and then of themselves."""
        for key in sorted(changes):
            after = flows.followed(self._all.flows[key], changes[key], jobs, now, command_id)
            self._write_flow(after.answer)
            self._all.flows[key] = after.flow
            for job, answer in after.recalled:
                self._write_move(Move(job.version, answer.job, answer.events), now)

    # --- claims -----------------------------------------------------------------------------------

    def _claim(self, want: Want, now: int) -> api.Claimed:
        if not is_grantable(want):
            return api.Claimed()
        if not want.wire and not is_alive(self._all.worker_lease(want.holder), now):
            return api.Claimed(lost=True)
        again = self._claimed_before(want)
        mine = tuple(one for one in again if one.job.tenant == want.tenant)
        return api.Claimed(mine) if again else self._grant(want, now)

    def _claimed_before(self, want: Want) -> list[Stored]:
        """The reply to this very wish was lost: the jobs that hold its leases are the answer.

        Those of another tenant are none of its business, but their leases are given away.
        """
        held = [one for one in self._all.jobs.values() if one.job.holder == want.holder]
        by_lease = {one.job.lease: one for one in held}
        return [by_lease[lease] for lease in want.leases if lease in by_lease]

    def _grant(self, want: Want, now: int) -> api.Claimed:
        """The best of those that are left, again and again; the lifecycle and limits may object."""
        free = [x for x in self._all.jobs.values() if x.job.state is j.JobState.AVAILABLE]
        left = [one for one in free if self._fits(one, want)]
        quotas, moves = self._quotas(now, self._met), list[Move]()
        while left and len(moves) < len(want.leases):
            stored = min(left, key=lambda one: self._turn(one, want))
            left = [one for one in left if one is not stored]
            answer = self._answer(stored, want.leases[len(moves)], want, now)
            limits = self._limits_of(stored)
            if isinstance(answer, j.Accepted) and quotas.has_room(limits):
                wake_at = j.next_wake(answer.job, now)
                moves.append(Move(stored.job.version, answer.job, answer.events, wake_at))
                quotas.spend(limits)
                self._serve(stored, want, now)
        self._all.used |= quotas.used
        self._write(Unit(want.command_id, tuple(moves)), now)
        granted = tuple(self._all.jobs[key_of(move.job)] for move in moves)
        is_short = len(granted) < len(want.leases)
        return api.Claimed(granted, retry_at=quotas.free_at if is_short else None)

    def _met(self, name: Named) -> Met | None:
        """A limit as it stands, if there is one of that name."""
        found = self._limited(name) if name in self._all.limits else None
        return (found.row.limit or Limit(), found.used, found.active) if found else None

    def _fits(self, stored: Stored, want: Want) -> bool:
        job, kind = stored.job, stored.body.type
        is_there = job.tenant == want.tenant and job.queue in want.queues
        is_known = want.types is None or kind in want.types
        return is_there and is_known and (want.profiles is None or job.profile in want.profiles)

    def _turn(self, stored: Stored, want: Want) -> tuple[int, int, int, int, str]:
        """Whoever was served longest ago, if that counts; then queue, priority, place and id."""
        job = stored.job
        served = self._all.served.get(self._server(stored, want), 0) if want.fair else 0
        queue = 0 if want.fair else want.queues.index(job.queue)
        return served, queue, -job.priority, job.place or 0, job.id

    def _server(self, stored: Stored, want: Want) -> Named:
        name = stored.job.queue if want.fair is api.Fair.QUEUES else stored.body.key or ""
        return want.tenant, str(want.fair), name

    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        """What the lifecycle says to a claim; whatever it refuses is passed over."""
        row, gate = self._all.worker_lease(want.holder), self._all.gate_of(stored)
        asked = j.Dispatch if want.push else j.Claim
        command = asked(lease, want.holder, want.wire, want.lease_us)
        ctx = j.Context(want.by, want.command_id, lease=row, gate=gate)
        return j.decide(stored.job, command, now, ctx)

    def _serve(self, stored: Stored, want: Want, now: int) -> None:
        """Its queue or key is served now, after all others."""
        if want.fair:
            latest = max(self._all.served.values(), default=0)
            self._all.served[self._server(stored, want)] = max(now, latest + 1)
