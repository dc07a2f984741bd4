"""`python -m bench.worker [--large]`: real fleets drain no-ops, beside PgQueuer, Oban and Huey.

Every run has a store of its own and worker processes of its own (`detent worker`, with its
supervisor); ours and theirs take turns, and medians are shown. Handlers leave a trace in a file, by
which everything is counted: rates from the first start to the last, what was lost, what ran twice.
A lost or doubled job fails the benchmark. Processor time suffers less from neighbours than the
clock on the wall: that of the workers (for ours with the supervisor) and of the database server.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from bench.crews import CREWS, Crew, Drained, drained, need_rivals, pinged
from bench.measure import Ratio
from tools.postgres import Server

__all__ = ["main", "measure"]

JOBS, JOBS_LARGE = 10_000, 100_000
WORKERS = (1, 2)
PINGS = 200
BULK = 20_000
Figures = dict[tuple[str, str], list[float]]
"""Per crew (database and name) and measure, what each repetition found."""
GOALS = {
    "sqlite": {
        "drain, 1 worker": 4.0,
        "enqueue, single": 1.0,
        "enqueue, single, waited for": 1.0,
        "enqueue, 200 callers": 8.0,
        "p50 ms": 2.0,
        "p99 ms": 2.0,
    },
    "postgresql": {
        "drain, 1 worker": 1.2,
        "enqueue, single": 1.2,
        "enqueue, bulk": 2.0,
        "p50 ms": 1.0,
        "p99 ms": 1.0,
    },
}
"""How many times as good as the rival of the same run we have to be."""


class Places:
    """Stores, each used once. A database is dropped before the next is made.

    Otherwise the server would clean up after one crew, and write what it has left behind, while
    another is measured.
    """

    def __init__(self, folder: Path, server: Server) -> None:
        self._folder = folder
        self._server = server
        self._numbers = count(1)

    def new(self, database: str) -> tuple[str, Path, int | None]:
        """The address of a new store, a folder beside it, and the server that it is on."""
        number = next(self._numbers)
        folder = self._folder / str(number)
        folder.mkdir()
        if database == "sqlite":
            return f"sqlite://{folder}/jobs.db", folder, None
        with psycopg.connect(self._server.url("postgres"), autocommit=True) as admin:
            admin.execute("DROP DATABASE IF EXISTS run WITH (FORCE)")
            admin.execute("CREATE DATABASE run")
        return self._server.url("run"), folder, self._server.process


def _free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


@contextmanager
def places() -> Iterator[Places]:
    """Files in a folder, and databases on a server that keeps its promises."""
    with (
        tempfile.TemporaryDirectory(prefix="detent-bench-") as folder,
        Server(shared_buffers="512MB", max_wal_size="4GB", port=_free_port()) as server,
    ):
        yield Places(Path(folder), server)


def measure(databases: Sequence[str], jobs: int, repetitions: int) -> Figures:
    """Everything, crew by crew, repetition by repetition."""
    need_rivals()
    found: Figures = defaultdict(list)
    asked = [crew for crew in CREWS if crew.database in databases]
    with places() as new:
        for _ in range(repetitions):
            for measuring in (_enqueues, _drains, _pings):
                for crew in asked:
                    for name, value in measuring(crew, new, jobs):
                        found[f"{crew.database} {crew.name}", name].append(value)
    return found


def _enqueues(crew: Crew, new: Places, _: int) -> Iterator[tuple[str, float]]:
    url, _folder, _server = new.new(crew.database)
    rates = crew.ask("enqueue", url, BULK)
    if crew.is_ours:
        rates |= crew.ask("wait", new.new(crew.database)[0], 0)
        rates |= crew.ask("bare", new.new(crew.database)[0], BULK)
    yield from ((f"enqueue, {how}", rate) for how, rate in rates.items())


def _drains(crew: Crew, new: Places, jobs: int) -> Iterator[tuple[str, float]]:
    for workers in WORKERS:
        url, folder, server = new.new(crew.database)
        crew.ask("fill", url, jobs)
        one = drained(crew, url, (jobs, workers), folder, server)
        if one.lost or one.doubled:
            raise SystemExit(f"{crew.name}: {one.lost} lost, {one.doubled} ran twice")
        if workers == 1:
            yield from _of_one(one)
        yield f"drain, {workers} worker{'s' if workers > 1 else ''}", one.per_second


def _of_one(one: Drained) -> Iterator[tuple[str, float]]:
    yield "CPU us/job", one.cpu_us
    yield "server us/job", one.server_us
    yield "RSS MB", one.rss_mb


def _pings(crew: Crew, new: Places, _: int) -> Iterator[tuple[str, float]]:
    url, folder, _server = new.new(crew.database)
    spans = pinged(crew, url, PINGS, folder)
    yield "p50 ms", statistics.median(spans)
    yield "p99 ms", spans[int(len(spans) * 0.99) - 1]


# --- what is shown ------------------------------------------------------------------------------

_LESS_IS_BETTER = ("CPU us/job", "server us/job", "RSS MB", "p50 ms", "p99 ms")
MEASURES = (
    "drain, 1 worker",
    "drain, 2 workers",
    "enqueue, single",
    "enqueue, single, waited for",
    "enqueue, single, bare",
    "enqueue, 200 callers",
    "enqueue, bulk",
    "enqueue, bulk, bare",
    *_LESS_IS_BETTER,
)


_RIVALS = {
    **dict.fromkeys(("enqueue, single, waited for", "enqueue, 200 callers"), "enqueue, single"),
    "enqueue, single, bare": "enqueue, single",
    "enqueue, bulk, bare": "enqueue, bulk",
}
"""What a rival is measured by that has one way only, and shares no commits between callers.

