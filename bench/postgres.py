"""What the PostgreSQL store costs, beside its own statements in a tight loop without our code.

The server keeps its promises: fsync is on. "raw" sends the statements of the store, over the tables
of the store, with values made beforehand: no unit is judged, nothing is decided.
"""

from __future__ import annotations

import atexit

import psycopg
from psycopg import sql

from bench.measure import Bench, Case, Goal
from bench.raw_postgres import Raw
from bench.stores import NOW, Ours
from tools.postgres import Server

__all__ = ["bench"]

BACKLOG = 20_000
BULK = 1_000
READY = 20_000


def bench() -> Bench:
    """Inserts one by one and in bulk, steps of several sizes."""
    server = Server(shared_buffers="512MB", max_wal_size="4GB")
    atexit.register(server.close)
    for name in ("ours", "raw"):
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    Ours(server.url("raw")).close()
    ours, raw = Ours(server.url("ours")), Raw(server.url("raw"))
    atexit.register(raw.close)
    atexit.register(ours.close)
    for _ in range(BACKLOG // BULK):
        ours.wait(ours.store.step(ours.units(BULK), now=NOW))
        raw.push(BULK)
    ours.prepare(READY)
    names = {"ours": ours, "raw": raw}
    asked = [
        ("insert: one by one", "ours.push()", "raw.push(1)", 1, 0.9),
        (f"insert: {BULK} per commit", f"ours.push_many({BULK})", f"raw.push({BULK})", BULK, 0.5),
        *((f"step of {n}", f"ours.step({n})", f"raw.step({n})", n, 0.4) for n in (1, 10, 100)),
    ]
    cases, goals = [], []
    for name, mine, theirs, number, goal in asked:
        cases += [Case(name, mine, names, number), Case(f"{name}, raw", theirs, names, number)]
        goals.append(Goal(name, f"{name}, raw", goal))
    return Bench(tuple(cases), tuple(goals))
