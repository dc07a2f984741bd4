"""Somebody's open transaction holds jobs whose runs have ended: nobody else waits for that."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from detent import Detent
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until

_HELD = 3


@pytest.mark.slow
@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_other_ends_are_told_and_those_when_it_is_over(app: Detent, url: str) -> None:
    go = [asyncio.Event() for _ in range(_HELD)]

    @app.job
    async def work(number: int) -> None:
        if number < _HELD:
            await go[number].wait()

    held = await app.aenqueue_many([work.bind(number) for number in range(_HELD)])
    async with Place(app).worker(slots=10) as worker:
        await until(lambda: len(worker.status().running) == _HELD)
        async with await psycopg.AsyncConnection.connect(url) as foreign:
            await foreign.execute("SELECT 1 FROM detent.jobs FOR UPDATE")
            for one in go:
                # One after the other, so that each would keep a filing of its own busy.
                one.set()
                assert await ended(await work.aenqueue(_HELD)) == ["completed"]
            assert [await events(one) for one in held] == [["enqueue", "claim"]] * _HELD
        assert set(await ended(*held)) == {"completed"}
        await until(lambda: worker.status().done == 2 * _HELD)
    assert [await events(one) for one in held] == [["enqueue", "claim", "complete"]] * _HELD
