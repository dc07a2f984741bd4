"""What can be asked of a worker instance, and the answer: pure, total, idempotent.

Every function answers `Accepted` (the new record and its events, to be appended in one commit),
`Unchanged` (already so) or a `Refusal` that names the state and what would have been allowed. A
refusal changes nothing and never harms the worker. Who asks is looked at before where it stands.
"""

from __future__ import annotations

import msgspec

from detent.lifecycle.event import Event, WorkerFacts
from detent.lifecycle.machine import Refusal
from detent.lifecycle.worker.asking import barred, barred_from
from detent.lifecycle.worker.causes import STOP_CAUSES, may_carry
from detent.lifecycle.worker.outcome import Exit, derive_final_status
from detent.lifecycle.worker.record import Instance, apply
from detent.lifecycle.worker.steps import (
    Accepted,
    Answer,
    Detail,
    Order,
    Step,
    Unchanged,
    edge,
    take,
)
from detent.lifecycle.worker.table import (
    EDGE_EVENTS,
    WORKER,
    Cause,
    Governor,
    Health,
    WorkerState,
)

_S = WorkerState
_WORD = {
    _S.STARTING: "start",
    _S.PENDING: "hold",
    _S.RUNNING: "ready",
    _S.SUSPENDED: "suspend",
    _S.STOPPING: "stop",
    _S.STOPPED: "comply",
    _S.FINISHED: "finish",
    _S.FAILED: "fail",
    _S.KILLED: "kill",
    _S.CREATED: "create",
}


class Birth(msgspec.Struct, frozen=True):
    """What is fixed about an instance when its slot builds it."""

    id: str
    slot: str
    tenant: str = ""
    suspendable: bool = False


def create(birth: Birth, order: Order) -> Accepted | Refusal:
    """A fresh instance for a slot."""
    fired = WORKER.fire(None, "create", _S.CREATED, order.by.kind)
    if isinstance(fired, Refusal):
        return fired
    event = Event(
        tenant=birth.tenant,
        record=birth.id,
        version=1,
        at=order.now,
        name="create",
        source=None,
        target=_S.CREATED,
        actor=order.by.kind,
        actor_id=order.by.id,
        command_id=order.command_id,
        kind=WORKER.name,
        worker=WorkerFacts(slot=birth.slot, suspendable=birth.suspendable),
    )
    return Accepted(apply(None, event), (event,))


def move(
    instance: Instance, target: WorkerState, order: Order, detail: Detail | None = None
) -> Answer:
    """Along the one edge between two states, if there is one; to the same state is no move."""
    if target is instance.state:
        return _stay(instance, order, detail)
    if (instance.state, target) not in EDGE_EVENTS:
        return _refused(instance, _WORD[target], target, order)
    return take(instance, [edge(instance.state, target, detail)], order)


def start(instance: Instance, order: Order) -> Answer:
    """Start it now, also out of the hands of a governor."""
    if refusal := barred(instance, "start", order.by.kind, _S.STARTING):
        return refusal
    if instance.state not in (_S.CREATED, _S.PENDING):
        return _refused(instance, "start", _S.STARTING, order)
    return move(instance, _S.STARTING, order)


def hold(instance: Instance, governor: Governor, due_at: int | None, order: Order) -> Answer:
    """Keep it from starting until `due_at`, or until the governor says so when that is `None`.

    Said again of one that is pending, the same is no change. Another governor or another time is an
    amendment and no refusal: a start that is due may next wait for a rate slot or for a breaker, it
    cannot leave `pending` for that, and whoever looks must see what it waits for now.
    """
    facts = WorkerFacts(governor=governor)
    return move(instance, _S.PENDING, order, Detail(run_at=due_at, facts=facts))


def spawned(instance: Instance, pid: int, process_at: int, order: Order) -> Answer:
    """Record which process it is, once: pid and birth together, for a pid alone is recycled."""
    facts = WorkerFacts(pid=pid, process_at=process_at)
    return take(instance, [Step("spawned", detail=Detail(facts=facts))], order)


def ready(instance: Instance, order: Order) -> Answer:
    """Initialised and proven ready. After a stop was asked for, it is too late for that."""
    if refusal := barred(instance, "ready", order.by.kind, _S.RUNNING):
        return refusal
    if instance.state is _S.SUSPENDED:
        return _refused(instance, "ready", _S.RUNNING, order)
    return move(instance, _S.RUNNING, order)


