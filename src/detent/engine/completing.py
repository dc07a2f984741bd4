"""The end of a job inside its handler's own transaction: decided here, and written by the handler.

Nothing is asked of the store: whoever holds a transaction open must not wait for somebody who may
be waiting for it. The decision is made on the job as it was claimed; if it has moved on since (its
priority, a wish that it should stop) the transaction itself tells how it is now.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from detent.engine.asks import Ask
from detent.engine.commands import TRIES_MAX
from detent.engine.engine import Engine
from detent.engine.followers import Followers
from detent.engine.lasting import lasting
from detent.errors import StoreBusy, UnfitUnit, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.stores.api import Committed, Move, Outcome, Own, Stale, Stored, Unit


class End(msgspec.Struct, frozen=True):
    """What a handler says at its end: the result and its digest, and the jobs that follow."""

    result: str
    digest: str
    asks: tuple[Ask, ...] = ()


class Completing:
    """One end on its way into a transaction. `units` are tried until `hear` says it is done."""

    def __init__(self, engine: Engine, stored: Stored, by: By, end: End) -> None:
        job = stored.job
        if job.workflow is not None:
            why = "what follows for its workflow would wait for your transaction: return instead"
            raise UnfitUnit(f"A job of a workflow cannot end inside of one: {why}", id=job.id)
        self._engine = engine
        self._job: Job | None = job
        self._body = stored.body
        self._lease = job.lease
        self._by = by
        self._end = end
        self._command_id = engine.identity.id()
        self._ids = [engine.identity.id() for _ in end.asks]
        self.now = engine.store.now()
        self._is_done = False

    def units(self) -> Iterator[Unit]:
        """What is to be written; another one if the job was not as it was thought to be."""
        for _ in range(TRIES_MAX):
            unit = self._unit()
            if unit is None:
                return
            yield unit
            if self._is_done:
                return
        raise StoreBusy("The job was changed by others again and again while it was being ended")

    def hear(self, outcome: Outcome) -> None:
        """What became of the last unit; whatever cannot be decided anew is raised."""
        match outcome:
            case Committed() | Own():
                self._is_done = True
            case Stale(now=job):
                self._job = job
            case _:
                raise Unstorable(f"The end of a job cannot be stored: {outcome}")

    def _unit(self) -> Unit | None:
        """The end as decided; `None` if it has ended so already."""
        command = j.Complete(lease=self._lease, digest=self._end.digest)
        ctx = j.Context(self._by, self._command_id, place=self._engine.identity.place())
        answer = j.decide(self._job, command, self.now, ctx)
        if isinstance(answer, Refusal):
            raise answer.error()
        if isinstance(answer, j.Unchanged):
            return None
        job = answer.job
        result, until = lasting(job, self._body, self._end.result, self.now)
        move = Move(
            job.version - len(answer.events),
            job,
            answer.events,
            wake_at=j.next_wake(job, self.now),
            lease=self._lease,
            result=result,
            result_until=until,
        )
        made = Followers(self._engine.identity, self._engine.secrets)
        asked = zip(self._end.asks, self._ids, strict=True)
        new = made.of(asked, job.id, self._command_id, self.now)
        return Unit(self._command_id, moves=(move,), new=new)
