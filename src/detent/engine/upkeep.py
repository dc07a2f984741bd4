"""The alarm clock: what time does to jobs, taken from the store and answered in batches.

Any number of processes may run it at once; the store hands each due item to one of them. After a
gap in its own turns (the database was down, the host stood still, it has just started) it grants
everybody a lease's length before it declares anybody lost: they could not renew either.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from detent.engine.coalesce import Coalescer
from detent.engine.identity import Identity
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.event import By
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import HEARTBEAT_LEASE_US, PROFILES
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Due, Failure, Move, Record, Store, Unit

__all__ = ["Answers", "Done", "Upkeep"]

Answers: TypeAlias = dict[str, Callable[[Sequence[Record]], Awaitable[None]]]
"""By kind of small record, who answers those that are due."""

BY = By(Actor.SYSTEM, "upkeep")
BATCH = 200
"""How many due items one turn takes at a time; more are taken by the next."""
PAUSE_S = 0.1
"""How long an idle upkeep sleeps: a retry fires within twice that."""
GAP_US = 3_000_000
"""A longer silence of ours means that others may have been silenced too."""


_SAYS = {
    "time_out": "It took longer than it was given.",
    "lose": "Its holder has given no sign of life.",
}


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
        self._gap_at = 0
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
        self._mind_the_gap(now)
        lost = await self._declare_lost(now)
        due = await self._store.take_due(now=now, limit=BATCH)
        units = [self._ticked(one, now) for one in due]
        if units:
            await self._coalescer.commit(units)
        records = await self._records(now)
        moved = sum(bool(unit.moves[0].events) for unit in units)
        self._last_turn = self._store.now()
        return Done(moved, len(units) - moved, lost, records)

    def _mind_the_gap(self, now: int) -> None:
        if self._last_turn is None or now - self._last_turn > GAP_US:
            self._gap_at = now
            self.trusting_until = now + HEARTBEAT_LEASE_US

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
        wake_at = j.next_wake(due.stored.job, now, gate=due.gate, lease=due.lease)
        if wake_at is not None and wake_at <= now:
            wake_at = max(self.trusting_until, now + HEARTBEAT_LEASE_US)
        job = due.stored.job
        return Unit(ctx.command_id, moves=(Move(job.version, job, wake_at=wake_at),))

    def _decided(self, due: Due, now: int, ctx: j.Context) -> j.Answer:
        job = due.stored.job
        if due.swept:
            return j.decide(job, j.Cancel(Cause.WORKFLOW, force=True), now, ctx)
        answer = j.tick(job, now, ctx)
        # Whoever has claimed since the gap could renew all the time.
        was_there = job.wire and (job.claimed_at or 0) < self._gap_at
        is_trusted = now < self.trusting_until and was_there
        if is_trusted and isinstance(answer, j.Accepted) and _is_loss(answer):
            return j.Unchanged(job)
        return answer

    def _context(self, due: Due) -> j.Context:
        job, body = due.stored.job, due.stored.body
        code = PROFILES[job.profile].codes.get((job.state, "time_out"), "lost")
        failures = job.failures + 1
        verdict = retry.judge(body.retry, ErrorInfo(code), failures, self._jitter())
        place, command_id = self._identity.place(), self._identity.id()
        return j.Context(BY, command_id, place, due.lease, due.gate, verdict)


def _moving(due: Due, answer: j.Accepted, now: int, command_id: str) -> Unit:
    job = due.stored.job
    move = Move(
        job.version,
        answer.job,
        answer.events,
        wake_at=j.next_wake(answer.job, now, gate=due.gate),
        lease=job.lease,
        lost=_is_loss(answer),
        failure=_failure(due, answer),
    )
    return Unit(command_id, moves=(move,))


def _failure(due: Due, answer: j.Accepted) -> Failure | None:
    """What an attempt that time has ended failed with; nobody else will tell."""
    ended = next((event for event in answer.events if event.charged is not None), None)
    if ended is None or ended.code is None:
        return None
    return Failure(due.stored.job.attempt, ended.at, ended.code, _SAYS[ended.name])


def _is_loss(answer: j.Accepted) -> bool:
    return any(event.name == "lose" or event.cause == "lose" for event in answer.events)
