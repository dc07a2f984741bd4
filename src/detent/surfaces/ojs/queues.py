"""Queues: what stands in them, whether they are paused, and how many jobs they may hold."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.caching import FRESH_US
from detent.engine.queries import QueueRow
from detent.lifecycle.job.table import ENDED, PARKED, JobState
from detent.stores.api import GateKind, Key, Limit, LimitKind
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.configs import USUAL, Config, ignored_of, read_config
from detent.surfaces.ojs.crowds import Crowds
from detent.surfaces.ojs.desk import Desk, fields_of, page_of, pages
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.last_hour import Figures
from detent.surfaces.ojs.policies import limits_for_all
from detent.surfaces.ojs.pressure import Pressure
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.setting import Setting
from detent.surfaces.ojs.wire import told

DEFAULT: Final = "default"
_READY_MAX: Final = 1_000
_STATES = tuple(state.value for state in JobState)


class Queues:
    """The operations on queues."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.setting = Setting(desk)
        self.pressure = Pressure(desk, self.setting.known)
        self.crowds = Crowds(desk, self.pressure, self.setting.known)
        self.figures = Figures(desk)

    # --- operations -----------------------------------------------------------------------------

    async def listed(self, call: Call) -> Reply:
        """All queues that there are, and the one that is always there."""
        limit, offset = page_of(call)
        rows = await self.rows(call)
        told_of = [
            {
                "name": row.name,
                "status": await self._status(call, row),
                "created_at": await self._since(call, row),
            }
            for row in rows[offset : offset + limit]
        ]
        return self._desk.reply({"queues": told_of, "pagination": pages(len(rows), limit, offset)})

    async def get(self, call: Call) -> Reply:
        """One queue."""
        row = await self.row(call, self.name(call))
        told_of = {**await self._counted(call, row), "status": await self._status(call, row)}
        return self._desk.reply({"queue": told_of})

    async def stats(self, call: Call) -> Reply:
        """How many jobs of a queue are in each state, exactly."""
        row = await self.row(call, self.name(call))
        counts = await self._counted(call, row)
        config = await self.setting.known.get((call.caller.tenant, row.name))
        late = await self.figures.late(call.caller.tenant, row.name)
        stats = {
            **{name: value for name, value in counts.items() if name not in ("name", "paused")},
            **late.stats(),
            "queue": row.name,
            "depth": depth_of(row),
            "max_depth": None if config is None else config.max_depth,
        }
        shown = {name: value for name, value in stats.items() if value is not None}
        at, status = told(self._desk.now()), await self._status(call, row)
        body = {"queue": counts, "status": status, "stats": shown, "computed_at": at}
        return self._desk.reply(body)

    async def pause(self, call: Call) -> Reply:
        """Let no job of the queue be fetched; new ones are taken."""
        return await self._turned(call, is_paused=True)

    async def resume(self, call: Call) -> Reply:
        """Let its jobs be fetched again, and new ones in."""
        return await self._turned(call, is_paused=False)

    async def drain(self, call: Call) -> Reply:
        """Take no new jobs until the queue is resumed; those that are there go on.

        The answer comes when every server knows of it, so that nothing comes in after it.
        """
        name, at = self.name(call), told(self._desk.now())
        await self.setting.drain((call.caller.tenant, name), is_draining=True)
        await self._desk.service.pause(FRESH_US / 1e6)
        told_of = {"queue": {"name": name, "draining": True}, "status": "draining"}
        return self._desk.reply({**told_of, "name": name, "draining": True, "draining_at": at})

    async def turn(self, call: Call, *, is_paused: bool) -> tuple[str, str]:
        """Pause or resume; the name of the queue, and when."""
        name, by, tenant = self.name(call), call.caller.actor, call.caller.tenant
        operators = self._desk.engine.operators
        turn = operators.pause if is_paused else operators.resume
        await turn(GateKind.QUEUE, name, by, tenant=tenant)
        if not is_paused:
            await self.setting.drain((tenant, name), is_draining=False)
        return name, told(self._desk.now())

    async def _turned(self, call: Call, *, is_paused: bool) -> Reply:
        name, at = await self.turn(call, is_paused=is_paused)
        status, when = ("paused", "paused_at") if is_paused else ("active", "resumed_at")
        body = {"queue": {"name": name, "paused": is_paused}, "status": status, when: at}
        return self._desk.reply(body)

    async def configure(self, call: Call) -> Reply:
        """Set what is special about a queue: its bound and its limits."""
        name, fields = self._settled(call), fields_of(call)
        config = read_config(fields, self._desk.now())
        key = (call.caller.tenant, name)
        if name != USUAL and ("rate_limit" in fields or "concurrency" in fields):
            await self._limit(call, name, fields)
        await self.setting.change(key, lambda old: replace(config, is_draining=old.is_draining))
        told_of, ignored = dict(fields), ignored_of(name, fields)
        return self._desk.reply({"queue": name, "config": told_of, "ignored": ignored, **told_of})

    async def configuration(self, call: Call) -> Reply:
        """What is set about a queue, or about all of them."""
        name = self._settled(call)
        config = await self.setting.get((call.caller.tenant, name))
        told_of = {} if config is None else msgspec.json.decode(config.told, type=dict[str, Raw])
        ignored = ignored_of(name, told_of)
        return self._desk.reply({"queue": name, "config": told_of, "ignored": ignored})

    async def limit(self, call: Call) -> Reply:
        """Set how many jobs of a queue may start in how long; nothing lifts the limit."""
        name, fields = self.name(call), fields_of(call)
        await self._limit(call, name, {"rate_limit": call.body} if fields else {})
        return self._desk.reply({"queue": name, "rate_limit": dict(fields) or None})

    async def _limit(self, call: Call, name: str, fields: Any) -> None:
        given = msgspec.json.decode(fields.get("rate_limit", b"null"))
        rate = None if given is None else limits_for_all({"rate": given, "key": None})
        number = msgspec.json.decode(fields.get("concurrency", b"null"))
        if number is not None and (type(number) is not int or number < 1):
            raise invalid("concurrency must be a number, 1 or more", field="concurrency")
        limit = Limit(number, *((rate.limit.rate, rate.limit.period_us) if rate else ()))
        tenant, by = call.caller.tenant, call.caller.actor
        is_none = number is None and rate is None
        told_limit = None if is_none else limit
        await self._desk.engine.operators.set_limit(
            LimitKind.QUEUE, name, told_limit, by, tenant=tenant
        )

    # --- for others -----------------------------------------------------------------------------

    async def rows(self, call: Call) -> list[QueueRow]:
        """All queues that the caller may see."""
        tenant = call.caller.tenant
        gone = await self.setting.gone(tenant)
        rows = [
            row
            for row in await self._desk.engine.queries.queues(tenant)
            if row.name not in gone or depth_of(row)
        ]
        names = {row.name for row in rows}
        default = [] if DEFAULT in names else [QueueRow(DEFAULT, {})]
        found = sorted([*rows, *default], key=lambda row: row.name)
        return [row for row in found if call.caller.may_use(row.name)]

    async def row(self, call: Call, name: str) -> QueueRow:
        """One queue; one that nobody has used is empty."""
        rows = await self._desk.engine.queries.queues(call.caller.tenant)
        return next((row for row in rows if row.name == name), QueueRow(name, {}))

    async def forget(self, call: Call, key: Key) -> None:
        """Nothing is set about the queue any more; it is not listed until somebody uses it."""
        tenant, name = key
        operators, by = self._desk.engine.operators, call.caller.actor
        await operators.resume(GateKind.QUEUE, name, by, "the queue was deleted", tenant=tenant)
        await operators.set_limit(LimitKind.QUEUE, name, None, by, tenant=tenant)
        await self.setting.put(key, Config(self._desk.now(), is_deleted=True))

    # --- inside ---------------------------------------------------------------------------------

    def name(self, call: Call) -> str:
        """Which queue is meant, if the caller may use it."""
        name = need_queue(call.param("name"))
        call.caller.need_queue(name)
        return name

    async def _counted(self, call: Call, row: QueueRow) -> dict[str, Any]:
        """The counts in the words of this surface: what is held is pending here."""
        counts = {state: row.counts.get(state, 0) for state in _STATES}
        held = await self._held(call.caller.tenant, row)
        for state, number in held.items():
            counts[state] -= number
            counts["pending"] += number
        return {"name": row.name, "paused": row.door.gate.closed, **counts}

    async def _held(self, tenant: str, row: QueueRow) -> Counter[str]:
        """How many of those that wait are held."""
        waiting = [state for state in sorted(PARKED) if row.counts.get(state, 0)]
        chosen = [Filter(tenant=tenant, queue=row.name, state=one, held=True) for one in waiting]
        numbers = [await self._desk.engine.queries.count(one) for one in chosen]
        return Counter(dict(zip(waiting, numbers, strict=True)))

    async def detailed(self, call: Call) -> Reply:
        """One queue for operators: its numbers, what is set about it, and its oldest ready job."""
        row = await self.row(call, self.name(call))
        config = await self.setting.known.get((call.caller.tenant, row.name))
        body = {
            **await self.item(call, row),
            "queue": {**await self._counted(call, row), "status": await self._status(call, row)},
            "configuration": {} if config is None else config.told,
            "oldest_available_at": await self._oldest(call.caller.tenant, row),
        }
        return self._desk.reply(body)

    async def item(self, call: Call, row: QueueRow) -> dict[str, Any]:
        """A queue in a list of operators."""
        late = await self.figures.late(call.caller.tenant, row.name)
        return {
            "name": row.name,
            "state": await self._status(call, row),
            "paused": row.door.gate.closed,
            "counts": {state: row.counts.get(state, 0) for state in _STATES},
            "throughput": late.throughput(),
            "latency_ms": late.avg_wait_ms,
            "created_at": await self._since(call, row),
        }

    async def _oldest(self, tenant: str, row: QueueRow) -> str | None:
        """Since when the oldest of its jobs is ready; of very many nobody looks for it."""
        ready = row.counts.get("available", 0)
        if not 0 < ready <= _READY_MAX:
            return None
        chosen = Filter(tenant=tenant, queue=row.name, state="available")
        found = await self._desk.engine.store.find(chosen, Page(_READY_MAX))
        return min((told(one.job.enqueued_at or one.job.created_at) for one in found), default=None)

    async def _since(self, call: Call, row: QueueRow) -> str:
        """When it was set up; one that is merely used has no such time but our own."""
        config = await self.setting.known.get((call.caller.tenant, row.name))
        is_set = config is not None and config.created_at
        return told(config.created_at if config and is_set else self._desk.started_at)

    async def _status(self, call: Call, row: QueueRow) -> str:
        config = await self.setting.known.get((call.caller.tenant, row.name))
        if config is not None and config.is_draining:
            return "draining"
        return "paused" if row.door.gate.closed else "active"

    def _settled(self, call: Call) -> str:
        """Whose settings are meant: of a queue, or of all."""
        if call.param("name") != USUAL:
            return self.name(call)
        call.caller.need_unbound()
        return USUAL


def depth_of(row: QueueRow) -> int:
    """How many of its jobs have not ended."""
    return sum(number for state, number in row.counts.items() if JobState(state) not in ENDED)
