"""Reading: what is committed, each call one statement, and so one moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from detent.lifecycle.event import Event
from detent.lifecycle.job import Gate, Lease
from detent.lifecycle.job.values import NAME_MAX
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
    key_of,
    name_of,
)
from detent.stores.legal import is_storable
from detent.stores.pieces import LOOK, Piece, is_narrow, shortest
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.flowing import read_flows
from detent.stores.postgres.rows import event_of, fed_of, logged_of, stored_of
from detent.stores.select import Filter, Page

_workflow = msgspec.json.Decoder(Workflow).decode
_HIGHEST = "\U0010ffff" * (NAME_MAX + 1)
"""No id is as high as this: the index has a bound where the page has none."""


async def get(connection: Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The jobs of these keys, in order."""
    return await _got(connection, wanted, "stored")


async def heads(connection: Connection, wanted: Sequence[Key]) -> list[Stored | None]:
    """The same without what may be large."""
    return await _got(connection, wanted, "stored_heads")


async def _got(
    connection: Connection, wanted: Sequence[Key], statement: str
) -> list[Stored | None]:
    asked = [key for key in dict.fromkeys(wanted) if is_storable(key)]
    told = columns(("tenants", "ids"), asked)
    found = [stored_of(row) for row in await connection.fetch(statement, **told)]
    by_key = {key_of(one.job): one for one in found}
    return [by_key.get(key) for key in wanted]


async def unquiet(connection: Connection, runs: Sequence[tuple[Key, str]]) -> list[Key]:
    """Those jobs that are not held under that lease any more, or were asked to stop."""
    told = columns(("tenants", "ids", "leases"), [(*key, lease) for key, lease in runs])
    return [(tenant, name) for tenant, name in await connection.fetch("unquiet", **told)]


async def find(connection: Connection, chosen: Filter, page: Page) -> Piece:
    """The jobs that fit, newest first, as far as one piece of the walk goes."""
    if page.limit <= 0 or not is_storable((chosen, page.after)):
        return Piece([])
    way, beyond = shortest(chosen), None
    if way == "found" and is_narrow(chosen):
        told = {"tenant": chosen.tenant, "upto": _paged(page)["upto"], "look": LOOK - 1}
        row = await connection.fetch_row("beyond", **told)
        beyond = None if row is None else row[0]
    rows = await connection.fetch(way, **asdict(chosen), **_paged(page, beyond or ""))
    after = None if beyond is None or chosen.tenant is None else (chosen.tenant, beyond)
    return Piece([stored_of(row) for row in rows], after)


def _paged(page: Page, beyond: str = "") -> dict[str, Any]:
    tenant, id_ = page.after or ("", _HIGHEST)
    return {"after_tenant": tenant, "upto": id_, "beyond": beyond, "most": max(page.limit, 0)}


async def find_workflows(
    connection: Connection, tenant: str | None, state: str | None, page: Page
) -> list[Workflow]:
    """The workflows that fit, newest first."""
    if not is_storable((tenant, state, page.after)):
        return []
    told = {"tenant": tenant, "state": state, **_paged(page)}
    return [_workflow(row[0]) for row in await connection.fetch("found_workflows", **told)]


async def flows(connection: Connection, wanted: Sequence[Key]) -> list[Flow | None]:
    """The workflows of these keys, in order."""
    found = await read_flows(connection, {key for key in wanted if is_storable(key)})
    return [found.get(key) for key in wanted]


async def records(
    connection: Connection, kind: str, tenant: str, after: str | None, limit: int
) -> list[Record]:
    """The small records of a kind, by id."""
    if not is_storable((kind, tenant, after)):
        return []
    told = {"kind": kind, "tenant": tenant, "after": after, "most": limit}
    return [Record(*row) for row in await connection.fetch("records", **told)]


async def record(
    connection: Connection, names: Sequence[tuple[str, str, str]]
) -> list[Record | None]:
    """The small records of these names, in order."""
    asked = [name for name in dict.fromkeys(names) if is_storable(name)]
    told = columns(("kinds", "tenants", "ids"), asked)
    found = [Record(*row) for row in await connection.fetch("record_named", **told)]
    by_name = {name_of(one): one for one in found}
    return [by_name.get(name) for name in names]


