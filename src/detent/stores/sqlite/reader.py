"""Reading: what is committed, each call at one moment, on connections that cannot write."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

from msgspec.structs import asdict

from detent.errors import StoreCorrupt
from detent.lifecycle.job import Gate, Lease
from detent.lifecycle.seal import Block
from detent.lifecycle.workflow import Flow, Workflow
from detent.stores.api import (
    Counted,
    Fed,
    GateKind,
    GateRow,
    Key,
    Limit,
    Limited,
    LimitKind,
    LimitRow,
    Logged,
    Record,
    Stored,
    Used,
)
from detent.stores.legal import is_storable
from detent.stores.pieces import LOOK, Piece, is_narrow, shortest
from detent.stores.select import Filter, Page
from detent.stores.sqlite import rows
from detent.stores.sqlite.known import read_flow
from detent.stores.sqlite.statements import SQL, numbered
from detent.stores.sqlite.transaction import head_rows, stored_at, stored_rows

_Connection = sqlite3.Connection


def get(connection: _Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The jobs of these keys, in order."""
    return _got(connection, wanted, stored_rows)


def heads(connection: _Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The same without what may be large."""
    return _got(connection, wanted, head_rows)


def _got(
    connection: _Connection,
    wanted: Sequence[Key],
    read: Callable[[_Connection, Sequence[int]], list[tuple[Sequence[Any], Stored]]],
) -> list[Stored | None]:
    numbers = [_seq(connection, key) for key in wanted]
    found = {row[0]: one for row, one in read(connection, [n[0] for n in numbers if n])}
    for key, number in zip(wanted, numbers, strict=True):
        if number and number[0] not in found:
            raise StoreCorrupt(f"the record of {key[1]} has no body", tenant=key[0], id=key[1])
    return [found[number[0]] if number else None for number in numbers]


def _seq(connection: _Connection, key: Key) -> tuple[int] | None:
    if not is_storable(key):
        return None
    found: tuple[int] | None = connection.execute(SQL["seq"], key).fetchone()
    return found


def unquiet(connection: _Connection, runs: Sequence[tuple[Key, str]]) -> list[Key]:
    """Those jobs that are not held under that lease any more, or were asked to stop."""
    ask = connection.execute
    return [key for key, lease in runs if ask(SQL["quiet"], (*key, lease)).fetchone() is None]


def find(connection: _Connection, chosen: Filter, page: Page) -> Piece:
    """The jobs that fit, newest first; tenants are merged, for the key begins with the tenant.

    Where all jobs of a tenant may have to be walked over, it is as far as one piece of that goes.
    """
    if page.limit <= 0 or not is_storable((chosen, page.after)):
        return Piece([])
    way, beyond = shortest(chosen), None
    if way == "found" and is_narrow(chosen):
        beyond = _beyond(connection, chosen.tenant or "", page)
    tenants = _tenants(connection) if chosen.tenant is None else [chosen.tenant]
    walks = (_walk(connection, way, (tenant, beyond or ""), chosen, page) for tenant in tenants)
    found = islice(merge(*walks, reverse=True), page.limit)
    after = None if beyond is None else (tenants[0], beyond)
    return Piece(stored_at(connection, [seq for *_, seq in found]), after)


def _beyond(connection: _Connection, tenant: str, page: Page) -> str | None:
    asked = (tenant, _below(tenant, page), LOOK - 1)
    row: tuple[str] | None = connection.execute(SQL["beyond"], asked).fetchone()
    return None if row is None else row[0]


def _tenants(connection: _Connection, of: str = "tenant") -> list[str]:
    """All tenants that have jobs, or workflows, one step of the index each."""
    tenants = []
    row = connection.execute(SQL[f"first_{of}"]).fetchone()
    while row is not None:
        tenants.append(row[0])
        row = connection.execute(SQL[f"next_{of}"], row).fetchone()
    return tenants


def _walk(
    connection: _Connection, way: str, begin: Key, chosen: Filter, page: Page
) -> Iterator[tuple[str, str, int]]:
    """One by one: of many tenants each would find a whole page, and one page is wanted."""
    tenant, beyond = begin
    below = _below(tenant, page)
    values = {**asdict(chosen), "tenant": tenant, "below": below, "limit": page.limit}
    found = connection.execute(SQL[way], {**values, "beyond": beyond})
    return ((job, tenant, seq) for job, seq in found)


def _below(tenant: str, page: Page) -> str | bytes:
    """What the ids of this tenant must be less than: one plain bound, so that an index serves it.

    SQLite sorts every text before the empty blob. No id holds NUL, so the last id itself is within
    the bound for those tenants that come after the one it was seen at.
    """
    if page.after is None:
        return b""
    seen_at, last = page.after
    return f"{last}\0" if tenant < seen_at else last


def held_by(connection: _Connection, holder: str, limit: int, but: Sequence[str]) -> list[Stored]:
    """Jobs in the hands of one holder, but for those under these leases."""
    if not is_storable(holder):
        return []
    told = (holder, json.dumps(list(but)), max(limit, 0))
    found = connection.execute(SQL["held_by"], told).fetchall()
    return stored_at(connection, [seq for (seq,) in found])


def weight(connection: _Connection, tenant: str, queue: str) -> int:
    """How many bytes the payloads of its live jobs have."""
    if not is_storable((tenant, queue)):
        return 0
    found: tuple[int] = connection.execute(SQL["weight"], (tenant, queue)).fetchone()
    return found[0]


def counts(connection: _Connection, tenant: str | None) -> list[Counted]:
    """Exact numbers by queue and state."""
    if not is_storable(tenant):
        return []
    return [Counted(*row) for row in connection.execute(SQL["counts"], numbered((tenant,)))]


def histories(connection: _Connection, wanted: Sequence[Key]) -> list[list[Fed]]:
    """All events of these records, oldest first, each at its position."""
    return [_history(connection, key) if is_storable(key) else [] for key in wanted]


def _history(connection: _Connection, key: Key) -> list[Fed]:
    return [rows.fed_of(row) for row in connection.execute(SQL["history"], key)]


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
    if not is_storable(key):
        return []
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


def leaves(connection: _Connection, after: int, limit: int) -> list[tuple[int, bytes]]:
    """What was sealed at each position."""
    return connection.execute(SQL["leaves"], (after, max(limit, 0))).fetchall()


def flows(connection: _Connection, wanted: Sequence[Key]) -> list[Flow | None]:
    """The workflows of these keys, in order."""
    return [read_flow(connection, key) if is_storable(key) else None for key in wanted]


def find_workflows(
    connection: _Connection, tenant: str | None, state: str | None, page: Page
) -> list[Workflow]:
    """The workflows that fit, newest first."""
    if not is_storable((tenant, state, page.after)):
        return []
    tenants = _tenants(connection, "flow_tenant") if tenant is None else [tenant]
    walks = (_flow_walk(connection, one, state, page) for one in tenants)
    found = islice(merge(*walks, reverse=True), max(page.limit, 0))
    return [rows.workflow_of(of, id_, record) for id_, of, record in found]


def _flow_walk(
    connection: _Connection, tenant: str, state: str | None, page: Page
) -> list[tuple[str, str, str]]:
    below, limit = _below(tenant, page), max(page.limit, 0)
    values = {"tenant": tenant, "state": state, "below": below, "limit": limit}
    found = connection.execute(SQL["found_workflows"], values)
    return [(id_, tenant, record) for id_, record in found]


def records(
    connection: _Connection, kind: str, tenant: str, after: str | None, limit: int
) -> list[Record]:
    """The small records of a kind, by id."""
    if not is_storable((kind, tenant, after)):
        return []
    found = connection.execute(SQL["records"], (kind, tenant, after or "", after, max(limit, 0)))
    return [Record(*row) for row in found]


def record(connection: _Connection, names: Sequence[tuple[str, str, str]]) -> list[Record | None]:
    """The small records of these names, in order."""
    return [_record(connection, name) if is_storable(name) else None for name in names]


def _record(connection: _Connection, name: tuple[str, str, str]) -> Record | None:
    row = connection.execute(SQL["record"], name).fetchone()
    return None if row is None else Record(*row[:-1])


def limits(connection: _Connection, tenant: str) -> list[Limited]:
    """The limits of a tenant and how much of each is used."""
    if not is_storable(tenant):
        return []
    found = connection.execute(SQL["limits"], (tenant,)).fetchall()
    return [_limited(connection, tenant, row) for row in found]


def _limited(connection: _Connection, tenant: str, row: Sequence[Any]) -> Limited:
    kind, name, *numbers = row
    statement = SQL["held_in_queue" if kind == LimitKind.QUEUE else "held_of_key"]
    [active] = connection.execute(statement, (tenant, name)).fetchone()
    limit = LimitRow(LimitKind(kind), name, Limit(*numbers[:4]), tenant)
    return Limited(limit, active, Used(*numbers[4:]))


def gates(connection: _Connection, tenant: str) -> list[GateRow]:
    """The gates of a tenant."""
    if not is_storable(tenant):
        return []
    return [
        GateRow(GateKind(kind), name, Gate(bool(closed), opened_at, bool(deleted)), tenant)
        for kind, name, closed, opened_at, deleted in connection.execute(SQL["gates"], (tenant,))
    ]
