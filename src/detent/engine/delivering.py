"""Sends what is due to webhooks, tries again, and gives up on those that never answer.

Upkeep hands each due delivery to one process. That process takes it for as long as a try can last,
by a version of the record, and sends it beside everything else: nothing of the engine waits for
somebody's server. If the process dies, the delivery is due again; so it may arrive twice, under the
same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from detent.engine.posting import Poster
from detent.engine.webhook import DELAYS_S, Delivery, Standing, Webhook, headers_of
from detent.errors import DetentError, UnknownWebhook
from detent.stores.api import Key, Record, Store

SENDING_MAX: Final = 50
"""How many requests of one process are under way at once."""
TRY_US: Final = 60_000_000
"""How long a delivery is taken for: longer than any try."""
KEPT_US: Final = 3 * 24 * 3_600_000_000
"""How long a delivery that is over can be looked at."""
DISABLE_AFTER: Final = 50
"""So many failed tries in a row, and a webhook is switched off."""
_AGAIN: Final = frozenset({408, 425, 429})

_log = logging.getLogger(__name__)


class Hooks(Protocol):
    """What sending needs to know of webhooks."""

    async def get(self, key: Key) -> Webhook | None:
        """The webhook of that tenant and id."""
        ...

    async def change(self, key: Key, change: Callable[[Webhook], Webhook]) -> Webhook:
        """Change it."""
        ...

    def signing(self, hook: Webhook, now: int) -> Sequence[str]:
        """The secrets that sign for it."""
        ...

    async def put(self, record: Record) -> bool:
        """Whether it was stored; if not, somebody else was faster."""
        ...


class _Tried(msgspec.Struct, frozen=True):
    """How one try went."""

    status: int | None = None
    error: str = ""
    is_final: bool = False

    @property
    def is_good(self) -> bool:
        return not self.error


class Delivering:
    """Answers due deliveries."""

    def __init__(self, hooks: Hooks, store: Store, poster: Poster) -> None:
        self._hooks = hooks
        self._store = store
        self._poster = poster
        self._sending: set[asyncio.Task[None]] = set()

    async def answer(self, due: Sequence[Record]) -> None:
        """Begin to send what is due; upkeep asks. What there is no room for is due again soon."""
        now = self._store.now()
        for record in due:
            try:
                delivery = msgspec.json.decode(record.data or "", type=Delivery)
            except msgspec.DecodeError as fault:
                # Written by newer code, perhaps: whoever understands it will answer it.
                _log.warning("delivery %s cannot be read: %s", record.id, fault)
                continue
            if delivery.standing is not Standing.WAITING:
                await self._hooks.put(_deleted(record))
            elif len(self._sending) < SENDING_MAX:
                taken = replace(delivery, tries=delivery.tries + 1)
                held = taken.record(record.version + 1, now + TRY_US)
                if await self._hooks.put(held):
                    self._begin(self._send(held, taken))

    async def settled(self) -> None:
        """Until nothing is under way here."""
        while self._sending:
            await asyncio.wait(self._sending)

    async def close(self) -> None:
        """Stop; what was under way is tried again by whoever finds it due."""
        for task in self._sending:
            task.cancel()
        await self.settled()

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._sending.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # The store is away, perhaps: the delivery is due again when its time is over.
            _log.warning("a delivery could not be recorded: %s", task.exception())

    async def _send(self, held: Record, delivery: Delivery) -> None:
        key = (delivery.tenant, delivery.webhook)
        hook = await self._hooks.get(key)
        if hook is None or not hook.active:
            why = "the webhook was removed" if hook is None else "the webhook is switched off"
            await self._keep(held, delivery, _Tried(error=why, is_final=True))
            return
        tried = await self._tried(hook, delivery)
        await self._keep(held, delivery, tried)
        if not tried.is_good or hook.failures:
            with contextlib.suppress(UnknownWebhook):  # it was removed meanwhile
                await self._hooks.change(key, lambda one: self._judged(one, tried))

    async def _tried(self, hook: Webhook, delivery: Delivery) -> _Tried:
        try:
            now = self._store.now()
            headers = headers_of(delivery, self._hooks.signing(hook, now), now)
            status = await self._poster.post(hook.url, headers, delivery.body.encode())
        except DetentError as error:
            return _Tried(error=error.message, is_final=not error.retryable)
        return _judged_by(status)

    async def _keep(self, held: Record, delivery: Delivery, tried: _Tried) -> None:
        """Over, or due again; of a delivery that somebody else has taken meanwhile nothing."""
        over, now = delivery.tries > len(DELAYS_S) or tried.is_final, self._store.now()
        standing, wake_at = Standing.WAITING, now + KEPT_US
        if tried.is_good:
            standing = Standing.DELIVERED
        elif over:
            standing = Standing.DEAD
        else:
            wake_at = now + DELAYS_S[delivery.tries - 1] * 1_000_000
        after = replace(delivery, standing=standing, status=tried.status, error=tried.error)
        await self._hooks.put(after.record(held.version + 1, wake_at))

    def _judged(self, hook: Webhook, tried: _Tried) -> Webhook:
        """A webhook that never answers is switched off, so that it costs nobody anything."""
        if tried.is_good:
            return replace(hook, failures=0)
        failures = hook.failures + 1
        if failures < DISABLE_AFTER or not hook.active:
            return replace(hook, failures=failures)
        _log.warning("webhook %s is switched off after %s failures", hook.id, failures)
        why, now = f"{failures} tries in a row failed", self._store.now()
        return replace(hook, failures=failures, active=False, disabled_at=now, why=why)


def _deleted(record: Record) -> Record:
    """The record that deletes this one."""
    return replace(record, version=record.version + 1, data=None, wake_at=None)


def _judged_by(status: int) -> _Tried:
    """What a status means. A redirect is not followed: where it leads was never checked."""
    if status in range(200, 300):
        return _Tried(status)
    if status in range(300, 400):
        return _Tried(status, "it answered with a redirect, which is not followed", is_final=True)
    is_final = status in range(400, 500) and status not in _AGAIN
    return _Tried(status, f"it answered {status}", is_final)
