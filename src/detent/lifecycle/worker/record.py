"""The immutable record of one worker instance, and the only two functions that write it.

`apply` takes a record one event further; `fold` builds it from all of them. Both refuse words that
no worker knows and otherwise trust what they are given: whether a history is legal is asked of
`invariants` and `evidence`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import Event, WorkerFacts
from detent.lifecycle.life import creates_nothing
from detent.lifecycle.worker.table import WORKER, Cause, Governor, Health, WorkerState

_Word = TypeVar("_Word", bound=StrEnum)


class Instance(msgspec.Struct, frozen=True):
    """One attempt at running a worker. Instants are microseconds since the epoch, UTC.

    In its events `run_at` is when its governor is due and `force_at` when its grace ends.

    `state_at` moves with the state, `updated_at` with the state or the health, `last_at` with every
    event. A process is `pid` and `process_at` together, so that a recycled pid is never signalled.
    """

    tenant: str
    id: str
    slot: str
    version: int
    state: WorkerState
    created_at: int
    state_at: int
    updated_at: int
    last_at: int
    suspendable: bool = False
    health: Health = Health.UNKNOWN
    governor: Governor | None = None
    due_at: int | None = None
    started_at: int | None = None
    resumed_at: int | None = None
    ended_at: int | None = None
    stop_requested: bool = False
    force_at: int | None = None
    killed: bool = False
    exit_code: int | None = None
    code: str | None = None
    cause: Cause | None = None
    pid: int | None = None
    process_at: int | None = None

    @property
    def status(self) -> str:
        """The state as people are shown it."""
        return self.state.status

    @property
    def is_configurable(self) -> bool:
        """Environment and outputs may change only until the start."""
        return self.state in (WorkerState.CREATED, WorkerState.PENDING)


def apply(instance: Instance | None, event: Event) -> Instance:
    """The record after `event`; `None` stands for an instance that does not exist yet."""
    facts = event.worker or WorkerFacts()
    if instance is None:
        return _born(event, facts)
    moved = event.target is not None
    changes = _entered(instance, event, facts) if moved else _amended(event, facts)
    return msgspec.structs.replace(instance, version=event.version, last_at=event.at, **changes)


def fold(events: Iterable[Event]) -> Instance | None:
    """The record that a whole history leaves behind; `None` when there is no history."""
    instance: Instance | None = None
    for event in events:
        instance = apply(instance, event)
    return instance


def _born(event: Event, facts: WorkerFacts) -> Instance:
    told = (event.kind, event.source, event.name, event.target)
    if told != (WORKER.name, None, "create", WorkerState.CREATED) or facts.slot is None:
        raise creates_nothing(event)
    return Instance(
        tenant=event.tenant,
        id=event.record,
        slot=facts.slot,
        version=event.version,
        state=WorkerState.CREATED,
        created_at=event.at,
        state_at=event.at,
        updated_at=event.at,
        last_at=event.at,
        suspendable=bool(facts.suspendable),
    )


def _entered(instance: Instance, event: Event, facts: WorkerFacts) -> dict[str, Any]:
    target = _read(WorkerState, str(event.target), event)
    changes: dict[str, Any] = {
        "state": target,
        "state_at": event.at,
        "updated_at": event.at,
        # What a probe said holds for the state it was asked in; the next probe must say it anew.
        "health": Health.UNKNOWN,
        "governor": _governor(event, facts),
        "due_at": event.run_at,
        "cause": None if event.cause is None else _read(Cause, event.cause, event),
    }
    if target is WorkerState.RUNNING:
        # A resume is no new start: uptime counts from the first entry.
        first = instance.state is WorkerState.STARTING
        changes["started_at" if first else "resumed_at"] = event.at
    elif target is WorkerState.STOPPING:
        changes |= {"stop_requested": True, "force_at": event.force_at}
    elif target.is_terminal:
        asked = instance.stop_requested or event.name == "cancel"
        changes |= {"ended_at": event.at, "stop_requested": asked}
        changes |= {"exit_code": facts.exit_code, "code": event.code}
    return changes


def _amended(event: Event, facts: WorkerFacts) -> dict[str, Any]:
    match event.name:
        case "hold_changed":
            return {"governor": _governor(event, facts), "due_at": event.run_at}
        case "spawned":
            return {"pid": facts.pid, "process_at": facts.process_at}
        case "stop_requested":
            cause = _read(Cause, event.cause or Cause.REQUESTED, event)
            return {"stop_requested": True, "force_at": event.force_at, "cause": cause}
        case "hastened":
            return {"force_at": event.force_at}
        case "kill_ordered":
            return {"killed": True}
        case "health_changed":
            health = _read(Health, facts.health or Health.UNKNOWN, event)
            return {"health": health, "updated_at": event.at}
        case unknown:
            raise BadHistory(
                f"a worker knows no event {unknown!r}", version=event.version, event=unknown
            )


def _governor(event: Event, facts: WorkerFacts) -> Governor | None:
    return None if facts.governor is None else _read(Governor, facts.governor, event)


def _read(words: type[_Word], text: str, event: Event) -> _Word:
    """The member of that name; a history with another word was written by nobody we know."""
    try:
        return words(text)
    except ValueError:
        raise BadHistory(
            f"{event.kind} {event.record} version {event.version} ({event.name}):"
            f" {text!r} is no {words.__name__}",
            record=event.record,
            version=event.version,
            word=text,
        ) from None
