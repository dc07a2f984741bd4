"""What each command asks of the table: one planner per command, choosing the event and the target.

A planner looks at the job and says "this event, to that target, with these facts"; whether that is
legal is the table's business. A plan with nothing left to do is idle: it is asked all the same, so
that only who may do a thing hears that it is done already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from detent.errors import BadPolicy
from detent.lifecycle.event import Charge
from detent.lifecycle.job import commands as c
from detent.lifecycle.job.guards import GUARDS, Unmet
from detent.lifecycle.job.record import Context, Job
from detent.lifecycle.job.table import Cause, JobEvent, JobState
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import (
    CANCEL_GRACE_US,
    HEARTBEAT_LEASE_US,
    POISON_CODE,
    PROFILES,
    SPAN_US_MAX,
    CancelMode,
)
from detent.lifecycle.retry import Verdict


class Plan(NamedTuple):
    """The question put to the table, and what the event will carry if the answer is yes."""

    event: JobEvent
    target: JobState | None
    facts: dict[str, Any]
    idle: bool = False


Planned: TypeAlias = Plan | Unmet
_CALLED_OFF = frozenset({Cause.REQUESTED, Cause.REPLACED, Cause.WORKFLOW})
_ENDED_BY_WORKER = frozenset({Cause.CONFIRMED, Cause.KILLED, Cause.ABANDONED})
_DROPPED = frozenset({Cause.OVERFLOW, Cause.QUEUE_DELETED})


def _claim(job: Job, command: c.Claim, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.CLAIM, JobState.ACTIVE, _held_by(job, command))


def _dispatch(job: Job, command: c.Dispatch, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.DISPATCH, JobState.PENDING, _held_by(job, command))


def _held_by(job: Job, command: c.Claim | c.Dispatch) -> dict[str, Any]:
    lease_us = (command.lease_us or PROFILES[job.profile].lease_us) if command.wire else None
    return {
        "lease": command.lease,
        "holder": command.holder,
        "wire": command.wire,
        "lease_us": lease_us,
    }


def _acknowledge(job: Job, command: c.Acknowledge, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.ACKNOWLEDGE, JobState.ACTIVE, {})


def _receive(job: Job, command: c.Receive, now: int, ctx: Context) -> Planned:
    known = job.received_at is not None
    return Plan(JobEvent.RECEIVED, None, {"start_us": command.start_us}, idle=known)


def _complete(job: Job, command: c.Complete, now: int, ctx: Context) -> Planned:
    facts = {"cause": Cause.SUCCEEDED, "digest": command.digest}
    return Plan(JobEvent.COMPLETE, JobState.COMPLETED, facts)


def _fail(job: Job, command: c.Fail, now: int, ctx: Context) -> Planned:
    facts = {"code": command.code, "digest": command.digest}
    return _failed(job, JobEvent.FAIL, now, ctx, facts)


def _refuse(job: Job, command: c.Refuse, now: int, ctx: Context) -> Planned:
    return _failed(job, JobEvent.REFUSE, now, ctx, {"code": command.code})


def plan_time_out(job: Job, now: int, ctx: Context) -> Plan:
    """The limit of its state has passed: a charged failure."""
    code = PROFILES[job.profile].code(job.state, JobEvent.TIME_OUT)
    return _failed(job, JobEvent.TIME_OUT, now, ctx, {"code": code})


def _failed(job: Job, event: JobEvent, now: int, ctx: Context, facts: dict[str, Any]) -> Plan:
    verdict = _verdict(ctx)
    facts["charged"] = Charge.FAILURE
    if verdict.retry and job.failures + 1 < job.allowed:
        return _waiting(event, now, verdict.delay_us, facts)
    # The policy's word for why is the stronger one; without it, the count decided.
    facts["cause"] = Cause(verdict.cause) if verdict.cause else Cause.EXHAUSTED
    return Plan(event, JobState.DISCARDED, facts)


def _verdict(ctx: Context) -> Verdict:
    if ctx.verdict is None or not 0 <= ctx.verdict.delay_us <= SPAN_US_MAX:
        raise BadPolicy(
            "a failure is decided with the verdict of the retry policy; ask retry.judge first",
            field="verdict",
        )
    return ctx.verdict


def _waiting(event: JobEvent, now: int, delay_us: int, facts: dict[str, Any]) -> Plan:
    facts["run_at"] = now + delay_us
    facts["delay_us"] = delay_us
    return Plan(event, JobState.RETRYABLE, facts)


def _lose(job: Job, command: c.Lose, now: int, ctx: Context) -> Planned:
    return plan_loss(job, now, ctx, command.code)


def plan_loss(job: Job, now: int, ctx: Context, code: str | None = None) -> Plan:
    """Its holder is gone: what that costs is the profile's business."""
    profile = PROFILES[job.profile]
    code = code or profile.codes.get((job.state, JobEvent.LOSE))
    facts: dict[str, Any] = {"code": code, "charged": profile.loss}
    if profile.loss is Charge.BOTH:
        if job.failures + 1 >= job.allowed:
            return Plan(JobEvent.LOSE, JobState.DISCARDED, {**facts, "cause": Cause.EXHAUSTED})
    elif job.losses + 1 >= job.losses_allowed and may_be_poison(job):
        poison = {"code": POISON_CODE, "cause": Cause.POISON}
        return Plan(JobEvent.LOSE, JobState.DISCARDED, {**facts, **poison})
    return _waiting(JobEvent.LOSE, now, 0, facts)