def suspend(instance: Instance, order: Order) -> Answer:
    """It has gone quiet on request."""
    return move(instance, _S.SUSPENDED, order)


def resume(instance: Instance, order: Order) -> Answer:
    """Let a quiet one go on."""
    if refusal := barred(instance, "resume", order.by.kind, _S.RUNNING):
        return refusal
    if instance.state not in (_S.SUSPENDED, _S.RUNNING):
        return _refused(instance, "resume", _S.RUNNING, order)
    return move(instance, _S.RUNNING, order)


def change_health(instance: Instance, health: Health, order: Order) -> Answer:
    """What a probe says now, if it differs from what it said before."""
    if refusal := barred(instance, "health_changed", order.by.kind):
        return refusal
    if instance.health is health and instance.state is _S.RUNNING:
        return Unchanged(instance)
    facts = WorkerFacts(health=health)
    return take(instance, [Step("health_changed", detail=Detail(facts=facts))], order)


def stop(
    instance: Instance,
    order: Order,
    *,
    force_at: int | None = None,
    cause: Cause = Cause.REQUESTED,
) -> Answer:
    """Ask it to end, by `force_at` at the latest; from every state, as often as one likes.

    A second stop joins the first. It may bring the end of the grace forward, never push it back.
    """
    if refusal := barred(instance, "stop", order.by.kind) or _unfit(instance, cause, order):
        return refusal
    detail = Detail(cause=cause, force_at=force_at)
    match instance.state:
        case _S.CREATED | _S.PENDING:
            return take(instance, _calling_off(instance, cause), order)
        case _S.STARTING if not instance.stop_requested:
            return take(instance, [Step("stop_requested", detail=detail)], order)
        case _S.STARTING | _S.STOPPING:
            return _hasten(instance, force_at, order)
        case _S.RUNNING | _S.SUSPENDED:
            return take(instance, [edge(instance.state, _S.STOPPING, detail)], order)
        case _:
            return Unchanged(instance)


def order_kill(instance: Instance, order: Order) -> Answer:
    """Record the order to force it, before it is carried out; only `stopping` can be forced.

    Reap once more before this: an instance that has ended meanwhile is classified by how it ended.
    """
    if refusal := barred(instance, "kill_ordered", order.by.kind):
        return refusal
    if instance.killed and instance.state is _S.STOPPING:
        return Unchanged(instance)
    return take(instance, [Step("kill_ordered")], order)


def kill(instance: Instance, order: Order) -> Answer:
    """Force it without grace, wherever it stands: the operator's "now", the second Ctrl-C.

    What has no process yet is called off; what is still initialising fails as `init_killed`.
    """
    if refusal := barred(instance, "kill", order.by.kind):
        return refusal
    match instance.state:
        case _S.CREATED | _S.PENDING:
            return take(instance, _calling_off(instance, Cause.REQUESTED), order)
        case _S.STARTING:
            detail = Detail(cause=Cause.INIT_KILLED)
            return take(instance, [edge(_S.STARTING, _S.FAILED, detail, bridge=True)], order)
        case _S.RUNNING | _S.SUSPENDED:
            at_once = Detail(force_at=order.now)
            asking = edge(instance.state, _S.STOPPING, at_once)
            return take(instance, [asking, *_forcing(instance)], order)
        case _S.STOPPING:
            return take(instance, _forcing(instance), order)
        case _:
            return Unchanged(instance)


def end(instance: Instance, seen: Exit, order: Order, *, needs_ready_signal: bool = True) -> Answer:
    """The one way in for every observed end; an end already recorded is not recorded twice.

    `needs_ready_signal` is the slot's rule for readiness: with it, a clean end before that signal
    is a failure; without it (ready = alive for a while) it is a short life well lived.
    """
    if refusal := barred(instance, "end", order.by.kind):
        return refusal
    if instance.state.is_terminal:
        return Unchanged(instance)
    state, cause = _judged(instance, seen)
    detail = Detail(cause, code=seen.code, facts=WorkerFacts(exit_code=seen.exit_code))
    if instance.state is _S.STARTING and state is _S.FINISHED:
        return take(instance, _ending_early(detail, needs_ready_signal), order)
    if instance.state is _S.SUSPENDED:
        return _end_while_quiet(instance, state, detail, order)
    return move(instance, state, order, detail)


