"""Who closed a gate or set a limit, when and why. Pure.

The store's own row says only how things are, because every claim reads it. What people want to know
about it is one small record beside it, with the newest changes.
"""

from __future__ import annotations

import msgspec

from detent.engine.schedule import CHANGES_MAX, Changed
from detent.stores.api import GateKind, Key, LimitKind, Record

KIND = "switch"


class Switch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest changes of one gate or one limit, oldest first."""

    changes: tuple[Changed, ...] = ()

    @property
    def latest(self) -> Changed | None:
        """The last word."""
        return self.changes[-1] if self.changes else None


def name_of_gate(kind: GateKind, name: str) -> str:
    """What the record about a gate is called."""
    return f"pause/{kind}/{name}"


def name_of_limit(kind: LimitKind, name: str) -> str:
    """What the record about a limit is called."""
    return f"limit/{kind}/{name}"


def read(record: Record | None) -> Switch:
    """What a small record says; nothing if there is none."""
    if record is None or record.data is None:
        return Switch()
    return msgspec.json.decode(record.data, type=Switch)


def changed(record: Record | None, key: Key, change: Changed) -> Record:
    """The next version of the record, with one more change."""
    changes = (*read(record).changes, change)[-CHANGES_MAX:]
    version = 1 if record is None else record.version + 1
    data = msgspec.json.encode(Switch(changes)).decode()
    return Record(KIND, key[1], version, data, None, key[0])
