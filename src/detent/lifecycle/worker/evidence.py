"""Checks stored events of workers: whether each carries what a true decision writes.

Deciding cannot forget any of this; whoever edits a history can. Only what the record and the event
tell is asked again: whether the slot was ready then, nobody can say any more.
"""

from __future__ import annotations

from detent.lifecycle.event import Event, WorkerFacts
from detent.lifecycle.machine import Transition
from detent.lifecycle.worker.causes import may_carry
from detent.lifecycle.worker.guards import HOLDS, needed
from detent.lifecycle.worker.record import Instance
from detent.lifecycle.worker.table import WORKER

_CARRIED: dict[str, tuple[str, ...]] = {
    "create": ("slot",),
    "hold": ("governor",),
    "hold_changed": ("governor",),
    "spawned": ("pid", "process_at"),
    "health_changed": ("health",),
}


def doubted(instance: Instance | None, event: Event) -> str | None:
    """Why this event, though declared, cannot have been decided on this record; or `None`."""
    return (
        _lacking(event)
        or _miscaused(event)
        or _unhastened(instance, event)
        or _unguarded(instance, event)
    )


def _lacking(event: Event) -> str | None:
    facts = event.worker or WorkerFacts()
    missing = [one for one in _CARRIED.get(event.name, ()) if getattr(facts, one) is None]
    if event.name == "hastened" and event.force_at is None:
        missing.append("force_at")
    return f"it does not carry {', '.join(missing)}" if missing else None


def _miscaused(event: Event) -> str | None:
    if may_carry(event.source, event.name, event.cause):
        return None
    cause = event.cause or "no cause"
    return f"{event.name} from {event.source or '(new)'} does not happen for {cause}"


def _unhastened(instance: Instance | None, event: Event) -> str | None:
    """What was asked for with a grace may be cut short, and is never given more of it."""
    if instance is None or event.name != "hastened" or event.force_at is None:
        return None
    if not instance.stop_requested:
        return "no stop was asked for whose grace could be cut"
    if instance.force_at is not None and event.force_at >= instance.force_at:
        return f"it moves the end of the grace from {instance.force_at} to {event.force_at}"
    return None


def _unguarded(instance: Instance | None, event: Event) -> str | None:
    found = WORKER.fire(event.source, event.name, event.target, event.actor)
    if instance is None or not isinstance(found, Transition):
        return None
    facts = event.worker or WorkerFacts()
    for guard in found.guards:
        if guard in HOLDS and not HOLDS[guard](instance, facts):
            return needed(guard)
    return None
