"""Schedules: declared beside the jobs that they fire, and put into the store when upkeep starts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

import msgspec

from detent.app.asking import Call, need_calls, need_no_conn
from detent.app.checking import is_whole, need
from detent.app.handle import Handle
from detent.app.job import Job
from detent.app.waiting import moment
from detent.engine import limits
from detent.engine import schedules as engine
from detent.engine.schedule import CatchUp, Overlap, Plan, Schedule
from detent.engine.timetable import timetable
from detent.errors import BadOption, BadSignature
from detent.runtime.bridge import Bridge, awaiting, blocking
from detent.runtime.signature import Signature

if TYPE_CHECKING:
    from detent.app.detent import Detent

J = TypeVar("J", bound=Job[..., Any, ..., Any])
WHY = "declared by the program"


class ScheduleOptions(TypedDict, total=False):
    """What can be said about a schedule beside its times and its job.

    `name` is otherwise that of the job. `overlap` is what a slot does while a job of the slot
    before is live; `catch_up` which of the slots are made up for that passed while nobody looked.
    """

    name: str
    tz: str
    overlap: Literal["skip", "allow", "cancel_previous"]
    catch_up: Literal["last", "none", "all"]
    catch_up_max: int
    description: str


class ScheduleStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is at one moment."""

    name: str
    expression: str
    tz: str
    is_paused: bool
    next_at: datetime | None
    fired_at: datetime | None
    fired: int
    skipped: int
    latest: tuple[str, ...]
    """The ids of the jobs that it was fired for last."""


class _Declared(msgspec.Struct, frozen=True):
    """A schedule that the program wants. Its call is made late: its types may come later too."""

    name: str
    expression: str
    call: Callable[[], Call[Any]]
    options: ScheduleOptions

    def plan(self, call: Call[Any]) -> Plan:
        """What the engine is asked for; whatever follows from the moment it refuses itself."""
        need_no_conn([call], "a schedule")
        # Whatever was traced when it was declared has nothing to do with its slots.
        call = call.copy()
        call.caught = None
        ask, options = call.ask(0), self.options
        limits.need_job(ask)
        return Plan(
            name=self.name,
            expression=self.expression,
            job=ask,
            tenant=call.tenant,
            zone=options.get("tz", "UTC"),
            overlap=Overlap(options.get("overlap", "skip")),
            catch_up=CatchUp(options.get("catch_up", "last")),
            catch_up_max=options.get("catch_up_max", 10),
            description=options.get("description", ""),
        )


