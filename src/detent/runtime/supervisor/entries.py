"""What a journal holds: numbered entries, and a row per slot that outlives its instances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from detent.lifecycle.event import Event


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something about a slot that is no move of an instance: `breaker_open`, `removed`, ..."""

    slot: str
    name: str
    instance: str | None = None
    reason: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One line of the journal: an event of an instance, or a note. `mono` measures durations."""

    seq: int
    slot: str
    instance: str | None
    at: int
    mono: float
    event: Event | None = None
    note: Note | None = None


class SlotRow(msgspec.Struct, frozen=True):
    """What a slot keeps across restarts of its instances and of its supervisor."""

    name: str
    resume_id: str
    attempts: int = 0
    suspended: bool = False


def entry_of(row: Sequence[Any]) -> Entry:
    """An entry from its columns: seq, slot, instance, at, mono, is_note, body."""
    seq, slot, instance, at, mono, is_note, body = row
    if is_note:
        note = msgspec.json.decode(body, type=Note)
        return Entry(seq, slot, instance, at, mono, note=note)
    return Entry(seq, slot, instance, at, mono, event=msgspec.json.decode(body, type=Event))
