"""Schedules, which this surface calls cron jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType

from detent.engine.asks import Ask
from detent.engine.schedule import Overlap, Plan, Schedule
from detent.errors import UnknownSchedule
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Key
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.admission import Admission
from detent.surfaces.ojs.desk import Desk, page_of, pages, read_body
from detent.surfaces.ojs.envelope import kept_of
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.policies import retry_shown
from detent.surfaces.ojs.reading import object_of
from detent.surfaces.ojs.wire import told

_NAME = re.compile(r"[a-z0-9][a-z0-9\-.]*")
_NAME_MAX: Final = 255
_LIST_MAX: Final = 1_000
_OVERLAPS = {
    "skip": Overlap.SKIP,
    "allow": Overlap.ALLOW,
    "enqueue": Overlap.ALLOW,
    "cancel": Overlap.CANCEL_PREVIOUS,
    "cancel_previous": Overlap.CANCEL_PREVIOUS,
}


class _Cron(msgspec.Struct, frozen=True):
    name: str | None = None
    expression: str | None = None
    cron: str | None = None
    timezone: str = "UTC"
    overlap_policy: str = "skip"
    enabled: bool = True
    description: str = ""
    job_template: Raw | UnsetType = msgspec.UNSET


class _Patch(msgspec.Struct, frozen=True):
    enabled: bool | None = None


class Crons:
    """The operations on schedules."""

    def __init__(self, desk: Desk, admission: Admission) -> None:
        self._desk = desk
        self._admission = admission

    async def put(self, call: Call) -> Reply:
        """A new schedule, or another plan for one that is there."""
        cron = read_body(call, _Cron)
        read = self._desk.reader(call).job(self._template(call, cron))
        [wanted] = await self._admission.completed([read])
        plan = self._plan(cron, wanted.ask)
        await self._need_own(call, plan.key)
        await self._admission.admit(call, [wanted])
        schedule, is_new = await self._desk.engine.schedules.upsert(
            plan, call.caller.actor, is_paused=not cron.enabled
        )
        return self._desk.reply(_both(schedule), 201 if is_new else 200)

    async def listed(self, call: Call) -> Reply:
        """All schedules, by name."""
        limit, offset = page_of(call)
        tenant = call.caller.tenant
        found = await self._desk.engine.schedules.list(tenant, limit=_LIST_MAX)
        mine = [one for one in found if call.caller.may_use(one.plan.job.queue)]
        shown = [_shown(one) for one in mine[offset : offset + limit]]
        body = {
            "crons": shown,
            "cron_jobs": shown,
            "count": len(shown),
            "pagination": pages(len(mine), limit, offset),
        }
        return self._desk.reply(body)

    async def get(self, call: Call) -> Reply:
        """One schedule."""
        return self._desk.reply(_both(await self._schedule(call)))

    async def patch(self, call: Call) -> Reply:
        """Switch a schedule off or on."""
        enabled = read_body(call, _Patch).enabled
        schedule = await self._schedule(call)
        if enabled is None:
            raise invalid("enabled must be true or false", field="enabled")
        schedules, by = self._desk.engine.schedules, call.caller.actor
        turn = schedules.resume if enabled else schedules.pause
        return self._desk.reply(_both(await turn(schedule.plan.key, by)))

    async def delete(self, call: Call) -> Reply:
        """Remove a schedule; its jobs stay."""
        schedule = await self._schedule(call)
        removed = await self._desk.engine.schedules.remove(schedule.plan.key, call.caller.actor)
        return self._desk.reply({**_both(removed), "deleted": True, "name": removed.plan.name})

    async def trigger(self, call: Call) -> Reply:
        """One job of the schedule now."""
        schedule = await self._schedule(call)
        answer = await self._desk.engine.schedules.fire(schedule.plan.key, call.caller.actor)
        job = getattr(answer, "job", None)
        return self._desk.reply({"triggered": job is not None, "job_id": job and job.id})

    async def _need_own(self, call: Call, key: Key) -> None:
        """Refuse to replace a schedule of another queue."""
        if call.caller.is_bound:
            before = await self._desk.engine.schedules.get(key)
            if before is not None:
                call.caller.need_queue(before.plan.job.queue)

    async def _schedule(self, call: Call) -> Schedule:
        name = call.param("name")
        try:
            found = await self._desk.engine.schedules.get((call.caller.tenant, name))
        except UnknownSchedule:
            found = None
        if found is None:
            raise missing("cron job", name)
        call.caller.need_queue(found.plan.job.queue)
        return found

    def _plan(self, cron: _Cron, job: Ask) -> Plan:
        name, expression = cron.name or "", cron.expression or cron.cron
        if not _NAME.fullmatch(name) or len(name) > _NAME_MAX:
            raise invalid("name is needed: lower case letters, digits, - and .", field="name")
        if not expression:
            raise invalid("expression is needed", field="expression")
        if cron.overlap_policy not in _OVERLAPS:
            known = ", ".join(_OVERLAPS)
            raise invalid(f"overlap_policy must be one of {known}", field="overlap_policy")
        return Plan(
            name=name,
            expression=expression,
            job=job,
            tenant=job.tenant,
            zone=cron.timezone,
            overlap=_OVERLAPS[cron.overlap_policy],
            description=cron.description,
        )

    def _template(self, call: Call, cron: _Cron) -> Mapping[str, Raw]:
        """The job, in an object of its own or beside the times."""
        if not isinstance(cron.job_template, UnsetType):
            return object_of(cron.job_template)
        fields = object_of(call.body)
        return {n: fields[n] for n in ("type", "args", "meta", "options", "queue") if n in fields}


def _both(schedule: Schedule) -> dict[str, Any]:
    shown = _shown(schedule)
    return {"cron": shown, "cron_job": shown}


def _shown(schedule: Schedule) -> dict[str, Any]:
    plan, fired = schedule.plan, schedule.fired_at
    job = {
        "type": plan.job.type,
        "args": Raw(plan.job.payload.encode()),
        "meta": kept_of(plan.job.meta).meta,
        "options": {
            "queue": plan.job.queue,
            "priority": plan.job.priority,
            "retry": retry_shown(plan.job.retry or RetryPolicy()),
            "tags": plan.job.tags,
        },
    }
    return {
        "name": plan.name,
        "expression": plan.expression,
        "cron": plan.expression,
        "timezone": plan.zone,
        "overlap_policy": plan.overlap.value,
        "enabled": not schedule.is_paused,
        "description": plan.description,
        "next_run_at": None if schedule.next_at is None else told(schedule.next_at),
        "last_run_at": None if fired is None else told(fired),
        "run_count": schedule.fired,
        "created_at": told(schedule.created_at),
        # OpenAPI has the job in `job_template`, the HTTP binding beside the times.
        "job_template": job,
        **job,
        "status": "paused" if schedule.is_paused else "active",
    }
