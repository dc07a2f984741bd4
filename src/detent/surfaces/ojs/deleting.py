"""Deletes queues in which no job is left that has not ended.

A queue exists as soon as anybody uses it, so deleting one forgets its settings, its pause and its
limits. Ended jobs stay under its name until retention takes them.
"""

from __future__ import annotations

from typing import Final

import msgspec

from detent.engine.queries import QueueRow
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import unsupported
from detent.surfaces.ojs.queues import Queues, depth_of

_REJECT: Final = "reject"


class _Ask(msgspec.Struct, frozen=True):
    strategy: str | None = None


class Deleting:
    """Deletes queues."""

    def __init__(self, desk: Desk, queues: Queues) -> None:
        self._desk = desk
        self._queues = queues

    async def delete(self, call: Call) -> Reply:
        """Forget what was set about a queue; refused while it has jobs that have not ended."""
        key = (call.caller.tenant, self._queues.name(call))
        strategy = read_body(call, _Ask).strategy or call.query.get("strategy") or _REJECT
        if strategy != _REJECT:
            why = f"strategy: {strategy[:50]!r} is not supported; cancel or finish the jobs first"
            raise unsupported(why, field="strategy")
        row = await self._queues.row(call, key[1])
        if depth_of(row):
            raise _in_use(row)
        await self._queues.forget(call, key)
        told_of = {"deleted": True, "queue": key[1], "name": key[1], "strategy": _REJECT}
        remaining = depth_of(await self._queues.row(call, key[1]))
        return self._desk.reply({**told_of, "remaining": remaining})


def _in_use(row: QueueRow) -> Problem:
    why = f"queue {row.name} has {depth_of(row)} jobs that have not ended; cancel or finish them"
    return Problem(409, "conflict", why, queue=row.name, depth=depth_of(row))
