"""The context of a run in another process: what it says and wants goes to its worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import cast

from detent.engine.progress import Result
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.bridge import Bridge
from detent.runtime.context import Asking, Context, Heard, Promise, need_no_conn
from detent.runtime.executors.pool.messages import (
    Find,
    Follow,
    Follower,
    Noted,
    Save,
    Spoken,
)
from detent.runtime.executors.pool.wire import Wire
from detent.runtime.office import Office
from detent.stores.api import Note, Stored


class _Sent(Heard):
    """What is heard is sent at once: it is to survive whatever happens to this process."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def say(self, text: str, level: str, at: int) -> None:
        """Mask, count and bound it here already, then pass it on."""
        super().say(text, level, at)
        while self.lines:
            line = self.lines.pop(0)
            self._wire.say(Spoken(line.text, line.level))

    def noted(self, note: Note) -> None:
        """Pass it on."""
        self._wire.say(Noted(note.percent or 0, note.text))

    @property
    def dropped(self) -> int:
        """How many lines were not sent."""
        return self._dropped


class Afar(Context):
    """The same context for handlers; there is no store on this side."""

    def __init__(
        self, stored: Stored, wire: Wire, bridge: Bridge, handlers: Mapping[str, Promise]
    ) -> None:
        # Whatever needs an engine is overridden below.
        nobody = cast("Office", None)
        super().__init__(stored, nobody, bridge, By(Actor.WORKER, "pool"), handlers)
        self._wire = wire
        self.sent = _Sent(wire)
        self.heard = self.sent

    def now(self) -> int:
        """The time here; the worker goes by that of the store."""
        return time.time_ns() // 1_000

    def enqueue(self, *calls: Asking) -> None:
        """The same; the worker checks them, and what it refuses is raised here."""
        need_no_conn(calls)
        now = self.now()
        made = followers_of(calls, now)
        self._wire.ask(lambda number: Follow(number, now, made)).result()

    async def keep(self, text: str) -> None:
        """When the worker answers, it is durable."""
        await asyncio.wrap_future(self._wire.ask(lambda number: Save(number, text)))
        self._checkpoint = text

    async def found(self, step: str | None) -> list[Result]:
        """What the worker finds."""
        return await asyncio.wrap_future(self._wire.ask(lambda number: Find(number, step)))


def followers_of(calls: Sequence[Asking], now: int) -> list[Follower]:
    """The calls as data. What moves when the time does was said relative to it."""
    made = []
    for call in calls:
        ask, later = call.ask(now), call.ask(now + 1)
        limits = [(tenant, key, limit) for (tenant, key), limit in call.limit().items()]
        is_moving = (ask.run_at != later.run_at, ask.expires_at != later.expires_at)
        made.append(Follower(ask, limits, *is_moving))
    return made
