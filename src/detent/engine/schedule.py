"""A schedule as it is kept: what it plans, where it stands, and who changed it last. Pure.

It is one small record whose `wake_at` is its next slot. A removed schedule is kept as such, so
that its name tells who removed it and which slot it answered last.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from detent.engine.asks import Ask, OnConflict
from detent.engine.timetable import Timetable, timetable
from detent.errors import BadSchedule
from detent.lifecycle.event import By
from detent.lifecycle.job.values import REASON_MAX
from detent.lifecycle.machine import Actor
from detent.stores.api import Key, Record

KIND = "schedule"
CHANGES_MAX = 20
"""How many changes a schedule remembers; the oldest are forgotten first."""
CATCH_UP_MAX = 100
NAME_MAX = 255
GRACE_US = 60_000_000
"""A slot answered within this time was answered in time: upkeep is never exact."""


class Overlap(StrEnum):
    """What a slot does when jobs of the slot before are still live."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL_PREVIOUS = "cancel_previous"


class CatchUp(StrEnum):
    """Which of the slots are made up for that passed while nobody looked."""

    NONE = "none"
    LAST = "last"
    ALL = "all"


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a user says about a schedule: when, what, and what in the less simple cases.

    `catch_up_max` bounds `CatchUp.ALL`: of more missed slots the newest count.
    """

    name: str
    expression: str
    job: Ask
    tenant: str = ""
    zone: str = "UTC"
    overlap: Overlap = Overlap.SKIP
    catch_up: CatchUp = CatchUp.LAST
    catch_up_max: int = 10
    description: str = ""

    @property
    def key(self) -> Key:
        """What the schedule is found by."""
        return self.tenant, self.name


class Changed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who did what to a schedule, when and why."""

    at: int
    what: str
    actor: Actor
    actor_id: str = ""
    reason: str | None = None


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A plan and where it stands.

    `slot_at` is the newest slot that was answered: fired, skipped or missed. `latest` are the jobs
    that it was fired for last, which is whom an overlap is about.
    """

    plan: Plan
    created_at: int
    anchor_at: int
    next_at: int | None = None
    slot_at: int | None = None
    fired_at: int | None = None
    fired: int = 0
    skipped: int = 0
    latest: tuple[str, ...] = ()
    is_paused: bool = False
    removed_at: int | None = None
    changes: tuple[Changed, ...] = ()

    @property
    def timetable(self) -> Timetable:
        """Its slots."""
        return timetable(self.plan.expression, self.plan.zone, self.anchor_at)

    def armed(self, now: int) -> Schedule:
        """The same schedule, waiting for the first slot after now that it has not answered yet."""
        if self.is_paused or self.removed_at is not None:
            return replace(self, next_at=None)
        return replace(self, next_at=self.timetable.next_after(max(now, self.slot_at or now)))

    def changed(self, what: str, now: int, by: By, reason: str | None) -> Schedule:
        """The same schedule, remembering who changed it."""
        if max(len(reason or ""), len(by.id)) > REASON_MAX:
            _refuse("reason", f"who and why have at most {REASON_MAX} characters each")
        last = self.changes[-1].at if self.changes else now
        change = Changed(max(now, last), what, by.kind, by.id, reason)
        return replace(self, changes=(*self.changes, change)[-CHANGES_MAX:])


def due_slots(schedule: Schedule, now: int) -> list[int]:
    """The slots that are to be fired now, oldest first; the others that have passed are missed.

    Jobs that may not overlap cannot be made up for one by one, so of these only the newest counts.
    """
    plan = schedule.plan
    if schedule.next_at is None or schedule.next_at > now:
        return []
    is_single = plan.overlap is not Overlap.ALLOW or plan.job.unique is not None
    number = plan.catch_up_max if plan.catch_up is CatchUp.ALL and not is_single else 1
    slots = schedule.timetable.newest(schedule.next_at, now, number)
    if plan.catch_up is CatchUp.NONE:
        return [slot for slot in slots if now - slot <= GRACE_US]
    return slots


def check(plan: Plan) -> None:
    """Raise `BadSchedule` when the plan cannot work."""
    if not plan.name or len(plan.name) > NAME_MAX:
        _refuse("name", f"a name has 1 to {NAME_MAX} characters")
    if len(plan.description) > REASON_MAX:
        _refuse("description", f"it has at most {REASON_MAX} characters")
    if not 1 <= plan.catch_up_max <= CATCH_UP_MAX:
        _refuse("catch_up_max", f"must be from 1 to {CATCH_UP_MAX}")
    if timetable(plan.expression, plan.zone, 0).next_after(0) is None:
        _refuse("expression", "there is no such day")
    _check_job(plan)


def _check_job(plan: Plan) -> None:
    job = plan.job
    if job.tenant != plan.tenant:
        _refuse("job", "it belongs to another tenant than its schedule")
    for name in (
        "id",
        "run_at",
        "expires_at",
        "idempotency",
        "workflow",
        "step",
        "rerun_of",
        "trace",
    ):
        if getattr(job, name) is not None:
            _refuse("job", f"{name} would be the same for every slot")
    if job.secret:
        _refuse("job", "secret arguments would lie in the schedule: let the job look them up")
    if job.unique is not None and job.unique.on_conflict is OnConflict.REPLACE:
        _refuse("job", "a job that replaces others: set overlap to cancel_previous instead")


def _refuse(field: str, why: str) -> None:
    raise BadSchedule(f"schedule: {field}: {why}", field=field)


def read(record: Record) -> Schedule:
    """The schedule that a small record holds."""
    return msgspec.json.decode(record.data or "", type=Schedule)


def written(schedule: Schedule, version: int) -> Record:
    """The small record that holds a schedule."""
    tenant, name = schedule.plan.key
    data = msgspec.json.encode(schedule).decode()
    return Record(KIND, name, version, data, schedule.next_at, tenant)