def lose(instance: Instance, order: Order) -> Answer:
    """The supervisor came back and the instance has no live process any more."""
    if refusal := barred(instance, "lose", order.by.kind):
        return refusal
    detail = Detail(cause=Cause.LOST)
    match instance.state:
        case _S.CREATED | _S.PENDING:
            return take(instance, _calling_off(instance, Cause.LOST), order)
        case _S.STARTING | _S.RUNNING:
            return move(instance, _S.FAILED, order, detail)
        case _S.SUSPENDED:
            # Lost is the cause that its jobs hear of; that it was quiet then stays as the reason.
            quiet = Detail(cause=Cause.LOST, reason=Cause.EXIT_WHILE_SUSPENDED)
            return take(instance, [_waking(), edge(_S.RUNNING, _S.FAILED, quiet)], order)
        case _S.STOPPING:
            return move(instance, _S.KILLED if instance.killed else _S.FAILED, order, detail)
        case _:
            return Unchanged(instance)


def _calling_off(instance: Instance, cause: Cause) -> list[Step]:
    """To `stopped` without ever starting; from `created` by way of `pending`."""
    steps = [edge(_S.PENDING, _S.STOPPED, Detail(cause=cause))]
    if instance.state is _S.CREATED:
        held = Detail(facts=WorkerFacts(governor=Governor.STOP))
        steps.insert(0, edge(_S.CREATED, _S.PENDING, held, bridge=True))
    return steps


def _forcing(instance: Instance) -> list[Step]:
    ordered = [] if instance.killed else [Step("kill_ordered")]
    return [*ordered, edge(_S.STOPPING, _S.KILLED)]


def _ending_early(detail: Detail, needs_ready_signal: bool) -> list[Step]:
    if needs_ready_signal:
        early = msgspec.structs.replace(detail, cause=Cause.EXITED_BEFORE_READY)
        return [edge(_S.STARTING, _S.FAILED, early)]
    return [edge(_S.STARTING, _S.RUNNING), edge(_S.RUNNING, _S.FINISHED, detail)]


def _end_while_quiet(
    instance: Instance, state: WorkerState, detail: Detail, order: Order
) -> Answer:
    """By way of `running`; what would have been the cause is kept as the reason."""
    ending = edge(_S.RUNNING, state, detail)
    if may_carry(_S.RUNNING, ending.event, detail.cause):
        quiet = msgspec.structs.replace(
            detail, cause=Cause.EXIT_WHILE_SUSPENDED, reason=detail.cause
        )
        ending = edge(_S.RUNNING, state, quiet)
    # Otherwise the step is refused for its cause: it can be said of no worker that was running.
    return take(instance, [_waking(), ending], order)


def _waking() -> Step:
    quiet = Detail(cause=Cause.EXIT_WHILE_SUSPENDED)
    return edge(_S.SUSPENDED, _S.RUNNING, quiet, bridge=True)


def _judged(instance: Instance, seen: Exit) -> tuple[WorkerState, Cause]:
    state, cause = derive_final_status(
        seen,
        stop_requested=instance.stop_requested,
        killed=instance.killed,
        initialising=instance.state is _S.STARTING,
    )
    if cause is Cause.REQUESTED and instance.stop_requested:
        # The stop said why it was asked for (recycled, probe_failed): its end keeps that word.
        cause = instance.cause or cause
    return state, cause


def _stay(instance: Instance, order: Order, detail: Detail | None) -> Answer:
    """No move; but of what holds a pending one there may be news."""
    if refusal := barred_from(instance, _WORD[instance.state], order.by.kind, instance.state):
        return refusal
    if instance.state is not _S.PENDING or detail is None or detail.facts is None:
        return Unchanged(instance)
    if (detail.facts.governor, detail.run_at) == (instance.governor, instance.due_at):
        return Unchanged(instance)
    return take(instance, [Step("hold_changed", detail=detail)], order)


def _unfit(instance: Instance, cause: Cause, order: Order) -> Refusal | None:
    """A stop is somebody's wish: it cannot happen for what only an end can show."""
    if cause in STOP_CAUSES:
        return None
    detail = f"a stop is not asked for because of {cause}"
    return WORKER.refusal("bad_cause", instance.state, "stop", order.by.kind, detail=detail)


def _hasten(instance: Instance, force_at: int | None, order: Order) -> Answer:
    known = instance.force_at
    if force_at is None or (known is not None and force_at >= known):
        return Unchanged(instance)
    return take(instance, [Step("hastened", detail=Detail(force_at=force_at))], order)


def _refused(instance: Instance, event: str, target: WorkerState, order: Order) -> Answer:
    """The table's own refusal of a move that it does not declare."""
    return take(instance, [Step(event, target)], order)
