"""Events by polling: a page of the feed in the words of this surface.

Events are made of the heads of their jobs, so that a page costs the same however large the
arguments and results of these jobs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.lifecycle.event import Event
from detent.stores.api import Fed, Key, Stored
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, number_in
from detent.surfaces.ojs.event_words import (
    NUMBER_MAX,
    Position,
    Told,
    change_of,
    event_id_of,
    events_of,
    is_of_attempt,
    is_of_metadata,
    position_of,
)
from detent.surfaces.ojs.faults import invalid

_PAGE: Final = 1_000
# How many events are made at a time: a reader of few waits for few.
_CHUNK: Final = 100
_DIGITS_MAX: Final = 18
_TIME: Final = len("evt_00000000-0000-7")
"""How much of an id says when it was."""
_PAGES_MAX: Final = 20
"""How much of the feed one question looks at; the cursor leads on."""


class Events:
    """The feed for those who ask now and then."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, call: Call) -> Reply:
        """Events after a position, oldest first."""
        query = call.query
        limit = number_in(query, "limit", 100, 1_000)
        seen = await self._seen(query.get("after") or query.get("cursor"))
        # Of the events at the very position that was seen some may be left.
        after = seen.pos if seen.number == NUMBER_MAX else seen.pos - 1
        found: list[Told] = []
        for _ in range(_PAGES_MAX):
            page = await self._desk.engine.store.feed(after, _PAGE)
            for first in range(0, len(page), _CHUNK):
                some = page[first : first + _CHUNK]
                for one in await self._of_tenant(some, call.caller.tenant):
                    is_new = one.position > seen
                    if is_new and _fits(one, query) and call.caller.may_use(one.queue):
                        found.append(one)
                    if len(found) == limit:
                        return self._reply(found, one.id, has_more=True)
                after = some[-1].pos
            if len(page) < _PAGE:
                return self._reply(found, str(max(after, seen.pos)), has_more=False)
        return self._reply(found, str(after), has_more=True)

    def _reply(self, found: Sequence[Told], cursor: str, *, has_more: bool) -> Reply:
        events = [one.body for one in found]
        return self._desk.reply({"events": events, "cursor": cursor, "has_more": has_more})

    async def _of_tenant(self, page: Sequence[Fed], tenant: str) -> list[Told]:
        """The events of a tenant, without its changes of state."""
        loaded = await self.load([fed for fed in page if fed.event.tenant == tenant])
        return [one for some in loaded.values() for one in some if one.number]

    async def load(self, page: Sequence[Fed]) -> dict[int, list[Told]]:
        """What each event of the feed is here, by its position; a change of state comes first."""
        stored = await self._jobs([fed.event for fed in page if fed.event.kind == "job"])
        jobs = [one.job for one in stored.values()]
        names = dict(zip(stored, await self._desk.engine.aliases.shown(jobs), strict=True))
        keys = list(dict.fromkeys(_key(fed.event) for fed in page if is_of_attempt(fed.event)))
        histories = await self._desk.engine.store.histories(keys) if keys else []
        past = {key: [fed.event for fed in some] for key, some in zip(keys, histories, strict=True)}
        loaded: dict[int, list[Told]] = {}
        for fed in page:
            key = _key(fed.event)
            one, name = stored.get(key), names.get(key, fed.event.record)
            change = None if one is None else change_of(fed, one, name)
            events = events_of(fed, one, name, past.get(key, []))
            loaded[fed.pos] = [*([] if change is None else [change]), *events]
        return loaded

    async def _jobs(self, events: Sequence[Event]) -> dict[Key, Stored]:
        """The heads of the jobs of these events; of a few the whole job is needed."""
        store = self._desk.engine.store
        keys = list(dict.fromkeys(map(_key, events)))
        whole = list(dict.fromkeys(_key(one) for one in events if is_of_metadata(one)))
        heads = zip(keys, await store.heads(keys) if keys else [], strict=True)
        found = dict(heads) | dict(zip(whole, await store.get(whole) if whole else [], strict=True))
        return {key: one for key, one in found.items() if one is not None}

    async def place(self, event_id: str) -> tuple[Position, Fed | None] | None:
        """Where an event stands, and what is the first after it if it is forgotten itself.

        `None` is for ids that nobody here has made: who went on from there would hear nothing.
        """
        found = position_of(event_id)
        if found is None or found.pos < 1:
            return None
        page = await self._desk.engine.store.feed(found.pos - 1, 1)
        if not page:
            return None
        is_there = page[0].pos == found.pos
        if is_there and event_id_of(page[0])[:_TIME] != event_id[:_TIME]:
            return None
        return found, None if is_there else page[0]

    async def _seen(self, text: str | None) -> Position:
        if not text:
            return Position(self._desk.feed_start, NUMBER_MAX)
        if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return Position(int(text), NUMBER_MAX)
        place = await self.place(text)
        if place is None:
            raise invalid("after must be the id of an event, or a cursor", field="after")
        return place[0]


def _key(event: Event) -> Key:
    return event.tenant, event.record


def _fits(told: Told, query: dict[str, str]) -> bool:
    for name, value in (("types", told.type), ("queues", told.queue), ("job_types", told.job_type)):
        wanted = query.get(name)
        if wanted and value not in wanted.split(","):
            return False
    return True
