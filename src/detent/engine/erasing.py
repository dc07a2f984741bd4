"""Deleting a workflow that has ended: what it was about goes at once, its history stays.

What is still in somebody's hands, or waits for upkeep to call it off, is cancelled on the way. All
of it is one commit, unless it is more than a commit can hold: then what people find the workflow by
goes with the last of several, so that whoever was interrupted can ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.identity import Identity
from detent.engine.keeping import KIND
from detent.engine.paging import job_pages
from detent.engine.piecemeal import piecemeal
from detent.errors import StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By, Event
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED, Cause
from detent.lifecycle.machine import Refusal
from detent.stores.api import (
    Committed,
    Key,
    Move,
    Own,
    Record,
    Stale,
    StaleRecord,
    Store,
    Unit,
)
from detent.stores.select import Filter

PIECE = 20_000
"""How many records one commit takes."""
_PAGE = 900
Beside = Callable[[], Awaitable[Sequence[Record]]]
"""The small records that go with the workflow, as they are now."""


class Erasing:
    """Deletes workflows."""

    def __init__(self, store: Store, coalescer: Coalescer, identity: Identity) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity

    async def erase(self, key: Key, by: By, beside: Beside) -> Refusal | None:
        """Delete it with all that is kept of it; refused while it has not ended.

        Of several who delete it at once the others hear that it is gone.
        """
        [flow] = await self._store.flows([key])
        if flow is not None and flow.workflow.ended_at is None:
            why = "it has not ended"
            return w.WORKFLOW.refusal(
                "workflow_live", flow.workflow.state, "erase", by.kind, detail=why
            )
        for _ in range(TRIES_MAX):
            going = [] if flow is None else await self._going(key, beside)
            if not going:
                why = "no such workflow"
                return w.WORKFLOW.refusal("unknown_workflow", None, "erase", by.kind, detail=why)
            if await self._are_gone(going, by):
                return None
        raise StoreBusy(f"Jobs of workflow {key[1]} were changed {TRIES_MAX} times", id=key[1])

    async def _going(self, key: Key, beside: Beside) -> list[Job | Record]:
        """All that is there of it."""
        kept = await self._store.record([(KIND, *key)])
        records = [one for one in (*await beside(), *kept) if one is not None]
        return [*await self._jobs(key), *records]

    async def _are_gone(self, going: Sequence[Job | Record], by: By) -> bool:
        """Whether all of it went, and nobody was faster with a part of it."""
        for first in range(0, len(going), PIECE):
            if not await self._commit(await self._unit(going[first : first + PIECE], by)):
                return False
        return True

    async def _unit(self, going: Sequence[Job | Record], by: By) -> Unit:
        command_id = self._identity.id()
        jobs = [one for one in going if isinstance(one, Job)]
        moves = await piecemeal(lambda job: self._erased(job, by, command_id), jobs)
        puts = [
            replace(one, version=one.version + 1, data=None, wake_at=None)
            for one in going
            if isinstance(one, Record)
        ]
        return Unit(command_id, moves=tuple(moves), puts=tuple(puts))

    async def _jobs(self, key: Key) -> list[Job]:
        tenant, workflow = key
        found: list[Job] = []
        async for page in job_pages(self._store, Filter(tenant=tenant, workflow=workflow), _PAGE):
            found += [one.job for one in page if one.job.erased_at is None]
        return found

    def _erased(self, job: Job, by: By, command_id: str) -> Move:
        """The end of the job, if it has none yet, and the loss of what it was about."""
        now, ended, events = self._store.now(), job, tuple[Event, ...]()
        if job.state not in ENDED:
            system = j.Context(w.CASCADED_BY, command_id)
            answer = _must(j.decide(job, j.Cancel(Cause.WORKFLOW, force=True), now, system))
            ended, events = answer.job, answer.events
        answer = _must(j.decide(ended, j.Erase(), now, j.Context(by, command_id)))
        return Move(job.version, answer.job, (*events, *answer.events))

    async def _commit(self, unit: Unit) -> bool:
        [outcome] = await self._coalescer.commit([unit])
        if isinstance(outcome, Committed | Own | Stale | StaleRecord):
            return isinstance(outcome, Committed | Own)
        raise Unstorable(f"A workflow cannot be erased: {outcome}")


def _must(answer: j.Answer) -> j.Accepted:
    """The system may end any job, and any that has ended may be erased."""
    return cast("j.Accepted", answer)
