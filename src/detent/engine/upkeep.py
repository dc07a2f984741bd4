"""The alarm clock: what time does to jobs, taken from the store and answered in batches.

Any number of processes may run it at once; the store hands each due item to one of them. After a
gap in everybody's turns (the database was down, the host stood still, nobody was there) it grants
all a lease's length before it declares anybody lost: they could not renew either. The mark in the
store tells, see `marking`. Who ran on this host and boot and is gone needs no grace.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.identity import Identity
from detent.engine.lasting import TOTAL, is_over, over, wake_of
from detent.engine.losing import failure_of, is_spared, reason_of
from detent.engine.marking import GAP_US, Mark, Marking
from detent.engine.processes import is_gone
from detent.engine.sealing import Sealing
from detent.engine.setback import Setback, brought_back
from detent.engine.silence import WORKERS_MAX, Closing
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.event import By
from detent.lifecycle.job.table import Cause
from detent.lifecycle.job.waking import limit_end
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import HEARTBEAT_LEASE_US, PROFILES, Delivery
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Death, Due, Failure, Move, Record, Store, Unit, WorkerRow

Answers: TypeAlias = dict[str, Callable[[Sequence[Record]], Awaitable[None]]]
"""By kind of small record, who answers those that are due."""

BY = By(Actor.SYSTEM, "upkeep")
BATCH = 200
"""How many due items one turn takes at a time; more are taken by the next."""
PAUSE_S = 0.1
"""How long an idle upkeep sleeps: a retry fires within twice that."""
SWEEP_US = 1_000_000
"""How often it is asked whether instances of this host are gone, and results may go."""
KEPT_US = 7 * 86_400 * 1_000_000
"""How long instances that are gone are remembered."""
STARTING_US = 30_000_000
"""How long it may take between the claim of a job and the call of its handler, at most."""


_TOO_LONG = "It took longer than it was given."
_OVER = "All its attempts together took longer than it was given."


class Done(msgspec.Struct, frozen=True):
    """What one turn did."""

    moved: int = 0
    rearmed: int = 0
    declared_lost: int = 0
    records: int = 0

    @property
    def is_busy(self) -> bool:
        """Whether there may be more of it right now."""
        return max(self.moved + self.rearmed, self.records) >= BATCH


class Upkeep:
    """One loop over everything that time changes."""

    def __init__(
        self,
        store: Store,
        coalescer: Coalescer,
        identity: Identity,
        jitter: Callable[[], float],
        answers: Answers,
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._jitter = jitter
        self._answers = answers
        self._last_turn: int | None = None
        self._swept_at: int | None = None
        self._marking = Marking(store, coalescer.commit, identity)
        self._setback = Setback(store, coalescer.commit, identity, BY)
        self._mark = Mark()
        self._sealing = Sealing(store, self._marking.may_seal)
        self._closing = Closing(store, identity)
        self.gap_at = 0
        """When this upkeep last heard of a gap; whoever beat since then could beat all the time."""
        self.trusting_until = 0
        """Until then nobody is declared lost: there was a gap."""

    async def run(self) -> None:
        """Turn after turn, until called off."""
        while True:
            done = await self.turn()
            await asyncio.sleep(0 if done.is_busy else PAUSE_S)

    async def turn(self) -> Done:
        """Everything that is due now, as far as one batch of each goes."""
        now = self._store.now()
        await self._mind_the_gap(now)
        lost = await self._sweep(now) + await self._declare_lost(now)
        due = await self._store.take_due(now=now, limit=BATCH)
        units = [self._ticked(one, now) for one in due]
        if units:
            await self._coalescer.commit(units)
        records = await self._records(now)
        await self._sealing.turn(now)
        moved = sum(bool(unit.moves[0].events) for unit in units)
        # Its beginning: if the store stood still in the middle of it, nobody else could renew.
        self._last_turn = now
        return Done(moved, len(units) - moved, lost, records)

    async def _mind_the_gap(self, now: int) -> None:
        has_gap = self._last_turn is None or now - self._last_turn > GAP_US
        mark = self._mark = await self._marking.turn(now, has_gap=has_gap)
        if self._marking.is_set_back:
            await self._setback.mend(now)
        if mark.trusting_until > self.trusting_until:
            self.gap_at = now
        self.trusting_until = mark.trusting_until
        if await self._marking.may_prune(now):
            await self._closing.turn(now, before=now - KEPT_US)
            await self._store.forget_workers(before=now - KEPT_US, now=now)

    async def _sweep(self, now: int) -> int:
        """Bury instances of this host and boot whose process is gone, and who tells of it too."""
        if self._swept_at is not None and 0 <= now - self._swept_at < SWEEP_US:
            return 0
        self._swept_at = now
        rows = await self._store.workers(WORKERS_MAX)
        if back := brought_back(rows, now):
            await self._store.beat(back, now=now)
        await self._store.forget_results(now=now)
        deaths = [death for row in rows if (death := _death_of(row)) is not None]
        return sum(await self._store.bury(deaths, now=now)) if deaths else 0

    async def _declare_lost(self, now: int) -> int:
        if now < self.trusting_until:
            return 0
        over = await self._store.overdue(now=now, limit=BATCH)
        if not over:
            return 0
        return sum(await self._store.declare_lost([row.id for row in over], now=now))

    async def _records(self, now: int) -> int:
        if not self._answers:
            return 0
        due = await self._store.take_due_records(now=now, limit=BATCH)
        by_kind: dict[str, list[Record]] = defaultdict(list)
        for record in due:
            by_kind[record.kind].append(record)
        # A kind that nobody here answers is due again in a moment, for a process that knows it.
        asked = [
            self._answers[kind](some) for kind, some in by_kind.items() if kind in self._answers
        ]
        for done in await asyncio.gather(*asked, return_exceptions=True):
            # What went wrong with one kind is told when the others had their turn.
            if done is not None:
                raise done
        return len(due)

    def _ticked(self, due: Due, now: int) -> Unit:
        """What time does to the job, or when to look at it again."""
        ctx = self._context(due)
        answer = self._decided(due, now, ctx)
        if isinstance(answer, j.Accepted):
            return _moving(due, answer, now, ctx.command_id)
        wake_at = wake_of(due.stored.job, due.stored.body, now, due.gate, due.lease)
        if wake_at is not None and wake_at <= now:
            wake_at = max(self.trusting_until, now + HEARTBEAT_LEASE_US)
        job = due.stored.job
        return Unit(ctx.command_id, moves=(Move(job.version, job, wake_at=wake_at),))

    def _decided(self, due: Due, now: int, ctx: j.Context) -> j.Answer:
        job = due.stored.job
        if due.swept:
            return j.decide(job, j.Cancel(Cause.WORKFLOW, force=True), now, ctx)
        seen = now - self._mark.unwatched_us(job.claimed_at or now)
        if job.state is j.JobState.ACTIVE and is_over(job, due.stored.body, seen):
            return over(job, now, ctx)
        answer = j.tick(job, now, ctx)
        if not isinstance(answer, j.Accepted):
            return answer
        if not _is_loss(answer):
            is_late = _is_named(answer, "time_out")
            return j.Unchanged(job) if is_late and self._may_go_on(due, seen, now) else answer
        # Whoever has claimed since the gap could renew all the time.
        if now < self.trusting_until and job.wire and (job.claimed_at or 0) < self.gap_at:
            return j.Unchanged(job)
        told = replace(ctx, reason=reason_of(due))
        if is_spared(due):
            return j.decide(job, j.HandBack(), now, told)
        return j.tick(job, now, told)

    def _may_go_on(self, due: Due, seen: int, now: int) -> bool:
        """Whether a job that is late is not: by the time that was seen, or its worker sees to it.

        Its worker goes by the call of the handler, and by a clock that nobody sets. One that cannot
        see to it any more is not waited for much longer.
        """
        job, lease, end = due.stored.job, due.lease, limit_end(due.stored.job) or 0
        if job.state is not j.JobState.ACTIVE or seen < end:
            return job.state is j.JobState.ACTIVE
        is_ours = job.delivery is Delivery.PULL and not job.wire
        is_alive = lease is not None and not lease.lost and lease.until > now
        return is_ours and is_alive and seen < end + STARTING_US

    def _context(self, due: Due) -> j.Context:
        job, body = due.stored.job, due.stored.body
        code = PROFILES[job.profile].codes.get((job.state, "time_out"), "lost")
        failures = job.failures + 1
        verdict = retry.judge(body.retry, ErrorInfo(code), failures, self._jitter())
        end = retry.total_end(body.retry, job.created_at)
        verdict = retry.within(verdict, end, self._store.now())
        place, command_id = self._identity.place(), self._identity.id()
        return j.Context(BY, command_id, place, due.lease, due.gate, verdict)


def _death_of(row: WorkerRow) -> Death | None:
    """The proof that the process of this instance is gone, if it is and nobody else tells of it."""
    who = row.who
    if who is None or who.process is None or not is_gone(who.process):
        return None
    has_keeper = who.keeper is not None and not is_gone(who.keeper)
    return None if has_keeper else Death(row.id, process=who.process)


def _moving(due: Due, answer: j.Accepted, now: int, command_id: str) -> Unit:
    job = due.stored.job
    move = Move(
        job.version,
        answer.job,
        answer.events,
        wake_at=wake_of(answer.job, due.stored.body, now, due.gate),
        lease=job.lease,
        lost=_is_loss(answer) or _is_named(answer, "hand_back"),
        failure=_failure(due, answer),
    )
    return Unit(command_id, moves=(move,))


def _failure(due: Due, answer: j.Accepted) -> Failure | None:
    """What an attempt that time has ended failed with; nobody else will tell."""
    job, last = due.stored.job, answer.events[-1]
    is_discarded = answer.job.state is j.JobState.DISCARDED
    if is_discarded and is_over(job, due.stored.body, last.at):
        return Failure(job.attempt, last.at, TOTAL, _OVER)
    if _is_loss(answer):
        return failure_of(due, answer.events[0], reason_of(due))
    ended = next((event for event in answer.events if event.charged is not None), None)
    if ended is None or ended.code is None:
        return None
    return Failure(job.attempt, ended.at, ended.code, _TOO_LONG)


def _is_loss(answer: j.Accepted) -> bool:
    return _is_named(answer, "lose")


def _is_named(answer: j.Accepted, name: str) -> bool:
    """Also of a job that was called off: then it is the cause of its end."""
    return any(name in (event.name, event.cause) for event in answer.events)