def may_be_poison(job: Job) -> bool:
    """Whether losing its present holder can show that the job kills its workers."""
    return not job.wire or PROFILES[job.profile].poisoned_over_wire


def _snooze(job: Job, command: c.Snooze, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.SNOOZE, JobState.RETRYABLE, {"run_at": now + command.delay_us})


def _hand_back(job: Job, command: c.HandBack, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.HAND_BACK, JobState.RETRYABLE, {"run_at": now + command.delay_us})


def called_off(plan: Plan) -> Plan:
    """However else a job would have left its worker, it ends cancelled and pays nothing for it."""
    facts = {
        "cause": Cause(plan.event.value),
        "code": plan.facts.get("code"),
        "digest": plan.facts.get("digest"),
    }
    return Plan(JobEvent.CANCEL, JobState.CANCELLED, facts)


def _cancel(job: Job, command: c.Cancel, now: int, ctx: Context) -> Planned:
    if command.cause not in _CALLED_OFF:
        return _bad("cause", f"must be one of {_listed(_CALLED_OFF)}")
    if command.force and ctx.by.kind is not Actor.SYSTEM:
        return Unmet("force_is_for_system", "only the system may cancel without asking the worker")
    cooperative = PROFILES[job.profile].cancel is CancelMode.COOPERATIVE
    if job.state is JobState.ACTIVE and cooperative and not command.force:
        return _ask(job, now)
    return Plan(JobEvent.CANCEL, JobState.CANCELLED, {"cause": command.cause})


def _ask(job: Job, now: int) -> Plan:
    force_at = now + CANCEL_GRACE_US + (job.lease_us or HEARTBEAT_LEASE_US)
    asked = job.cancel_at is not None
    return Plan(JobEvent.CANCEL_REQUESTED, None, {"force_at": force_at}, idle=asked)


def plan_force(job: Job, now: int, ctx: Context) -> Plan:
    """Nobody answered the cancel request within the grace and the lease."""
    return Plan(JobEvent.CANCEL, JobState.CANCELLED, {"cause": Cause.FORCED})


def _confirm_cancel(job: Job, command: c.ConfirmCancel, now: int, ctx: Context) -> Planned:
    if command.cause not in _ENDED_BY_WORKER:
        return _bad("cause", f"must be one of {_listed(_ENDED_BY_WORKER)}")
    if ctx.by.kind is Actor.USER:
        return Unmet("wrong_actor", "only its worker can say that the run has ended")
    if unmet := GUARDS["asked"](job, command, now, ctx):
        return unmet
    return Plan(JobEvent.CANCEL, JobState.CANCELLED, {"cause": command.cause})


def _see_cancel(job: Job, command: c.SeeCancel, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.CANCEL_SEEN, None, {})


def _interrupt(job: Job, command: c.Interrupt, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.INTERRUPTED, None, {})


def _hold(job: Job, command: c.Hold, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.HELD, None, {}, idle=job.held)


def _activate(job: Job, command: c.Activate, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.ACTIVATED, None, {"place": ctx.place})


def _reprioritise(job: Job, command: c.Reprioritise, now: int, ctx: Context) -> Planned:
    same = command.priority == job.priority
    return Plan(JobEvent.REPRIORITISED, None, {"priority": command.priority}, idle=same)


def _reschedule(job: Job, command: c.Reschedule, now: int, ctx: Context) -> Planned:
    same = command.run_at == job.run_at
    return Plan(JobEvent.RESCHEDULED, None, {"run_at": command.run_at}, idle=same)


def _move(job: Job, command: c.Move, now: int, ctx: Context) -> Planned:
    facts = {"queue": command.queue, "place": ctx.place}
    return Plan(JobEvent.MOVED, None, facts, idle=command.queue == job.queue)


def _checkpoint(job: Job, command: c.Checkpoint, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.CHECKPOINTED, None, {"digest": command.digest})


def _annotate(job: Job, command: c.Annotate, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.ANNOTATED, None, {"digest": command.digest})


def _erase(job: Job, command: c.Erase, now: int, ctx: Context) -> Planned:
    return Plan(JobEvent.ERASED, None, {}, idle=job.erased_at is not None)


def _drop(job: Job, command: c.Drop, now: int, ctx: Context) -> Planned:
    if command.cause not in _DROPPED:
        return _bad("cause", f"must be one of {_listed(_DROPPED)}")
    facts = {"cause": command.cause, "code": command.cause.value}
    return Plan(JobEvent.DROP, JobState.DISCARDED, facts)


def _bad(field: str, rule: str) -> Unmet:
    return Unmet("bad_value", f"{field} {rule}")


def _listed(causes: frozenset[Cause]) -> str:
    return ", ".join(sorted(causes))


PLANNERS: dict[type, Callable[[Job, Any, int, Context], Planned]] = {
    c.Claim: _claim,
    c.Dispatch: _dispatch,
    c.Acknowledge: _acknowledge,
    c.Receive: _receive,
    c.Complete: _complete,
    c.Fail: _fail,
    c.Refuse: _refuse,
    c.Lose: _lose,
    c.Snooze: _snooze,
    c.HandBack: _hand_back,
    c.Cancel: _cancel,
    c.ConfirmCancel: _confirm_cancel,
    c.SeeCancel: _see_cancel,
    c.Interrupt: _interrupt,
    c.Hold: _hold,
    c.Activate: _activate,
    c.Reprioritise: _reprioritise,
    c.Reschedule: _reschedule,
    c.Move: _move,
    c.Checkpoint: _checkpoint,
    c.Annotate: _annotate,
    c.Erase: _erase,
    c.Drop: _drop,
}