async def limits(connection: Connection, tenant: str) -> list[Limited]:
    """The limits of a tenant and how much of each is used."""
    if not is_storable(tenant):
        return []
    return [_limited(tenant, *row) for row in await connection.fetch("limits", tenant=tenant)]


def _limited(tenant: str, kind: str, name: str, *numbers: Any) -> Limited:
    row = LimitRow(LimitKind(kind), name, Limit(*numbers[:4]), tenant)
    return Limited(row, numbers[-1], Used(*numbers[4:-1]))


async def leaves(connection: Connection, after: int, limit: int) -> list[tuple[int, bytes]]:
    """What was sealed at each position."""
    rows = await connection.fetch("leaves", after=after, most=limit)
    return [(pos, leaf) for pos, leaf in rows]


async def held_by(
    connection: Connection, holder: str, limit: int, but: Sequence[str]
) -> list[Stored]:
    """Jobs in the hands of one holder, but for those under these leases."""
    if not is_storable(holder):
        return []
    rows = await connection.fetch("held_by", holder=holder, most=max(limit, 0), but=list(but))
    return [stored_of(row) for row in rows]


async def weight(connection: Connection, tenant: str, queue: str) -> int:
    """How many bytes the payloads of its live jobs have."""
    if not is_storable((tenant, queue)):
        return 0
    row = await connection.fetch_row("weight", tenant=tenant, queue=queue)
    return 0 if row is None else int(row[0])


async def counts(connection: Connection, tenant: str | None) -> list[Counted]:
    """Exact numbers by queue and state."""
    if not is_storable(tenant):
        return []
    return [Counted(*row) for row in await connection.fetch("counts", tenant=tenant)]


async def gates(connection: Connection, tenant: str) -> list[GateRow]:
    """The gates of a tenant."""
    if not is_storable(tenant):
        return []
    rows = await connection.fetch("gates", tenant=tenant)
    return [GateRow(GateKind(kind), name, Gate(*gate), tenant) for kind, name, *gate in rows]


async def history(connection: Connection, key: Key) -> list[Event]:
    """All events of a record, oldest first."""
    if not is_storable(key):
        return []
    rows = await connection.fetch("history", tenant=key[0], record=key[1])
    return [event_of(row) for row in rows]


async def histories(connection: Connection, wanted: Sequence[Key]) -> list[list[Fed]]:
    """The histories of these keys, in order, each event at its position."""
    found: list[list[Fed]] = [[] for _ in wanted]
    asked = [number for number, key in enumerate(wanted) if is_storable(key)]
    told = columns(("tenants", "records"), [wanted[number] for number in asked])
    for number, *row in await connection.fetch("histories", **told):
        found[asked[number - 1]].append(fed_of(row))
    return found


async def leases(connection: Connection, wanted: Sequence[str]) -> list[Lease | None]:
    """The rows of these wire leases, in order."""
    asked = [one for one in wanted if is_storable(one)]
    rows = await connection.fetch("leases", leases=asked)
    found = {lease: Lease(until) for lease, until in rows}
    return [found.get(one) for one in wanted]


async def logs(connection: Connection, key: Key, after: int, limit: int) -> list[Logged]:
    """The log of a job after a cursor."""
    if not is_storable(key):
        return []
    told = {"tenant": key[0], "id": key[1], "after": after, "most": limit}
    return [logged_of(row) for row in await connection.fetch("logs", **told)]


async def log_tail(connection: Connection, after: int, limit: int) -> list[Logged]:
    """The lines of all jobs after a position."""
    rows = await connection.fetch("log_tail", after=after, most=limit)
    return [logged_of(row) for row in rows]


async def keys(connection: Connection, after: Key, limit: int) -> list[Key]:
    """A page of all keys, in their order."""
    rows = await connection.fetch("keys", tenant=after[0], id=after[1], most=limit)
    return [(tenant, job) for tenant, job in rows]
