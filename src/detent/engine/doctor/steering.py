"""What somebody has set and may have forgotten: pauses, webhooks that fail, nothing forgotten."""

from __future__ import annotations

from typing import Final

from detent.engine.doctor.sight import Sight
from detent.engine.telling import counted, told_at, told_span
from detent.engine.webhook import Standing, Webhook
from detent.lifecycle.job.table import ENDED
from detent.stores.api import GateKind
from detent.stores.checks import Check, fine, notice, warning

_NAMED: Final = 5
_KEPT_US: Final = 35 * 86_400 * 1_000_000
"""Whoever forgets as the documents advise has nothing that is older than a month."""
_DELIVERIES: Final = 1_000


async def pauses(sight: Sight) -> list[Check]:
    """Queues and types from which nothing is taken."""
    closed: list[str] = []
    for tenant in sight.tenants:
        for kind in GateKind:
            doors = await sight.engine.queries.doors(tenant, kind)
            for name, door in doors.items():
                if door.gate.closed:
                    last = door.latest
                    by = f" by {last.actor_id} at {told_at(last.at)}" if last else ""
                    closed.append(f"{kind} {name}{by}")
    if not closed:
        return [fine("pauses", "no queue and no type is paused")]
    why = "nothing of it starts until somebody resumes it"
    mend = "detent queues resume NAME, with --is-type for a type"
    return [warning("pauses", f"paused: {', '.join(closed[:_NAMED])}", why, mend)]


async def webhooks(sight: Sight) -> list[Check]:
    """Those that cannot be told."""
    hooks: list[Webhook] = []
    dead = 0
    for tenant in sight.tenants:
        hooks += await sight.engine.webhooks.list(tenant)
        sent = await sight.engine.webhooks.deliveries(tenant, _DELIVERIES)
        dead += sum(one.standing is Standing.DEAD for one in sent)
    failing = [one for one in hooks if one.failures or one.disabled_at is not None]
    if not failing and not dead:
        return [fine("webhooks", f"none of {len(hooks)} fails")]
    named = ", ".join(f"{one.url}: {_trouble(one)}" for one in failing[:_NAMED])
    found = "; ".join(one for one in (named, f"{dead} given up" if dead else "") if one)
    why = "whoever listens there does not hear what happened; after the last try it is given up"
    return [warning("webhooks", found, why, "mend the receiver, then enable the webhook again")]


def _trouble(hook: Webhook) -> str:
    if hook.disabled_at is not None:
        return f"disabled at {told_at(hook.disabled_at)}, {hook.why or 'by somebody'}"
    return f"{counted(hook.failures, 'try')} failed in a row".replace("trys", "tries")


async def retention(sight: Sight) -> list[Check]:
    """Whether anybody ever lets ended jobs go."""
    ended, store = sight.number(*ENDED), sight.engine.store
    # Ids begin with the time, so the first one of a tenant is the oldest that is still there.
    first = [key for one in sight.tenants for key in await store.keys((one, ""), 1)]
    jobs = await store.get(first) if first else ()
    oldest = min((one.job.created_at for one in jobs if one is not None), default=sight.now)
    if not ended:
        return [fine("retention", "nothing has ended yet that could be forgotten")]
    found = f"{counted(ended, 'ended job')}, the oldest job is {told_span(sight.now - oldest)} old"
    if sight.now - oldest < _KEPT_US:
        return [fine("retention", found)]
    why = "nobody forgets ended jobs unasked: the store grows until the disk is full"
    return [notice("retention", found, why, "run detent prune every day, by cron or a timer")]
