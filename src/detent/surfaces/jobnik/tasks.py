"""Tasks: added to stages, dequeued by their type, reported on, annotated."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.access import Scope
from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.engine.keyless import opened_here
from detent.engine.piecemeal import piecemeal
from detent.engine.secrets import Owner
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Answer, Job
from detent.lifecycle.job.values import TRIES_MAX
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import PROFILES, ProfileName, Surface
from detent.lifecycle.retry import RetryPolicy, Strategy
from detent.lifecycle.views.jobnik import JOBNIK, JOBNIK_PRIORITIES, SUMMARY_KEYS
from detent.stores.api import Failure, New, Stored, Want, key_of
from detent.stores.select import Filter
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.jobnik.checking import (
    BODY,
    Rule,
    an_object,
    body_of,
    checked,
    date,
    integer,
    items_of,
    one_of,
    query_of,
    text,
    uuid,
)
from detent.surfaces.jobnik.desk import PAGES, Desk, FoundStage
from detent.surfaces.jobnik.faults import illegal, invalid, lost_race, missing, refused
from detent.surfaces.jobnik.jobs import TRACE, Jobs, created_in
from detent.surfaces.jobnik.keeping import TaskKept, queue_of, task_kept, trace_of
from detent.surfaces.jobnik.showing import task_shown
from detent.surfaces.jobnik.stages import TYPE_MAX

LEASE: Final = "X-Detent-Lease"
"""The header that a dequeue answers and a report may bring."""
HOLDER: Final = "jobnik"
"""Jobnik knows no workers: all of them are this one."""
_NEW: Final[dict[str, Rule]] = {
    "data": an_object,
    "userMetadata": an_object,
    "maxAttempts": integer(1, 2**31 - 1),
    **TRACE,
}
_STATUS: Final = one_of([word for word in SUMMARY_KEYS])  # noqa: C416 - a list keeps its order
_LIST: Final[dict[str, Rule]] = {
    "stage_id": uuid,
    "stage_type": text(0, TYPE_MAX),
    "status": _STATUS,
    "from_date": date,
    "end_date": date,
    **PAGES,
}
_CLAIMABLE: Final = tuple(
    profile.name.value for profile in PROFILES.values() if Surface.JOBNIK in profile.claimed_over
)
_REPORTS: Final = ("COMPLETED", "FAILED")
_CODE: Final = "task_failed"
_REFUSALS: Final = {
    "step_finished": ("STAGE_IN_FINITE_STATE", "STAGE_ALREADY_FINISHED_TASKS_ERROR"),
    "step_running": ("NOT_ALLOWED_TO_ADD_TASKS_TO_IN_PROGRESS_STAGE", "ADD_TASK_NOT_ALLOWED"),
}


class Tasks:
    """Everything about tasks."""

    def __init__(self, desk: Desk, jobs: Jobs) -> None:
        self._desk = desk
        self._jobs = jobs

    async def of_stage(self, call: Call) -> Reply:
        """The tasks of a stage."""
        query = query_of(call, PAGES)
        found = await self._desk.tasks_of(await self._desk.stage(call))
        return await self._desk.listed(query, found, task_shown)

    async def create(self, call: Call) -> Reply:
        """More tasks for a stage that has not started, all or none of them."""
        given = items_of(body_of(call))
        fields = await piecemeal(_fields, list(enumerate(given)))
        stage = await self._desk.stage(call)
        asks = await piecemeal(partial(_ask, call, stage), fields)
        made: list[New] = []
        name, by = stage.kept.name(stage.id), call.caller.actor
        workflows = self._desk.engine.workflows
        answer = await workflows.add_jobs(stage.key, name, asks, by, made=made)
        if isinstance(answer, Refusal):
            raise _not_added(answer)
        await self._keep_up(call, stage)
        shown = await piecemeal(lambda new: task_shown(Stored(new.job, new.body)), made)
        return self._desk.reply(shown, 201)

    async def _keep_up(self, call: Call, stage: FoundStage) -> None:
        """Whoever changed the priority in this moment may not have seen the new tasks."""
        [job] = await self._desk.jobs_of([stage.key])
        if job is not None and job.kept.priority != stage.job.kept.priority:
            await self._jobs.reprioritise_tasks(stage.key, call.caller.actor)

    async def listed(self, call: Call) -> Reply:
        """Tasks, by stage, type, status and the time they were made."""
        query = query_of(call, _LIST)
        chosen = Filter(tenant=call.caller.tenant)
        if "stage_type" in query:
            chosen = replace(chosen, queue=queue_of(query["stage_type"]))
        if "stage_id" in query:
            stage = await self._desk.stage_of(call, query["stage_id"])
            if stage is None:
                return await self._desk.listed(query, [], task_shown)
            chosen = replace(chosen, workflow=stage.key[1], step=stage.step.id)
        found = [
            one
            for one in await self._desk.tasks(chosen)
            if call.caller.may_use(one.job.queue) and _fits(one.job, query)
        ]
        return await self._desk.listed(query, found, task_shown)

    async def get(self, call: Call) -> Reply:
        """A task."""
        return self._desk.reply(task_shown(await self._desk.task(call)))

    async def annotate(self, call: Call) -> Reply:
        """Other metadata."""
        call.caller.need_scope(Scope.PRODUCE, Scope.WORK)
        metadata = Raw(an_object(BODY, body_of(call)).encode())
        stored = await self._desk.task(call)
        meta = _meta(replace(task_kept(stored), user_metadata=metadata))
        command = j.Annotate(hashlib.sha256(meta.encode()).hexdigest())
        change = Change(key_of(stored.job), command, call.caller.actor, beside=Beside(meta=meta))
        [answer] = await self._desk.engine.carry_out([change])
        if isinstance(answer, Refusal):
            raise missing("TASK")
        return self._desk.done("TASK_MODIFIED")

    # --- work -----------------------------------------------------------------------------------

    async def dequeue(self, call: Call) -> Reply:
        """The first task of the most urgent job that has one of this type to do."""
        type_ = call.param("stageId")
        if len(type_) > TYPE_MAX:
            most = f"must NOT have more than {TYPE_MAX} characters"
            raise invalid(f"request/params/stageType {most}")
        call.caller.need_queue(queue_of(type_))
        claimed = await self._desk.engine.claim(self._want(call, type_))
        here = await opened_here(self._desk.engine, claimed.jobs)
        if not here:
            raise missing("TASK")
        [stored] = here
        job, body = stored.job, stored.body
        opened = self._desk.engine.secrets.opened(
            body.payload, Owner(job.tenant, job.id, body.type)
        )
        shown = task_shown(replace(stored, body=replace(body, payload=opened.payload)))
        return self._desk.reply(shown, headers=((LEASE, job.lease or ""),))

    def _want(self, call: Call, type_: str) -> Want:
        new = self._desk.engine.identity.id
        return Want(
            command_id=new(),
            by=By(Actor.WORKER, HOLDER),
            holder=HOLDER,
            leases=(new(),),
            queues=(queue_of(type_),),
            tenant=call.caller.tenant,
            wire=True,
            lease_us=self._lease_us(type_),
            profiles=_CLAIMABLE,
        )

    def _lease_us(self, type_: str) -> int:
        settings = self._desk.settings
        return int(settings.jobnik_leases_s.get(type_, settings.jobnik_lease_s) * 1_000_000)

    async def report(self, call: Call) -> Reply:
        """The task has completed or failed; whether it is tried again is decided here."""
        fields = checked(body_of(call), {"status": one_of(_REPORTS)}, ("status",), closed=False)
        status = fields["status"]
        stored = await self._desk.task(call)
        answer = await self._report(call, stored, status)
        if isinstance(answer, Refusal) and not stored.job.is_lost:
            # Its lease may have ended in this very moment.
            stored = await self._desk.task(call)
            if stored.job.is_lost:
                answer = await self._report(call, stored, status)
        if isinstance(answer, Refusal):
            raise lost_race()
        return self._desk.reply(task_shown(replace(stored, job=answer.job)))

    async def _report(self, call: Call, stored: Stored, status: str) -> Answer:
        """What the report does to the task as it was read.

        It counts for the run that is under way, or for the one whose lease it names. A task that
        was lost and that nobody has taken since is taken again for it.
        """
        job = stored.job
        word, target = JOBNIK.word(job), _target(job, status)
        if word != "IN_PROGRESS":
            raise illegal("TASK", word, target)
        lease, claim = call.header(LEASE) or job.lease, None
        if job.is_lost:
            lease = self._desk.engine.identity.id()
            claim = j.Claim(lease, HOLDER, wire=True, lease_us=self._lease_us(job.queue))
        failure = Failure(job.attempt, self._desk.now(), _CODE, "its worker reported a failure")
        is_good = status == "COMPLETED"
        change = Change(
            key_of(job),
            j.Complete(lease=lease) if is_good else j.Fail(lease=lease, code=_CODE),
            By(Actor.WORKER, HOLDER if job.is_lost else job.holder or HOLDER),
            beside=Beside() if is_good else Beside(failure=failure),
            known=stored,
            delay_us=0,
            claim=claim,
        )
        [answer] = await self._desk.engine.carry_out([change])
        return answer


def _fields(item: tuple[int, Raw]) -> dict[str, Any]:
    place, one = item
    return checked(one, _NEW, ("data",), path=f"{BODY}/{place}")


def _ask(call: Call, stage: FoundStage, fields: dict[str, Any]) -> Ask:
    """The job behind a task: the data is its one argument, and it is tried again at once."""
    most, kept = fields.get("maxAttempts", 1), stage.kept
    told = TaskKept(
        user_metadata=Raw(fields.get("userMetadata", "{}").encode()),
        max_attempts=most if most > TRIES_MAX else None,
        **trace_of(call, fields),
    )
    policy = RetryPolicy(
        max_attempts=min(most, TRIES_MAX), initial_us=1, jitter=False, strategy=Strategy.CONSTANT
    )
    return Ask(
        type=queue_of(kept.type),
        payload=f"[{fields['data']}]",
        meta=_meta(told),
        tenant=stage.key[0],
        profile=ProfileName.JOBNIK.value,
        queue=queue_of(kept.type),
        priority=JOBNIK_PRIORITIES[stage.job.kept.priority],
        retry=policy,
    )


def _meta(kept: TaskKept) -> str:
    return msgspec.json.encode(kept).decode()


def _not_added(refusal: Refusal) -> Problem:
    if refusal.code in _REFUSALS:
        return refused(*_REFUSALS[refusal.code])
    return invalid(refusal.message)


def _target(job: Job, status: str) -> str:
    """Clients say that a task has failed; that it may be tried again is ours to say."""
    is_left = job.failures + 1 < job.allowed
    return "RETRIED" if status == "FAILED" and is_left else status


def _fits(job: Job, query: dict[str, Any]) -> bool:
    is_status = "status" not in query or JOBNIK.word(job) == query["status"]
    return is_status and created_in(job.created_at, query)
