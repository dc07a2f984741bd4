"""Workflows: chains, groups, batches with callbacks, and graphs of steps that depend on others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine import shaping
from detent.engine.building import Created
from detent.engine.entering import OUTRUN, Entry
from detent.engine.progress import Progress, Result, StepProgress
from detent.engine.shaping import Order, Part
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.views import OJS_WORKFLOW_WORDS
from detent.stores.api import Key
from detent.stores.select import Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.desk import Desk, page_of
from detent.surfaces.ojs.envelope import errors_shown
from detent.surfaces.ojs.faults import missing, of_refusal
from detent.surfaces.ojs.ordering import CALLBACKS, Kept, Members, Step, planned, text_in
from detent.surfaces.ojs.reading import Wanted, need_id, object_of
from detent.surfaces.ojs.wire import told

_ERRORS_MAX: Final = 10


class Flows:
    """Everything about workflows."""

    def __init__(self, desk: Desk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission

    # --- operations -----------------------------------------------------------------------------

    async def create(self, call: Call) -> Reply:
        """A new workflow; what can begin does."""
        fields = object_of(call.body)
        traced = partial(self._desk.traced, call)
        members = Members(self._desk.reader(call), fields, traced)
        kept, parts = planned(members, fields)
        wanted = await self._admission.completed(members.wanted)
        parts = _amended(parts, members.wanted, wanted)
        name = text_in(fields.get("name")) or ""
        tenant = call.caller.tenant
        meta = msgspec.json.encode(kept).decode()
        order = Order(parts=tuple(parts), tenant=tenant, name=name, meta=meta)
        made, pressure = await self._admission.let_in(
            call, wanted, partial(self._made, call, order)
        )
        body = {"workflow": await self._shown(call, (tenant, made.id))}
        where = ("location", f"/ojs/v1/workflows/{made.id}")
        return self._desk.reply(body, 201, (where, *pressure))

    async def _made(self, call: Call, order: Order, entry: Entry | None) -> Created | Refusal:
        workflows, by = self._desk.engine.workflows, call.caller.actor
        made = await workflows.create(replace(order, entry=entry), by)
        if isinstance(made, Refusal) and made is not OUTRUN:
            raise of_refusal(made)
        return made

    async def get(self, call: Call) -> Reply:
        """How far a workflow is."""
        return self._desk.reply({"workflow": await self._shown(call, self._key(call))})

    async def progress(self, call: Call) -> Reply:
        """The same in numbers."""
        found = await self._found(self._key(call))
        self._kept(call, found)
        done = sum(step.tally.completed for step in found.steps)
        total = sum(step.tally.total for step in found.steps)
        state = OJS_WORKFLOW_WORDS[found.workflow.state]
        told_of = {"workflow_id": found.workflow.id, "state": state}
        share = done / total if total else 0.0
        return self._desk.reply({**told_of, "progress": share, "completed": done, "total": total})

    async def listed(self, call: Call) -> Reply:
        """The newest workflows."""
        limit, _ = page_of(call, is_by_id=True)
        tenant, cursor = call.caller.tenant, call.query.get("cursor")
        page = Page(limit + 1, None if not cursor else (tenant, need_id(cursor)))
        found = await self._desk.engine.workflows.list(tenant, page=page)
        told_of = [
            {
                "id": one.workflow.id,
                "name": one.name,
                "state": OJS_WORKFLOW_WORDS[one.workflow.state],
                "created_at": told(one.workflow.created_at),
            }
            for one in found[:limit]
        ]
        has_more = len(found) > limit
        pages: dict[str, Any] = {"has_more": has_more, "limit": limit}
        if has_more:
            pages["next_cursor"] = told_of[-1]["id"]
        elif not cursor:
            pages["total"] = len(told_of)
        return self._desk.reply({"workflows": told_of, "pagination": pages})

    async def cancel(self, call: Call) -> Reply:
        """Call a workflow off: what waits is cancelled, what runs may end."""
        key = self._key(call)
        self._kept(call, await self._found(key))
        answer = await self._desk.engine.workflows.abort(key, call.caller.actor)
        if isinstance(answer, Refusal):
            state = OJS_WORKFLOW_WORDS.get(answer.state or "", answer.state)
            why = f"cannot cancel a workflow in state '{state}'"
            raise Problem(409, "conflict", why, workflow_id=key[1], current_state=state)
        return self._desk.reply({"workflow": await self._shown(call, key)})

    async def results_before(self, job: Job) -> list[Any]:
        """What came out of everything before the step of this job, in order."""
        found = await self._desk.engine.workflows.results_before(job)
        if len(found) == 1 and shaping.JOBS in found:
            return [_result(one) for one in found[shaping.JOBS]]
        return [_joined(some) for some in found.values()]

    # --- showing --------------------------------------------------------------------------------

    def _key(self, call: Call) -> Key:
        return call.caller.tenant, call.param("id")

    async def _found(self, key: Key) -> Progress:
        found = await self._desk.engine.workflows.get(key)
        if found is None:
            raise missing("workflow", key[1])
        return found

    async def _shown(self, call: Call, key: Key) -> dict[str, Any]:
        found = await self._found(key)
        return await self._told(key, found, self._kept(call, found))

    def _kept(self, call: Call, found: Progress) -> Kept:
        """What was ordered over this surface, if the caller may see all of it."""
        try:
            kept = msgspec.json.decode(found.meta, type=Kept)
        except msgspec.DecodeError:
            # It was ordered elsewhere, and nothing here says which queues its jobs are in.
            call.caller.need_unbound()
            kept = Kept("dag", ())
        for step in kept.steps:
            call.caller.need_queue(step.queue)
        return kept

    async def _told(self, key: Key, found: Progress, kept: Kept) -> dict[str, Any]:
        flow, state = found.workflow, OJS_WORKFLOW_WORDS[found.workflow.state]
        steps = await self._steps(key, found, kept)
        counted = [one for one in steps if one["id"] not in CALLBACKS or kept.type != "batch"]
        done = sum(one["state"] == "completed" for one in counted)
        failed = sum(one["state"] in ("discarded", "failed") for one in counted)
        unit = "jobs" if kept.type in ("group", "batch") else "steps"
        shown: dict[str, Any] = {
            "id": flow.id,
            "type": kept.type,
            "name": found.name,
            "state": state,
            f"{unit}_total": len(counted),
            f"{unit}_completed": done,
            "steps": steps,
            "created_at": told(flow.created_at),
            "metadata": {
                "created_at": told(flow.created_at),
                "job_count": len(counted),
                "completed_count": done,
                "failed_count": failed,
            },
        }
        if flow.started_at is not None:
            shown["metadata"]["started_at"] = told(flow.started_at)
        if flow.ended_at is not None:
            shown["completed_at"] = shown["metadata"]["completed_at"] = told(flow.ended_at)
        if failed:
            bad = [one for one in counted if one["state"] in ("discarded", "failed")]
            shown["failed_step_index"] = bad[0]["index"]
            names = [one["job_id"] for one in bad if "job_id" in one]
            shown["failed_job_ids"] = names
            shown["errors"] = await self._errors([(key[0], name) for name in names[:_ERRORS_MAX]])
        return shown

    async def _errors(self, keys: Sequence[Key]) -> list[dict[str, Any]]:
        """Why jobs have failed in the end, of as many as anybody reads."""
        found = await self._desk.engine.store.get(keys) if keys else []
        return [
            {"job_id": one.job.id, **errors_shown(one)[-1]}
            for one in found
            if one is not None and one.failures
        ]

    async def _steps(self, key: Key, found: Progress, kept: Kept) -> list[dict[str, Any]]:
        results = {
            part: list(await self._desk.engine.workflows.results_of(key, part))
            for part in dict.fromkeys(step.part for step in kept.steps)
        }
        states = {step.name: step for step in found.steps}
        shown: list[dict[str, Any]] = []
        for step in kept.steps:
            some = results[step.part]
            shown.append(_step_shown(step, states.get(step.part), some.pop(0) if some else None))
        return shown


def _amended(
    parts: Sequence[Part], before: Sequence[Wanted], after: Sequence[Wanted]
) -> list[Part]:
    """The same steps with their jobs as their queues have completed them."""
    new = {id(old.ask): one.ask for old, one in zip(before, after, strict=True)}
    return [replace(part, jobs=tuple(new[id(ask)] for ask in part.jobs)) for part in parts]


def _step_shown(step: Step, progress: StepProgress | None, result: Result | None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": step.id,
        "index": step.index,
        "type": step.type,
        "args": step.args,
        "depends_on": step.depends_on,
        "state": _word(progress, result),
    }
    if step.name is not None:
        shown["name"] = step.name
    if result is not None:
        shown["job_id"] = result.job_id
        for name, at in (("started_at", result.started_at), ("completed_at", result.ended_at)):
            if at is not None:
                shown[name] = told(at)
        if result.result is not None:
            shown["result"] = Raw(result.result.encode())
    return shown


def _word(progress: StepProgress | None, result: Result | None) -> str:
    """A job that waits for its step is not enqueued yet, whatever its record says."""
    if result is None:
        return "pending"
    is_closed = progress is not None and progress.state in (
        w.StepState.CREATED,
        w.StepState.WAITING,
    )
    return "pending" if is_closed and result.state == "available" else result.state


def _joined(some: Sequence[Result]) -> Any:
    return _result(some[0]) if len(some) == 1 else [_result(one) for one in some]


def _result(one: Result) -> Any:
    return None if one.result is None else Raw(one.result.encode())
