"""The engine: the one place where commands become commits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from detent.engine.access import Access
from detent.engine.aliases import Aliases
from detent.engine.asks import Ask
from detent.engine.bulk import Bulk
from detent.engine.coalesce import Coalescer
from detent.engine.commands import Change, Commands, refusals
from detent.engine.declared import Declared
from detent.engine.directives import Directives
from detent.engine.dropping import Dropping
from detent.engine.engines import Engines
from detent.engine.enqueueing import Answer, Enqueued, Enqueueing, Refused
from detent.engine.entering import Entry
from detent.engine.erasing import Erasing
from detent.engine.identity import Identity
from detent.engine.keeping import KIND as WORKFLOW
from detent.engine.lasting import wake_of
from detent.engine.operators import Operators
from detent.engine.otel_spans import producing, tracing
from detent.engine.posting import Poster
from detent.engine.queries import Queries
from detent.engine.returning import Returning
from detent.engine.schedule import KIND as SCHEDULE
from detent.engine.schedules import Schedules
from detent.engine.secrets import Secrets
from detent.engine.silence import WORKERS_MAX
from detent.engine.subscribers import Subscribers
from detent.engine.tail import Tail
from detent.engine.upkeep import Answers, Upkeep
from detent.engine.webhook import DELIVERY
from detent.engine.webhooks import Webhooks
from detent.engine.workers import Workers
from detent.engine.workflows import Workflows
from detent.errors import StoreError, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.stores.api import (
    Claimed,
    Committed,
    LimitRow,
    Move,
    Own,
    Record,
    StaleRecord,
    Store,
    Stored,
    Unit,
    Want,
)
from detent.stores.bounds import need_storable

_AGAIN_US = 500_000
"""When a worker may claim again that nobody has heard of for too long."""


class Engine:
    """Everything that can be asked of jobs in one store, which must be open.

    `jitter` spreads retries; it gives numbers from 0 up to, not including, 1. `secrets` locks the
    arguments that jobs declare secret; without it such jobs are refused.
    `poster` sends to webhooks, under its own rules of where to.
    """

    def __init__(
        self,
        store: Store,
        *,
        jitter: Callable[[], float] = random.random,
        secrets: Secrets | None = None,
        poster: Poster | None = None,
    ) -> None:
        self.store = store
        self.secrets = secrets or Secrets()
        self.identity = Identity(store.now)
        self._coalescer = Coalescer(store)
        self._commands = Commands(store, self._coalescer, self.identity, jitter, self.secrets)
        self.returning = Returning(self._commands.carry_out)
        # Units with ids that others may choose too may have to wait for somebody's transaction.
        self._apart = Coalescer(store)
        self.declared = Declared(store, self._apart, self.identity)
        self.enqueueing = Enqueueing(store, self.identity, self.secrets, self.declared)
        self.schedules = Schedules(store, self._apart, self.identity, self.declared)
        self.workflows = Workflows(store, self._apart, self.identity, self.secrets, self.declared)
        self.erasing = Erasing(store, self._apart, self.identity)
        self.queries = Queries(store)
        self.workers = Workers(store)
        self.engines = Engines(store, self._apart, self.identity, self._commands)
        self.operators = Operators(
            store, self._commands, self.enqueueing, self._apart, self.identity
        )
        self.bulk = Bulk(store, self.operators)
        self.directives = Directives(store, self.identity)
        self.dropping = Dropping(store, self._apart, self.identity)
        self.aliases = Aliases(store, self._apart, self.identity, self.secrets)
        self.access = Access(store, self._apart, self.identity)
        self.subscribers = Subscribers(store, self._apart, self.identity)
        self.webhooks = Webhooks(
            store, self._apart, self.identity, self.secrets, poster or Poster()
        )
        self.tail = Tail(store)
        self.answers: Answers = {
            DELIVERY: self.webhooks.delivering.answer,
            SCHEDULE: self.schedules.answer,
            WORKFLOW: self.workflows.answer,
        }
        """Who answers due small records, by kind; whoever keeps records of a kind adds itself."""
        self.upkeep = Upkeep(store, self._coalescer, self.identity, jitter, self.answers)

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(StoreError):
            # Somebody else can then go on at once; if not, they can in a few seconds.
            await self.subscribers.let_go()
            await self.webhooks.close()
        await self.returning.close()
        await self.tail.close()
        await self.enqueueing.close()
        await self._commands.close()
        await self._apart.close()
        await self._coalescer.close()

    async def enqueue(self, asks: Sequence[Ask], by: By) -> list[Answer]:
        """New jobs, or those that were there already; an answer for each, in order."""
        if tracing() is None:
            return await self.enqueueing.enqueue(asks, by)
        with producing(asks) as spans:
            answers = await self.enqueueing.enqueue(spans.asks, by)
            spans.hear(answers)
            return answers

    async def enter(self, ask: Ask, by: By, entry: Entry) -> Answer:
        """A new job for a queue that holds only so many."""
        with producing([ask]) as spans:
            answer = await self.enqueueing.enter(spans.asks[0], by, entry)
            spans.hear([answer])
            return answer

    async def enqueue_together(
        self, asks: Sequence[Ask], by: By, entry: Entry | None = None
    ) -> list[Enqueued] | Refused:
        """New jobs, all of them or none: then which of them could not be, and why."""
        with producing(asks) as spans:
            answer = await self.enqueueing.enqueue_together(spans.asks, by, entry)
            spans.hear([answer.why] * len(asks) if isinstance(answer, Refused) else answer)
            return answer

    async def carry_out(self, changes: Sequence[Change]) -> list[j.Answer]:
        """Commands to jobs; an answer for each, in order."""
        if tracing() is None or not any(change.new for change in changes):
            return await self._commands.carry_out(changes)
        with ExitStack() as stack:
            spans = [stack.enter_context(producing(change.new)) for change in changes]
            told = list(zip(changes, spans, strict=True))
            asked = [replace(change, new=tuple(one.asks)) for change, one in told]
            answers = await self._commands.carry_out(asked)
            for (change, one), answer in zip(told, answers, strict=True):
                one.hear_all(answer, parent_job=change.key[1])
            return answers

    async def refused(self, changes: Sequence[Change]) -> dict[int, Refusal]:
        """The same for whoever only wants to know which of them are refused."""
        if tracing() is None or not any(change.new for change in changes):
            return await self._commands.refused(changes)
        return refusals(await self.carry_out(changes))

    async def complete(self, change: Change) -> j.Answer:
        """The answer to one report of success, with those of everybody who reports just now."""
        return await self._commands.complete(change)

    async def put(self, record: Record) -> bool:
        """Keep a small record of a surface; false if it has moved on since it was read."""
        [outcome] = await self._apart.commit([Unit(self.identity.id(), puts=(record,))])
        if not isinstance(outcome, Committed | Own | StaleRecord):
            raise Unstorable(f"{record.kind} {record.id} cannot be stored: {outcome}")
        return not isinstance(outcome, StaleRecord)

    async def set_limits(self, limits: Sequence[LimitRow]) -> None:
        """Set and lift limits; every claim that begins afterwards sees it."""
        need_storable(limits)
        units = [Unit(self.identity.id(), limits=(row,)) for row in limits]
        for outcome in await self._apart.commit(units):
            if not isinstance(outcome, Committed):
                raise Unstorable(f"A limit cannot be stored: {outcome}")

    async def claim(self, want: Want, *, is_repeatable: bool = False) -> Claimed:
        """Jobs for a worker, in one commit with whatever else is waiting.

        Whoever is called off meanwhile has claimed nothing: what was granted goes back, unless they
        ask again under the same name if no answer comes.
        """
        claiming = self._coalescer.claim(want)
        stepped = await (claiming if is_repeatable else self.returning.claimed(claiming))
        claimed = stepped.claimed
        if claimed.lost and await self._is_only_silent(want):
            # It speaks, so it is there: its next beat is believed again.
            return replace(claimed, lost=False, retry_at=self.store.now() + _AGAIN_US)
        timed = [one for one in claimed.jobs if one.body.retry.total_us is not None]
        try:
            if timed:
                await self._coalescer.commit([self._alarm(one) for one in timed])
            if claimed.passed:
                # Those who are still there are met again by whoever claims next.
                with suppress(StoreError):
                    await self.dropping.passed(want, claimed.passed)
        except asyncio.CancelledError:
            self.returning.soon(claimed.jobs)
            raise
        return claimed

    async def _is_only_silent(self, want: Want) -> bool:
        """Whether the claimer is late by the clock, which may have been set; nobody has lost it."""
        rows = await self.store.overdue(now=self.store.now(), limit=WORKERS_MAX)
        return any(row.id == want.holder for row in rows)

    def _alarm(self, stored: Stored) -> Unit:
        """Look at a job that runs when its total time is up; one that has moved on sees to it."""
        job, wake_at = stored.job, wake_of(stored.job, stored.body, self.store.now())
        return Unit(self.identity.id(), moves=(Move(job.version, job, wake_at=wake_at),))
