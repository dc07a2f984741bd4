"""Webhooks: made, changed and removed while everything runs, on any number of servers at once."""

from __future__ import annotations

import secrets as chance
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.delivering import Delivering
from detent.engine.identity import Identity
from detent.engine.posting import Poster
from detent.engine.secrets import Owner, Secrets
from detent.engine.subscribers import KIND as SUBSCRIBER
from detent.engine.subscribers import Subscriber, Subscribers
from detent.engine.webhook import (
    DELIVERY,
    HOOK,
    Delivery,
    Locked,
    Only,
    Standing,
    Style,
    Webhook,
    delivery_of,
    need_known,
    trial_of,
)
from detent.errors import BadWebhook, StoreBusy, TooMany, UnknownWebhook
from detent.lifecycle.event import Event
from detent.stores.api import Committed, Fed, Key, Own, Record, Store, Stored, Unit

HOOKS_MAX: Final = 100
"""Of one tenant: each event is compared with each of them."""
ANYTHING: Final = Only()
SECRET_CHARS_MIN: Final = 16
SECRET_CHARS_MAX: Final = 256
OVERLAP_US: Final = 24 * 3_600_000_000
"""How long a secret that was replaced still signs."""


class Webhooks:
    """Everything that can be asked of webhooks."""

    def __init__(
        self,
        store: Store,
        coalescer: Coalescer,
        identity: Identity,
        secrets: Secrets,
        poster: Poster,
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._secrets = secrets
        self._poster = poster
        self._subscribers = Subscribers(store, coalescer, identity)
        self._subscribers.add(Subscriber("webhooks", lambda _: True, self._spread))
        self.delivering = Delivering(self, store, poster)
        """Sends what is due; upkeep asks it."""

    # --- reading --------------------------------------------------------------------------------

    async def get(self, key: Key) -> Webhook | None:
        """The webhook of that tenant and id."""
        found = await self._found(key)
        return None if found is None else found[1]

    async def list(self, tenant: str = "") -> Sequence[Webhook]:
        """The webhooks of a tenant."""
        return [_hook(one) for one in await self._store.records(HOOK, tenant, limit=HOOKS_MAX)]

    async def deliveries(self, tenant: str = "", limit: int = 100) -> Sequence[Delivery]:
        """What was sent, is to be sent, or could not be, oldest first; kept for a few days."""
        page = await self._store.records(DELIVERY, tenant, limit=limit)
        return [msgspec.json.decode(one.data or "", type=Delivery) for one in page]

    def signing(self, hook: Webhook, now: int) -> Sequence[str]:
        """The secrets that sign for it now, the newest first."""
        owner = Owner(hook.tenant, hook.id, HOOK)
        counting = [one for one in hook.secrets if one.until is None or one.until > now]
        return [self._secrets.unlock(one.token, owner) for one in counting]

    # --- changing -------------------------------------------------------------------------------

    async def add(
        self,
        url: str,
        events: Sequence[str],
        *,
        secret: str | None = None,
        tenant: str = "",
        words: Mapping[str, str] | None = None,
        style: Style = Style.DETENT,
        only: Only = ANYTHING,
    ) -> tuple[Webhook, str]:
        """A new webhook and its signing secret, which is shown this once.

        It hears of whatever is committed from now on.
        """
        need_known(events)
        await self._poster.check(url)
        if len(await self.list(tenant)) >= HOOKS_MAX:
            most = f"A tenant has at most {HOOKS_MAX} webhooks; let one of them tell the others"
            raise TooMany(most, limit="HOOKS_MAX", most=HOOKS_MAX, value=HOOKS_MAX + 1)
        await self._subscribers.begin()
        name, secret = self._identity.id(), _sound(secret)
        locked = self._locked((tenant, name), secret)
        hook = Webhook(
            name,
            url,
            tuple(events),
            (locked,),
            self._store.now(),
            tenant,
            words=dict(words or {}),
            style=style,
            only=only,
        )
        if not await self.put(hook.record(1)):
            raise _busy((tenant, name))
        return hook, secret

    async def edit(
        self,
        key: Key,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        active: bool | None = None,
        only: Only | None = None,
    ) -> Webhook:
        """Another address, other events, off or on again; what is `None` stays as it is."""
        if events is not None:
            need_known(events)
        if url is not None:
            await self._poster.check(url)

        def edited(hook: Webhook) -> Webhook:
            hook = replace(hook, url=url or hook.url, events=tuple(events or hook.events))
            hook = hook if only is None else replace(hook, only=only)
            if active is None:
                return hook
            return replace(hook, active=active, failures=0, disabled_at=None, why="")

        return await self.change(key, edited)

    async def rotate(self, key: Key, secret: str | None = None) -> tuple[Webhook, str]:
        """Another secret; the one before signs along for a day."""
        made, until = _sound(secret), self._store.now() + OVERLAP_US
        locked = self._locked(key, made)

        def rotated(hook: Webhook) -> Webhook:
            return replace(hook, secrets=(locked, replace(hook.secrets[0], until=until)))

        return await self.change(key, rotated), made

    async def remove(self, key: Key) -> None:
        """Send nothing more to it, whatever deliveries say of it meanwhile."""
        for _ in range(TRIES_MAX):
            record = (await self._known(key))[0]
            if await self.put(replace(record, version=record.version + 1, data=None)):
                return
        raise _busy(key)

    async def trial(self, key: Key) -> Delivery:
        """Send it an event about nothing, so that its reader can be tried out."""
        _, hook = await self._known(key)
        now = self._store.now()
        made = trial_of(hook, self._identity.id(), now)
        if not await self.put(made.record(1, now)):
            raise _busy(key)
        return made

    async def delivery(self, key: Key) -> Delivery:
        """The delivery of that tenant and id."""
        return (await self._delivery(key))[1]

    async def _delivery(self, key: Key) -> tuple[Record, Delivery]:
        [record] = await self._store.record([(DELIVERY, *key)])
        if record is None:
            raise UnknownWebhook(f"There is no delivery {key[1]}", id=key[1], tenant=key[0])
        return record, msgspec.json.decode(record.data or "", type=Delivery)

    async def retry(self, key: Key) -> Delivery:
        """Send a delivery again, now, however it stands."""
        for _ in range(TRIES_MAX):
            record, before = await self._delivery(key)
            again = replace(before, tries=0, standing=Standing.WAITING, error="")
            if await self.put(again.record(record.version + 1, self._store.now())):
                return again
        raise _busy(key)

    async def change(self, key: Key, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Change it as it is when the change is committed."""
        for _ in range(TRIES_MAX):
            record, before = await self._known(key)
            after = change(before)
            if after == before or await self.put(after.record(record.version + 1)):
                return after
        raise _busy(key)

    # --- spreading ------------------------------------------------------------------------------

    async def has_begun(self) -> bool:
        """Whether there ever was a webhook here."""
        [cursor] = await self._store.record([(SUBSCRIBER, "", "webhooks")])
        return cursor is not None

    async def run(self) -> None:
        """Make deliveries of events as they come, until called off."""
        await self._subscribers.run()

    async def turn(self) -> int:
        """Make deliveries of the next events; how many events were looked at."""
        return await self._subscribers.turn()

    async def close(self) -> None:
        """Let others go on with what is under way here."""
        await self.delivering.close()
        await self._subscribers.let_go()

    async def _spread(self, batch: Sequence[Fed]) -> None:
        """A delivery per event and webhook; one that is there already stays as it is."""
        tenants = sorted({fed.event.tenant for fed in batch})
        hooks = {tenant: await self.list(tenant) for tenant in tenants}
        now = self._store.now()
        wanted = [
            (hook, fed.event)
            for fed in batch
            for hook in hooks[fed.event.tenant]
            if hook.wants(fed.event)
        ]
        jobs = await self._jobs([event for hook, event in wanted if not hook.only.is_any])
        made = [
            delivery_of(hook, event, now)
            for hook, event in wanted
            if hook.only.fits(jobs.get((event.tenant, event.record)))
        ]
        if made:
            name = self._identity.id
            await self._coalescer.commit([Unit(name(), puts=(one.record(1, now),)) for one in made])

    async def _jobs(self, events: Sequence[Event]) -> dict[Key, Stored]:
        """The jobs that these events are about: what they say of themselves is not in a history."""
        keys = list(dict.fromkeys((one.tenant, one.record) for one in events if one.kind == "job"))
        found = await self._store.get(keys) if keys else ()
        return {key: one for key, one in zip(keys, found, strict=True) if one is not None}

    # --- the store ------------------------------------------------------------------------------

    async def put(self, record: Record) -> bool:
        """Whether it was stored; if not, somebody else was faster."""
        [outcome] = await self._coalescer.commit([Unit(self._identity.id(), puts=(record,))])
        return isinstance(outcome, Committed | Own)

    def _locked(self, key: Key, secret: str) -> Locked:
        return Locked(self._secrets.lock(secret, Owner(*key, HOOK)))

    async def _found(self, key: Key) -> tuple[Record, Webhook] | None:
        [record] = await self._store.record([(HOOK, *key)])
        return None if record is None else (record, _hook(record))

    async def _known(self, key: Key) -> tuple[Record, Webhook]:
        found = await self._found(key)
        if found is None:
            raise UnknownWebhook(f"There is no webhook {key[1]}", id=key[1], tenant=key[0])
        return found


def _hook(record: Record) -> Webhook:
    return msgspec.json.decode(record.data or "", type=Webhook)


def _sound(secret: str | None) -> str:
    """The secret, or a new one."""
    if secret is None:
        return f"whsec_{chance.token_urlsafe(32)}"
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX or not secret.isprintable():
        why = f"A signing secret has {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX} printable characters"
        raise BadWebhook(why, field="secret")
    return secret


def _busy(key: Key) -> StoreBusy:
    return StoreBusy(f"{key[1]} was changed by others meanwhile", tenant=key[0], id=key[1])
