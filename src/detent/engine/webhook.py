"""A webhook and its deliveries: what is kept of them, what is sent, and how it is signed. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from detent.engine.identity import derived_id
from detent.errors import BadWebhook
from detent.lifecycle import MACHINES
from detent.lifecycle.event import Event
from detent.stores.api import Record, Stored

HOOK: Final = "webhook"
DELIVERY: Final = "webhook-delivery"
DELAYS_S: Final = (30, 120, 600, 3_600, 14_400, 43_200, 86_400)
"""How long to wait after the first, second, ... try; after the last of them there is one more."""
_AGENTS: Final = {"detent": "Detent-Webhook/1.0", "ojs": "OJS-Webhook/1.0"}
_HEADERS: Final = {
    "detent": (
        "Content-Type",
        "User-Agent",
        "X-Detent-Event",
        "X-Detent-Delivery",
        "X-Detent-Webhook",
        "X-Detent-Timestamp",
        "X-Detent-Signature",
    ),
    "ojs": (
        "Content-Type",
        "User-Agent",
        "X-OJS-Event-Type",
        "X-OJS-Delivery-ID",
        "X-OJS-Subscription-ID",
        "X-OJS-Timestamp",
        "X-OJS-Signature",
    ),
}
TRIAL: Final = "webhook.test"
"""The event that nobody subscribes to: it is sent when somebody asks for it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Standing(StrEnum):
    """Where a delivery is."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    DEAD = "dead"


class Style(StrEnum):
    """Whose names the headers of a delivery have."""

    DETENT = "detent"
    OJS = "ojs"


class Locked(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signing secret, locked; one that was replaced signs along until an instant."""

    token: str
    until: int | None = None


class Only(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose events are wanted: of jobs in these queues and of these types; empty is any."""

    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def is_any(self) -> bool:
        """Whether it leaves nothing out."""
        return not self.queues and not self.types

    def fits(self, stored: Stored | None) -> bool:
        """Whether that job is meant; workflows, and jobs that are gone, have no queue or type."""
        if self.is_any or stored is None:
            return self.is_any
        is_queue = not self.queues or stored.job.queue in self.queues
        return is_queue and (not self.types or stored.body.type in self.types)


class Webhook(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who wants to be told of what. `failures` are tries in a row that failed.

    `words` are what its reader calls our events; `style` says how its headers are called.
    """

    id: str
    url: str
    events: tuple[str, ...]
    secrets: tuple[Locked, ...]
    created_at: int
    tenant: str = ""
    active: bool = True
    failures: int = 0
    disabled_at: int | None = None
    why: str = ""
    words: dict[str, str] = {}
    style: Style = Style.DETENT
    only: Only = Only()

    def word(self, event: Event) -> str:
        """What the event is called to whoever it is told."""
        asked = [f"{event.kind}.{event.target}", f"{event.kind}.{event.name}"]
        known = [one for one in asked if one in self.events] or asked[::-1]
        found = (self.words[one] for one in known if one in self.words)
        return next(found, type_of(event))

    def wants(self, event: Event) -> bool:
        """Whether it asked for this event, by the state it leads to or by its own name."""
        names = {f"{event.kind}.{event.target}", f"{event.kind}.{event.name}"}
        return bool({"*", f"{event.kind}.*", *names} & set(self.events)) and self.active

    def record(self, version: int) -> Record:
        """The small record that holds it."""
        data = msgspec.json.encode(self).decode()
        return Record(HOOK, self.id, version, data, tenant=self.tenant)


class Delivery(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event on its way to one webhook; `body` is what is sent, to the byte."""

    id: str
    webhook: str
    type: str
    body: str
    created_at: int
    tenant: str = ""
    tries: int = 0
    standing: Standing = Standing.WAITING
    status: int | None = None
    error: str = ""
    style: Style = Style.DETENT

    def record(self, version: int, wake_at: int | None) -> Record:
        """The small record that holds it, and when to look at it next."""
        data = msgspec.json.encode(self).decode()
        return Record(DELIVERY, self.id, version, data, wake_at, self.tenant)


def need_known(events: Sequence[str]) -> None:
    """Refuse names of events that never happen."""
    if not events:
        raise BadWebhook("A webhook names the events that it wants, or *", field="events")
    for name in events:
        kind, _, word = name.partition(".")
        machine = MACHINES.get(kind)
        words = (
            {"*"} if machine is None else {"*", *machine.events, *(s.name for s in machine.states)}
        )
        if name != "*" and (machine is None or word not in words):
            raise BadWebhook(f"No event is called {name!r}", field="events", value=name)


def type_of(event: Event) -> str:
    """What an event is called outside: the state that it leads to, or its own name."""
    return f"{event.kind}.{event.target or event.name}"


def delivery_of(hook: Webhook, event: Event, now: int) -> Delivery:
    """The same id and the same body for the same event, whoever makes it."""
    parts = (event.kind, event.tenant, event.record, str(event.version))
    return Delivery(
        id=derived_id(event.at, event.version, HOOK, hook.id, *parts),
        webhook=hook.id,
        type=hook.word(event),
        body=_body(event, hook.word(event), derived_id(event.at, event.version, *parts)),
        created_at=now,
        tenant=hook.tenant,
        style=hook.style,
    )


def trial_of(hook: Webhook, name: str, now: int) -> Delivery:
    """A delivery about nothing but the webhook itself, for whoever tries it out."""
    body = _written(TRIAL, name, now, hook.id, {"webhook_id": hook.id})
    return Delivery(name, hook.id, TRIAL, body, now, hook.tenant, style=hook.style)


def _body(event: Event, word: str, name: str) -> str:
    return _written(word, name, event.at, event.record, _data(event))


def _written(word: str, name: str, at: int, subject: str, data: Mapping[str, Any]) -> str:
    told: dict[str, Any] = {
        "specversion": "1.0",
        "id": f"evt_{name}",
        "type": word,
        "source": "detent",
        "time": (_EPOCH + timedelta(microseconds=at)).isoformat().replace("+00:00", "Z"),
        "subject": subject,
        "data": data,
    }
    return msgspec.json.encode(told).decode()


def _data(event: Event) -> dict[str, Any]:
    """What the history says; arguments, results and tracebacks are not in it."""
    told = {
        f"{event.kind}_id": event.record,
        "tenant": event.tenant,
        "version": event.version,
        "event": event.name,
        "from": event.source,
        "state": event.target,
        "actor": event.actor.value,
        "cause": event.cause,
        "code": event.code,
        "reason": event.reason,
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def signature(secret: str, timestamp: int, body: bytes) -> str:
    """What proves that the body is ours, and that it is not old."""
    signed = f"{timestamp}.".encode() + body
    return f"sha256={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def headers_of(delivery: Delivery, secrets: Sequence[str], now: int) -> Mapping[str, str]:
    """The head of a request; of several secrets each signs, so that the other side can change."""
    timestamp, body = now // 1_000_000, delivery.body.encode()
    values = (
        "application/json",
        _AGENTS[delivery.style],
        delivery.type,
        delivery.id,
        delivery.webhook,
        str(timestamp),
        ",".join(signature(one, timestamp, body) for one in secrets),
    )
    return dict(zip(_HEADERS[delivery.style], values, strict=True))
