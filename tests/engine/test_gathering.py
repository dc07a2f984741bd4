"""Who asks together is served together, and each gets an answer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import pytest

from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.gathering import Gathering
from detent.errors import StoreClosed, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.stores.api import Stored, key_of
from tests.contract.making import WORKER
from tests.contract.world import World


def alone(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """In a loop of its own: it needs no store."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Work:
    """Doubles numbers, and keeps which it was given together."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.may = asyncio.Event()

    async def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.given.append(list(numbers))
        await self.may.wait()
        if 13 in numbers:
            raise KeyError(13)
        return [ValueError(one) if one < 0 else one * 2 for one in numbers]


@alone
async def test_what_comes_together_is_done_together() -> None:
    work = Work()
    gathering = Gathering[int, int](work, 3)
    first = [gathering.ask(one) for one in (1, 2)]
    await asyncio.sleep(0)
    later = [gathering.ask(one) for one in (3, 4, 5, 6)]
    work.may.set()
    assert await asyncio.gather(*first, *later) == [2, 4, 6, 8, 10, 12]
    assert work.given == [[1, 2], [3, 4, 5], [6]]


@alone
async def test_an_error_is_for_whom_it_is_about() -> None:
    work = Work()
    work.may.set()
    gathering = Gathering[int, int](work, 10)
    good, bad, gone = (gathering.ask(one) for one in (1, -1, 2))
    gone.cancel()
    assert await good == 2
    with pytest.raises(ValueError, match="-1"):
        await bad
    all_of_them = [gathering.ask(one) for one in (1, 13)]
    for one in all_of_them:
        with pytest.raises(KeyError):
            await one


@alone
async def test_the_end_waits_for_what_was_asked() -> None:
    work = Work()
    work.may.set()
    gathering = Gathering[int, int](work, 10)
    asked = gathering.ask(1)
    await gathering.close()
    assert asked.result() == 2
    with pytest.raises(StoreClosed):
        gathering.ask(2)


async def test_a_success_that_cannot_be_kept_is_nobody_elses(world: World) -> None:
    await world.alive("w1")
    for _ in range(3):
        await world.push()
    claimed = await world.store.step([], now=world.store.now(), want=world.make.want(3))
    first, second, third = claimed.claimed.jobs
    async with Engine(world.store) as engine:
        answers = await asyncio.gather(
            engine.complete(_done(first, '"well"')),
            engine.complete(_done(second, '"\0"')),
            engine.complete(_done(third, None)),
            engine.complete(_done(third, None)),
            return_exceptions=True,
        )
    assert isinstance(answers[0], j.Accepted)
    assert isinstance(answers[1], Unstorable)
    assert isinstance(answers[2], j.Accepted)
    assert isinstance(answers[3], Refusal)


def _done(stored: Stored, result: str | None) -> Change:
    command = j.Complete(lease=stored.job.lease)
    beside = Beside(result=result)
    return Change(key_of(stored.job), command, WORKER, beside=beside, known=stored)
