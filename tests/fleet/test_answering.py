"""The store goes away while a fleet does what it was told, and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from detent import stores
from detent.app.fleet.commands import Commands
from detent.engine.directives import Directive, Verb
from detent.engine.engine import Engine
from detent.stores.faulty import Fault, Faults, FaultyStore
from tests.contract.making import USER
from tests.waiting import until

T = TypeVar("T")
AWAY = Faults(seed=1, rates={Fault.REFUSED: 1.0})


class Here:
    """A bridge to where we are."""

    async def reach(self, work: Awaitable[T]) -> T:
        return await work


class Reloaded:
    """As much of a fleet as is told to reload; its store goes away meanwhile."""

    id = "fleet"

    def __init__(self, store: FaultyStore) -> None:
        self._store = store
        self.times = 0

    async def reload(self) -> None:
        self._store.is_calm = False
        self.times += 1


async def test_the_answer_is_told_when_the_store_is_back() -> None:
    store = FaultyStore(stores.open("memory:"), AWAY)
    store.is_calm = True
    fleet: Any = Reloaded(store)
    here: Any = Here()
    async with store as opened:
        engine = Engine(opened)
        hearing = asyncio.create_task(Commands(fleet, engine, here).run())
        wish = Directive(id="", supervisor=fleet.id, verb=Verb.RELOAD)
        asking = asyncio.create_task(engine.directives.ask(wish, USER, 60))
        await until(lambda: store.happened[Fault.REFUSED] > 10)
        store.is_calm = True
        answer = await asking
        assert answer is not None
        assert (answer.is_done, answer.error, fleet.times) == (True, None, 1)
        assert await engine.directives.waiting(fleet.id) == []
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing
