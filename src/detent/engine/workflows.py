"""Workflows: made of jobs, steered by people, watched by everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from detent.engine import keeping
from detent.engine.asks import Ask, born
from detent.engine.building import Building, Created
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.declared import Declared
from detent.engine.identity import Identity
from detent.engine.keeping import KEPT_US, KIND, is_draft, members, named, step_id
from detent.engine.otel_spans import producing
from detent.engine.paging import job_pages
from detent.engine.piecemeal import piecemeal
from detent.engine.progress import Before, Listed, Progress, Result, before, progress_of
from detent.engine.secrets import Secrets
from detent.engine.shaping import Order, Part, check_member, check_part
from detent.errors import BatchTooLarge, StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.workflow import Flow
from detent.stores.api import (
    UNIT_MAX,
    Committed,
    FlowMove,
    Key,
    New,
    Own,
    Record,
    StaleFlow,
    StaleRecord,
    Store,
    Stored,
    Unit,
)
from detent.stores.select import FIRST_PAGE, Filter, Page

_PAGE = 1_000
_News: TypeAlias = list[New]
_UPKEEP = By(Actor.SYSTEM, "upkeep")


class _With(msgspec.Struct):
    """What is committed with a command: new jobs, told in `made`, and small records."""

    asks: Sequence[Ask] = ()
    made: _News | None = None
    puts: tuple[Record, ...] = ()


class Workflows:
    """Everything that can be asked of workflows. Steps are called by the names they were given."""

    def __init__(
        self,
        store: Store,
        coalescer: Coalescer,
        identity: Identity,
        secrets: Secrets,
        declared: Declared,
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._secrets = secrets
        self._declared = declared
        self._building = Building(store, coalescer, identity, secrets)

    async def create(self, order: Order, by: By, reason: str | None = None) -> Created | Refusal:
        """A new workflow, open and with all its jobs, or the one that this order made before."""
        jobs = [await self._declared.applied(part.jobs) for part in order.parts]
        with producing([ask for some in jobs for ask in some]) as spans:
            dealt = zip(order.parts, spans.dealt(map(len, jobs)), strict=True)
            parts = tuple(replace(part, jobs=some) for part, some in dealt)
            made = await self._building.build(replace(order, parts=parts), by, reason)
            told = {"workflow": made.id} if isinstance(made, Created) else {}
            spans.hear_all(made, **told)
            return made

    # --- reading --------------------------------------------------------------------------------

    async def get(self, key: Key) -> Progress | None:
        """How far the workflow of that tenant and id is."""
        [flow], [record] = (
            await self._store.flows([key]),
            await self._store.record([(KIND, *key)]),
        )
        if flow is None:
            return None
        if record is None:
            return progress_of(flow, "", "{}")
        kept = keeping.read(record)
        return progress_of(flow, kept.name, kept.meta)

    async def list(
        self, tenant: str = "", state: str | None = None, page: Page = FIRST_PAGE
    ) -> list[Listed]:
        """The workflows of a tenant, newest first."""
        found = await self._store.find_workflows(tenant, state, page)
        records = await self._store.record([(KIND, one.tenant, one.id) for one in found])
        names = ["" if record is None else keeping.read(record).name for record in records]
        return [Listed(one, name) for one, name in zip(found, names, strict=True)]

    async def results_of(self, key: Key, step: str) -> Sequence[Result]:
        """What the jobs of a step left behind, in the order in which they were asked for."""
        tenant, workflow = key
        chosen = Filter(tenant=tenant, workflow=workflow, step=step_id(workflow, step))
        found: list[Result] = []
        async for page in job_pages(self._store, chosen, _PAGE):
            found += [_result(one) for one in page]
        return found[::-1]

    async def before(self, job: Job) -> Before:
        """The steps that the step of this job comes after; they have ended when it runs."""
        if job.workflow is None or job.step is None:
            return Before()
        [flow] = await self._store.flows([(job.tenant, job.workflow)])
        return Before() if flow is None else before(flow, job.step)

    async def results_before(self, job: Job) -> dict[str, Sequence[Result]]:
        """By step, what came out of everything that the step of this job comes after."""
        key, steps = (job.tenant, job.workflow or ""), await self.before(job)
        return {name: await self.results_of(key, name) for name in steps.all}

    # --- steering -------------------------------------------------------------------------------

    async def pause(self, key: Key, by: By, reason: str | None = None) -> w.Answer:
        """Let no further job start; running ones go on."""
        return await self._carry_out(key, w.Pause(), by, reason)

    async def resume(self, key: Key, by: By, reason: str | None = None) -> w.Answer:
        """Let jobs start again."""
        return await self._carry_out(key, w.Resume(), by, reason)

    async def abort(self, key: Key, by: By, reason: str | None = None) -> w.Answer:
        """Call it off: what waits is cancelled by upkeep, what runs may end as it will."""
        return await self._carry_out(key, w.Abort(), by, reason)

    async def approve(self, key: Key, step: str, by: By, reason: str | None = None) -> w.Answer:
        """Open the gate before a step whose turn has come."""
        return await self._carry_out(key, w.Release(step_id(key[1], step)), by, reason)

    async def wait(self, key: Key, step: str, by: By, reason: str | None = None) -> w.Answer:
        """Put a gate before a step."""
        return await self._carry_out(key, w.Wait(step_id(key[1], step)), by, reason)

    async def add_jobs(
        self,
        key: Key,
        step: str,
        asks: Sequence[Ask],
        by: By,
        reason: str | None = None,
        *,
        made: _News | None = None,
    ) -> w.Answer:
        """More jobs for a step that has not started, all or none; `made` gets them, in order."""
        await piecemeal(lambda ask: check_member(ask, key[0]), asks)
        command = w.AddJobs(step_id(key[1], step), len(asks))
        ctx = w.Context(by, self._identity.id(), reason)
        belonging = partial(replace, workflow=key[1], step=command.step)
        mine = await piecemeal(belonging, asks)
        return await self._commit(key, command, ctx, _With(mine, made))

    async def add_step(
        self,
        key: Key,
        part: Part,
        by: By,
        reason: str | None = None,
        *,
        after_last: bool = False,
        puts: Sequence[Record] = (),
    ) -> w.Answer:
        """One more step with its jobs and what a surface keeps of it, all or nothing."""
        check_part(part, key[0])
        command = w.AddStep(named(key[1], part.plan), len(part.jobs), after_last)
        ctx = w.Context(by, self._identity.id(), reason)
        beside = _With(members(key[1], part), puts=tuple(puts))
        return await self._commit(key, command, ctx, beside)

    async def annotate(
        self, key: Key, change: Callable[[str], str], puts: Sequence[Record] = ()
    ) -> bool:
        """Change what is kept beside a workflow, whatever its state; false if nothing is.

        `puts` are new small records that come with it.
        """
        for _ in range(TRIES_MAX):
            [record] = await self._store.record([(KIND, *key)])
            if record is None:
                return False
            kept = keeping.read(record)
            after = replace(kept, meta=change(kept.meta))
            put = keeping.written(after, key, record.version + 1, record.wake_at)
            unit = Unit(self._identity.id(), puts=(put, *puts))
            [outcome] = await self._coalescer.commit([unit])
            if isinstance(outcome, Committed | Own):
                return True
        raise StoreBusy(f"Workflow {key[1]} was changed by others {TRIES_MAX} times", id=key[1])

    async def _carry_out(
        self, key: Key, command: w.Command, by: By, reason: str | None
    ) -> w.Answer:
        return await self._commit(key, command, w.Context(by, self._identity.id(), reason), _With())

    async def _commit(
        self, key: Key, command: w.Command, ctx: w.Context, beside: _With
    ) -> w.Answer:
        """The answer of the workflow as it is when the command is committed."""
        if len(beside.asks) >= UNIT_MAX:
            asked = len(beside.asks)
            why = f"{asked} jobs at once; {UNIT_MAX} is too many for a workflow that runs"
            raise BatchTooLarge(why, asked=asked, limit=UNIT_MAX)
        with producing(await self._declared.applied(beside.asks)) as spans:
            answer = await self._committed(key, command, ctx, replace(beside, asks=spans.asks))
            spans.hear_all(answer, workflow=key[1])
            return answer

    async def _committed(
        self, key: Key, command: w.Command, ctx: w.Context, beside: _With
    ) -> w.Answer:
        [flow] = await self._store.flows([key])
        for _ in range(TRIES_MAX):
            refusal = _barred(flow, command, ctx)
            answer = refusal or w.decide(flow, command, self._store.now(), ctx)
            if not isinstance(answer, w.Accepted):
                return answer
            made = await piecemeal(partial(self._born, ctx), beside.asks)
            new = tuple(one for one in made if isinstance(one, New))
            if len(new) < len(made):
                return next(one for one in made if isinstance(one, Refusal))
            unit = Unit(ctx.command_id, new=new, flow=FlowMove(flow, answer), puts=beside.puts)
            [outcome] = await self._coalescer.commit([unit])
            if isinstance(outcome, Committed | Own):
                if beside.made is not None:
                    beside.made += new
                return answer
            if not isinstance(outcome, StaleFlow):
                raise Unstorable(f"Workflow {key[1]} cannot be changed: {outcome}", id=key[1])
            flow = outcome.now
        raise StoreBusy(f"Workflow {key[1]} was changed by others {TRIES_MAX} times", id=key[1])

    def _born(self, ctx: w.Context, ask: Ask) -> New | Refusal:
        place = self._identity.place()
        about = j.Context(ctx.by, ctx.command_id, place=place, reason=ctx.reason)
        job_id = self._identity.id()
        return born(self._secrets.sealed(ask, job_id), job_id, self._store.now(), about)

    # --- upkeep ---------------------------------------------------------------------------------

    async def answer(self, due: Sequence[Record]) -> None:
        """Call off drafts that nobody finished, and let go what is kept of workflows long gone."""
        flows = await self._store.flows([(record.tenant, record.id) for record in due])
        units = [self._due(record, flow) for record, flow in zip(due, flows, strict=True)]
        for outcome in await self._coalescer.commit(units):
            # Stale: it was opened in this moment, or another server was faster.
            if not isinstance(outcome, Committed | Own | StaleFlow | StaleRecord):
                raise Unstorable(f"A workflow cannot be changed: {outcome}")

    def _due(self, record: Record, flow: Flow | None) -> Unit:
        command_id, now = self._identity.id(), self._store.now()
        later = Record(
            KIND, record.id, record.version + 1, record.data, now + KEPT_US, record.tenant
        )
        if flow is None:
            gone = Record(KIND, record.id, record.version + 1, None, None, record.tenant)
            return Unit(command_id, puts=(gone,))
        if not is_draft(flow):
            return Unit(command_id, puts=(later,))
        ctx = w.Context(_UPKEEP, command_id, "the draft was never finished")
        answer = w.decide(flow, w.Abort(), now, ctx)
        move = FlowMove(flow, answer) if isinstance(answer, w.Accepted) else None
        return Unit(command_id, flow=move, puts=(later,))


def _result(stored: Stored) -> Result:
    job = stored.job
    times = (job.started_at, job.ended_at)
    return Result(job.id, job.state, stored.result, stored.body.type, *times)


def _barred(flow: Flow | None, command: w.Command, ctx: w.Context) -> Refusal | None:
    """A draft is its builder's: opened by a resume it would run without all its jobs."""
    if flow is None or not is_draft(flow) or isinstance(command, w.Abort):
        return None
    state, detail = flow.workflow.state, "it is still being made"
    return w.WORKFLOW.refusal("workflow_draft", state, command.event, ctx.by.kind, detail=detail)
