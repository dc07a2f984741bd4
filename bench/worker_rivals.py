"""PgQueuer, Oban and Huey doing what `bench.noop` does; runs in the rivals' own environments.

    python worker_rivals.py NAME fill|enqueue|ping|work ADDRESS JOBS

Nothing of ours is imported here. The handler makes the same trace in the same kind of file.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SINGLE = 1_500
PAUSE_S = 0.02
_STAMP = struct.Struct("<qq").pack


def _trace(number: int) -> None:
    os.write(_log, _STAMP(number, time.time_ns()))


_log = os.open(os.environ.get("BENCH_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


# --- Huey: SQLite with a sync per commit, two threads, pauses of 10 to 50 ms --------------------


def huey(asked: str, url: str, jobs: int) -> object:
    """Fill, enqueue, ping or work; its `map` is a loop of single ones, so there is no bulk."""
    from huey import SqliteHuey  # type: ignore[import-not-found]  # noqa: PLC0415 - only in there

    queue = SqliteHuey(filename=url.removeprefix("sqlite://"), fsync=True, results=False)
    work = queue.task()(_trace)
    if asked in ("fill", "enqueue"):
        jobs = SINGLE if asked == "enqueue" else jobs
        work(0)
        begun = time.perf_counter()
        for number in range(1, jobs):
            work(number)
        return {"single": (jobs - 1) / (time.perf_counter() - begun)} if jobs > 1 else {}
    if asked == "ping":
        return _pinged(work, jobs)
    # Its own pauses, 0.1 to 10 seconds, would be all of its latency.
    consumer = queue.create_consumer(workers=2, initial_delay=0.01, max_delay=0.05, periodic=False)
    over = threading.Event()
    consumer.start()
    # After it has set its own, which do not end a consumer that was not started by its program.
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    over.wait()
    consumer.stop(graceful=True)
    return {}


def _pinged(enqueue: Callable[[int], object], jobs: int) -> list[int]:
    begun = []
    for number in range(jobs):
        time.sleep(PAUSE_S)
        begun.append(time.time_ns())
        enqueue(number)
    return begun


# --- PgQueuer: batches of a hundred, which is where it is fastest -----------------------


async def pgqueuer(asked: str, url: str, jobs: int) -> object:
    """Fill, enqueue, ping or work."""
    import asyncpg  # noqa: PLC0415 - that of the other environment
    from pgqueuer import AsyncpgDriver, PgQueuer  # type: ignore[import-not-found]  # noqa: PLC0415

    manager = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    queries: Any = manager.qm.queries
    if asked in ("fill", "enqueue"):
        await queries.install()
        return await _enqueued(queries, jobs, single=SINGLE if asked == "enqueue" else 0)
    if asked == "ping":
        begun = []
        for number in range(jobs):
            await asyncio.sleep(PAUSE_S)
            begun.append(time.time_ns())
            await queries.enqueue("work", str(number).encode())
        return begun

    @manager.entrypoint("work")  # type: ignore[untyped-decorator]
    async def work(job: Any) -> None:
        _trace(int(job.payload))

    running = asyncio.create_task(manager.run(batch_size=100))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.wait([running])
    return {}


async def _enqueued(queries: Any, jobs: int, single: int) -> dict[str, float]:
    """So many in one call, after as many that are awaited one by one."""
    rates = {}
    if single:
        begun = time.perf_counter()
        for number in range(single):
            await queries.enqueue("work", str(number).encode())
        rates["single"] = single / (time.perf_counter() - begun)
    begun = time.perf_counter()
    bodies = [str(number).encode() for number in range(jobs)]
    await queries.enqueue(["work"] * jobs, bodies, [0] * jobs)
    return {**rates, "bulk": jobs / (time.perf_counter() - begun)}


# --- Oban: two hundred at a time, as its makers advise for short jobs ---------------------------


async def oban(asked: str, url: str, jobs: int) -> object:
    """Fill, enqueue, ping or work; it needs a newer Python than we do."""
    from oban import Oban, worker  # type: ignore[import-not-found]  # noqa: PLC0415
    from oban.schema import install_sql  # type: ignore[import-not-found]  # noqa: PLC0415
    from psycopg_pool import (  # type: ignore[import-not-found]  # noqa: PLC0415
        AsyncConnectionPool,
    )

    @worker(queue="work")
    class Work:
        async def process(self, job: Any) -> None:
            _trace(job.args["number"])

    async with AsyncConnectionPool(url, min_size=2, max_size=10, open=False) as pool:
        if asked in ("fill", "enqueue"):
            async with pool.connection() as connection:
                await connection.execute(install_sql())
        async with Oban(pool=pool, queues={"work": 200} if asked == "work" else {}) as queue:
            return await _at_oban(queue, Work, asked, jobs)


async def _at_oban(queue: Any, work: Any, asked: str, jobs: int) -> object:
    if asked == "work":
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()
        return {}
    if asked == "ping":
        begun = []
        for number in range(jobs):
            await asyncio.sleep(PAUSE_S)
            begun.append(time.time_ns())
            await queue.enqueue(work.new({"number": number}))
        return begun
    rates, single = {}, SINGLE if asked == "enqueue" else 0
    at = time.perf_counter()
    for number in range(single):
        await queue.enqueue(work.new({"number": number}))
    if single:
        rates["single"] = single / (time.perf_counter() - at)
    at = time.perf_counter()
    await queue.enqueue_many([work.new({"number": number}) for number in range(jobs)])
    return {**rates, "bulk": jobs / (time.perf_counter() - at)}


def main() -> None:
    """Do what is asked, and print the answer."""
    name, asked, address, many = sys.argv[1:]
    if name == "huey":
        print(json.dumps(huey(asked, address, int(many))))
    else:
        import uvloop  # noqa: PLC0415 - only in there

        does = oban if name == "oban" else pgqueuer
        print(json.dumps(uvloop.run(does(asked, address, int(many)))))


if __name__ == "__main__":
    main()