Bare is the database alone, with our statements: more than that cannot be reached with our rows.
"""
_QUICKEST = {("postgresql", "p50 ms"): "Oban", ("postgresql", "p99 ms"): "Oban"}
"""Who else is the one to be held against, if it is here."""


def ratios(found: Figures) -> Iterator[Ratio]:
    """Ours beside the rival on the same database; above one is better."""
    for database, goals in GOALS.items():
        rival = next(c.name for c in CREWS if c.database == database and not c.is_ours)
        for name in MEASURES:
            ours = found.get((f"{database} Detent", name))
            them = _QUICKEST.get((database, name), rival)
            them = them if (f"{database} {them}", name) in found else rival
            theirs = found.get((f"{database} {them}", _RIVALS.get(name, name)))
            if ours and theirs and statistics.median(ours) and statistics.median(theirs):
                times = statistics.median(ours) / statistics.median(theirs)
                times = 1 / times if name in _LESS_IS_BETTER else times
                yield Ratio(f"{database}: {name}", them, times, goals.get(name, 0.0))


def show(found: Figures, title: str) -> None:
    """Two tables: what was measured, and how it compares."""
    console = Console(width=110)
    names = list(dict.fromkeys(crew for crew, _ in found))
    table = Table(title=title)
    table.add_column("per second, unless said")
    for name in names:
        table.add_column(name, justify="right")
    for name in MEASURES:
        row = [_told(found.get((crew, name))) for crew in names]
        table.add_row(name, *row)
    console.print(table)
    compared = Table(title="times as good as the rival")
    for column in ("measure", "rival", "times", "goal", ""):
        compared.add_column(column)
    for one in ratios(found):
        goal = (f">= {one.at_least:g}", one.verdict) if one.at_least else ("", "")
        compared.add_row(one.ours, one.theirs, f"{one.times:.2f}", *goal)
    console.print(compared)


def _told(values: list[float] | None) -> str:
    if not values:
        return ""
    median = statistics.median(values)
    return f"{median:,.0f}" if median >= 100 else f"{median:.1f}"


def run(
    repetitions: int, *, is_large: bool, databases: Sequence[str] = ("sqlite", "postgresql")
) -> None:
    """Measure and print."""
    jobs = JOBS_LARGE if is_large else JOBS
    before = os.getloadavg()[0]
    found = measure(databases, jobs, repetitions)
    load = f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after"
    show(found, f"{jobs:,} no-ops, medians of {repetitions}, {load} on {os.cpu_count()} cores")


def main() -> None:
    """What stands on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parser.add_argument("--large", action="store_true", help=f"{JOBS_LARGE} jobs")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--store", choices=tuple(GOALS), action="append", help="only this one")
    asked = parser.parse_args()
    run(asked.repetitions, is_large=asked.large, databases=asked.store or tuple(GOALS))


if __name__ == "__main__":
    main()
