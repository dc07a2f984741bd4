"""The rules that every step of a history keeps, whatever kind of record it is about."""

from __future__ import annotations

from typing import Protocol

from detent.errors import BadHistory
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Machine


class Record(Protocol):
    """What records of every kind have in common."""

    @property
    def version(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def state_at(self) -> int: ...
    @property
    def last_at(self) -> int: ...
    @property
    def ended_at(self) -> int | None: ...


def broken_life(machine: Machine, before: Record | None, event: Event, after: Record) -> str | None:
    """The first common rule that this step breaks, as a sentence, or `None`."""
    if (after.ended_at is not None) != (after.state in machine.terminal):
        return "ended_at is set exactly in a terminal state"
    if before is None:
        return None if after.version == 1 and event.source is None else "a life starts at version 1"
    if after.version != before.version + 1:
        return "versions count the events, without gaps"
    if event.at < before.last_at:
        return "event times never decrease"
    if before.ended_at is not None and event.target is not None:
        return "nothing leaves a terminal state"
    if event.source != before.state or after.state != (event.target or before.state):
        return "the event starts where the record stands and ends where it then stands"
    if event.target is not None and after.state_at != event.at:
        return "state_at is when the state was entered"
    return None


def must_hold(fault: str | None, event: Event) -> None:
    """Raise when a decision broke a rule: the fault is ours, and it must not get out."""
    if fault is not None:
        raise faulty(f"{event.kind} {event.record}", event.version, fault, f" ({event.name})")


def faulty(what: str, version: int, fault: str, where: str = "") -> BadHistory:
    """The error for a record, named by its kind and id, that breaks a rule at this version."""
    record = what.partition(" ")[2]
    message = f"{what} version {version}{where}: {fault}"
    return BadHistory(message, record=record, version=version, fault=fault)


def creates_nothing(event: Event) -> BadHistory:
    """The error for a history whose first event is not a birth."""
    return BadHistory(
        f"{event.kind} {event.record}: its first event is {event.name}, which creates nothing",
        record=event.record,
        version=event.version,
    )
