"""Reading: what is committed, each call at one moment, on connections that cannot write."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from heapq import merge
from itertools import islice

from detent.errors import StoreCorrupt
from detent.lifecycle.event import Event
from detent.lifecycle.job import Lease
from detent.lifecycle.seal import Block
from detent.stores.api import Counted, Fed, Key, Logged, Stored
from detent.stores.select import Filter, Page
from detent.stores.sqlite import rows
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import stored_at, stored_rows

__all__ = [
    "blocks",
    "counts",
    "feed",
    "find",
    "get",
    "held_by",
    "histories",
    "history",
    "keys",
    "leases",
    "log_tail",
    "logs",
]

_Connection = sqlite3.Connection


def get(connection: _Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The jobs of these keys, in order."""
    numbers = [connection.execute(SQL["seq"], key).fetchone() for key in wanted]
    found = {row[0]: one for row, one in stored_rows(connection, [n[0] for n in numbers if n])}
    for key, number in zip(wanted, numbers, strict=True):
        if number and number[0] not in found:
            raise StoreCorrupt(f"the record of {key[1]} has no body", tenant=key[0], id=key[1])
    return [found[number[0]] if number else None for number in numbers]


def find(connection: _Connection, chosen: Filter, page: Page) -> list[Stored]:
    """The jobs that fit, newest first; tenants are merged, for the key begins with the tenant."""
    tenants = _tenants(connection) if chosen.tenant is None else [chosen.tenant]
    walks = (_walk(connection, tenant, chosen, page) for tenant in tenants)
    found = islice(merge(*walks, reverse=True), max(page.limit, 0))
    return stored_at(connection, [seq for *_, seq in found])


def _tenants(connection: _Connection) -> list[str]:
    """All tenants, one step of the index each."""
    tenants = []
    row = connection.execute(SQL["first_tenant"]).fetchone()
    while row is not None:
        tenants.append(row[0])
        row = connection.execute(SQL["next_tenant"], row).fetchone()
    return tenants


def _walk(
    connection: _Connection, tenant: str, chosen: Filter, page: Page
) -> list[tuple[str, str, int]]:
    values = {
        "tenant": tenant,
        "after": page.after,
        "queue": chosen.queue,
        "state": chosen.state,
        "type": chosen.type,
        "profile": chosen.profile,
        "limit": max(page.limit, 0),
    }
    return [(job, tenant, seq) for job, seq in connection.execute(SQL["found"], values)]


def held_by(connection: _Connection, holder: str, limit: int) -> list[Stored]:
    """Jobs in the hands of one holder."""
    found = connection.execute(SQL["held_by"], (holder, max(limit, 0))).fetchall()
    return stored_at(connection, [seq for (seq,) in found])


def counts(connection: _Connection, tenant: str | None) -> list[Counted]:
    """Exact numbers by queue and state."""
    return [Counted(*row) for row in connection.execute(SQL["counts"], (tenant,))]


def history(connection: _Connection, key: Key) -> list[Event]:
    """All events of a record, oldest first."""
    return [rows.event_of(row) for row in connection.execute(SQL["history"], key)]


def histories(connection: _Connection, wanted: Sequence[Key]) -> list[list[Fed]]:
    """The same for many records, each event at its position."""
    return [[rows.fed_of(row) for row in connection.execute(SQL["history"], key)] for key in wanted]


def leases(connection: _Connection, wanted: Sequence[str]) -> list[Lease | None]:
    """The rows of these wire leases, in order."""
    found = (connection.execute(SQL["lease"], (one,)).fetchone() for one in wanted)
    return [Lease(row[0]) if row else None for row in found]


def feed(connection: _Connection, after: int, limit: int) -> list[Fed]:
    """All events in their one order, after a position."""
    found = connection.execute(SQL["feed"], (after, max(limit, 0)))
    return [rows.fed_of(row) for row in found]


def blocks(connection: _Connection, after: int, limit: int) -> list[Block]:
    """The sealed blocks after a number, oldest first."""
    found = connection.execute(SQL["blocks"], (after, max(limit, 0)))
    return [Block(*row) for row in found]


def logs(connection: _Connection, key: Key, after: int, limit: int) -> list[Logged]:
    """The log of a job after a cursor."""
    found = connection.execute(SQL["logs"], (*key, after, max(limit, 0)))
    return [rows.logged_of(row) for row in found]


def log_tail(connection: _Connection, after: int, limit: int) -> list[Logged]:
    """The lines of all jobs after a position."""
    found = connection.execute(SQL["log_tail"], (after, max(limit, 0)))
    return [rows.logged_of(row) for row in found]


def keys(connection: _Connection, after: Key | None, limit: int) -> list[Key]:
    """A page of all keys, in their order."""
    if after is None:
        return connection.execute(SQL["keys_first"], (limit,)).fetchall()
    return connection.execute(SQL["keys_after"], (*after, limit)).fetchall()
