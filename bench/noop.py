"""The program whose jobs `bench.worker` drains, and the one that fills and pings its store.

    detent worker bench/noop.py             runs the jobs
    python -m bench.noop fill URL JOBS      enqueues so many
    python -m bench.noop enqueue URL JOBS   the same one by one and otherwise, and tells how fast
    python -m bench.noop wait URL JOBS      one by one without a loop, and tells how fast
    python -m bench.noop bare URL JOBS      by the same statements without our code, the same way
    python -m bench.noop ping URL JOBS      enqueues one now and then, and tells when

A handler does one thing: it appends its number and the time to a file. That file is the witness of
what ran, when, and how often, and no store has a say in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvloop

from detent import Detent

SINGLE = 1_500
SHARED = 10_000
CALLERS = 200
PIECE = 10_000
PAUSE_S = 0.02
_STAMP = struct.Struct("<qq").pack

app = Detent(os.environ.get("BENCH_STORE"))
_log = os.open(os.environ.get("BENCH_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.job(name="nothing")
async def nothing(number: int) -> None:
    """Leave a trace, and nothing else."""
    os.write(_log, _STAMP(number, time.time_ns()))


async def fill(jobs: int) -> dict[str, float]:
    """So many jobs, as fast as can be."""
    await _bulk(0, jobs)
    return {}


async def _bulk(first: int, end: int) -> None:
    """In calls with as many as are taken."""
    for at in range(first, end, PIECE):
        await app.aenqueue_many(
            [nothing.bind(number) for number in range(at, min(at + PIECE, end))]
        )


async def enqueue(jobs: int) -> dict[str, float]:
    """Jobs per second: one by one, from 200 coroutines, and so many in as few calls as can be."""
    await nothing.aenqueue(0)
    await nothing.aenqueue(0)
    begun = time.perf_counter()
    for number in range(SINGLE):
        await nothing.aenqueue(number)
    rates = {"single": SINGLE / (time.perf_counter() - begun)}
    begun = time.perf_counter()
    numbers = iter(range(SHARED))
    await asyncio.gather(*(_each(numbers) for _ in range(CALLERS)))
    rates["200 callers"] = SHARED / (time.perf_counter() - begun)
    begun = time.perf_counter()
    await _bulk(0, jobs)
    return {**rates, "bulk": jobs / (time.perf_counter() - begun)}


def waited() -> dict[str, float]:
    """Jobs per second of one who has no loop, and waits for each."""
    nothing.enqueue(0)
    nothing.enqueue(0)
    begun = time.perf_counter()
    for number in range(SINGLE):
        nothing.enqueue(number)
    return {"single, waited for": SINGLE / (time.perf_counter() - begun)}


async def _each(numbers: Iterator[int]) -> None:
    """A caller who waits for each of its jobs, beside many others."""
    for number in numbers:
        await nothing.aenqueue(number)


async def ping(jobs: int) -> list[int]:
    """When each was about to be enqueued, in nanoseconds."""
    begun = []
    for number in range(jobs):
        await asyncio.sleep(PAUSE_S)
        begun.append(time.time_ns())
        await nothing.aenqueue(number)
    return begun


async def bare(jobs: int) -> dict[str, float]:
    """Jobs per second of the database alone."""
    from bench.bare import rates  # noqa: PLC0415 - a worker that runs this file has no `bench`

    return await rates(app, nothing, app.connection.url, (SINGLE, jobs))


AWAITED: dict[str, Callable[[int], Coroutine[Any, Any, object]]]
AWAITED = {"fill": fill, "enqueue": enqueue, "ping": ping, "bare": bare}

if __name__ == "__main__":
    asked, address, many = sys.argv[1:]
    app.move_to(address)
    # In the loop that the rivals have.
    told = waited() if asked == "wait" else uvloop.run(AWAITED[asked](int(many)))
    print(json.dumps(told))
    app.close()
