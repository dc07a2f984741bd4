"""Rows of worker instances as a database has them: what is fixed about one is JSON text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from detent.errors import StoreCorrupt
from detent.lifecycle.worker import Instance
from detent.stores.workers import Death, Life, Who, WorkerRow

_encode = msgspec.json.Encoder().encode
_who = msgspec.json.Decoder(Who).decode
_death = msgspec.json.Decoder(Death).decode
_instance = msgspec.json.Decoder(Instance).decode


def beat_row(row: WorkerRow) -> tuple[str, int, str, str | None, bool]:
    """What a beat brings: id, end of trust, state, who it is, and whether it was here before."""
    # Who it is was written down when it registered.
    who = None if row.who is None or row.renews else _encode(row.who).decode()
    return row.id, row.alive_until, row.state, who, row.renews


def worker_of(row: Sequence[Any]) -> WorkerRow:
    """An instance from the columns id, alive_until, lost, who, state, beat_at, ended_at, death."""
    name, until, lost, who, state, beat_at, ended_at, death = row
    try:
        known = None if who is None else _who(who)
        told = None if death is None else _death(death)
    except (msgspec.MsgspecError, TypeError) as error:
        raise StoreCorrupt(
            f"the row of worker {name} cannot be read ({error!r})", id=name
        ) from None
    return WorkerRow(name, until, bool(lost), known, state, beat_at, ended_at, told)


def death_text(death: Death) -> str:
    """The word of whoever buried it."""
    return _encode(death).decode()


def life_row(life: Life) -> tuple[Any, ...]:
    """Tenant, id, slot, version, state, end and the whole record."""
    one = life.instance
    where = (one.tenant, one.id, one.slot, one.version, one.state.value)
    return (*where, one.ended_at, _encode(one).decode())


def instance_of(tenant: str, name: str, record: str) -> Instance:
    """The head of an instance's history."""
    try:
        return _instance(record)
    except (msgspec.MsgspecError, TypeError) as error:
        why = f"the record of worker {name} cannot be read ({error!r})"
        raise StoreCorrupt(why, tenant=tenant, id=name) from error
