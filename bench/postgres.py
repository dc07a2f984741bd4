"""What the PostgreSQL store costs, beside its own statements in a tight loop without our code.

The server keeps its promises: fsync is on. "raw" sends the statements of the store, over the tables
of the store, with values made beforehand: no unit is judged, nothing is decided.
"""

from __future__ import annotations

import atexit
from typing import Any

import psycopg
from psycopg import sql

from bench.measure import Bench, Case, Goal
from bench.raw_postgres import Raw
from bench.stores import Ours
from tools.postgres import Server

__all__ = ["bench"]

BACKLOG = 10_000
BULK = 1_000
READY = 5_000


def bench() -> Bench:
    """Inserts one by one and in bulk, steps of several sizes."""
    server = Server(shared_buffers="512MB", max_wal_size="4GB")
    atexit.register(server.close)
    cases, goals = [], []
    asked = [
        ("insert: one by one", "push", 1, 0.9),
        (f"insert: {BULK} per commit", "push", BULK, 0.5),
        *((f"step of {number}", "step", number, 0.4) for number in (1, 10, 100)),
    ]
    for name, call, number, goal in asked:
        # Each has databases of its own: what one has claimed is not for the next to complete.
        names = _pair(server, f"{call}_{number}")
        mine = f"ours.{call}({number})" if call == "step" else f"ours.push_many({number})"
        cases.append(Case(name, mine, names, number))
        cases.append(Case(f"{name}, raw", f"raw.{call}({number})", names, number))
        goals.append(Goal(name, f"{name}, raw", goal))
    return Bench(tuple(cases), tuple(goals))


def _pair(server: Server, name: str) -> dict[str, Any]:
    """The store and its bare statements, each on tables with the same backlog."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        for one in ("ours", "raw"):
            made = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(f"{one}_{name}"))
            connection.execute(made)
    Ours(server.url(f"raw_{name}")).close()
    ours, raw = Ours(server.url(f"ours_{name}")), Raw(server.url(f"raw_{name}"))
    atexit.register(raw.close)
    atexit.register(ours.close)
    for _ in range(BACKLOG // BULK):
        ours.push_many(BULK)
        raw.push(BULK)
    ours.prepare(READY)
    return {"ours": ours, "raw": raw}
