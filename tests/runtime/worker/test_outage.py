"""A database that goes away while a worker works: it waits, and no end is lost."""

from __future__ import annotations

import asyncio

import pytest

from detent import Detent, stores
from tests.postgres.running import durable
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until
from tools.postgres import Server


@pytest.mark.slow
def test_ends_are_told_when_the_database_is_back() -> None:
    with durable() as server:
        stores.run_migrations(server.url("postgres"))
        with Detent(server.url("postgres")) as app:
            asyncio.run(_run(app, server))


async def _run(app: Detent, server: Server) -> None:
    go, ran = asyncio.Event(), []

    @app.job
    async def work(number: int) -> None:
        ran.append(number)
        await go.wait()

    handles = await app.aenqueue_many([work.bind(number) for number in range(20)])
    async with Place(app).worker(slots=10) as worker:
        await until(lambda: len(worker.status().running) == 10)
        await asyncio.to_thread(server.control, "stop", "-m", "immediate")
        go.set()
        await until(lambda: not worker.status().running)
        await asyncio.to_thread(server.control, "start")
        assert set(await ended(*handles)) == {"completed"}
    assert sorted(ran) == list(range(20))
    assert [await events(handle) for handle in handles] == [["enqueue", "claim", "complete"]] * 20
