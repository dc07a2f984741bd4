"""Webhook subscriptions: the engine's webhooks, in the words of Open Job Spec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from detent.engine.webhook import Delivery, Only, Standing, Style, Webhook
from detent.stores.api import Key
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, number_in, read_body
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_text
from detent.surfaces.ojs.wire import told

_NAMES_MAX: Final = 100
_WORDS: Final = {
    "job.enqueue": "job.enqueued",
    "job.scheduled": "job.scheduled",
    "job.claim": "job.started",
    "job.complete": "job.completed",
    "job.fail": "job.failed",
    "job.retryable": "job.retrying",
    "job.discarded": "job.discarded",
    "job.cancel": "job.cancelled",
    "job.expire": "job.expired",
    "job.time_out": "job.timeout",
    "workflow.completed": "workflow.completed",
    "workflow.failed": "workflow.failed",
    "workflow.aborted": "workflow.cancelled",
}
"""What our events are called there; the other way round it is what a subscription asks for."""
_OURS: Final = {theirs: ours for ours, theirs in _WORDS.items()} | {"*": "*", "job.*": "job.*"}
_STANDINGS: Final = {
    Standing.WAITING: "pending",
    Standing.DELIVERED: "delivered",
    Standing.DEAD: "dead",
}


class _Filter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    queues: list[str] = []
    job_types: list[str] = []


class _Subscription(msgspec.Struct, frozen=True):
    url: str | None = None
    events: list[str] | None = None
    secret: str | None = None
    active: bool | None = None
    filter: _Filter | None = None


class Hooks:
    """The operations on webhook subscriptions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def create(self, call: Call) -> Reply:
        """A new subscription; its secret is shown this once."""
        asked = read_body(call, _Subscription)
        if not asked.url or not asked.events:
            raise invalid("url and events are needed", field="url")
        only = _only(asked) or Only()
        hook, secret = await self._desk.engine.webhooks.add(
            asked.url,
            self._events(asked),
            secret=asked.secret,
            tenant=call.caller.tenant,
            words=_WORDS,
            style=Style.OJS,
            only=only,
        )
        shown = {**_shown(hook), "secret": secret}
        return self._desk.reply({"subscription": shown, **shown}, 201)

    async def listed(self, call: Call) -> Reply:
        """All subscriptions."""
        found = await self._desk.engine.webhooks.list(call.caller.tenant)
        return self._desk.reply({"subscriptions": [_shown(one) for one in found]})

    async def get(self, call: Call) -> Reply:
        """One subscription."""
        return self._told(await self._hook(call))

    async def patch(self, call: Call) -> Reply:
        """Another address, other events, off or on."""
        hook, asked = await self._hook(call), read_body(call, _Subscription)
        events = None if asked.events is None else self._events(asked)
        only = _only(asked)
        changed = await self._desk.engine.webhooks.edit(
            (hook.tenant, hook.id), url=asked.url, events=events, active=asked.active, only=only
        )
        return self._told(changed)

    async def delete(self, call: Call) -> Reply:
        """Send nothing more to it."""
        hook = await self._hook(call)
        await self._desk.engine.webhooks.remove((hook.tenant, hook.id))
        return self._desk.reply({"deleted": True, "id": hook.id})

    async def rotate(self, call: Call) -> Reply:
        """Another secret; the one before signs along for a day."""
        hook, asked = await self._hook(call), read_body(call, _Subscription)
        key = (hook.tenant, hook.id)
        changed, secret = await self._desk.engine.webhooks.rotate(key, asked.secret)
        shown = {**_shown(changed), "secret": secret}
        return self._desk.reply({"subscription": shown, **shown})

    async def deliveries(self, call: Call) -> Reply:
        """What was sent, is to be sent, or could not be."""
        limit = number_in(call.query, "limit", 50, 200)
        found = await self._desk.engine.webhooks.deliveries(call.caller.tenant, limit=limit)
        return self._desk.reply({"deliveries": [_delivery_shown(one) for one in found]})

    async def retry(self, call: Call) -> Reply:
        """Send a delivery again."""
        again = await self._desk.engine.webhooks.retry(self._key(call))
        return self._desk.reply({"delivery": _delivery_shown(again)})

    async def delivery(self, call: Call) -> Reply:
        """One delivery."""
        found = await self._desk.engine.webhooks.delivery(self._key(call))
        return self._desk.reply({"delivery": _delivery_shown(found)})

    async def test(self, call: Call) -> Reply:
        """Send it an event that tries it out."""
        hook = await self._hook(call)
        made = await self._desk.engine.webhooks.trial((hook.tenant, hook.id))
        return self._desk.reply({"delivery": _delivery_shown(made)}, 202)

    def _events(self, asked: _Subscription) -> Sequence[str]:
        unknown = [one for one in asked.events or () if one not in _OURS]
        if unknown:
            known = ", ".join(sorted(_OURS))
            raise invalid(f"no event is called {unknown[0]!r}; there are {known}", field="events")
        return [_OURS[one] for one in asked.events or ()]

    def _key(self, call: Call) -> Key:
        return call.caller.tenant, call.param("id")

    async def _hook(self, call: Call) -> Webhook:
        key = self._key(call)
        found = await self._desk.engine.webhooks.get(key)
        if found is None:
            raise missing("subscription", key[1])
        return found

    def _told(self, hook: Webhook) -> Reply:
        shown = _shown(hook)
        return self._desk.reply({"subscription": shown, **shown})


def _only(asked: _Subscription) -> Only | None:
    """Whose events are wanted, if that is said."""
    if asked.filter is None:
        return None
    for field, names in (("queues", asked.filter.queues), ("job_types", asked.filter.job_types)):
        if len(names) > _NAMES_MAX:
            raise invalid(f"filter.{field} has at most {_NAMES_MAX} names", field="filter")
        for name in names:
            need_text(f"filter.{field}", name)
    return Only(tuple(asked.filter.queues), tuple(asked.filter.job_types))


def _shown(hook: Webhook) -> dict[str, Any]:
    only = {"queues": hook.only.queues, "job_types": hook.only.types}
    return {
        "id": hook.id,
        "url": hook.url,
        "events": [hook.words.get(one, one) for one in hook.events],
        "active": hook.active,
        "created_at": told(hook.created_at),
        "failures": hook.failures,
        "filter": {name: value for name, value in only.items() if value},
    }


def _delivery_shown(delivery: Delivery) -> dict[str, Any]:
    shown = {
        "id": delivery.id,
        "subscription_id": delivery.webhook,
        "event_type": delivery.type,
        "status": _STANDINGS[delivery.standing],
        "attempts": delivery.tries,
        "response_status": delivery.status,
        "error": delivery.error or None,
        "created_at": told(delivery.created_at),
    }
    return {name: value for name, value in shown.items() if value is not None}
