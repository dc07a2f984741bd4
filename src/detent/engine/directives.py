"""What operators tell fleets, through the store: any machine can say it, and the right one hears.

A directive is a small record. Whoever keeps the instance carries it out and writes the answer into
the same record; whoever asked reads it there and takes the record away.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.identity import Identity
from detent.engine.paging import all_records
from detent.errors import StoreBusy, StoreError
from detent.lifecycle.event import By
from detent.stores.api import Committed, Own, Record, Store, Unit

KIND: Final = "directive"
_LOOK_S: Final = 0.1
_STALE_US: Final = 3_600_000_000
"""An answer that nobody has fetched for so long is taken away."""


class Verb(StrEnum):
    """What a fleet can be told about one of its slots, or, with no slot, about all of them."""

    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"
    START = "start"
    RESTART = "restart"
    KILL = "kill"
    RELOAD = "reload"


class Directive(msgspec.Struct, frozen=True, kw_only=True):
    """One wish: to which supervisor, about which slot, whose, and why.

    With an `instance` that one is meant, and not another that has taken its place.
    """

    id: str
    supervisor: str
    verb: Verb
    slot: str = ""
    instance: str = ""
    grace_s: float | None = None
    by: str = ""
    reason: str | None = None
    asked_at: int = 0
    is_done: bool = False
    error: str | None = None


class Directives:
    """Written by whoever asks, answered by whoever is meant."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity

    async def ask(self, wish: Directive, by: By, within_s: float) -> Directive | None:
        """Say it, and wait for the answer; `None` if nobody has answered in that time.

        A store that is away meanwhile may be back in time. What was not heard in time is taken
        back, also from whoever does not wait so long.
        """
        wish = replace(wish, id=self._identity.id(), by=by.id, asked_at=self._store.now())
        await self._put(wish, 1)
        answer: Directive | None = None
        try:
            answer = await self._answered(wish.id, within_s)
        finally:
            # What was answered may stay: it is old one day, and goes then.
            with nullcontext() if answer is None else suppress(StoreError):
                await self._drop(wish.id)
        return answer

    async def _answered(self, name: str, within_s: float) -> Directive | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while loop.time() < deadline:
            await asyncio.sleep(_LOOK_S)
            if (answer := await self._found(name)) is not None:
                return answer
        return None

    async def _found(self, name: str) -> Directive | None:
        """The answer, if it is there and can be read."""
        try:
            [found] = await self._store.record([(KIND, "", name)])
        except StoreError as error:
            if not error.retryable:
                raise
            return None
        said = None if found is None else _read(found)
        return said if said is not None and said.is_done else None

    async def waiting(self, supervisor: str) -> list[Directive]:
        """What that supervisor has been told and not answered; stale answers go on the way."""
        found = await all_records(self._store, KIND)
        old = self._store.now() - _STALE_US
        for one in found:
            if _read(one).is_done and _read(one).asked_at < old:
                await self._drop(one.id)
        wishes = [_read(one) for one in found]
        return [one for one in wishes if one.supervisor == supervisor and not one.is_done]

    async def answer(self, wish: Directive, error: str | None = None) -> None:
        """Carried out, or why not. Whoever does not wait any more is not told."""
        await self._put(replace(wish, is_done=True, error=error), 2)

    async def _put(self, wish: Directive, version: int) -> None:
        record = Record(KIND, wish.id, version, msgspec.json.encode(wish).decode())
        await self._commit(record, f"{wish.id}-{version}", is_needed=version == 1)

    async def _drop(self, name: str) -> None:
        [found] = await self._store.record([(KIND, "", name)])
        if found is not None:
            gone = replace(found, version=found.version + 1, data=None)
            await self._commit(gone, self._identity.id(), is_needed=False)

    async def _commit(self, record: Record, command_id: str, *, is_needed: bool) -> None:
        unit = Unit(command_id, puts=(record,))
        [outcome] = (await self._store.step([unit], now=self._store.now())).outcomes
        if is_needed and not isinstance(outcome, Committed | Own):
            raise StoreBusy(f"The directive could not be written: {outcome}", id=record.id)


def _read(record: Record) -> Directive:
    return msgspec.json.decode(record.data or "", type=Directive)
