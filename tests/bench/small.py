"""`python small.py <benchmark> ...`: each of them whole, but so small that it measures nothing.

A process of its own, because benchmarks keep what they have opened until their process ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import __main__ as every
from bench import engine, postgres, stores, worker
from bench.crews import CREWS

REPETITIONS = 2
JOBS = 20


def small_stores() -> None:
    stores.PASTS = {"few": 100}
    stores.BACKLOG = stores.READY = stores.BULK = 1_000
    stores.CALLERS = 10
    every.measure("stores", REPETITIONS)


def small_postgres() -> None:
    postgres.PASTS = {"few": 100}
    postgres.BACKLOG, postgres.READY, postgres.BULK = 2_000, 1_000, 500
    every.measure("postgres", REPETITIONS)


def small_snapshot() -> None:
    postgres.BULK = 500
    postgres.SEEN_BY_OLD, postgres.BACKLOG_OLD, postgres.STEPS = 500, 6_000, 1
    every.measure("snapshot", REPETITIONS)


def small_engine(place: type[engine.Sqlite] | type[engine.Postgres]) -> None:
    engine.JOBS, engine.PINGS, engine.STEP, engine.PAUSE_S = JOBS, JOBS, 10, 0.0
    engine.CALLERS = {1: 5, 4: 8}
    one = place()
    engine.round_on(one)
    one.close()


def small_worker(database: str) -> None:
    worker.PINGS = JOBS
    [ours] = (crew for crew in CREWS if crew.is_ours and crew.database == database)
    with worker.places() as places:
        for measuring in (worker._drains, worker._pings):  # noqa: SLF001
            assert dict(measuring(ours, places, JOBS))


SMALL: dict[str, Callable[[], object]] = {
    "drivers": lambda: every.measure("drivers", REPETITIONS),
    "engine sqlite": lambda: small_engine(engine.Sqlite),
    "engine postgresql": lambda: small_engine(engine.Postgres),
    "lifecycle": lambda: every.measure("lifecycle", REPETITIONS),
    "postgres": small_postgres,
    "seal": lambda: every.measure("seal", REPETITIONS),
    "snapshot": small_snapshot,
    "stores": small_stores,
    "worker sqlite": lambda: small_worker("sqlite"),
    "worker postgresql": lambda: small_worker("postgresql"),
}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        SMALL[name]()
