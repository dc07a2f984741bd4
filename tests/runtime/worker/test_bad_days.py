"""A worker over a store that refuses, fails, loses answers and is slow: every job runs once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

from detent import Detent, stores
from detent.app.connection import Connection
from detent.app.handle import Handle
from detent.engine.engine import Engine
from detent.errors import StoreBusy, StoreUnavailable
from detent.stores.faulty import Fault, Faults, FaultyStore
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until

JOBS = 200
FAULTS = Faults(seed=11, rates=dict.fromkeys(Fault, 0.06), slow_s=0.005)


class BadDays(Connection):
    """A connection to such a store."""

    store: FaultyStore

    async def _open(self) -> Engine:
        self.store = FaultyStore(stores.open(self.url), FAULTS)
        self.store.is_calm = True
        return Engine(await self.store.__aenter__(), secrets=self.secrets)


def test_every_job_runs_once_on_bad_days(tmp_path: Path) -> None:
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:
        app.connection = BadDays(app.connection.url)
        asyncio.run(_run(app, app.connection))


async def _run(app: Detent, connection: BadDays) -> None:
    ran: Counter[int] = Counter()

    @app.job
    async def work(number: int) -> int:
        ran[number] += 1
        return number

    async def enqueued(number: int) -> Handle[int]:
        while True:
            with suppress(StoreBusy, StoreUnavailable):
                return await work.using(idempotency_key=f"k{number}").aenqueue(number)

    async with Place(app).worker(slots=20):
        connection.store.is_calm = False
        handles = await asyncio.gather(*(enqueued(number) for number in range(JOBS)))
        await until(lambda: len(ran) == JOBS)
        # Whoever asks how it went has no worse days than the worker had.
        await until(lambda: set(connection.store.happened) == set(Fault))
        connection.store.is_calm = True
        assert set(await ended(*handles)) == {"completed"}
    assert set(ran.values()) == {1}
    assert len({handle.id for handle in handles}) == JOBS
    for handle in handles:
        assert await events(handle) == ["enqueue", "claim", "complete"]
