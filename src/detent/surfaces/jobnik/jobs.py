"""Jobs: made, looked at, steered, annotated, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.access import Scope
from detent.engine.building import Created
from detent.engine.commands import Change
from detent.engine.shaping import Order
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.views.jobnik import DEFAULT_PRIORITY, JOBNIK_PRIORITIES, WORKFLOW_WORDS
from detent.stores.api import Key, Record, key_of
from detent.stores.select import Filter
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.jobnik.checking import (
    BODY,
    Rule,
    an_object,
    body_of,
    checked,
    date,
    flag,
    one_of,
    query_of,
    text,
)
from detent.surfaces.jobnik.desk import PAGES, Desk
from detent.surfaces.jobnik.faults import illegal, invalid, missing, refused
from detent.surfaces.jobnik.keeping import (
    TRACEPARENT,
    TRACESTATE,
    TRACESTATE_MAX,
    JobKept,
    job_kept,
    job_meta,
    trace_of,
)
from detent.surfaces.jobnik.showing import FoundJob, job_shown

PRIORITY: Final = "jobnik-priority"
"""The kind of the notes that tasks have yet to hear of a priority."""
_HEARD_US: Final = 30_000_000

TRACE: Final[dict[str, Rule]] = {
    "traceparent": text(0, 55, TRACEPARENT),
    "tracestate": text(0, TRACESTATE_MAX, TRACESTATE),
}
_PRIORITY: Final = one_of(JOBNIK_PRIORITIES)
_NEW: Final[dict[str, Rule]] = {
    "name": text(2, 50),
    "data": an_object,
    "userMetadata": an_object,
    "priority": _PRIORITY,
    **TRACE,
}
_WITH_STAGES: Final[dict[str, Rule]] = {"should_return_stages": flag}
_LIST: Final[dict[str, Rule]] = {
    "job_name": text(0, 50),
    "priority": _PRIORITY,
    "from_date": date,
    "end_date": date,
    **_WITH_STAGES,
    **PAGES,
}
_STATUSES: Final = ("PENDING", "PAUSED", "ABORTED")
_MODIFIED: Final = "JOB_MODIFIED"
_UNCHANGED: Final = (("Reason", "PRIORITY_CANNOT_BE_UPDATED_TO_SAME_VALUE"),)


class _Hearing(msgspec.Struct, frozen=True):
    """A job whose tasks have yet to hear of its priority, and who has set it."""

    job: str
    by: str


class Jobs:
    """Everything about jobs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, call: Call) -> Reply:
        """Jobs, by name, priority and the time they were made."""
        query = query_of(call, _LIST)
        jobs = [one for one in await self._desk.all_jobs(call.caller.tenant) if _fits(one, query)]
        with_stages = query.get("should_return_stages", False)
        shown = {
            key_of(one.flow.workflow): await self._shown(call, one, with_stages=with_stages)
            for one in self._desk.paged(query, jobs)
        }
        return await self._desk.listed(query, jobs, lambda one: shown[key_of(one.flow.workflow)])

    async def create(self, call: Call) -> Reply:
        """A new job, without stages."""
        fields = checked(body_of(call), _NEW, ("name", "data"))
        kept = JobKept(
            data=_raw(fields["data"]),
            user_metadata=_raw(fields.get("userMetadata", "{}")),
            priority=fields.get("priority", DEFAULT_PRIORITY),
            **trace_of(call, fields),
        )
        tenant = call.caller.tenant
        order = Order(parts=(), tenant=tenant, name=fields["name"], meta=job_meta(kept))
        made = await self._desk.engine.workflows.create(order, call.caller.actor)
        if not isinstance(made, Created):
            raise invalid(made.message)
        return self._desk.reply(job_shown(await self._desk.job_of(call, made.id)), 201)

    async def get(self, call: Call) -> Reply:
        """A job."""
        query = query_of(call, _WITH_STAGES)
        found = await self._desk.job(call)
        with_stages = query.get("should_return_stages", False)
        return self._desk.reply(await self._shown(call, found, with_stages=with_stages))

    async def delete(self, call: Call) -> Reply:
        """Delete a job that has ended, with all its stages and tasks."""
        found = await self._desk.job(call, whole=True)

        async def stages() -> Sequence[Record]:
            return [one.record for one in await self._desk.stages_in(found)]

        erasing, by = self._desk.engine.erasing, call.caller.actor
        refusal = await erasing.erase(key_of(found.flow.workflow), by, stages)
        if refusal is not None:
            is_gone = refusal.code == "unknown_workflow"
            raise missing("JOB") if is_gone else refused("JOB_NOT_IN_FINITE_STATE")
        return self._desk.done("JOB_DELETED")

    async def annotate(self, call: Call) -> Reply:
        """Other metadata."""
        call.caller.need_scope(Scope.PRODUCE, Scope.WORK)
        metadata = _raw(an_object(BODY, body_of(call)))
        key = key_of((await self._desk.job(call)).flow.workflow)
        await self._change(key, lambda kept: replace(kept, user_metadata=metadata))
        return self._desk.done(_MODIFIED)

    async def reprioritise(self, call: Call) -> Reply:
        """Another priority, for all tasks that are or will be there."""
        fields = checked(body_of(call), {"priority": _PRIORITY}, ("priority",), closed=False)
        priority: str = fields["priority"]
        found = await self._desk.job(call, whole=True)
        if found.kept.priority == priority:
            return Reply(204, headers=_UNCHANGED)
        key, by = key_of(found.flow.workflow), call.caller.actor
        note = self._note(key, by)
        await self._change(key, lambda kept: replace(kept, priority=priority), (note,))
        await self.reprioritise_tasks(key, by)
        await self._desk.engine.put(_gone(note))
        return self._desk.done(_MODIFIED)

    def _note(self, key: Key, by: By) -> Record:
        """It is written with the new priority that tasks have yet to hear of it, and until when."""
        name = f"{key[1]} {self._desk.engine.identity.id()}"
        told = msgspec.json.encode(_Hearing(key[1], by.id)).decode()
        return Record(PRIORITY, name, 1, told, self._desk.now() + _HEARD_US, key[0])

    async def answer(self, due: Sequence[Record]) -> None:
        """Tell tasks of a new priority where whoever set it has not come to the end."""
        for record in due:
            told = msgspec.json.decode(record.data or "", type=_Hearing)
            by = By(Actor.USER, told.by)
            await self.reprioritise_tasks((record.tenant, told.job), by)
            await self._desk.engine.put(_gone(record))

    async def reprioritise_tasks(self, key: Key, by: By) -> None:
        """Give all tasks of a job that have not ended its priority, as it is in the end."""
        [job] = await self._desk.jobs_of([key])
        while job is not None:
            priority = job.kept.priority
            await self._renumber(key, JOBNIK_PRIORITIES[priority], by)
            [job] = await self._desk.jobs_of([key])
            if job is not None and job.kept.priority == priority:
                return

    async def _renumber(self, key: Key, number: int, by: By) -> None:
        tasks = await self._desk.tasks(Filter(tenant=key[0], workflow=key[1]))
        live = [one for one in tasks if one.job.state not in ENDED and one.job.priority != number]
        command = j.Reprioritise(number)
        await self._desk.engine.carry_out([Change(key_of(one.job), command, by) for one in live])

    async def steer(self, call: Call) -> Reply:
        """Pause, resume or abort."""
        fields = checked(body_of(call), {"status": one_of(_STATUSES)}, ("status",), closed=False)
        status: str = fields["status"]
        found = await self._desk.job(call, whole=True)
        workflows = self._desk.engine.workflows
        ask = {"PENDING": workflows.resume, "PAUSED": workflows.pause}.get(status, workflows.abort)
        answer = await ask(key_of(found.flow.workflow), call.caller.actor)
        if isinstance(answer, Refusal):
            raise illegal("JOB", WORKFLOW_WORDS[answer.state or ""], status)
        return self._desk.done(_MODIFIED)

    async def _change(
        self, key: Key, change: Callable[[JobKept], JobKept], puts: Sequence[Record] = ()
    ) -> None:
        """Change what is kept of a job; of a workflow that is none of Jobnik's nothing is."""

        def changed(meta: str) -> str:
            kept = job_kept(meta)
            if kept is None:
                raise missing("JOB")
            return job_meta(replace(change(kept), at=self._desk.now()))

        if not await self._desk.engine.workflows.annotate(key, changed, puts):
            raise missing("JOB")

    async def _shown(self, call: Call, job: FoundJob, *, with_stages: bool) -> dict[str, Any]:
        if not with_stages:
            return job_shown(job)
        stages = self._desk.seen_by(call, await self._desk.stages_in(job))
        return job_shown(job, await self._desk.stages_shown(stages))


def created_in(at: int, query: dict[str, Any]) -> bool:
    """Whether an instant lies between the dates that were asked for, both included."""
    at_ms = at // 1_000
    return bool(query.get("from_date", at_ms) <= at_ms <= query.get("end_date", at_ms))


def _fits(job: FoundJob, query: dict[str, Any]) -> bool:
    if query.get("job_name", job.name) != job.name:
        return False
    if query.get("priority", job.kept.priority) != job.kept.priority:
        return False
    return created_in(job.flow.workflow.created_at, query)


def _gone(record: Record) -> Record:
    return replace(record, version=record.version + 1, data=None, wake_at=None)


def _raw(text_: str) -> Raw:
    return Raw(text_.encode())
