"""What the PostgreSQL store costs, beside its own statements in a tight loop without our code.

The server keeps its promises: fsync is on. "raw" sends the statements of the store, over the tables
of the store, with values made beforehand: no unit is judged, nothing is decided, nothing is
remembered from one claim to the next.
"""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from bench.measure import Bench, Case, Goal
from bench.raw_postgres import Raw
from bench.stores import Ours
from tools.postgres import Server

__all__ = ["bench", "bench_large", "bench_old"]

BACKLOG = 20_000
BULK = 1_000
READY = 5_000
STEP = 100
LEAP = 500
"""A step that completes as many as it claims may name a thousand."""
PASTS = {"1k": 1_000, "100k": 100_000}
PASTS_LARGE = {**PASTS, "2M": 2_000_000}
STEPS = 10
BACKLOG_OLD = 60_000
SEEN_BY_OLD = 150_000
"""So many jobs are claimed and completed after an old snapshot was taken, before the clock runs."""
_GROW = Path(__file__).with_name("grow_postgres.sql").read_bytes()


class Pair(NamedTuple):
    """The store and its bare statements, each on tables with the same past and backlog."""

    ours: Ours
    raw: Raw


class Places:
    """A server, and databases on it that are made when they are asked for."""

    def __init__(self) -> None:
        self._server = Server(shared_buffers="512MB", max_wal_size="4GB")
        atexit.register(self._server.close)
        self._admin = psycopg.connect(self._server.url("postgres"), autocommit=True)
        atexit.register(self._admin.close)

    def pair(self, name: str, *, past: int = 0, backlog: int | None = None) -> Pair:
        """Two databases of one's own: what one case has claimed is not for the next to complete."""
        self._make(f"past_{name}")
        self._grow(self._server.url(f"past_{name}"), past, BACKLOG if backlog is None else backlog)
        for one in ("ours", "raw"):
            self._make(f"{one}_{name}", f"past_{name}")
        ours, raw = Ours(self._server.url(f"ours_{name}")), Raw(self._server.url(f"raw_{name}"))
        atexit.register(raw.close)
        atexit.register(ours.close)
        return Pair(ours, raw)

    def look(self, name: str) -> None:
        """A snapshot that stays open until the end, in either database."""
        for one in ("ours", "raw"):
            connection = psycopg.connect(self._server.url(f"{one}_{name}"))
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT count(*) FROM detent.lanes")
            atexit.register(connection.close)

    def _make(self, name: str, template: str = "template0") -> None:
        made = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        self._admin.execute(made.format(sql.Identifier(name), sql.Identifier(template)))

    def _grow(self, url: str, past: int, backlog: int) -> None:
        Ours(url).close()
        raw = Raw(url)
        if past:
            with psycopg.connect(url, autocommit=True) as connection:
                for statement in _GROW.split(b";\n"):
                    connection.execute(statement, {"last": past, "lane": raw.lane})
        for _ in range(backlog // BULK):
            raw.push(BULK)
        raw.close()


def bench() -> Bench:
    """Inserts one by one and in bulk, steps of several sizes, and beside two pasts."""
    return _bench(PASTS)


def bench_large() -> Bench:
    """The same with a past that takes minutes to make."""
    return _bench(PASTS_LARGE)


def _bench(pasts: dict[str, int]) -> Bench:
    places = Places()
    parts = [_plain(places), _grown(places, pasts)]
    cases = tuple(case for part in parts for case in part.cases)
    return Bench(cases, tuple(goal for part in parts for goal in part.goals))


def _plain(places: Places) -> Bench:
    """Empty tables but for the backlog."""
    cases, goals = [], []
    asked = [
        ("insert: one by one", "push", 1, 0.9),
        (f"insert: {BULK} per commit", "push", BULK, 0.5),
        *((f"step of {number}", "step", number, 0.4) for number in (1, 10, STEP)),
    ]
    for name, call, number, goal in asked:
        pair = places.pair(f"{call}_{number}", backlog=BACKLOG if call == "step" else 0)
        if call == "push":
            pair.ours.prepare(READY)
        cases += _both(name, call, number, pair)
        goals.append(Goal(name, f"{name}, raw", goal))
    return Bench(tuple(cases), tuple(goals))


def _both(name: str, call: str, number: int, pair: Pair) -> list[Case]:
    names: dict[str, Any] = pair._asdict()
    mine = f"ours.{call}({number})" if call == "step" else f"ours.push_many({number})"
    return [
        Case(name, mine, names, number),
        Case(f"{name}, raw", f"raw.{call}({number})", names, number),
    ]


def _grown(places: Places, pasts: dict[str, int]) -> Bench:
    """Beside finished jobs: how many there are must not matter."""
    cases, goals = [], []
    for title, past in pasts.items():
        name = f"step of {STEP}, {title} finished"
        cases += _both(name, "step", STEP, places.pair(f"grown_{title.lower()}", past=past))
        goals.append(Goal(name, f"{name}, raw", 0.4))
        goals.append(Goal(name, f"step of {STEP}", 0.95))
    return Bench(tuple(cases), tuple(goals))


def bench_old() -> Bench:
    """Beside a snapshot that is older than everything that was claimed since, and without one.

    What a store remembers it remembers for a second, so few cases take turns and each turn is a
    thousand jobs long: a worker that is busy is not interrupted either.
    """
    places = Places()
    fresh, old = f"drain by {STEP}", f"drain by {STEP}, old snapshot over {SEEN_BY_OLD // 1_000}k"
    pairs = {
        fresh: places.pair("fresh", backlog=BACKLOG_OLD),
        old: places.pair("old", backlog=SEEN_BY_OLD + BACKLOG_OLD),
    }
    places.look("old")
    for _ in range(SEEN_BY_OLD // LEAP):
        pairs[old].ours.step(LEAP)
        pairs[old].raw.step(LEAP)
    cases = [case for name, pair in pairs.items() for case in _drains(name, pair)]
    return Bench(tuple(cases), (Goal(old, fresh, 0.9), Goal(old, f"{old}, raw", 1.0)))


def _drains(name: str, pair: Pair) -> list[Case]:
    names: dict[str, Any] = {**pair._asdict(), "STEP": STEP, "STEPS": STEPS}
    return [
        Case(name, "for _ in range(STEPS): ours.step(STEP)", names, STEP * STEPS),
        Case(f"{name}, raw", "for _ in range(STEPS): raw.step(STEP)", names, STEP * STEPS),
    ]
