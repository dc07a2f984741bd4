"""New jobs by the very statements of ours in a tight loop: what is left to win with these rows.

What is told to the server is made before the clock runs, so nothing of our code is in the time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.raw_sqlite import Raw
from detent import Detent
from detent.app.job import Job
from detent.stores.births import Births
from detent.stores.postgres import address, bearing
from detent.stores.postgres.connection import open_connection
from detent.stores.postgres.lanes import Lanes
from detent.stores.postgres.statements import SQL

_SQLITE = "sqlite://"


async def rates(
    app: Detent, job: Job[..., Any, ..., Any], url: str, asked: tuple[int, int]
) -> dict[str, float]:
    """Jobs per second: so many one by one, on PostgreSQL also so many a thousand at a time."""
    single, bulk = asked
    await job.aenqueue(0)
    if url.startswith(_SQLITE):
        return {"single, bare": _sqlite(Path(url.removeprefix(_SQLITE)), single)}
    births = await _births(app, job, single + bulk)
    return await _postgres(url, births[:single], births[single:])


async def _births(app: Detent, job: Job[..., Any, ..., Any], number: int) -> Births:
    calls = [job.bind(at) for at in range(number + 10)][10:]
    engine = await app.bridge.reach(app.engine())
    return engine.enqueueing.moulded([(call.mould, call.payload) for call in calls if call.mould])


async def _postgres(url: str, single: Births, bulk: Births) -> dict[str, float]:
    common = bearing.shared(single.rows[0][0])
    assert common is not None
    connection = await open_connection(address.read(url))
    lanes = await Lanes().of(connection, [common.lane])
    alone = [bearing.lone(Births([row]), common, lanes[common.lane]) for row in single.rows]
    begun = time.perf_counter()
    for values in alone:
        await connection.send("enqueue_one", values)
    found = {"single, bare": len(alone) / (time.perf_counter() - begun)}
    pieces = [SQL["births"].values(bearing.asked(one, common, lanes)) for one in bulk.pieces()]
    begun = time.perf_counter()
    for values in pieces:
        await connection.send("births", values)
    found["bulk, bare"] = len(bulk) / (time.perf_counter() - begun)
    await connection.close()
    return found


def _sqlite(path: Path, number: int) -> float:
    raw = Raw(path)
    begun = time.perf_counter()
    for _ in range(number):
        raw.push(1)
    rate = number / (time.perf_counter() - begun)
    raw.close()
    return rate
