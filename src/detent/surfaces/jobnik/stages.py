"""Stages: appended in a row, waiting for a release, looked at, annotated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Raw
from msgspec.structs import replace

from detent.engine.access import Scope
from detent.engine.shaping import Part
from detent.lifecycle.machine import Refusal
from detent.lifecycle.views.jobnik import STAGE_WORDS
from detent.lifecycle.workflow import Policy, StepPlan, WhenEmpty
from detent.stores.api import Key, Record, key_of
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.jobnik.checking import (
    BODY,
    Rule,
    an_object,
    body_of,
    checked,
    flag,
    one_of,
    query_of,
    text,
    uuid,
)
from detent.surfaces.jobnik.desk import PAGES, TRIES_MAX, Desk, FoundStage
from detent.surfaces.jobnik.faults import illegal, invalid, missing, refused
from detent.surfaces.jobnik.jobs import TRACE
from detent.surfaces.jobnik.keeping import StageKept, queue_of, stage_kept, trace_of, written
from detent.surfaces.jobnik.showing import stage_shown, summary_of

TYPE_MAX: Final = 50
_NEW: Final[dict[str, Rule]] = {
    "type": text(0, TYPE_MAX),
    "data": an_object,
    "userMetadata": an_object,
    "startAsWaiting": flag,
    **TRACE,
}
_WITH_TASKS: Final[dict[str, Rule]] = {"should_return_tasks": flag}
_LIST: Final[dict[str, Rule]] = {
    "job_id": uuid,
    "stage_type": text(0, TYPE_MAX),
    "stage_operation_status": one_of(STAGE_WORDS.values()),
    **_WITH_TASKS,
    **PAGES,
}
_MODIFIED: Final = "STAGE_MODIFIED"
_PENDING: Final = "PENDING"
_FINISHED: Final = refused("JOB_IN_FINITE_STATE", "JOB_ALREADY_FINISHED_STAGES_ERROR")


class Stages:
    """Everything about stages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def of_job(self, call: Call) -> Reply:
        """The stages of a job, in their order."""
        query = query_of(call, _WITH_TASKS)
        found = await self._desk.stages_in(await self._desk.job(call))
        stages = self._desk.seen_by(call, found)
        with_tasks = query.get("should_return_tasks", False)
        return self._desk.reply(await self._desk.stages_shown(stages, with_tasks=with_tasks))

    async def create(self, call: Call) -> Reply:
        """One more stage at the end of a job."""
        fields = checked(body_of(call), _NEW, ("type", "data"))
        call.caller.need_queue(queue_of(fields["type"]))
        key = key_of((await self._desk.job(call, whole=True)).flow.workflow)
        kept = StageKept(
            job=key[1],
            type=fields["type"],
            data=Raw(fields["data"].encode()),
            user_metadata=Raw(fields.get("userMetadata", "{}").encode()),
            **trace_of(call, fields),
        )
        stage = self._desk.engine.identity.id()
        policy = Policy(when_empty=WhenEmpty.WAIT, gate=fields.get("startAsWaiting", False))
        part = Part(StepPlan(kept.name(stage), policy=policy))
        puts = [written(kept, (key[0], stage), 1, self._desk.now())]
        workflows, by = self._desk.engine.workflows, call.caller.actor
        answer = await workflows.add_step(key, part, by, after_last=True, puts=puts)
        if isinstance(answer, Refusal):
            raise _not_added(answer)
        step = answer.flow.steps[kept.step(stage)]
        return self._desk.reply(stage_shown(step, answer.flow.tally(step.id), kept), 201)

    async def listed(self, call: Call) -> Reply:
        """Stages, by job, type and status."""
        query = query_of(call, _LIST)
        tenant = call.caller.tenant
        if "job_id" in query:
            found = await self._desk.jobs_of([(tenant, query["job_id"])])
            jobs = [one for one in found if one is not None]
        else:
            jobs = await self._desk.all_jobs(tenant)
        stages = [
            one
            for one in self._desk.seen_by(call, await self._desk.stages_in(*jobs))
            if query.get("stage_type", one.kept.type) == one.kept.type
            and query.get("stage_operation_status", _word(one)) == _word(one)
        ]
        # Ids follow time, so this is the order in which they were made.
        stages.sort(key=lambda one: one.id)
        with_tasks, page = query.get("should_return_tasks", False), self._desk.paged(query, stages)
        shown = await self._desk.stages_shown(page, with_tasks=with_tasks)
        told = {one.id: each for one, each in zip(page, shown, strict=True)}
        return await self._desk.listed(query, stages, lambda one: told[one.id])

    async def get(self, call: Call) -> Reply:
        """A stage."""
        query = query_of(call, _WITH_TASKS)
        found = await self._desk.stage(call)
        with_tasks = query.get("should_return_tasks", False)
        [shown] = await self._desk.stages_shown([found], with_tasks=with_tasks)
        return self._desk.reply(shown)

    async def summary(self, call: Call) -> Reply:
        """How many tasks of a stage are where."""
        return self._desk.reply(summary_of((await self._desk.stage(call)).tally))

    async def annotate(self, call: Call) -> Reply:
        """Other metadata."""
        call.caller.need_scope(Scope.PRODUCE, Scope.WORK)
        metadata = Raw(an_object(BODY, body_of(call)).encode())
        for _ in range(TRIES_MAX):
            found = await self._desk.stage(call)
            kept, record = replace(found.kept, user_metadata=metadata), found.record
            key: Key = (record.tenant, record.id)
            put = written(kept, key, record.version + 1, self._desk.now())
            if await self._desk.engine.put(put):
                return self._desk.done(_MODIFIED)
        raise Problem(503, "unavailable", "the stage is changed by too many at once")

    async def release(self, call: Call) -> Reply:
        """Open the gate before a stage."""
        checked(body_of(call), {"status": one_of((_PENDING,))}, ("status",), closed=False)
        found = await self._desk.stage(call)
        name, by = found.kept.name(found.id), call.caller.actor
        answer = await self._desk.engine.workflows.approve(found.key, name, by)
        if not isinstance(answer, Refusal):
            return self._desk.done(_MODIFIED)
        problem = illegal("STAGE", STAGE_WORDS[answer.state or ""], _PENDING)
        if answer.code == "previous_not_completed":
            problem.message = "Previous stage is not COMPLETED"
        raise problem

    async def answer(self, due: Sequence[Record]) -> None:
        """Let go what is kept of stages whose job was forgotten; upkeep asks now and then."""
        store, now = self._desk.engine.store, self._desk.now()
        kept = [stage_kept(record) for record in due]
        flows = await store.flows([(r.tenant, k.job) for r, k in zip(due, kept, strict=True)])
        for record, one, flow in zip(due, kept, flows, strict=True):
            put = written(one, (record.tenant, record.id), record.version + 1, now)
            if flow is None:
                put = replace(put, data=None, wake_at=None)
            await self._desk.engine.put(put)


def _not_added(refusal: Refusal) -> Problem:
    if refusal.code == "workflow_finished":
        return _FINISHED
    return missing("JOB") if refusal.code == "unknown_workflow" else invalid(refusal.message)


def _word(stage: FoundStage) -> str:
    return STAGE_WORDS[stage.step.state]
