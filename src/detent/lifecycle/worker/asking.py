"""Who may ask for what, wherever the instance stands.

This is asked before everything else. An answer of "already so" must not tell a stranger more than a
refusal would, and a bridging step, which is booked on the supervisor, must not carry out for
somebody what the table keeps from them.
"""

from __future__ import annotations

from detent.lifecycle.machine import Actor, Amendment, Edge, Refusal
from detent.lifecycle.worker.record import Instance
from detent.lifecycle.worker.table import WORKER, WorkerState

_MOVES: tuple[Edge | Amendment, ...] = (*WORKER.edges, *WORKER.amendments)


def _askers() -> dict[str, frozenset[Actor]]:
    """By what is asked for: the events of the table, and the two composite requests."""
    asked: dict[str, frozenset[Actor]] = {}
    for one in _MOVES:
        asked[one.event] = asked.get(one.event, frozenset()) | frozenset(one.actors)
    # An end is reported by those who may report a failure; only who looks for processes loses one.
    return {**asked, "end": asked["fail"], "lose": frozenset((Actor.SYSTEM,))}


_ASKERS = _askers()
_ENTERED_BY = {
    state: frozenset(
        actor for edge in WORKER.edges if edge.target == state for actor in edge.actors
    )
    for state in WorkerState
}


def barred(
    instance: Instance, event: str, actor: Actor, target: WorkerState | None = None
) -> Refusal | None:
    """The refusal for an actor who may not ask for this in any state."""
    return _unless(_ASKERS[event], instance, event, actor, target)


def barred_from(
    instance: Instance, event: str, actor: Actor, target: WorkerState
) -> Refusal | None:
    """The refusal for an actor who may lead no instance into that state, by whatever event."""
    return _unless(_ENTERED_BY[target], instance, event, actor, target)


def _unless(
    askers: frozenset[Actor],
    instance: Instance,
    event: str,
    actor: Actor,
    target: WorkerState | None,
) -> Refusal | None:
    if actor in askers:
        return None
    known = " or ".join(one for one in Actor if one in askers)
    detail = f"that is for {known} to ask"
    return WORKER.refusal("wrong_actor", instance.state, event, actor, target=target, detail=detail)
