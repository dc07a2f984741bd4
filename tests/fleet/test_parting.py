"""A fleet that ends while its store is away: what it still tells, and for how long it tries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import pytest

from detent import Detent
from detent.app.fleet.fleet import Fleet
from detent.app.fleet.members import Members
from detent.app.fleet.orders import Orders, Told
from tests.waiting import until

T = TypeVar("T")


class Here:
    """A bridge to where we are."""

    async def reach(self, work: Awaitable[T]) -> T:
        return await work


class Registry:
    """Somebody who has ended for an outage, which nobody has heard yet."""

    def __init__(self) -> None:
        self.untold: Sequence[str] = ["w-1"]
        self.told = asyncio.Event()

    async def buried(self) -> None:
        await self.told.wait()
        self.untold = []


def members(registry: Any) -> Members:
    found, here = Members(Orders(told=Told(reference="program.py")), "fleet"), Here()
    bridge: Any = here
    found.join(registry, bridge)
    return found


async def test_it_goes_on_telling_that_its_store_was_away() -> None:
    one = members(registry := Registry())
    assert one.has_untold
    telling = asyncio.create_task(one.told_late(60))
    await asyncio.sleep(0)
    registry.told.set()
    assert await telling
    assert not one.has_untold


class Brief(Fleet):
    """A fleet that has nothing to stop, and counts how often it says its last words."""

    said = 0

    async def _last_words(self) -> None:
        self.said += 1


class Nobody:
    """A tree that has stopped."""

    async def stop(self, budget_s: float | None) -> None:
        """Nothing is left to stop."""


@pytest.mark.parametrize(("budget_s", "said"), [(None, 2), (0.0, 1)])
async def test_a_fleet_uses_what_is_left_of_its_time_for_that(
    budget_s: float | None, said: int
) -> None:
    with Detent("memory:") as app:
        fleet = Brief(app, Orders(told=Told(reference="program.py")))
        nobody: Any = Nobody()
        registry, here = Registry(), Here()
        told: Any = (registry, here)
        fleet.supervisor = nobody
        fleet.members.join(*told)
        await fleet.stop(budget_s)
        parting = asyncio.create_task(fleet._part())  # noqa: SLF001 - a whole fleet takes seconds
        if budget_s is None:
            await until(lambda: fleet.said == 1)
            registry.told.set()
        await parting
        assert (fleet.said, fleet.members.has_untold) == (said, said == 1)


async def test_it_does_not_end_later_than_it_may_and_says_what_was_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, before = members(Registry()), time.monotonic()
    assert not await one.told_late(0.01)
    assert not await one.told_late(-5)
    assert time.monotonic() - before < 30
    assert "nobody has heard why w-1 ended: others charge its jobs" in caplog.text
