"""New workflows: in one commit where that is possible, as a draft in several where it is not.

A draft is finished by whoever asks for it again under the same id: the ids of its jobs follow from
the order, so that pieces which are there already are recognised. One that nobody finishes is called
off by upkeep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from detent.engine.asks import Ask, born
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.entering import OUTRUN
from detent.engine.identity import Identity, derived_id
from detent.engine.keeping import (
    DRAFT_US,
    KEPT_US,
    KIND,
    Kept,
    digest_of,
    is_draft,
    members,
    named,
    read,
    written,
)
from detent.engine.secrets import Secrets
from detent.engine.shaping import Order, check
from detent.errors import StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.lifecycle.workflow import Flow
from detent.stores.api import (
    RECORDS_MAX,
    Committed,
    FlowMove,
    Key,
    New,
    Outcome,
    Own,
    Record,
    Stale,
    StaleFlow,
    StaleRecord,
    Store,
    Taken,
    Unit,
)

PIECE = 500
"""How many jobs of a draft come in one commit: half a step of a store, so that others get in."""


class Created(msgspec.Struct, frozen=True):
    """The workflow that answers the order: a new one, or the one that was there."""

    id: str
    is_new: bool = True


class _Work:
    """One order on its way. What does not fit into one commit begins as a draft."""

    __slots__ = ("by", "entry", "jobs", "kept", "key", "make", "reason")

    def __init__(self, order: Order, key: Key, by: By, reason: str | None) -> None:
        tenant, name = key
        self.key = key
        self.by = by
        self.reason = reason
        self.entry = order.entry
        self.jobs = [ask for part in order.parts for ask in members(name, part)]
        is_whole = len(self.jobs) < RECORDS_MAX
        self.make = w.Make(
            tenant=tenant,
            id=name,
            steps=tuple(named(name, part.plan) for part in order.parts),
            jobs=dict(Counter(ask.step or "" for ask in self.jobs)) if is_whole else {},
            draft=not is_whole,
        )
        self.kept = Kept(0, digest_of(order), PIECE, order.name, order.meta)

    def context(self, command_id: str) -> w.Context:
        """Who asks, and why."""
        return w.Context(self.by, command_id, self.reason)


class Building:
    """Makes workflows of orders."""

    def __init__(
        self, store: Store, coalescer: Coalescer, identity: Identity, secrets: Secrets
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._secrets = secrets

    async def build(self, order: Order, by: By, reason: str | None) -> Created | Refusal:
        """The workflow, open and with all its jobs; or why there is none."""
        check(order)
        work = _Work(order, (order.tenant, order.id or self._identity.id()), by, reason)
        work.kept = replace(work.kept, created_at=self._store.now())
        made = await self._begin(work)
        if isinstance(made, Created) and work.make.draft:
            return await self._finish(work) or made
        return made

    # --- the first commit -----------------------------------------------------------------------

    async def _begin(self, work: _Work) -> Created | Refusal:
        unit = self._first(work)
        if isinstance(unit, Refusal):
            return unit
        outcome = await self._commit(unit)
        if isinstance(outcome, Committed | Own):
            return Created(work.key[1])
        if work.entry is not None and work.entry.is_outrun(outcome):
            return OUTRUN
        return await self._again(work)

    def _first(self, work: _Work) -> Unit | Refusal:
        command_id, now = self._identity.id(), self._store.now()
        answer = w.decide(None, work.make, now, work.context(command_id))
        new = self._born(work, 0, work.jobs, command_id)
        if isinstance(new, Refusal):
            return new
        if not isinstance(answer, w.Accepted):
            # A new workflow is never unchanged.
            return cast("Refusal", answer)
        wake_at = now + (DRAFT_US if work.make.draft else KEPT_US)
        put = written(work.kept, work.key, 1, wake_at)
        # The jobs of a draft come later; that they can be made was asked before there is a draft.
        with_it = () if work.make.draft else new
        unit = Unit(command_id, new=with_it, flow=FlowMove(None, answer), puts=(put,))
        return unit if work.entry is None else work.entry.through(unit)

    async def _again(self, work: _Work) -> Created | Refusal:
        """A workflow of that id exists: it is ours if the same was ordered."""
        [flow], record = await self._store.flows([work.key]), await self._record(work.key)
        if flow is not None and record is not None and read(record).digest == work.kept.digest:
            work.kept = read(record)
            return Created(work.key[1], is_new=False)
        answer = w.decide(flow, work.make, self._store.now(), work.context(self._identity.id()))
        if isinstance(answer, Refusal):
            return answer
        why = f"An id of workflow {work.key[1]} is taken by another record"
        raise Unstorable(why, tenant=work.key[0], id=work.key[1])

    # --- a draft --------------------------------------------------------------------------------

    async def _finish(self, work: _Work) -> Refusal | None:
        """Add the jobs piece by piece, and open it; whatever is there already is passed over."""
        flow = await self._flow(work.key)
        for first in range(0, len(work.jobs), work.kept.piece):
            if not is_draft(flow):
                break
            added = await self._add(work, flow, first)
            if isinstance(added, Refusal):
                return added
            flow = added
        return await self._open(work)

    async def _add(self, work: _Work, flow: Flow, first: int) -> Flow | Refusal:
        """One piece, and the draft as it is now.

        In a draft all steps stand alike, so what is decided for one of them holds for all.
        """
        asks = work.jobs[first : first + work.kept.piece]
        command_id, command = self._identity.id(), w.AddJobs(asks[0].step or "", len(asks))
        new = self._born(work, first, asks, command_id)
        answer = w.decide(flow, command, self._store.now(), work.context(command_id))
        if isinstance(new, Refusal):
            return new
        if not isinstance(answer, w.Accepted):
            return cast("Refusal", answer)
        outcome = await self._commit(Unit(command_id, new=new, flow=FlowMove(flow, answer)))
        # Nothing but its end can move a draft: a twin that has opened it, or whoever called it off.
        return await self._flow(work.key) if isinstance(outcome, StaleFlow) else flow

    async def _open(self, work: _Work) -> Refusal | None:
        """Let it run; that it runs already, because a twin was faster, is just as good."""
        for _ in range(TRIES_MAX):
            flow, record = await self._flow(work.key), await self._record(work.key)
            if flow.workflow.opened_at is not None or record is None:
                return None
            command_id, now = self._identity.id(), self._store.now()
            answer = w.decide(flow, w.Open(), now, work.context(command_id))
            if not isinstance(answer, w.Accepted):
                return cast("Refusal", answer)
            put = written(work.kept, work.key, record.version + 1, now + KEPT_US)
            unit = Unit(command_id, flow=FlowMove(flow, answer), puts=(put,))
            if isinstance(await self._commit(unit), Committed | Own):
                return None
        raise StoreBusy(f"Workflow {work.key[1]} was changed by others while it was being made")

    # --- the store ------------------------------------------------------------------------------

    def _born(
        self, work: _Work, first: int, asks: Sequence[Ask], command_id: str
    ) -> tuple[New, ...] | Refusal:
        """The jobs of one commit; the number of each is its position in the order."""
        made: list[New] = []
        for number, ask in enumerate(asks, start=first):
            job_id = derived_id(work.kept.created_at, number, KIND, *work.key)
            ctx = j.Context(work.by, command_id, place=self._identity.place(), reason=work.reason)
            new = born(self._secrets.sealed(ask, job_id), job_id, self._store.now(), ctx)
            if isinstance(new, Refusal):
                return new
            made.append(new)
        return tuple(made)

    async def _record(self, key: Key) -> Record | None:
        [record] = await self._store.record([(KIND, *key)])
        return record

    async def _flow(self, key: Key) -> Flow:
        [flow] = await self._store.flows([key])
        if flow is None:
            raise Unstorable(f"Workflow {key[1]} is gone while it is being made", id=key[1])
        return flow

    async def _commit(self, unit: Unit) -> Outcome:
        [outcome] = await self._coalescer.commit([unit])
        if isinstance(outcome, Committed | Own | Stale | StaleFlow | StaleRecord | Taken):
            return outcome
        raise Unstorable(f"A workflow cannot be stored: {outcome}")
