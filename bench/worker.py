"""`python -m bench.worker [--jobs N] [--slots N] [--repetitions N]`: one worker drains no-ops.

Beside it, in the same run, the loop that only steps the store: complete a hundred, claim the next
hundred, with the decision of the lifecycle about each, but without handlers, threads and reports.
Each repetition is a database of its own; both take turns, and the medians are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench.stores import Ours
from detent import Detent
from tools.postgres import Server

__all__ = ["Drained", "drain", "main", "step"]

STEP = 100
SLOTS = 200
"""Twice a step: one batch runs while the store works on the other."""
BULK = 5_000


class Drained(msgspec.Struct, frozen=True):
    """How long it took, and how much of a processor all threads of this process had."""

    jobs: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds * 1e6 / self.jobs


class _Watch:
    """Both clocks, from the first job to the last."""

    def __init__(self) -> None:
        self._begun = (time.perf_counter(), time.process_time())

    def stop(self, jobs: int) -> Drained:
        wall, cpu = self._begun
        return Drained(jobs, time.perf_counter() - wall, time.process_time() - cpu)


def step(url: str, jobs: int) -> Drained:
    """The store alone."""
    ours = Ours(url)
    for at in range(0, jobs + STEP, BULK):
        ours.wait(ours.step_in_pieces(ours.units(min(BULK, jobs + STEP - at))))
    ours.step(STEP)
    watch = _Watch()
    for _ in range(jobs // STEP):
        ours.step(STEP)
    drained = watch.stop(jobs)
    ours.close()
    return drained


def drain(url: str, jobs: int, slots: int = SLOTS) -> Drained:
    """An embedded worker, with everything that it does for a job."""
    app = Detent(url)
    ran: Counter[int] = Counter()

    @app.job
    async def nothing(number: int) -> None:
        ran[number] += 1

    for at in range(0, jobs, BULK):
        app.enqueue_many([nothing.bind(number) for number in range(at, min(at + BULK, jobs))])
    drained = asyncio.run(_drain(app, jobs, slots))
    assert ran == Counter(range(jobs)), "every job is run once"
    app.close()
    return drained


async def _drain(app: Detent, jobs: int, slots: int) -> Drained:
    async with app.working(slots=slots, upkeep=False) as working:
        watch = _Watch()
        # What counts is what is stored, not what was run; asking more often would cost something.
        while working.status is None or working.status.done < jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return watch.stop(jobs)


@contextmanager
def sqlite() -> Iterator[Callable[[], str]]:
    """Addresses of files, one after the other."""
    with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
        numbers = iter(range(10_000))
        yield lambda: f"sqlite:///{Path(folder)}/{next(numbers)}.db"


@contextmanager
def postgresql() -> Iterator[Callable[[], str]]:
    """Addresses of databases on a server that keeps its promises."""
    with Server(shared_buffers="512MB", max_wal_size="4GB") as server:
        admin = psycopg.connect(server.url("postgres"), autocommit=True)
        numbers = iter(range(10_000))

        def made() -> str:
            name = f"bench_{next(numbers)}"
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            return server.url(name)

        with admin:
            yield made


def main() -> None:
    """Measure both stores and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=SLOTS)
    parser.add_argument("--repetitions", type=int, default=3)
    asked = parser.parse_args()
    table = Table(title=f"{asked.jobs} no-ops, one process, medians of {asked.repetitions}")
    for column in ("case", "jobs/s", "CPU us/job", "of the store alone"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, places in (("SQLite", sqlite), ("PostgreSQL", postgresql)):
        with places() as url:
            _measure(table, name, url, asked)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    Console(width=100).print(table, f"most memory of this process: {memory} MB")


def _measure(table: Table, name: str, url: Callable[[], str], asked: argparse.Namespace) -> None:
    steps: list[Drained] = []
    drains: list[Drained] = []
    for _ in range(asked.repetitions):
        steps.append(step(url(), asked.jobs))
        drains.append(drain(url(), asked.jobs, asked.slots))
    alone = _row(table, f"{name}: steps of {STEP}, no worker", steps)
    _row(table, f"{name}: one worker, {asked.slots} slots", drains, alone)


def _row(table: Table, case: str, some: list[Drained], alone: float | None = None) -> float:
    rate = statistics.median(one.per_second for one in some)
    cpu = statistics.median(one.cpu_us for one in some)
    share = "" if alone is None else f"{100 * rate / alone:.0f} %"
    table.add_row(case, f"{rate:,.0f}", f"{cpu:.0f}", share)
    return rate


if __name__ == "__main__":
    main()
