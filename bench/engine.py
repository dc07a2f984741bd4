"""`python -m bench.engine [--rivals]`: what the engine does per second, beside the same SQL alone.

Unlike the other benchmarks these are whole runs (ten thousand jobs from the first to the last), so
each is timed once per round and the median of the rounds is shown. Nothing is warmed up beforehand;
every run has a store of its own. "raw" sends the statements of the store in a tight loop, without
engine, decisions or fences. Afterwards every store is asked whether each job ended exactly once.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console
from rich.table import Table

from bench import raw_postgres, raw_sqlite
from bench.engine_rivals import measured
from detent import stores
from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.shaping import Order, Part
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import Stored, Want, WorkerRow, key_of
from tools.postgres import Server

USER, WORKER = By(Actor.USER, "bench"), By(Actor.WORKER, "w1")
JOBS = 10_000
CALLERS = {1: 1_500, 64: 6_400, 200: 20_000}
STEP = 100
PINGS = 200
PAUSE_S = 0.02
ALIVE_US = 3_600_000_000
ASK = Ask(type="mail.send", secret=())

Figures = dict[str, float]
_leases = count(1)


@asynccontextmanager
async def open_engine(url: str) -> AsyncIterator[Engine]:
    """An engine on a store of its own, and a worker that is trusted."""
    async with stores.open(url) as store, Engine(store) as engine:
        now = store.now()
        await store.beat([WorkerRow("w1", now + ALIVE_US)], now=now)
        yield engine


@contextmanager
def timed(figures: Figures, name: str, jobs: int) -> Iterator[None]:
    """Jobs per second of what is done inside."""
    begun = time.perf_counter()
    yield
    figures[name] = jobs / (time.perf_counter() - begun)


async def _touch(url: str) -> None:
    """The statements alone need a worker that is trusted, too."""
    async with open_engine(url):
        pass


def want(number: int) -> Want:
    """A wish for so many jobs."""
    leases = tuple(f"lease-{next(_leases)}" for _ in range(number))
    return Want(command_id=leases[0], by=WORKER, holder="w1", leases=leases, queues=("default",))


def done(stored: Stored) -> Change:
    """The report of a job that had nothing to do."""
    command = j.Complete(lease=stored.job.lease)
    return Change(key_of(stored.job), command, WORKER, beside=Beside(result="null"), known=stored)


async def drain(engine: Engine) -> int:
    """Complete a step and claim the next one in the same commit, until there is nothing left."""
    ran, held = 0, (await engine.claim(want(STEP))).jobs
    while held:
        reports = asyncio.ensure_future(engine.carry_out([done(one) for one in held]))
        ran += len(held)
        held = (await engine.claim(want(STEP))).jobs
        await reports
    return ran


# --- what is measured ---------------------------------------------------------------------------


async def enqueue(url: str, figures: Figures) -> None:
    """One job per call, from callers that each wait for their answer."""
    async with open_engine(url) as engine:
        for callers, jobs in CALLERS.items():

            async def one(number: int) -> None:
                for _ in range(number):
                    await engine.enqueue([ASK], USER)

            with timed(figures, f"enqueue, {callers} callers", jobs):
                await asyncio.gather(*(one(jobs // callers) for _ in range(callers)))


async def drained(url: str, figures: Figures) -> None:
    """Ten thousand jobs that do nothing, in and out."""
    async with open_engine(url) as engine:
        with timed(figures, "enqueue, one call of 10,000", JOBS):
            await engine.enqueue([ASK] * JOBS, USER)
        with timed(figures, "drain of 10,000", JOBS):
            ran = await drain(engine)
        await _need_ended(engine, ran, JOBS)


async def grouped(url: str, figures: Figures) -> None:
    """A workflow of one step with ten thousand jobs, from the order to its end."""
    async with open_engine(url) as engine:
        order = Order(parts=(Part(StepPlan("jobs"), (ASK,) * JOBS),), id="group")
        begun = time.perf_counter()
        with timed(figures, "group of 10,000, made", JOBS):
            await engine.workflows.create(order, USER)
        with timed(figures, "group of 10,000, drained", JOBS):
            ran = await drain(engine)
        figures["group of 10,000, from start to end"] = JOBS / (time.perf_counter() - begun)
        await _need_ended(engine, ran, JOBS)
        progress = await engine.workflows.get(("", "group"))
        assert progress is not None
        assert progress.workflow.state == "completed"


async def _need_ended(engine: Engine, ran: int, jobs: int) -> None:
    counts = {one.state: one.count for one in await engine.store.counts()}
    assert (ran, counts) == (jobs, {"completed": jobs}), "a job was lost or doubled"


async def latency(url: str, figures: Figures) -> None:
    """From before the enqueue to the claim, by a worker that waits and has nothing else to do."""
    async with open_engine(url) as engine, open_engine(url) as worker:
        sent: dict[str, float] = {}
        taken: dict[str, float] = {}
        claiming = asyncio.create_task(_claim_all(worker, taken))
        for _ in range(PINGS):
            await asyncio.sleep(PAUSE_S)
            begun = time.perf_counter()
            [answer] = await engine.enqueue([ASK], USER)
            sent[answer.job.id] = begun  # type: ignore[union-attr]
        await claiming
        spans = sorted((taken[one] - begun) * 1_000 for one, begun in sent.items())
        figures["idle latency, p50 ms"] = statistics.median(spans)
        figures["idle latency, p99 ms"] = spans[int(len(spans) * 0.99) - 1]


async def _claim_all(engine: Engine, taken: dict[str, float]) -> None:
    seen: int | None = None
    while len(taken) < PINGS:
        claimed = await engine.claim(want(1))
        for one in claimed.jobs:
            taken[one.job.id] = time.perf_counter()
        seen = claimed.seen
        if not claimed.jobs:
            await engine.store.wait(1.0, seen)


def raw(push: Callable[[int], None], step: Callable[[int], None], figures: Figures) -> None:
    """The same rows by the same statements, and nothing else."""
    with timed(figures, "raw: single commits", CALLERS[1]):
        for _ in range(CALLERS[1]):
            push(1)
    with timed(figures, "raw: commits of 100", JOBS):
        for _ in range(JOBS // STEP):
            push(STEP)
    with timed(figures, "raw: steps of 100", JOBS):
        for _ in range(JOBS // STEP):
            step(STEP)


# --- the two databases --------------------------------------------------------------------------


class Sqlite:
    """A file per run."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._numbers = count(1)

    def url(self) -> str:
        """The address of a new store."""
        return f"sqlite://{self._folder.name}/{next(self._numbers)}.db"

    def raw(self, figures: Figures) -> None:
        """The statements alone."""
        url = self.url()
        stores.run_migrations(url)
        one = raw_sqlite.Raw(Path(url.removeprefix("sqlite://")))
        raw(one.push, one.step, figures)
        one.close()

    def close(self) -> None:
        """Take the files away."""
        self._folder.cleanup()


