"""The immutable record of one worker instance, and the only two functions that write it.

`apply` takes a record one event further; `fold` builds it from all of them. Both trust what they
are given: whether a history is legal is asked of `invariants`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import Event, WorkerFacts
from detent.lifecycle.worker.table import Cause, Governor, Health, WorkerState

__all__ = ["Instance", "apply", "fold"]


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
    return Instance(
        tenant=event.tenant,
        id=event.record,
        slot=facts.slot or "",
        version=event.version,
        state=WorkerState(str(event.target)),
        created_at=event.at,
        state_at=event.at,
        updated_at=event.at,
        last_at=event.at,
        suspendable=bool(facts.suspendable),
    )


def _entered(instance: Instance, event: Event, facts: WorkerFacts) -> dict[str, Any]:
    target = WorkerState(str(event.target))
    changes: dict[str, Any] = {
        "state": target,
        "state_at": event.at,
        "updated_at": event.at,
        # What a probe said holds for the state it was asked in; the next probe must say it anew.
        "health": Health.UNKNOWN,
        "governor": None if facts.governor is None else Governor(facts.governor),
        "due_at": event.run_at,
        "cause": None if event.cause is None else Cause(event.cause),
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
        case "spawned":
            return {"pid": facts.pid, "process_at": facts.process_at}
        case "stop_requested":
            cause = Cause(event.cause or Cause.REQUESTED)
            return {"stop_requested": True, "force_at": event.force_at, "cause": cause}
        case "hastened":
            return {"force_at": event.force_at}
        case "kill_ordered":
            return {"killed": True}
        case "health_changed":
            return {"health": Health(facts.health or Health.UNKNOWN), "updated_at": event.at}
        case unknown:
            raise BadHistory(
                f"a worker knows no event {unknown!r}", version=event.version, event=unknown
            )
