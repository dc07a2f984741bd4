"""The named conditions that edges ask for, as functions: `None` when met, else why not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from detent.lifecycle.job.record import Context, Job
from detent.lifecycle.job.table import JobState
from detent.lifecycle.job.waking import lease_over_at
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, CancelMode, Delivery, Drain


class Unmet(msgspec.Struct, frozen=True):
    """A condition that does not hold: its stable code and the sentence for people."""

    code: str
    detail: str


_Guard = Callable[[Job, object, int, Context], Unmet | None]


def _pull(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.delivery is Delivery.PULL:
        return None
    return Unmet("delivery", "this job is offered to engines, nobody may claim it from the store")


def _push(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.delivery is Delivery.PUSH:
        return None
    return Unmet("delivery", "this job is claimed from the store, it cannot be offered")


def _open(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.held:
        return Unmet("held", "the job is held; activate it first")
    if ctx.gate.closed or ctx.gate.queue_deleted:
        return Unmet("gate_closed", "its queue, type, workflow or step is paused or closed")
    return None


def _unexpired(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.expires_at is None or now < job.expires_at:
        return None
    return Unmet("expired", "its time to live has passed")


def _holder_alive(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    """A wire lease is a row of its own, made with the claim; every other holder must be alive."""
    if getattr(command, "wire", False):
        return None
    if ctx.lease is not None and not ctx.lease.lost and now < ctx.lease.until:
        return None
    return Unmet("holder_lost", "whoever takes it is unknown or marked lost; it must register anew")


def _lease(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    """Only a worker needs one: users and the system act on the record, not on a run of it."""
    if ctx.by.kind is not Actor.WORKER:
        return None
    named = getattr(command, "lease", None)
    if named is not None:
        return None if named == job.lease else lease_ended(job)
    if job.lease is None or not job.wire:
        return Unmet("lease_required", "it is held by a worker whose reports must name their lease")
    holder = getattr(command, "holder", None)
    if holder is None or holder == job.holder:
        return None
    return Unmet("not_holder", f"it is held by {job.holder}")


def lease_ended(job: Job) -> Unmet:
    """The answer to a report under a lease that is over: who holds it now, or how it ended."""
    why = job.cause or job.returned_by
    ended = f"{job.state} ({why})" if why else job.state
    now = f"held by {job.holder}" if job.lease else ended
    return Unmet("lease_ended", f"that lease has ended; the job is now {now}")


def _lease_over(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    """Whoever holds the lease may say itself that the run is lost; nobody else can know."""
    if ctx.by.kind is Actor.WORKER:
        return None
    over_at = lease_over_at(job, ctx.lease)
    if over_at is not None and over_at <= now:
        return None
    return Unmet("lease_alive", "the lease was renewed, or was never looked at")


def _not_cancelling(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.cancel_at is None:
        return None
    return Unmet("cancelling", "a cancel was requested, so it may not go back to waiting")


def _may_return(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if PROFILES[job.profile].drain is Drain.HAND_BACK:
        return None
    return Unmet("runs_once", f"a job of profile {job.profile} never goes back once it has started")


def _cancellable(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    through = PROFILES[job.profile].cancel is CancelMode.THROUGH_WORKFLOW
    if not through or ctx.by.kind is not Actor.USER:
        return None
    return Unmet("through_workflow", "it ends only through its workflow; abort that instead")


def _asked(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.cancel_at is not None:
        return None
    return Unmet("not_asked", "no cancel was requested")


def _asked_if_worker(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    return _asked(job, command, now, ctx) if ctx.by.kind is Actor.WORKER else None


def _is_held(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    return None if job.held else Unmet("not_held", "the job is not held")


def _checkpoint_allowed(job: Job, command: object, now: int, ctx: Context) -> Unmet | None:
    if job.state is JobState.ACTIVE or PROFILES[job.profile].checkpoints_anytime:
        return None
    return Unmet("not_running", "only a running job of this profile takes checkpoints")


GUARDS: dict[str, _Guard] = {
    "pull": _pull,
    "push": _push,
    "open": _open,
    "unexpired": _unexpired,
    "holder_alive": _holder_alive,
    "lease": _lease,
    "lease_over": _lease_over,
    "not_cancelling": _not_cancelling,
    "may_return": _may_return,
    "cancellable": _cancellable,
    "asked": _asked,
    "asked_if_worker": _asked_if_worker,
    "is_held": _is_held,
    "checkpoint_allowed": _checkpoint_allowed,
}
