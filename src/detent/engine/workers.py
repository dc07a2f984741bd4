"""Worker instances in the store: their histories are shipped here, and looked at from here.

A supervisor keeps its own journal, because it goes on while the database is down. What stands in
the journal is sent here in batches, as often as it takes: what is there already is passed over, if
it is the same, so that a cursor that was lost costs nothing but time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Final, cast

import msgspec

from detent.engine.silence import keeper_of, keepers, pages, rows_of, silent
from detent.errors import BadHistory
from detent.lifecycle import worker as w
from detent.lifecycle.event import Event
from detent.lifecycle.replay import Fault, go_on
from detent.stores.api import Key, Life, Store, WorkerRow

BATCH: Final = 500
"""How many events one commit takes; whoever has more sends several."""
_ATTEMPTS: Final = 3
_GONE: Final = "Gone"


class Listed(msgspec.Struct, frozen=True):
    """An instance with the word for its state and since when it stands there.

    `row` is what it said of itself when it was last heard of; `instance` what its history leads to.
    Either may be missing: one without a supervisor has no history, one that is starting no row, and
    neither has what a supervisor runs in its own process. `supervisor` is who keeps it. `is_left`:
    that one fell silent, and nobody has told since what became of this.
    """

    id: str
    state: str
    since: int
    row: WorkerRow | None = None
    instance: w.Instance | None = None
    supervisor: str = ""
    is_left: bool = False

    @property
    def is_process(self) -> bool:
        """Whether it is a process, or about to become one, and no part of its supervisor."""
        one = self.instance
        return self.row is not None or one is None or one.pid is not None or one.started_at is None

    @property
    def is_gone(self) -> bool:
        """Whether nothing will ever be heard of it again."""
        if self.instance is not None and self.instance.state.is_terminal:
            return True
        return self.is_left or (self.row is not None and self.row.lost)


class Workers:
    """Everything about worker instances that has no part in running jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def ship(self, events: Sequence[Event]) -> int:
        """Take in events of instances, in the order of each; how many were new.

        `BadHistory` names the first that cannot have happened, or that differs from what is stored;
        nothing of that batch is kept.
        """
        new = 0
        for start in range(0, len(events), BATCH):
            new += await self._ship(events[start : start + BATCH])
        return new

    async def listed(self, *, gone: bool = False) -> list[Listed]:
        """Instances that are there, or with `gone` those that are remembered, by id."""
        rows = {row.id: row for row in await rows_of(self._store)}
        lives = {one.id: one async for page in pages(self._store) for one in page}
        found = [_listed(rows.get(name), lives.get(name)) for name in sorted({*rows, *lives})]
        there, over = [one for one in found if not one.is_gone], silent(rows.values())
        known = {one.id: _left(one, over) for one in await self.kept(there)}
        told = [known.get(one.id, one) for one in found]
        return [one for one in told if one.is_gone is gone]

    async def history(self, instance: str) -> Sequence[Event]:
        """What happened to one instance, oldest first."""
        return await self._store.history(("", instance))

    async def kept(self, found: Sequence[Listed]) -> list[Listed]:
        """With who keeps them, as their histories tell where they have never said so themselves."""
        asked = [("", one.id) for one in found if not one.supervisor]
        known = await keepers(self._store, asked)
        return [
            msgspec.structs.replace(one, supervisor=one.supervisor or known["", one.id])
            for one in found
        ]

    # --- shipping -------------------------------------------------------------------------------

    async def _ship(self, events: Sequence[Event]) -> int:
        told: defaultdict[Key, list[Event]] = defaultdict(list)
        for event in events:
            told[event.tenant, event.record].append(event)
        for _ in range(_ATTEMPTS):
            lives = [life for life in await self._lives(told) if life.events]
            answers = await self._store.ship(lives, now=self._store.now()) if lives else ()
            if all(answers):
                return sum(len(life.events) for life in lives)
            # Somebody has shipped the same meanwhile; or the name is another record's.
        name = next(one.instance.id for one, is_in in zip(lives, answers, strict=True) if not is_in)
        raise BadHistory(f"worker {name}: its name belongs to another record", record=name)

    async def _lives(self, told: Mapping[Key, Sequence[Event]]) -> list[Life]:
        """How these histories go on after what the store knows of them."""
        heads = await self._store.instances(list(told))
        lives = []
        for (key, events), head in zip(told.items(), heads, strict=True):
            version = 0 if head is None else head.version
            again = [event for event in events if event.version <= version]
            if again:
                self._compare(again, await self._store.history(key))
            coming = [event for event in events if event.version > version]
            lives.append(Life(version, _led_to(head, coming), tuple(coming)))
        return lives

    def _compare(self, again: Sequence[Event], stored: Sequence[Event]) -> None:
        for event in again:
            if not 0 < event.version <= len(stored) or stored[event.version - 1] != event:
                raise _bad(event, "it is not the event that is stored")


def _led_to(head: w.Instance | None, coming: Sequence[Event]) -> w.Instance:
    """The instance after these events, each of which can have happened to it."""
    for event in coming:
        if event.kind != w.WORKER.name:
            raise _bad(event, "it is no event of a worker")
    after = go_on(head, coming)
    if isinstance(after, Fault):
        bad = next(one for one in coming if one.version == after.version)
        raise _bad(bad, after.why)
    return cast("w.Instance", after)


def _bad(event: Event, why: str) -> BadHistory:
    text = f"worker {event.record} version {event.version} ({event.name}): {why}"
    return BadHistory(text, record=event.record, version=event.version)


def _listed(row: WorkerRow | None, instance: w.Instance | None) -> Listed:
    keeper = "" if row is None else keeper_of(row)
    if instance is not None and (row is None or not row.lost or instance.state.is_terminal):
        return Listed(instance.id, instance.status, instance.state_at, row, instance, keeper)
    if row is None:
        raise LookupError
    since = row.ended_at or (row.who.started_at if row.who else 0) or row.beat_at
    state = _GONE if row.lost else row.state.capitalize() or "Alive"
    return Listed(row.id, state, since, row, instance, keeper)


def _left(one: Listed, silent: Container[str]) -> Listed:
    if one.row is not None or one.supervisor not in silent:
        return one
    return msgspec.structs.replace(one, state=_GONE, is_left=True)
