"""Forgetting: ended jobs that a rule lets go, and workflows that have none left.

What may go is looked for beside the writer, for there may be much that is old and must stay. Then
it goes in short commits, each record with its whole history, if it may still go by then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import asdict

from detent.stores.api import Key, Retention
from detent.stores.bounds import AGAIN_US, TURNS_US
from detent.stores.sqlite.spots import spot_of
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction, stored_rows

SLICE: Final = 100
"""How many jobs go in one commit; that takes some 10 ms."""
_APART = (
    "erase_result",
    "erase_failures",
    "erase_logs",
    "erase_checkpoint",
    "erase_note",
    "forget_unique",
    "forget_promise",
    "unhand",
    "forget_body",
    "forget_job",
)


class Over(NamedTuple):
    """A job that may go, in the order in which they do."""

    ended_at: int
    tenant: str
    id: str


def over(connection: sqlite3.Connection, rules: Sequence[Retention], limit: int) -> list[Over]:
    """The jobs that may go, the oldest end first."""
    [sealed] = connection.execute(SQL["sealed"]).fetchone()
    beside = {"sealed": sealed, "limit": limit}
    walks = (connection.execute(SQL["over"], {**asdict(rule), **beside}) for rule in rules)
    return [Over(*row) for row in islice(dict.fromkeys(merge(*walks)), limit)]


def forget_jobs(tx: Transaction, jobs: Sequence[Over]) -> int:
    """How many of them went: all that nothing has happened to since they were looked for."""
    [sealed] = tx.execute("sealed").fetchone()
    found = [tx.execute("is_over", *job, sealed).fetchone() for job in jobs]
    numbers = [row[0] for row in found if row is not None]
    for row, stored in stored_rows(tx.connection, numbers):
        job, body = stored.job, stored.body
        tx.pending.count(spot_of(job, body.type, body.key), None)
        tx.execute_many("tag_drop", [(job.tenant, tag, job.id) for tag in body.tags])
        for statement in _APART:
            tx.execute(statement, row[0])
        tx.execute("forget_events", job.tenant, job.id)
    return len(numbers)


def empty(connection: sqlite3.Connection, rules: Sequence[Retention], limit: int) -> list[Key]:
    """Ended workflows that have no jobs left and are older than some rule asks for."""
    [sealed] = connection.execute(SQL["sealed"]).fetchone()
    found: set[Key] = set()
    for rule in rules:
        values = {"before": rule.before, "tenant": rule.tenant, "sealed": sealed, "limit": limit}
        found.update(connection.execute(SQL["empty_workflows"], values))
    return sorted(found)[:limit]


def forget_flow(tx: Transaction, key: Key) -> None:
    """The workflow goes with its steps, if nothing has happened to it since."""
    [sealed] = tx.execute("sealed").fetchone()
    if not tx.ask("is_empty_workflow", {"tenant": key[0], "id": key[1], "sealed": sealed}):
        return
    steps = [step for (step,) in tx.execute("step_ids", *key).fetchall()]
    tx.execute("forget_steps", *key)
    tx.execute("forget_workflow", *key)
    tx.execute_many("forget_events", [(key[0], one) for one in [key[1], *steps]])
    tx.pending.flows.pop(key, None)


def forget_promises(tx: Transaction, now: int, limit: int) -> None:
    """Idempotency keys that have run out, and turns that are too old to count."""
    tx.execute("forget_promises", now, limit)
    tx.execute("forget_turns", now - TURNS_US, limit)


def results_over(connection: sqlite3.Connection, now: int, limit: int) -> list[int]:
    """The jobs whose results need not be kept any more, the oldest first."""
    return [seq for (seq,) in connection.execute(SQL["results_over"], (now, limit))]


def forget_results(tx: Transaction, jobs: Sequence[int], now: int) -> int:
    """How many results went: all but those that a workflow may still ask for."""
    tx.execute_many("keep_result", [(seq, now + AGAIN_US) for seq in jobs])
    return sum(tx.execute("forget_result", seq, now).rowcount for seq in jobs)
