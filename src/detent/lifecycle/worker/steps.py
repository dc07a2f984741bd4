"""From a planned move to a recorded one: legality, guards, events, all or nothing.

A plan is a list of steps. Either each of them is legal in the state that the one before it leaves
behind, and the answer holds all their events for one atomic append; or the answer is a refusal and
nothing has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from detent.lifecycle.event import By, Event, WorkerFacts
from detent.lifecycle.life import must_hold
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.worker.causes import may_carry
from detent.lifecycle.worker.guards import HOLDS, needed
from detent.lifecycle.worker.invariants import broken
from detent.lifecycle.worker.record import Instance, apply
from detent.lifecycle.worker.table import DEFAULT_CAUSES, EDGE_EVENTS, WORKER, Cause, WorkerState


class Order(msgspec.Struct, frozen=True):
    """Who asks, when, and what their supervisor says about the slot.

    `is_slot_ready` is the supervisor's word that the slot is free, wanted and valid and that it is
    not stopping itself; only a start needs it.
    """

    now: int
    by: By
    command_id: str
    is_slot_ready: bool = True


class Detail(msgspec.Struct, frozen=True):
    """What one event says beyond its name."""

    cause: Cause | None = None
    reason: str | None = None
    code: str | None = None
    run_at: int | None = None
    force_at: int | None = None
    facts: WorkerFacts | None = None


class Step(msgspec.Struct, frozen=True):
    """One planned event; a `target` of `None` is an amendment.

    A bridging step is taken only because the table has no direct edge. It is the supervisor's
    bookkeeping, whoever gave the order.
    """

    event: str
    target: WorkerState | None = None
    detail: Detail = Detail()
    is_bridge: bool = False


class Accepted(msgspec.Struct, frozen=True):
    """The record after the move, and the events to append with it in one commit."""

    instance: Instance
    events: tuple[Event, ...]


class Unchanged(msgspec.Struct, frozen=True):
    """The wish is already fulfilled: no event, no version."""

    instance: Instance


Answer: TypeAlias = Accepted | Unchanged | Refusal


def edge(
    source: WorkerState, target: WorkerState, detail: Detail | None = None, *, bridge: bool = False
) -> Step:
    """The step between two states, with the cause that the edge usually has if none is named."""
    detail = detail or Detail()
    if detail.cause is None:
        detail = msgspec.structs.replace(detail, cause=DEFAULT_CAUSES[source, target])
    return Step(EDGE_EVENTS[source, target], target, detail, bridge)


def take(instance: Instance, steps: Sequence[Step], order: Order) -> Accepted | Refusal:
    """All steps in their order, or the refusal of the first that is not allowed."""
    events: list[Event] = []
    start = instance.state
    for step in steps:
        by = By(Actor.SYSTEM, order.by.id) if step.is_bridge else order.by
        if refusal := _refusal(instance, step, order, by.kind):
            return _from(start, refusal, by.kind)
        event = _event(instance, step, order, by)
        after = apply(instance, event)
        must_hold(broken(instance, event, after), event)
        events.append(event)
        instance = after
    return Accepted(instance, tuple(events))


def _refusal(instance: Instance, step: Step, order: Order, actor: Actor) -> Refusal | None:
    """Why this step may not be taken: by the table, by a guard, or because of what it tells."""
    fired = WORKER.fire(instance.state, step.event, step.target, actor)
    if isinstance(fired, Refusal):
        return fired
    for guard in fired.guards:
        if not _holds(guard, instance, step, order):
            return _saying(f"not_{guard}", needed(guard), instance, step, actor)
    if not may_carry(instance.state, step.event, step.detail.cause):
        detail = f"it does not happen for {step.detail.cause or 'no cause'}"
        return _saying("bad_cause", detail, instance, step, actor)
    return None


def _holds(guard: str, instance: Instance, step: Step, order: Order) -> bool:
    if guard == "slot_ready":
        return order.is_slot_ready
    return HOLDS[guard](instance, step.detail.facts or WorkerFacts())


def _saying(code: str, detail: str, instance: Instance, step: Step, actor: Actor) -> Refusal:
    return WORKER.refusal(
        code, instance.state, step.event, actor, target=step.target, detail=detail
    )


def _from(start: WorkerState, refusal: Refusal, actor: Actor) -> Refusal:
    """The refusal as seen from where the record stands: what lies between never happened."""
    return WORKER.refusal(
        refusal.code, start, refusal.event, actor, target=refusal.target, detail=refusal.detail
    )


def _event(instance: Instance, step: Step, order: Order, by: By) -> Event:
    detail = step.detail
    return Event(
        tenant=instance.tenant,
        record=instance.id,
        version=instance.version + 1,
        # A clock that runs backwards must not reorder a history.
        at=max(order.now, instance.last_at),
        name=step.event,
        source=instance.state,
        target=step.target,
        actor=by.kind,
        actor_id=by.id,
        command_id=order.command_id,
        kind=WORKER.name,
        cause=detail.cause,
        code=detail.code,
        reason=detail.reason,
        run_at=detail.run_at,
        force_at=detail.force_at,
        worker=detail.facts,
    )
