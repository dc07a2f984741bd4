"""Limits as they stand: what is allowed, what is used, and another word about them."""

from __future__ import annotations

from typing import Any, Final

from detent.stores.api import Limit, Limited, LimitKind
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import missing
from detent.surfaces.ojs.policies import limits_of, need_key
from detent.surfaces.ojs.wire import duration

__all__ = ["Limiting"]

_WAITING_MAX: Final = 1_000


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
        waiting = await self._waiting(call, name)
        return self._desk.reply({**_shown(found[0]), "waiting_count": waiting})

    async def _waiting(self, call: Call, name: str) -> int:
        """How many jobs under the limit are ready; of very many, as many as one looks at."""
        chosen = Filter(tenant=self._desk.tenant(call), key=name, state="available")
        return len(await self._desk.engine.store.find(chosen, Page(_WAITING_MAX)))

    async def put(self, call: Call) -> Reply:
        """Another limit for a key, until a job brings another one along."""
        name = call.param("key")
        fields = read_body(call, dict[str, Any])
        asked = limits_of({**fields, "key": name})
        limit = None if asked is None else asked.limit
        await self._set(call, name, limit)
        ignored = {"ignored": ["expires_at"]} if "expires_at" in fields else {}
        return self._desk.reply({"key": name, **_told(limit or Limit()), **ignored})

    async def delete(self, call: Call) -> Reply:
        """Lift the limit of a key."""
        name = need_key(call.param("key"))
        await self._set(call, name, None)
        return self._desk.reply({"deleted": True, "key": name})

    async def _set(self, call: Call, name: str, limit: Limit | None) -> None:
        tenant, by = self._desk.tenant(call), self._desk.by(call)
        operators = self._desk.engine.operators
        await operators.set_limit(LimitKind.KEY, name, limit, by, tenant=tenant)

    async def _limits(self, call: Call) -> list[Limited]:
        found = await self._desk.engine.store.limits(self._desk.tenant(call))
        return [one for one in found if one.row.kind is LimitKind.KEY and one.row.limit is not None]


def _shown(limited: Limited) -> dict[str, Any]:
    limit = limited.row.limit or Limit()
    told = {"key": limited.row.name, **_told(limit)}
    if limit.concurrency is not None:
        free = max(limit.concurrency - limited.active, 0)
        told["concurrency"] |= {"active": limited.active, "available": free}
    return told


def _told(limit: Limit) -> dict[str, Any]:
    told: dict[str, Any] = {}
    if limit.concurrency is not None:
        told["concurrency"] = {"limit": limit.concurrency}
    if limit.rate is not None:
        told["rate"] = {"limit": limit.rate, "period": duration(limit.period_us)}
    if limit.spacing_us is not None:
        told["throttle"] = {"limit": 1, "period": duration(limit.spacing_us)}
    return told
