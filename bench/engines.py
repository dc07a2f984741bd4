"""`python -m bench.engines`: how soon a job that is queued is dispatched to an engine.

The server is a process of its own; engines (`detent.engine_client`) and submitters are this one, on
real sockets. Latencies are differences of the instants in the store, so they contain no clock but
its own. Alone: one job after the other, with a pause between them. Burst: submitters on connections
of their own, as fast as they are answered.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx
from rich.console import Console
from rich.table import Table

from bench.http import serving
from detent import stores
from detent.engine_client import EngineClient, PushedJob
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import ENDED, JobState
from detent.stores.select import Filter, Page

_PAUSE_S = 0.02
_SUBMITTERS = 16
_PAGE = 500
_PATIENT = {"queued": 600_000, "dispatched": 600_000, "running": 600_000}
"""On a busy machine they would end jobs that are to be measured."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.engines", description=__doc__)
    parser.add_argument("--store", help="the store; a SQLite file in a new folder by default")
    parser.add_argument("--jobs", type=int, default=200, help="one after the other")
    parser.add_argument("--burst", type=int, default=2_000, help="at once")
    parser.add_argument("--engines", type=int, default=2)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(Path(folder), asked))


async def _measure(folder: Path, asked: argparse.Namespace) -> None:
    url = asked.store or f"sqlite:///{folder}/bench.db"
    command = ("-m", "detent", "serve", "--store", url, "--port", "0")
    table = Table("case", "jobs", "queued to dispatched", "running", "completed", "per second")
    with serving(command, folder / "log") as served:
        address = f"http://127.0.0.1:{served.port}"
        engines = [_engine(address, number) for number in range(asked.engines)]
        running = [asyncio.create_task(one.run()) for one in engines]
        await _until(lambda: _are_there(engines))
        async with httpx.AsyncClient(base_url=address, timeout=30) as client:
            await _alone(client, 10, "WARM")
            spent = await _alone(client, asked.jobs, "ALONE")
            table.add_row("alone", *await _told(url, "ALONE", asked.jobs, spent))
            spent = await _burst(client, asked.burst)
            table.add_row("burst", *await _told(url, "BURST", asked.burst, spent))
        for one in engines:
            await one.stop()
        await asyncio.gather(*running)
    Console(width=110).print(table)


def _engine(address: str, number: int) -> EngineClient:
    made = EngineClient(address, f"bench-{number}", capacity=100)

    async def nothing(_: PushedJob) -> None:
        """The least that a job can be."""

    for job_type in ("WARM", "ALONE", "BURST"):
        made.handles(job_type)(nothing)
    return made


async def _submit(client: httpx.AsyncClient, job_type: str) -> None:
    told = {"jobType": job_type, "deadlines": _PATIENT}
    (await client.post("/engine/jobs", json=told)).raise_for_status()


async def _alone(client: httpx.AsyncClient, count: int, job_type: str) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await _submit(client, job_type)
        await asyncio.sleep(_PAUSE_S)
    return time.perf_counter() - began


async def _burst(client: httpx.AsyncClient, count: int) -> float:
    began, left = time.perf_counter(), iter(range(count))

    async def some() -> None:
        for _ in left:
            await _submit(client, "BURST")

    await asyncio.gather(*(some() for _ in range(_SUBMITTERS)))
    return time.perf_counter() - began


async def _told(url: str, job_type: str, count: int, spent: float) -> list[str]:
    """The row of a case: p50 / p99 in milliseconds, when all of its jobs have ended."""
    async with stores.open(url) as store:
        await _until(lambda: _are_over(store))
        jobs = await _jobs(store, job_type)
    assert len(jobs) == count, f"only {len(jobs)} of {count} were completed"
    ways: list[Callable[[Job], int | None]] = [
        lambda job: job.claimed_at,
        lambda job: job.started_at,
        lambda job: job.ended_at,
    ]
    spans = [sorted((way(job) or 0) - (job.enqueued_at or 0) for job in jobs) for way in ways]
    return [f"{count:,}", *map(_percentiles, spans), f"{count / spent:,.0f}"]


async def _until(look: Callable[[], Awaitable[bool]]) -> None:
    while not await look():  # noqa: ASYNC110 - it is others who change it
        await asyncio.sleep(_PAUSE_S)


async def _are_there(engines: Sequence[EngineClient]) -> bool:
    return all(one.is_connected for one in engines)


async def _are_over(store: stores.Store) -> bool:
    return all(JobState(one.state) in ENDED for one in await store.counts())


async def _jobs(store: stores.Store, job_type: str) -> list[Job]:
    found: list[Job] = []
    after = None
    while page := await store.find(
        Filter(type=job_type, state="completed"), Page(_PAGE, after=after)
    ):
        found += [one.job for one in page]
        after = ("", page[-1].job.id)
    return found


def _percentiles(spans: Sequence[int]) -> str:
    return f"{spans[len(spans) // 2] / 1e3:.1f} / {spans[len(spans) * 99 // 100] / 1e3:.1f}"


if __name__ == "__main__":
    main()
