"""Workflows: chains, groups, batches with callbacks, and graphs of steps that depend on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine import shaping
from detent.engine.building import Created
from detent.engine.enqueueing import Ask
from detent.engine.progress import Progress, Result, StepProgress
from detent.engine.shaping import Order, Part
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.views import OJS_WORKFLOW_WORDS
from detent.lifecycle.workflow import Condition, Fails, Policy, StepPlan, check_graph
from detent.stores.api import Key
from detent.stores.select import Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.desk import Desk, page_of
from detent.surfaces.ojs.faults import invalid, missing, of_refusal
from detent.surfaces.ojs.reading import Reader, Wanted, object_of, objects_of
from detent.surfaces.ojs.wire import told

__all__ = ["Flows"]

STEPS_MAX: Final = 10_000
_CALLBACKS: Final = {
    "on_complete": Condition.ALWAYS,
    "on_success": Condition.SUCCESS,
    "on_failure": Condition.FAILURE,
}
_ENDED = ("completed", "failed", "cancelled")


class _Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step as it was ordered, kept so that it can be shown."""

    id: str
    type: str
    args: Raw
    part: str
    index: int = 0
    depends_on: tuple[str, ...] = ()
    name: str | None = None
    queue: str = ""


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What this surface keeps of a workflow."""

    type: str
    steps: tuple[_Step, ...]


class _Members:
    """Reads the jobs of one workflow, under the options that all of them share."""

    def __init__(self, reader: Reader, fields: Mapping[str, Raw]) -> None:
        self._reader = reader
        self._defaults = object_of(fields["options"]) if _has(fields, "options") else None
        self.wanted: list[Wanted] = []

    def ask(self, one: Mapping[str, Raw]) -> Ask:
        """One of them."""
        job = {k: v for k, v in one.items() if k not in ("name", "depends_on", "id")}
        self.wanted.append(self._reader.job(job, self._defaults))
        return self.wanted[-1].ask


class Flows:
    """Everything about workflows."""

    def __init__(self, desk: Desk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission

    # --- operations -----------------------------------------------------------------------------

    async def create(self, call: Call) -> Reply:
        """A new workflow; what can begin does."""
        fields = object_of(call.body)
        members = _Members(self._desk.reader(call), fields)
        kept, parts = self._planned(members, fields)
        await self._admission.admit(call, members.wanted)
        name = _text(fields.get("name")) or ""
        tenant = self._desk.tenant(call)
        meta = msgspec.json.encode(kept).decode()
        order = Order(parts=tuple(parts), tenant=tenant, name=name, meta=meta)
        made = await self._desk.engine.workflows.create(order, self._desk.by(call))
        if not isinstance(made, Created):
            raise of_refusal(made)
        body = {"workflow": await self._shown(call, (tenant, made.id))}
        return self._desk.reply(body, 201, (("location", f"/ojs/v1/workflows/{made.id}"),))

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
        limit, _ = page_of(call)
        found = await self._desk.engine.workflows.list(self._desk.tenant(call), page=Page(limit))
        told_of = [
            {
                "id": one.workflow.id,
                "name": one.name,
                "state": OJS_WORKFLOW_WORDS[one.workflow.state],
                "created_at": told(one.workflow.created_at),
            }
            for one in found
        ]
        pages = {"total": len(told_of), "has_more": False, "limit": limit, "offset": 0}
        return self._desk.reply({"workflows": told_of, "pagination": pages})

    async def cancel(self, call: Call) -> Reply:
        """Call a workflow off: what waits is cancelled, what runs may end."""
        key = self._key(call)
        self._kept(call, await self._found(key))
        answer = await self._desk.engine.workflows.abort(key, self._desk.by(call))
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

    # --- planning -------------------------------------------------------------------------------

    def _planned(
        self, members: _Members, fields: Mapping[str, Raw]
    ) -> tuple[_Kept, Sequence[Part]]:
        kind = _text(fields.get("type"))
        if kind is None and "steps" in fields:
            return self._graph(members, fields)
        if kind == "chain":
            return self._chain(members, fields)
        if kind == "group":
            return self._group(members, fields)
        if kind == "batch":
            return self._batch(members, fields)
        raise invalid("type must be chain, group or batch; or steps with ids", field="type")

    def _chain(self, members: _Members, fields: Mapping[str, Raw]) -> tuple[_Kept, Sequence[Part]]:
        given = objects_of("steps", fields.get("steps"), STEPS_MAX)
        steps, asks = list[_Step](), list[Sequence[Ask]]()
        for number, one in enumerate(given, start=1):
            if "jobs" in one and "type" in one and _text(one["type"]) == "group":
                some = objects_of("jobs", one["jobs"], STEPS_MAX)
            else:
                some = [one]
            asks.append([members.ask(job) for job in some])
            before = (str(number - 1),) if number > 1 else ()
            steps += [
                _step(job, ask, str(number), len(steps) + place, before)
                for place, (job, ask) in enumerate(zip(some, asks[-1], strict=True))
            ]
        return _Kept("chain", tuple(steps)), shaping.chain(*asks)

    def _group(self, members: _Members, fields: Mapping[str, Raw]) -> tuple[_Kept, Sequence[Part]]:
        given = objects_of("jobs", fields.get("jobs"), STEPS_MAX)
        asks = [members.ask(one) for one in given]
        steps = [
            _step(one, ask, shaping.JOBS, place)
            for place, (one, ask) in enumerate(zip(given, asks, strict=True))
        ]
        return _Kept("group", tuple(steps)), shaping.group(*asks)

    def _batch(self, members: _Members, fields: Mapping[str, Raw]) -> tuple[_Kept, Sequence[Part]]:
        kept, [jobs] = self._group(members, fields)
        raw = fields.get("callbacks")
        called = object_of(raw) if raw is not None else {}
        callbacks = {
            name: (object_of(called[name]), members.ask(object_of(called[name])))
            for name in _CALLBACKS
            if name in called and bytes(called[name]) != b"null"
        }
        if not callbacks:
            names = ", ".join(_CALLBACKS)
            raise invalid(f"callbacks needs at least one of {names}", field="callbacks")
        steps = list(kept.steps)
        for name, (one, ask) in callbacks.items():
            steps.append(_step(one, ask, name, len(steps), (shaping.JOBS,)))
        asks = {name: ask for name, (_, ask) in callbacks.items()}
        return _Kept("batch", tuple(steps)), shaping.batch(jobs.jobs, **asks)

    def _graph(self, members: _Members, fields: Mapping[str, Raw]) -> tuple[_Kept, Sequence[Part]]:
        """Steps that depend on others by their ids; a callback depends on how they ended."""
        given = objects_of("steps", fields.get("steps"), STEPS_MAX)
        asks: dict[str, Ask] = {}
        steps, plans = list[_Step](), list[StepPlan]()
        for one in given:
            name = _text(one.get("id"))
            if not name or name in asks:
                raise invalid("every step needs an id of its own", field="steps.id")
            asks[name] = members.ask({k: v for k, v in one.items() if k != "id"})
            before = _names(one.get("depends_on"))
            condition = _condition(one)
            plans.append(StepPlan(name, before, Policy(condition=condition)))
            steps.append(_step(one, asks[name], name, len(steps), before))
        plans = [_patient(plan, plans) for plan in plans]
        ordered = check_graph(plans)
        parts = [Part(plan, (asks[plan.id],)) for plan in ordered]
        return _Kept("dag", tuple(steps)), parts

    # --- showing --------------------------------------------------------------------------------

    def _key(self, call: Call) -> Key:
        return self._desk.tenant(call), call.param("id")

    async def _found(self, key: Key) -> Progress:
        found = await self._desk.engine.workflows.get(key)
        if found is None:
            raise missing("workflow", key[1])
        return found

    async def _shown(self, call: Call, key: Key) -> dict[str, Any]:
        found = await self._found(key)
        return await self._told(key, found, self._kept(call, found))

    def _kept(self, call: Call, found: Progress) -> _Kept:
        """What was ordered over this surface, if the caller may see all of it."""
        try:
            kept = msgspec.json.decode(found.meta, type=_Kept)
        except msgspec.DecodeError:
            kept = _Kept("dag", ())
        for step in kept.steps:
            self._desk.need_queue(call, step.queue)
        return kept

    async def _told(self, key: Key, found: Progress, kept: _Kept) -> dict[str, Any]:
        flow, state = found.workflow, OJS_WORKFLOW_WORDS[found.workflow.state]
        steps = await self._steps(key, found, kept)
        counted = [one for one in steps if one["id"] not in _CALLBACKS or kept.type != "batch"]
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
        if flow.ended_at is not None:
            shown["completed_at"] = shown["metadata"]["completed_at"] = told(flow.ended_at)
        if failed:
            bad = [one for one in counted if one["state"] in ("discarded", "failed")]
            shown["failed_step_index"] = bad[0]["index"]
            shown["failed_job_ids"] = [one["job_id"] for one in bad if "job_id" in one]
        return shown

    async def _steps(self, key: Key, found: Progress, kept: _Kept) -> list[dict[str, Any]]:
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


def _step_shown(
    step: _Step, progress: StepProgress | None, result: Result | None
) -> dict[str, Any]:
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


def _step(
    one: Mapping[str, Raw], ask: Ask, part: str, index: int, before: tuple[str, ...] = ()
) -> _Step:
    name = _text(one.get("name"))
    named = _text(one.get("id")) or name or (part if part not in (shaping.JOBS,) else str(index))
    args = Raw(ask.payload.encode())
    return _Step(named, ask.type, args, part, index, before, name, ask.queue)


def _condition(one: Mapping[str, Raw]) -> Condition:
    options = object_of(one["options"]) if _has(one, "options") else {}
    kind = _text(options.get("callback_type"))
    return Condition.SUCCESS if kind is None else _CALLBACKS.get(kind, Condition.SUCCESS)


def _patient(plan: StepPlan, plans: Sequence[StepPlan]) -> StepPlan:
    """A step that a callback waits for lets the others end, however it ends itself."""
    called = {
        one for p in plans if p.policy.condition is not Condition.SUCCESS for one in p.depends_on
    }
    if plan.id not in called:
        return plan
    policy = Policy(fails=Fails.WHEN_ALL_DONE, condition=plan.policy.condition)
    return StepPlan(plan.id, plan.depends_on, policy)


def _joined(some: Sequence[Result]) -> Any:
    return _result(some[0]) if len(some) == 1 else [_result(one) for one in some]


def _result(one: Result) -> Any:
    return None if one.result is None else Raw(one.result.encode())


def _has(fields: Mapping[str, Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"


def _text(raw: Raw | None) -> str | None:
    try:
        value = None if raw is None else msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, str) else None


def _names(raw: Raw | None) -> tuple[str, ...]:
    if raw is None or bytes(raw) == b"null":
        return ()
    try:
        return msgspec.json.decode(raw, type=tuple[str, ...])
    except msgspec.DecodeError:
        raise invalid("depends_on must be an array of step ids", field="depends_on") from None
