"""Resets the server between two cases of a test suite: it goes on in another tenant.

Only in test mode, which only this host can reach.
"""

from __future__ import annotations

from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk


class Resetting:
    """The operation that begins anew."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def reset(self, call: Call) -> Reply:
        """Remove schedules and webhooks, and hide all jobs by going on in a new tenant."""
        desk = self._desk
        tenant, by = call.caller.tenant, call.caller.actor
        for schedule in await desk.engine.schedules.list(tenant, limit=1_000):
            await desk.engine.schedules.remove(schedule.plan.key, by)
        for hook in await desk.engine.webhooks.list(tenant):
            await desk.engine.webhooks.remove((tenant, hook.id))
        desk.caller_rules.tenant_prefix = f"test-{desk.engine.identity.id()}"
        while page := await desk.engine.store.feed(desk.feed_start, 10_000):
            desk.feed_start = page[-1].pos
        return desk.reply({"reset": True})
