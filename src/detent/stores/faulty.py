"""A store whose calls fail by seed, as they do when a connection to a database is cut.

    store = faulty(stores.open("sqlite:detent.db"), Faults(seed=7, rates={Fault.LOST: 0.1}))

Nothing is wrong with what is stored: only calls fail, as they do when connections are cut. Whoever
works over such a store for a while and loses nothing, and does nothing twice, stands an outage.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from inspect import iscoroutinefunction
from typing import Any, cast

import msgspec

from detent.errors import StoreBusy, StoreUnavailable
from detent.stores.api import Store


class Fault(StrEnum):
    """What happens to a call."""

    REFUSED = "refused"
    """There is no connection, and nothing was done."""
    UNDONE = "undone"
    """It fails before its commit, and nothing is left of it."""
    LOST = "lost"
    """It was committed, but the answer was lost."""
    REPEATED = "repeated"
    """The same, and it is made once more with the same command ids, as drivers of stores do."""
    SLOW = "slow"
    """It takes its time; others overtake it."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """How often which fault comes, from 0 to 1; one at most per call. Equal seeds, equal days."""

    seed: int
    rates: dict[Fault, float]
    slow_s: float = 0.01


class FaultyStore:
    """Hands every call on, unless something comes between."""

    def __init__(self, inner: Store, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._chance = random.Random(faults.seed)  # noqa: S311 (it is repeatable on purpose)
        self.is_calm = False
        """Whether nothing goes wrong for now."""
        self.happened: Counter[Fault] = Counter()

    async def __aenter__(self) -> Store:
        await self._inner.__aenter__()
        return cast("Store", self)

    async def __aexit__(self, *error: Any) -> None:
        await self._inner.__aexit__(*error)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._troubled(found) if iscoroutinefunction(found) else found

    def _troubled(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def troubled(*args: Any, **kwargs: Any) -> Any:
            fault = self._drawn()
            await self._before(fault)
            answer = await call(*args, **kwargs)
            if fault is Fault.LOST:
                raise StoreUnavailable("The connection was cut before the answer came")
            return await call(*args, **kwargs) if fault is Fault.REPEATED else answer

        return troubled

    def _drawn(self) -> Fault | None:
        if self.is_calm:
            return None
        left = self._chance.random()
        for fault, rate in self._faults.rates.items():
            left -= rate
            if left < 0:
                self.happened[fault] += 1
                return fault
        return None

    async def _before(self, fault: Fault | None) -> None:
        match fault:
            case Fault.REFUSED:
                raise StoreUnavailable("The connection was refused")
            case Fault.UNDONE:
                raise StoreBusy("The call was undone before it was committed")
            case Fault.SLOW:
                await asyncio.sleep(self._faults.slow_s)
            case _:
                return


def faulty(inner: Store, faults: Faults) -> Store:
    """The same store on bad days."""
    return cast("Store", FaultyStore(inner, faults))
