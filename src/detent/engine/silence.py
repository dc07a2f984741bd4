"""Supervisors that fell silent: who they are, and an end for what they have left behind.

Nobody is left who could tell how their instances ended: the machine is gone with the folder of the
journal. Without an end a history is kept for ever. If such a supervisor comes back after all, its
own story differs from here on; then the store stays with what it knows, and the journal says more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from detent.engine.identity import Identity
from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Key, Life, Store, WorkerRow

FLEET: Final = "fleet "
"""A fleet acts under this word and its id: so every event of an instance says whose it is."""
WORKERS_MAX: Final = 10_000
PAGE: Final = 500
_BY = By(Actor.SYSTEM, "upkeep")


def keeper_of(row: WorkerRow) -> str:
    """The supervisor that beats for it, if it said so."""
    return "" if row.who is None else row.who.supervisor


def silent(rows: Collection[WorkerRow]) -> set[str]:
    """Supervisors whose workers somebody else had to declare lost, and who have none since.

    Of such a one nobody will say any more what became of the rest, unless its state folder is used
    again.
    """
    lost = {keeper_of(row) for row in rows if row.lost and not _is_own_word(row)}
    return lost - {keeper_of(row) for row in rows if not row.lost} - {""}


def _is_own_word(row: WorkerRow) -> bool:
    return row.death is not None and row.death.supervisor == keeper_of(row)


async def rows_of(store: Store) -> list[WorkerRow]:
    """What instances said of themselves, also of those that are gone."""
    some = [await store.workers(WORKERS_MAX, gone=is_lost) for is_lost in (True, False)]
    return [row for rows in some for row in rows]


async def pages(store: Store) -> AsyncIterator[Sequence[w.Instance]]:
    """All instances, some at a time."""
    after: Key | None = None
    while page := await store.find_instances(after=after, limit=PAGE):
        yield page
        after = (page[-1].tenant, page[-1].id)


async def keepers(store: Store, keys: Sequence[Key]) -> dict[Key, str]:
    """Who keeps these instances, as their histories tell: all of them are read at once."""
    found = {}
    for at in range(0, len(keys), PAGE):
        some = keys[at : at + PAGE]
        for key, history in zip(some, await store.histories(some), strict=True):
            told = [one.event.actor_id for one in history if one.event.actor_id.startswith(FLEET)]
            found[key] = told[-1].removeprefix(FLEET) if told else ""
    return found


class Closing:
    """Ends, as lost, what nobody will ever tell the end of, so that it can be forgotten."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity

    async def turn(self, now: int, before: int) -> int:
        """All that is left of supervisors who have been silent since before then; how many."""
        rows = await rows_of(self._store)
        young = {keeper_of(row) for row in rows if max(row.ended_at or 0, row.beat_at) >= before}
        if not (over := silent(rows) - young):
            return 0
        done = 0
        async for page in pages(self._store):
            done += await self._close(page, over, now)
        return done

    async def _close(self, page: Sequence[w.Instance], over: Collection[str], now: int) -> int:
        """One commit. Whose history has gone on meanwhile is not there at that version any more."""
        left = [one for one in page if not one.state.is_terminal]
        kept = await keepers(self._store, [(one.tenant, one.id) for one in left])
        order = w.Order(now, _BY, self._identity.id())
        ends = [(one, w.lose(one, order)) for one in left if kept[one.tenant, one.id] in over]
        lives = [
            Life(one.version, end.instance, end.events)
            for one, end in ends
            if isinstance(end, w.Accepted)
        ]
        return sum(await self._store.ship(lives, now=now)) if lives else 0
