"""What a tree looks like at one moment: an immutable copy, and reading it changes nothing."""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import msgspec

from detent.lifecycle.worker import Governor, Health, Instance, WorkerState
from detent.runtime.supervisor.breaker import Circuit
from detent.runtime.supervisor.slot import Slot

TYPE: Final = "type"
RESTARTS: Final = "restarts"
WINDOW: Final = "restarts_window"
BREAKER: Final = "circuit_breaker"
IMAGE: Final = "image"
ADDRESS: Final = "ip"
PORTS: Final = "ports"
_QUIET: Final = {Circuit.OPEN: "triggered", Circuit.HALF_OPEN: "half_open"}


class Snapshot(msgspec.Struct, frozen=True):
    """One slot, or one supervisor with all that is below it.

    `next_attempt_at` and `reason` say until when, and by which governor, a start is held. Instants
    are microseconds since the epoch.
    """

    name: str
    path: str
    kind: str
    status: str
    role: str = "worker"
    instance: str | None = None
    pid: int | None = None
    exit_code: int | None = None
    code: str | None = None
    cause: str | None = None
    health: str = Health.UNKNOWN
    started_at: int | None = None
    updated_at: int | None = None
    next_attempt_at: int | None = None
    reason: str | None = None
    is_suspended: bool = False
    resume_id: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    children: tuple[Snapshot, ...] = ()

    def told(self, key: str) -> str | None:
        """A value of the metadata, by one of the keys of this module."""
        return dict(self.metadata).get(key)


@runtime_checkable
class Tells(Protocol):
    """A body that is a tree itself."""

    def snapshot(self) -> Snapshot | None:
        """What is below it, once anything is."""
        ...


@runtime_checkable
class Described(Protocol):
    """A body of which more is known, by keys of this module."""

    def described(self) -> tuple[tuple[str, str], ...]:
        """What is known now, without asking anybody."""
        ...


def of_slot(slot: Slot, *, stopping: bool) -> Snapshot:
    """The slot with the instance that counts, or with what the last one left behind."""
    live = slot.live
    record = slot.last if live is None else live.record
    inner = live.body.snapshot() if live is not None and isinstance(live.body, Tells) else None
    shown = Snapshot(
        name=slot.name,
        path=slot.path,
        kind=slot.spec.kind,
        role=slot.spec.role,
        status=_status(slot, record, stopping=stopping),
        reason=_reason(slot, record),
        is_suspended=slot.is_suspended,
        resume_id=slot.row.resume_id,
        metadata=(*_metadata(slot), *_described(slot), *(() if inner is None else inner.metadata)),
        children=() if inner is None else inner.children,
    )
    return shown if record is None else _with(shown, record)


def _with(shown: Snapshot, record: Instance) -> Snapshot:
    return msgspec.structs.replace(
        shown,
        instance=record.id,
        pid=record.pid,
        exit_code=record.exit_code,
        code=record.code,
        cause=None if record.cause is None else str(record.cause),
        health=str(record.health),
        started_at=record.started_at,
        updated_at=record.updated_at,
        next_attempt_at=record.due_at,
    )


def _status(slot: Slot, record: Instance | None, *, stopping: bool) -> str:
    if slot.live is None and slot.is_awaited:
        return WorkerState.PENDING.status
    if record is None:
        return WorkerState.CREATED.status
    if stopping and record.state is WorkerState.RUNNING:
        return WorkerState.STOPPING.status
    return record.status


def _reason(slot: Slot, record: Instance | None) -> str | None:
    if slot.live is None and slot.is_awaited:
        return "siblings"
    if record is None or record.governor in (None, Governor.STOP):
        return None
    return str(record.governor)


def _described(slot: Slot) -> tuple[tuple[str, str], ...]:
    body: object = None if slot.live is None else slot.live.body
    return body.described() if isinstance(body, Described) else ()


def _metadata(slot: Slot) -> tuple[tuple[str, str], ...]:
    pacing = slot.pacing
    told = [(TYPE, slot.spec.kind), (RESTARTS, str(pacing.total))]
    told.append((WINDOW, str(pacing.in_window)))
    if word := _QUIET.get(pacing.gauge.circuit):
        told.append((BREAKER, word))
    return tuple(told)
