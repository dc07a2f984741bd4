"""What every new job must pass, whichever way it comes: pushed, in a batch, a step, a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from detent.engine.enqueueing import Enqueued
from detent.stores.api import Limit, LimitKind, LimitRow
from detent.surfaces.http.exchange import Call
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.pressure import Enter, Headers
from detent.surfaces.ojs.queues import Queues
from detent.surfaces.ojs.reading import Wanted
from detent.surfaces.ojs.registry import Registry

T = TypeVar("T")
_SECOND_US: Final = 1_000_000

_LIMITS_MAX: Final = 10_000


class Admission:
    """Lets jobs in, each judged on its own."""

    def __init__(self, desk: Desk, queues: Queues, registry: Registry) -> None:
        self._desk = desk
        self._queues = queues
        self._registry = registry
        self._limits: dict[tuple[str, str, str], Limit] = {}

    def is_open(self, call: Call, tenant: str, type_: str, queue: str) -> bool:
        """Whether nothing can be in the way of such jobs, as far as that is known already."""
        engine = self._desk.engine
        now = engine.store.now()
        return (
            call.caller.may_use(queue)
            and self._registry.has_none(tenant, type_, now)
            and self._queues.setting.is_plain(tenant, queue, now)
            and engine.declared.has_none(type_, now)
        )

    async def completed(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """The same jobs with what their queues say about them."""
        return await self._queues.setting.completed(wanted)

    async def let_in(
        self, call: Call, wanted: Sequence[Wanted], enter: Enter[T]
    ) -> tuple[T, Headers]:
        """Store them, as soon as they are admitted and there is room; what came of it."""
        limits = await self.admit(call, wanted)
        for queue in {one.ask.queue for one in wanted}:
            await self._queues.setting.need_open(call.caller.tenant, queue)
        asks = [one.ask for one in wanted]
        entered, pressure = await self._queues.pressure.let_in(call, asks, enter)
        return entered, (*pressure, *limits)

    async def let_in_one(
        self, call: Call, wanted: Wanted, enter: Enter[Enqueued]
    ) -> tuple[Enqueued, Headers]:
        """The same for a job that comes by itself."""
        limits = await self.admit(call, [wanted])
        await self._queues.setting.need_open(call.caller.tenant, wanted.ask.queue)
        entered, pressure = await self._queues.crowds.let_in(call, wanted.ask, enter)
        return entered, (*pressure, *limits)

    async def admit(self, call: Call, wanted: Sequence[Wanted]) -> Headers:
        """May it be here, do its arguments fit, is its limit known? What is said of the limit."""
        tenant = call.caller.tenant
        for one in wanted:
            call.caller.need_queue(one.ask.queue)
            await self._registry.need_fit(one.ask)
        limited = [one for one in wanted if one.limits is not None]
        if not limited:
            return ()
        await self._set_limits(tenant, limited)
        # Who calls too often hears of that limit under this name, and of no other.
        return () if call.allowance or limited[0].limits is None else _said(limited[0].limits.limit)

    async def _set_limits(self, tenant: str, wanted: Sequence[Wanted]) -> None:
        rows: dict[tuple[str, str, str], LimitRow] = {}
        for one in wanted:
            if one.limits is not None:
                kind = LimitKind.QUEUE if one.limits.key is None else LimitKind.KEY
                name = one.limits.key or one.ask.queue
                rows[tenant, kind, name] = LimitRow(kind, name, one.limits.limit, tenant)
                if one.limits.drops:
                    await self._desk.engine.dropping.expect(tenant, kind, name)
        new = {name: row for name, row in rows.items() if self._limits.get(name) != row.limit}
        if not new:
            return
        await self._desk.engine.set_limits(list(new.values()))
        if len(self._limits) > _LIMITS_MAX:
            self._limits.clear()
        self._limits |= {key: row.limit for key, row in new.items() if row.limit is not None}


def _said(limit: Limit) -> Headers:
    """What a job's limit lets through: at once, in its period, or in a second."""
    spaced = None if limit.spacing_us is None else max(_SECOND_US // limit.spacing_us, 1)
    number = limit.rate or limit.concurrency or spaced
    return () if number is None else (("x-ratelimit-limit", str(number)),)
