"""The channels that somebody can follow (a job, a queue, all), and what they missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from detent.engine.tail import Listener
from detent.lifecycle.job.table import ENDED
from detent.stores.api import Fed
from detent.surfaces.http.caller import Caller
from detent.surfaces.http.sse import frame
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.event_words import Position, Told, event_id_of
from detent.surfaces.ojs.events import Events
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.wire import told

MISSED_MAX: Final = 10_000
"""How many events of the feed are looked through for what somebody has missed."""
RENDERED_MAX: Final = 2_000
"""How many positions of the feed are kept as frames, the newest ones."""
_FINAL = frozenset(state.value for state in ENDED)


class StreamEvent(msgspec.Struct, frozen=True):
    """An event as all its readers get it, and what it is chosen by."""

    position: Position
    type: str
    subject: str
    queue: str
    is_end: bool
    frame: bytes


class Channel(msgspec.Struct, frozen=True):
    """What somebody follows: `job`, `queue` or `all`, and of which name."""

    kind: str
    name: str = ""
    types: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """How it is written."""
        return self.kind if self.kind == "all" else f"{self.kind}:{self.name}"

    def takes(self, event: StreamEvent) -> bool:
        """Whether the event belongs to it."""
        if not self.takes_type(event.type):
            return False
        if self.kind == "job":
            return event.subject == self.name
        return self.kind == "all" or event.queue == self.name

    def takes_type(self, type_: str) -> bool:
        """Whether events of that type are wanted at all."""
        return not self.types or type_ in self.types


class Missed(msgspec.Struct, frozen=True):
    """What somebody has not heard: events, or that there are some which nobody can tell now.

    `pos` is how far they have been told by that.
    """

    pos: int
    events: Sequence[StreamEvent] = ()
    gap: dict[str, Any] | None = None


class Following:
    """The feed in the words of this surface, for those who follow it.

    An event that happens is rendered once, however many readers it has.
    """

    def __init__(self, desk: Desk, events: Events) -> None:
        self._desk = desk
        self._events = events
        self._rendered: dict[int, tuple[StreamEvent, ...]] = {}
        self._rendering = asyncio.Lock()

    async def live(self, page: Sequence[Fed], caller: Caller) -> Sequence[StreamEvent]:
        """What has just happened, as its readers get it."""
        mine = [fed for fed in page if fed.event.tenant == caller.tenant]
        if not mine:
            return ()
        async with self._rendering:
            new = await self._render([fed for fed in mine if fed.pos not in self._rendered])
            known = self._rendered
            found = [(known if fed.pos in known else new)[fed.pos] for fed in mine]
            known |= new
            for pos in list(islice(known, max(len(known) - RENDERED_MAX, 0))):
                del known[pos]
        return _visible((event for some in found for event in some), caller)

    async def missed(self, seen: str, caller: Caller) -> AsyncIterator[Missed]:
        """What has happened since an event, page by page; what cannot be told is a gap."""
        place = await self._events.place(seen)
        if place is None:
            # It is no event of ours, or older than all there are.
            yield Missed(0, gap={"gap_start": seen})
            return
        last, first = place
        if first is not None:
            count = first.pos - last.pos - 1
            lost = {"gap_end": event_id_of(first), "estimated_missed_count": count}
            yield Missed(last.pos, gap={"gap_start": seen, **lost})
        looked = 0
        # From the place that was seen on: of its events some may be left.
        async for page in self._desk.engine.tail.since(last.pos - 1):
            after, looked = page[-1].pos, looked + len(page)
            mine = await self._render([fed for fed in page if fed.event.tenant == caller.tenant])
            events = (one for some in mine.values() for one in some if one.position > last)
            yield Missed(after, _visible(events, caller))
            if looked >= MISSED_MAX:
                left = await self._desk.engine.tail.end() - after
                lost = {"gap_start": event_id_of(page[-1]), "estimated_missed_count": max(left, 0)}
                yield Missed(after, gap=lost)
                return

    async def _render(self, page: Sequence[Fed]) -> dict[int, tuple[StreamEvent, ...]]:
        loaded = await self._events.load(page) if page else {}
        return {pos: tuple(map(stream_event, some)) for pos, some in loaded.items()}


def stream_event(one: Told) -> StreamEvent:
    """The event as a frame."""
    data, subject = one.body["data"], one.body["subject"]
    is_end = one.type == "job.state_changed" and data["to"] in _FINAL
    rendered = frame(one.type, data, one.id)
    return StreamEvent(one.position, one.type, subject, one.queue, is_end, rendered)


def _visible(events: Iterable[StreamEvent], caller: Caller) -> list[StreamEvent]:
    """What belongs to no queue, as a workflow does, is left out for keys bound to queues."""
    return [one for one in events if caller.may_use(one.queue)]


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
