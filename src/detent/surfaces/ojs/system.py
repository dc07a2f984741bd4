"""The server as a whole for operators: its configuration, and pools of queues.

A pool is a name for queues and for how a fetch chooses among them: strictly one after another, or
in turns. Whoever fetches may name a pool instead of queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine.limits import DEPTH_MAX, META_BYTES_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX
from detent.engine.paging import all_records
from detent.stores.api import RECORDS_MAX, Fair, Key
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, fields_of
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.queues import Queues
from detent.surfaces.ojs.reading import need_queue, need_text

POOL: Final = "ojs-pool"
_QUEUES_MAX: Final = 100
_IN_TURNS: Final = ("fair", "round", "weighted")
"""Strategies with such a word in their name let queues take turns; all others are strict."""


class Pool(msgspec.Struct, frozen=True):
    """Queues under one name; `told` is all that was said about them."""

    name: str
    strategy: str = "strict"
    queues: tuple[str, ...] = ()
    told: Raw = Raw(b"{}")

    @property
    def fair(self) -> Fair | None:
        """What takes turns, if anything does."""
        is_fair = any(word in self.strategy.lower() for word in _IN_TURNS)
        return Fair.QUEUES if is_fair else None


class System:
    """What operators ask of a server as a whole."""

    def __init__(self, desk: Desk, queues: Queues) -> None:
        self._desk = desk
        self.queues = queues

    async def config(self, _: Call) -> Reply:
        """How this server is set up."""
        settings = self._desk.settings
        body = {
            "test_mode": settings.test_mode,
            "requests_per_second": settings.rate,
            "limits": {
                "max_envelope_bytes": settings.body_bytes_max,
                "max_args_bytes": PAYLOAD_BYTES_MAX,
                "max_meta_bytes": META_BYTES_MAX,
                "max_result_bytes": RESULT_BYTES_MAX,
                "max_batch_size": RECORDS_MAX,
                "max_depth": DEPTH_MAX,
                "max_streams": settings.streams_max,
            },
        }
        return self._desk.reply(body)

    # --- pools ----------------------------------------------------------------------------------

    async def pool(self, call: Call, name: str) -> Pool:
        """The pool of a name, if its queues are the caller's."""
        found = await self._pool(call, name)
        if found is None:
            raise missing("pool", name)
        return found

    async def put_pool(self, call: Call) -> Reply:
        """Queues under a name, and how they are chosen among."""
        name = need_text("name", call.param("name"))
        pool = _read_pool(name, fields_of(call))
        key: Key = (call.caller.tenant, name)
        call.caller.need_queue(*pool.queues)
        await self._pool(call, name)
        text = msgspec.json.encode(pool).decode()
        await self._desk.change(POOL, key, lambda _: (text, None))
        return self._desk.reply({"pool": _shown(pool)})

    async def get_pool(self, call: Call) -> Reply:
        """One of them."""
        return self._desk.reply({"pool": _shown(await self.pool(call, call.param("name")))})

    async def pools(self, call: Call) -> Reply:
        """All of them."""
        shown = [_shown(one) for one in await self._pools(call)]
        return self._desk.reply({"pools": shown, "items": shown})

    async def delete_pool(self, call: Call) -> Reply:
        """Forget a pool; its queues stay."""
        pool = await self.pool(call, call.param("name"))
        key = (call.caller.tenant, pool.name)
        await self._desk.change(POOL, key, lambda _: (None, None))
        return self._desk.reply({"deleted": True, "name": pool.name})

    async def scheduling(self, call: Call) -> Reply:
        """What stands in the queues of each pool."""
        rows = {row.name: row.counts for row in await self.queues.rows(call)}
        stats = {
            pool.name: {
                "strategy": pool.strategy,
                "available": sum(rows.get(one, {}).get("available", 0) for one in pool.queues),
                "active": sum(rows.get(one, {}).get("active", 0) for one in pool.queues),
            }
            for pool in await self._pools(call)
        }
        return self._desk.reply({"stats": {"pools": stats, "queues": len(rows)}})

    async def _pool(self, call: Call, name: str) -> Pool | None:
        record = await self._desk.record(POOL, (call.caller.tenant, name))
        if record is None or record.data is None:
            return None
        found = msgspec.json.decode(record.data, type=Pool)
        call.caller.need_queue(*found.queues)
        return found

    async def _pools(self, call: Call) -> list[Pool]:
        records = await all_records(self._desk.engine.store, POOL, call.caller.tenant)
        found = [msgspec.json.decode(one.data, type=Pool) for one in records if one.data]
        return [one for one in found if all(map(call.caller.may_use, one.queues))]


def _read_pool(name: str, fields: Mapping[str, Raw]) -> Pool:
    given = {key: msgspec.json.decode(raw) for key, raw in fields.items()}
    queues, strategy = given.get("queues") or [], given.get("strategy") or "strict"
    if not isinstance(queues, list) or len(queues) > _QUEUES_MAX:
        raise invalid(f"queues must be an array of at most {_QUEUES_MAX} names", field="queues")
    names = tuple(dict.fromkeys(need_queue(one) for one in queues))
    told_of = Raw(msgspec.json.encode(dict(fields)))
    return Pool(name, need_text("strategy", strategy), names, told_of)


def _shown(pool: Pool) -> dict[str, Any]:
    sent = msgspec.json.decode(pool.told, type=dict[str, Raw])
    order = "strict" if pool.fair is None else "in_turns"
    own = {"name": pool.name, "strategy": pool.strategy, "queues": pool.queues, "order": order}
    return {**sent, **own}
