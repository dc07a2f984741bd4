"""The channels that somebody can follow (a job, a queue, all), and what they missed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import msgspec

from detent.engine.tail import Listener
from detent.stores.api import Fed, Stored
from detent.surfaces.http.caller import Caller
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.event_words import Told, change_of, event_id_of
from detent.surfaces.ojs.events import Events
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.wire import told

MISSED_MAX: Final = 10_000
"""How many events of the feed are looked through for what somebody has missed."""


class Channel(msgspec.Struct, frozen=True):
    """What somebody follows: `job`, `queue` or `all`, and of which name."""

    kind: str
    name: str = ""
    types: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """How it is written."""
        return self.kind if self.kind == "all" else f"{self.kind}:{self.name}"

    def takes(self, one: Told) -> bool:
        """Whether the event belongs to it."""
        if not self.takes_type(one.type):
            return False
        if self.kind == "job":
            return bool(one.body["subject"] == self.name)
        return self.kind == "all" or one.queue == self.name

    def takes_type(self, type_: str) -> bool:
        """Whether events of that type are wanted at all."""
        return not self.types or type_ in self.types


class Missed(msgspec.Struct, frozen=True):
    """What somebody has not heard: events, or that there are some which nobody can tell now.

    `pos` is how far they have been told by that.
    """

    pos: int
    told: Sequence[Told] = ()
    gap: dict[str, Any] | None = None


class Following:
    """The feed in the words of this surface, for those who follow it."""

    def __init__(self, desk: Desk, events: Events) -> None:
        self._desk = desk
        self._events = events

    async def missed(self, seen: str, caller: Caller) -> AsyncIterator[Missed]:
        """What has happened since an event, page by page; what cannot be told is a gap."""
        place = await self._events.place(seen)
        if place is None:
            # It is no event of ours, or older than all there are.
            yield Missed(0, gap={"gap_start": seen})
            return
        after, first = place
        if first is not None:
            lost = {"gap_end": event_id_of(first), "estimated_missed_count": first.pos - after - 1}
            yield Missed(after, gap={"gap_start": seen, **lost})
        looked = 0
        async for page in self._desk.engine.tail.since(after):
            after, looked = page[-1].pos, looked + len(page)
            yield Missed(after, await self.told(page, caller))
            if looked >= MISSED_MAX:
                left = await self._desk.engine.tail.end() - after
                lost = {"gap_start": event_id_of(page[-1]), "estimated_missed_count": max(left, 0)}
                yield Missed(after, gap=lost)
                return

    async def told(self, page: Sequence[Fed], caller: Caller) -> list[Told]:
        """The events of a page, and the changes of state behind them.

        What belongs to no queue, as a workflow does, is left out for keys bound to queues.
        """
        if not page:
            return []
        found = await self._events.told(page, caller.tenant)
        changes = await self._changes(page, caller.tenant)
        both = sorted([*changes, *found], key=lambda one: one.pos)
        return [one for one in both if caller.may_use(one.queue)]

    async def _changes(self, page: Sequence[Fed], tenant: str) -> list[Told]:
        mine = [one for one in page if one.event.tenant == tenant and one.event.kind == "job"]
        keys = list(dict.fromkeys((one.event.tenant, one.event.record) for one in mine))
        found = await self._desk.engine.store.get(keys) if keys else []
        stored: dict[str, Stored] = {one.job.id: one for one in found if one is not None}
        names = await self._desk.engine.aliases.shown([one.job for one in stored.values()])
        shown = dict(zip(stored, names, strict=True))
        told_of = [
            change_of(one, stored[one.event.record], shown[one.event.record])
            for one in mine
            if one.event.record in stored
        ]
        return [one for one in told_of if one is not None]


def channel_of(text: str, types: frozenset[str] = frozenset()) -> Channel:
    """The channel that a text names."""
    kind, _, name = text.partition(":")
    if kind == "all" or (kind in ("job", "queue") and name):
        return Channel(kind, name, types)
    raise invalid("channel must be job:<id>, queue:<name> or all", field="channel")


def of_tenant(tenant: str) -> Callable[[Fed], bool]:
    """Chooses the events of one tenant."""
    return lambda fed: fed.event.tenant == tenant


def dropped(listener: Listener) -> dict[str, Any] | None:
    """What a slow reader was not told, once."""
    gone, listener.dropped = listener.dropped, None
    if gone is None:
        return None
    return {
        "dropped_count": gone.count,
        "oldest_dropped_id": event_id_of(gone.oldest),
        "newest_dropped_id": event_id_of(gone.newest),
        "timestamp": told(gone.newest.event.at),
    }