class Postgres:
    """A database per run, on a server of its own with fsync on."""

    def __init__(self) -> None:
        self.server = Server(shared_buffers="512MB", max_wal_size="4GB")
        self._numbers = count(1)

    def url(self) -> str:
        """The address of a new store."""
        url = self.empty()
        stores.run_migrations(url)
        return url

    def empty(self) -> str:
        """The address of a database with nothing in it."""
        name = f"run_{next(self._numbers)}"
        with psycopg.connect(self.server.url("postgres"), autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.server.url(name)

    def raw(self, figures: Figures) -> None:
        """The statements alone."""
        url = self.url()
        asyncio.run(_touch(url))
        one = raw_postgres.Raw(url)
        raw(one.push, one.step, figures)
        one.close()

    def close(self) -> None:
        """Stop the server."""
        self.server.close()


PLACES: dict[str, type[Sqlite] | type[Postgres]] = {"sqlite": Sqlite, "postgresql": Postgres}


def round_on(place: Sqlite | Postgres) -> Figures:
    """Every measure once."""
    figures: Figures = {}
    for measure in (enqueue, drained, grouped, latency):
        asyncio.run(measure(place.url(), figures))
    place.raw(figures)
    return figures


def main() -> None:
    """Measure both databases, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--store", choices=PLACES, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--rivals", action="store_true", help="install PgQueuer and Huey beside")
    asked = parser.parse_args()
    console = Console(width=100)
    for name in asked.store or PLACES:
        place = PLACES[name]()
        rounds = [round_on(place) for _ in range(asked.rounds)]
        if asked.rivals:
            for figures in rounds:
                figures.update(
                    measured(name, place.empty if isinstance(place, Postgres) else place.url)
                )
        place.close()
        console.print(_table(name, rounds))


def _table(name: str, rounds: Sequence[Figures]) -> Table:
    table = Table(title=f"{name}: median of {len(rounds)} rounds, per second where nothing is said")
    table.add_column("case")
    for column in ("median", "least", "most"):
        table.add_column(column, justify="right")
    for case in rounds[0]:
        values = [figures[case] for figures in rounds]
        shown = (statistics.median(values), min(values), max(values))
        table.add_row(case, *(f"{value:,.1f}" for value in shown))
    return table


if __name__ == "__main__":
    main()
