"""Mends stored instants after the clock was set back.

A job that failed waits for so long, and what is stored is until when. By a clock that was set back
an hour later that would be an hour more, so it is told again, and its history says so. Instances
that have beaten in what is now the future would be believed until then, dead or not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from detent.engine.identity import Identity
from detent.engine.paging import job_pages
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.stores.api import Move, Outcome, Store, Stored, Unit, WorkerRow
from detent.stores.select import Filter
from detent.stores.workers import LATE_US

_PAGE = 200
_REASON = "the clock was set back"


class Setback:
    """Moves stored waits to the new clock, once somebody sees that it was set back."""

    def __init__(
        self,
        store: Store,
        commit: Callable[[Sequence[Unit]], Awaitable[Sequence[Outcome]]],
        identity: Identity,
        by: By,
    ) -> None:
        self._store = store
        self._commit = commit
        self._identity = identity
        self._by = by

    async def mend(self, now: int) -> None:
        """Let all jobs that wait after a failure wait as long as they were to, from now on."""
        waiting = Filter(state=j.JobState.RETRYABLE.value)
        async for found in job_pages(self._store, waiting, _PAGE):
            units = [unit for one in found if (unit := self._waiting(one, now)) is not None]
            if units:
                # Whoever has moved on meanwhile did so by the new clock.
                await self._commit(units)

    def _waiting(self, stored: Stored, now: int) -> Unit | None:
        job = stored.job
        if job.run_at is None or not _is_ahead(job, now):
            return None
        ctx = j.Context(self._by, self._identity.id(), reason=_REASON)
        answer = j.decide(job, j.Reschedule(now + job.run_at - job.state_at), now, ctx)
        if not isinstance(answer, j.Accepted):
            return None
        wake_at = j.next_wake(answer.job, now)
        return Unit(ctx.command_id, moves=(Move(job.version, answer.job, answer.events, wake_at),))


def _is_ahead(job: j.Job, now: int) -> bool:
    """Whether it began to wait in what is now the future, and nobody has told it otherwise."""
    return job.state_at > now and job.last_at == job.state_at and (job.run_at or 0) > job.state_at


def brought_back(rows: Sequence[WorkerRow], now: int) -> list[WorkerRow]:
    """Beats for instances whose last was in what is now the future: for as long as it was good."""
    return [
        replace(row, alive_until=now + row.alive_until - row.beat_at, renews=True)
        for row in rows
        if row.beat_at - now > LATE_US
    ]
