"""Queues that are deleted: what waits in them is in the way, discarded, or moved elsewhere.

A queue is there as soon as anybody uses it, so what is deleted is all that was said about it. Jobs
that run go on. Those that have ended stay, under its name, as long as others do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from detent.engine.commands import Change
from detent.engine.paging import job_pages
from detent.engine.queries import QueueRow
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Key, key_of
from detent.stores.select import Filter
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import CLAIMABLE, Desk, read_body
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.queues import Queues, depth_of
from detent.surfaces.ojs.reading import need_queue

_WAITING: Final = ("scheduled", "available", "retryable")
_STRATEGIES: Final = ("reject", "discard", "move")
_BATCH: Final = 500
"""How many jobs are changed at a time; others get their turn in between."""


class _Ask(msgspec.Struct, frozen=True):
    strategy: str | None = None
    target: str | None = None
    target_queue: str | None = None


class Deleting:
    """Deletes queues."""

    def __init__(self, desk: Desk, queues: Queues) -> None:
        self._desk = desk
        self._queues = queues

    async def delete(self, call: Call) -> Reply:
        """Forget what was set about a queue, once nothing waits in it."""
        key = (self._desk.tenant(call), self._queues.name(call))
        strategy, target = self._asked(call, key[1])
        if target is not None:
            await self._queues.setting.need_open(key[0], target)
        row = await self._queues.row(call, key[1])
        if strategy == "reject" and depth_of(row):
            raise _in_use(row)
        gone = 0
        if strategy != "reject":
            gone = await self._emptied(key, self._change(call, target))
        await self._queues.forget(call, key)
        words = {"reject": {}, "discard": {"discarded": gone}, "move": {"moved": gone}}
        left = {"remaining": depth_of(await self._queues.row(call, key[1]))}
        told_of = {"deleted": True, "queue": key[1], "name": key[1], "strategy": strategy}
        return self._desk.reply({**told_of, **words[strategy], **left})

    def _asked(self, call: Call, name: str) -> tuple[str, str | None]:
        """What becomes of the jobs that wait, and where they are to go."""
        body, query = read_body(call, _Ask), call.query
        strategy = body.strategy or query.get("strategy") or "reject"
        if strategy not in _STRATEGIES:
            known = ", ".join(_STRATEGIES)
            raise invalid(f"strategy must be one of {known}", field="strategy")
        if strategy != "move":
            return strategy, None
        target = need_queue(body.target or body.target_queue or query.get("target"))
        self._desk.need_queue(call, target)
        if target == name:
            raise invalid("target must be another queue", field="target")
        return strategy, target

    def _change(self, call: Call, target: str | None) -> Callable[[Key], Change]:
        by = self._desk.by(call)
        if target is not None:
            return lambda key: Change(key, j.Move(target), by, "its queue was deleted")
        system = By(Actor.SYSTEM, f"ojs {by.id}")
        return lambda key: Change(key, j.Drop(Cause.QUEUE_DELETED), system)

    async def _emptied(self, key: Key, change: Callable[[Key], Change]) -> int:
        """How many jobs were discarded or moved.

        What has begun to run meanwhile stays, and so do tasks that others fetch by that name.
        """
        gone = 0
        for state in _WAITING:
            chosen = Filter(tenant=key[0], queue=key[1], state=state)
            async for page in job_pages(self._desk.engine.store, chosen, _BATCH):
                mine = [one.job for one in page if one.job.profile in CLAIMABLE]
                changes = [change(key_of(job)) for job in mine]
                answers = await self._desk.engine.carry_out(changes)
                gone += sum(not isinstance(one, Refusal) for one in answers)
        return gone


def _in_use(row: QueueRow) -> Problem:
    why = f"queue {row.name} has {depth_of(row)} jobs that have not ended"
    strategies = "strategy: discard discards those that wait, move takes them to target"
    return Problem(409, "conflict", f"{why}; {strategies}", queue=row.name, depth=depth_of(row))
