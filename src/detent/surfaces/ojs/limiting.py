"""Limits as they stand: what is allowed, what is used, and another word about them.

A word that is meant for a while has a small record, which wakes when it is over and knows what was
allowed before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Key, Limit, Limited, LimitKind, Record
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.policies import limits_for_all, need_key
from detent.surfaces.ojs.wire import duration, instant, told

KIND: Final = "ojs-limit"
_WAITING_MAX: Final = 1_000
_BY: Final = By(Actor.SYSTEM, "the time of another limit is over")


class _Until(msgspec.Struct, frozen=True):
    """Until when a limit is another one, and what it was before."""

    expires_at: int
    before: Limit | None


class Limiting:
    """The operations on limits of keys."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, call: Call) -> Reply:
        """All limits of keys."""
        found = [_shown(one) for one in await self._limits(call)]
        return self._desk.reply({"items": found, "rate_limits": found})

    async def get(self, call: Call) -> Reply:
        """The limit of one key, and how much of it is used."""
        name = call.param("key")
        found = [one for one in await self._limits(call) if one.row.name == name]
        if not found:
            raise missing("limit", name)
        waiting = {"waiting_count": await self._waiting(call, name)}
        known = _until(await self._desk.record(KIND, (call.caller.tenant, name)))
        until = {} if known is None else {"expires_at": told(known.expires_at)}
        return self._desk.reply({**_shown(found[0]), **waiting, **until})

    async def _waiting(self, call: Call, name: str) -> int:
        """How many jobs under the limit are ready; of very many, as many as one looks at."""
        chosen = Filter(tenant=call.caller.tenant, key=name, state="available")
        return len(await self._desk.engine.store.find(chosen, Page(_WAITING_MAX)))

    async def put(self, call: Call) -> Reply:
        """Another limit for a key, for a while or until a job brings another one along."""
        key = (call.caller.tenant, call.param("key"))
        fields = read_body(call, dict[str, Any])
        asked = limits_for_all({**fields, "key": key[1]})
        limit = None if asked is None else asked.limit
        expires_at = await self._last(call, key, fields)
        await self._set(call, key[1], limit)
        until = {} if expires_at is None else {"expires_at": told(expires_at)}
        return self._desk.reply({"key": key[1], **_told(limit or Limit()), **until})

    async def delete(self, call: Call) -> Reply:
        """Lift the limit of a key."""
        key = (call.caller.tenant, need_key(call.param("key")))
        await self._last(call, key, {})
        await self._set(call, key[1], None)
        return self._desk.reply({"deleted": True, "key": key[1]})

    async def answer(self, due: Sequence[Record]) -> None:
        """What was allowed before is again; upkeep asks."""
        operators = self._desk.engine.operators
        for record in due:
            until = _until(record)
            if until is not None:
                what = (LimitKind.KEY, record.id, until.before, _BY)
                await operators.set_limit(*what, tenant=record.tenant)
            gone = replace(record, version=record.version + 1, data=None, wake_at=None)
            await self._desk.engine.put(gone)

    async def _last(self, call: Call, key: Key, fields: Mapping[str, Any]) -> int | None:
        """Write down how long the next word holds, if not for good; what held before stays so."""
        if fields.get("expires_at") is None:
            await self._desk.change(KIND, key, lambda _: (None, None))
            return None
        now = self._desk.now()
        at = instant("expires_at", fields["expires_at"], now)[0]
        if at <= now:
            raise invalid("expires_at must be in the future", field="expires_at")
        found = [one.row.limit for one in await self._limits(call) if one.row.name == key[1]]
        usual = found[0] if found else None

        def written(record: Record | None) -> tuple[str, int]:
            known = _until(record)
            until = _Until(at, usual if known is None else known.before)
            return msgspec.json.encode(until).decode(), at

        await self._desk.change(KIND, key, written)
        return at

    async def _set(self, call: Call, name: str, limit: Limit | None) -> None:
        tenant, by = call.caller.tenant, call.caller.actor
        operators = self._desk.engine.operators
        await operators.set_limit(LimitKind.KEY, name, limit, by, tenant=tenant)

    async def _limits(self, call: Call) -> list[Limited]:
        found = await self._desk.engine.store.limits(call.caller.tenant)
        return [one for one in found if one.row.kind is LimitKind.KEY and one.row.limit is not None]


def _until(record: Record | None) -> _Until | None:
    data = None if record is None else record.data
    return None if data is None else msgspec.json.decode(data, type=_Until)


def _shown(limited: Limited) -> dict[str, Any]:
    limit = limited.row.limit or Limit()
    shown = {"key": limited.row.name, **_told(limit)}
    if limit.concurrency is not None:
        free = max(limit.concurrency - limited.active, 0)
        shown["concurrency"] |= {"active": limited.active, "available": free}
    return shown


def _told(limit: Limit) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if limit.concurrency is not None:
        shown["concurrency"] = {"limit": limit.concurrency}
    if limit.rate is not None:
        shown["rate"] = {"limit": limit.rate, "period": duration(limit.period_us)}
    if limit.spacing_us is not None:
        shown["throttle"] = {"limit": 1, "period": duration(limit.spacing_us)}
    return shown
