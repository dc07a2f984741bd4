"""Telemetry of stored jobs: a page of the feed, or one life, in the words of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.views.telemetry import About, Told, telemetry
from detent.stores.api import Fed, Key, Store, Stored
from detent.surfaces.engines.shown import user_of


class Item(msgspec.Struct, frozen=True):
    """Something that is told to whoever may hear it, at its cursor."""

    cursor: int
    at: int
    name: str
    data: dict[str, Any]
    stored: Stored
    user: str | None

    @property
    def told(self) -> dict[str, Any]:
        """The same on the wire."""
        return {**self.data, "cursor": self.cursor}


def lived(stored: Stored, history: Sequence[Event]) -> list[Told]:
    """What is told of a job's life so far."""
    errors = {one.attempt: (one.code, one.message) for one in stored.failures}
    return telemetry(history, About(stored.body.type, user_of(stored.body.meta), errors))


async def page_of(store: Store, page: Sequence[Fed]) -> list[Item]:
    """What is told of these events, in their order; jobs that were forgotten are not told of."""
    fed_jobs = [fed for fed in page if fed.event.kind == "job" and fed.event.target is not None]
    keys = list(dict.fromkeys(_key(fed) for fed in fed_jobs))
    if not keys:
        return []
    stored = dict(zip(keys, await store.get(keys), strict=True))
    histories = dict(zip(keys, await store.histories(keys), strict=True))
    told: dict[tuple[Key, int], Told] = {}
    for key, one in stored.items():
        if one is not None:
            events = [fed.event for fed in histories[key]]
            told |= {(key, found.version): found for found in lived(one, events)}
    items = [
        _item(fed, stored[_key(fed)], told.get((_key(fed), fed.event.version))) for fed in fed_jobs
    ]
    return [item for item in items if item is not None]


def _item(fed: Fed, stored: Stored | None, told: Told | None) -> Item | None:
    if stored is None or told is None:
        return None
    user = user_of(stored.body.meta)
    return Item(fed.pos, fed.event.at, told.name, told.data, stored, user)


def _key(fed: Fed) -> Key:
    return fed.event.tenant, fed.event.record
