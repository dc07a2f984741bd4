"""Worker instances: who is trusted, who is gone, and what happened to each."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from detent.lifecycle.worker import Instance
from detent.stores.api import Death, Key, Life, WorkerRow
from detent.stores.legal import is_storable
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction
from detent.stores.worker_rows import beat_row, death_text, instance_of, life_row, worker_of
from detent.stores.workers import LATE_US, is_believed, newest

_Connection = sqlite3.Connection
_encode = msgspec.json.Encoder().encode


def beat(tx: Transaction, workers: Sequence[WorkerRow], now: int) -> list[bool]:
    """Renew all that are not gone, in one statement."""
    told = [beat_row(row) for row in newest(workers).values()]
    alive = {
        name for (name,) in tx.execute("beat", _encode(told).decode(), now, LATE_US).fetchall()
    }
    return [row.id in alive for row in workers]


def declare_lost(tx: Transaction, workers: Sequence[str], now: int) -> list[bool]:
    """Mark those whose time is over; what is unknown or marked already is lost as well."""
    return [_is_over(tx, worker, now) for worker in workers]


def _is_over(tx: Transaction, worker: str, now: int) -> bool:
    found = tx.execute("worker", worker).fetchone()
    over = found is None or bool(found[1]) or found[0] <= now
    if over and found is not None and not found[1]:
        tx.execute("worker_lose", now, None, worker)
    return over


def bury(tx: Transaction, deaths: Sequence[Death], now: int) -> list[bool]:
    """Mark those whose end somebody knows of."""
    return [_bury(tx, death, now) for death in deaths]


def _bury(tx: Transaction, death: Death, now: int) -> bool:
    row = row_of(tx, death.id)
    if row is None or row.lost:
        return True
    if not is_believed(row.who, death):
        return False
    tx.execute("worker_lose", now, death_text(death), death.id)
    return True


def row_of(tx: Transaction, worker: str) -> WorkerRow | None:
    """The whole row of an instance."""
    found = tx.execute("worker_row", worker).fetchone()
    return None if found is None else worker_of(found)


def ship(tx: Transaction, lives: Sequence[Life]) -> list[bool]:
    """Write down what happened to those that are at the version it goes on from."""
    return [_ship(tx, life) for life in lives]


def _ship(tx: Transaction, life: Life) -> bool:
    key = (life.instance.tenant, life.instance.id)
    [version] = tx.execute("instance_version", *key).fetchone()
    if version != life.version:
        return False
    tx.execute("instance_put", *life_row(life))
    tx.pending.record(life.events)
    return True


def forget(tx: Transaction, before: int, limit: int) -> int:
    """Rows that nobody needs any more, and histories that are sealed; how many."""
    rows = tx.execute("forget_workers", before, limit).fetchall()
    [sealed] = tx.execute("sealed").fetchone()
    keys = tx.execute("instances_over", before, sealed, limit).fetchall()
    tx.execute_many("forget_instance", keys)
    tx.execute_many("forget_events", keys)
    return len(rows) + len(keys)


def overdue(connection: _Connection, now: int, limit: int) -> list[WorkerRow]:
    """Worker instances that did not renew in time."""
    return [worker_of(row) for row in connection.execute(SQL["overdue"], (now, max(limit, 0)))]


def listed(connection: _Connection, limit: int, gone: bool) -> list[WorkerRow]:
    """Worker instances that are not gone, or those that are."""
    statement = SQL["workers_gone" if gone else "workers"]
    return [worker_of(row) for row in connection.execute(statement, (max(limit, 0),))]


def instances(connection: _Connection, keys: Sequence[Key]) -> list[Instance | None]:
    """The instances of these keys, in order."""
    return [_instance(connection, key) if is_storable(key) else None for key in keys]


def _instance(connection: _Connection, key: Key) -> Instance | None:
    found = connection.execute(SQL["instance"], key).fetchone()
    return None if found is None else instance_of(*key, found[0])


def find_instances(
    connection: _Connection, slot: str | None, after: Key | None, limit: int
) -> list[Instance]:
    """Those of a slot, or all, by tenant and id."""
    if not is_storable((slot, after)):
        return []
    first, last = after or ("", "")
    told = {"slot": slot, "after_tenant": first, "after_id": last}
    found = connection.execute(SQL["instances_found"], {**told, "limit": max(limit, 0)})
    return [instance_of(*row) for row in found]