class Schedules:
    """The schedules of an app: those that it declares, and verbs for all that are in the store."""

    def __init__(self, app: Detent) -> None:
        self._app = app
        self._declared: dict[str, _Declared] = {}

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self._app.bridge

    # --- declaring ------------------------------------------------------------------------------

    def add(self, expression: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> None:
        """Declare that this call is to be enqueued at these times.

        It is put into the store when upkeep starts: added, or edited if the program says something
        else than it did. Whether it is paused stays as it was.
        """
        need_calls([call])
        self._check(expression, call.signature, options)
        self._declare(expression, call.signature, lambda: call, options)

    def of(self, expression: str, options: ScheduleOptions) -> Callable[[J], J]:
        """A decorator that declares the same for a job without arguments."""

        def declare(job: J) -> J:
            if not isinstance(job, Job):
                why = "A schedule stands above a job: @app.schedule(...), and @app.job below it"
                raise BadSignature(f"{why}, not {job!r:.60}", job="")
            self._check(expression, job.signature, options)
            if missing := job.signature.required():
                name, listed = options.get("name", job.name), ", ".join(map(repr, missing))
                why = f"The schedule {name!r} gives its job no arguments, and {job.name} needs"
                fix = f"app.schedules.add({expression!r}, {job.name}.bind(...))"
                raise BadSignature(f"{why} {listed}: give it a default, or use {fix}", job=job.name)
            self._declare(expression, job.signature, job.bind, options)
            return job

        return declare

    def _check(self, expression: str, job: Signature, options: ScheduleOptions) -> None:
        """Refuse a schedule that could never fire."""
        _need_known(options)
        what = "a text like '0 9 * * *' or '@every 5m'"
        need("schedule", expression, isinstance(expression, str), what)
        if job.hidden.declared:
            why = "its secret arguments would lie in the schedule: let the job look them up"
            raise BadOption(f"{job.name} cannot be scheduled: {why}", option="secret")
        timetable(expression, options.get("tz", "UTC"), 0)

    def _declare(
        self,
        expression: str,
        job: Signature,
        call: Callable[[], Call[Any]],
        options: ScheduleOptions,
    ) -> None:
        name = options.get("name", job.name)
        if name in self._declared:
            why = f"Two schedules are called {name!r}: give one of them another name="
            raise BadOption(why, option="name", value=name)
        self._declared[name] = _Declared(name, expression, call, options)

    async def _put(self) -> list[ScheduleStatus]:
        """Put what is declared into the store; upkeep does so when it starts."""
        made = await self._app.engine()
        declared = [(one, one.call()) for one in self._declared.values()]
        plans = [one.plan(call) for one, call in declared]
        await self._app.connection.set_limits_of(call for _, call in declared)
        return [_status_of(await made.schedules.put(plan, self._app.by, WHY)) for plan in plans]

    # --- verbs ----------------------------------------------------------------------------------

    async def _list(self, tenant: str = "", after: str | None = None) -> list[ScheduleStatus]:
        """The schedules of a tenant by name, a hundred at a time."""
        found = await (await self._app.engine()).schedules.list(tenant, after)
        return [_status_of(one) for one in found]

    async def _get(self, name: str, tenant: str = "") -> ScheduleStatus | None:
        """The schedule of that name, if there is one."""
        found = await (await self._app.engine()).schedules.get((tenant, name))
        return None if found is None else _status_of(found)

    async def _pause(
        self, name: str, reason: str | None = None, tenant: str = ""
    ) -> ScheduleStatus:
        """Fire no slot until it is resumed, also after a restart."""
        by = self._app.by
        return await self._changed(lambda all_: all_.pause((tenant, name), by, reason))

    async def _resume(
        self, name: str, reason: str | None = None, tenant: str = ""
    ) -> ScheduleStatus:
        """Go on with the next slot."""
        by = self._app.by
        return await self._changed(lambda all_: all_.resume((tenant, name), by, reason))

    async def _remove(
        self, name: str, reason: str | None = None, tenant: str = ""
    ) -> ScheduleStatus:
        """Take it out of the store; a program that still declares it brings it back."""
        by = self._app.by
        return await self._changed(lambda all_: all_.remove((tenant, name), by, reason))

    async def _fire(self, name: str, reason: str | None = None, tenant: str = "") -> Handle[Any]:
        """One job of it now, whatever its times say, paused or not."""
        made = await self._app.engine()
        return self._app.handle_of(
            name, await made.schedules.fire((tenant, name), self._app.by, reason)
        )

    put, aput = blocking(_put), awaiting(_put)
    list, alist = blocking(_list), awaiting(_list)
    get, aget = blocking(_get), awaiting(_get)
    pause, apause = blocking(_pause), awaiting(_pause)
    resume, aresume = blocking(_resume), awaiting(_resume)
    remove, aremove = blocking(_remove), awaiting(_remove)
    fire, afire = blocking(_fire), awaiting(_fire)

    async def _changed(
        self, change: Callable[[engine.Schedules], Awaitable[Schedule]]
    ) -> ScheduleStatus:
        return _status_of(await change((await self._app.engine()).schedules))


def _need_known(options: ScheduleOptions) -> None:
    known = ScheduleOptions.__annotations__.keys()
    for name in options.keys() - known:
        why = f"No option of a schedule is called {name!r}. There are {', '.join(known)}."
        raise BadOption(why, option=name)
    for name in ("name", "tz", "description"):
        need(name, options.get(name), isinstance(options.get(name, ""), str), "a text")
    most = options.get("catch_up_max", 1)
    need("catch_up_max", most, is_whole(most), "a whole number of slots")
    _need_one_of("overlap", options.get("overlap"), Overlap)
    _need_one_of("catch_up", options.get("catch_up"), CatchUp)


def _need_one_of(option: str, value: str | None, choices: type[StrEnum]) -> None:
    if value is not None and value not in list(choices):
        why = f"{option} is one of {', '.join(choices)}, not {value!r}"
        raise BadOption(why, option=option, value=value)


def _status_of(schedule: Schedule) -> ScheduleStatus:
    plan = schedule.plan
    return ScheduleStatus(
        name=plan.name,
        expression=plan.expression,
        tz=plan.zone,
        is_paused=schedule.is_paused,
        next_at=None if schedule.next_at is None else moment(schedule.next_at),
        fired_at=None if schedule.fired_at is None else moment(schedule.fired_at),
        fired=schedule.fired,
        skipped=schedule.skipped,
        latest=schedule.latest,
    )
