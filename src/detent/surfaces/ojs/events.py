"""Events by polling: a page of the feed in the words of this surface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.lifecycle.event import Event
from detent.stores.api import Fed, Key
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, number_in
from detent.surfaces.ojs.event_words import Told, event_id_of, events_of, position_of
from detent.surfaces.ojs.faults import invalid

_PAGE: Final = 1_000
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
        after, has_more = await self._after(query.get("after") or query.get("cursor")), True
        found: list[Told] = []
        for _ in range(_PAGES_MAX):
            page = await self._desk.engine.store.feed(after, _PAGE)
            for told in await self.told(page, call.caller.tenant):
                if len(found) == limit:
                    break
                if _fits(told, query) and call.caller.may_use(told.queue):
                    found.append(told)
                after = told.pos
            else:
                after = page[-1].pos if page else after
            has_more = len(page) == _PAGE or len(found) == limit
            if not has_more or len(found) == limit:
                break
        cursor = found[-1].id if len(found) == limit else str(after)
        body = {"events": [one.body for one in found], "cursor": cursor, "has_more": has_more}
        return self._desk.reply(body)

    async def told(self, page: Sequence[Fed], tenant: str) -> list[Told]:
        """What these events are here, for whoever may see this tenant's."""
        mine = [one for one in page if one.event.tenant == tenant]
        keys = list(dict.fromkeys(_key(one.event) for one in mine if one.event.kind == "job"))
        store = self._desk.engine.store
        found = await store.get(keys) if keys else []
        stored = {key: one for key, one in zip(keys, found, strict=True) if one is not None}
        names = await self._desk.engine.aliases.shown([one.job for one in stored.values()])
        shown = dict(zip(stored, names, strict=True))
        histories = await store.histories(keys) if keys else []
        past = {key: [fed.event for fed in some] for key, some in zip(keys, histories, strict=True)}
        return [
            told
            for one in mine
            for told in events_of(
                one,
                stored.get(_key(one.event)),
                shown.get(_key(one.event), one.event.record),
                past.get(_key(one.event), []),
            )
        ]

    async def place(self, event_id: str) -> tuple[int, Fed | None] | None:
        """Where an event stands, and what is the first after it if it is forgotten itself.

        `None` is for ids that nobody here has made: who went on from there would hear nothing.
        """
        found = position_of(event_id)
        if found is None or found < 1:
            return None
        page = await self._desk.engine.store.feed(found - 1, 1)
        if not page:
            return None
        is_there = page[0].pos == found
        if is_there and event_id_of(page[0])[:_TIME] != event_id[:_TIME]:
            return None
        return found, None if is_there else page[0]

    async def _after(self, text: str | None) -> int:
        if not text:
            return self._desk.feed_start
        if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            return int(text)
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
