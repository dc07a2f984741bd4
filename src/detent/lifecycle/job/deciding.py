"""`decide` and `tick`: the two ways a job can move, both pure.

Decide answers a command, tick answers the clock. Both plan, ask the table, check the guards, write
the event, settle what is already due, and prove the invariants before they answer.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from detent.lifecycle.event import By, Event, Made
from detent.lifecycle.job.applying import apply
from detent.lifecycle.job.commands import Claim, Command, Enqueue, Report
from detent.lifecycle.job.guards import GUARDS, Unmet, lease_ended
from detent.lifecycle.job.invariants import check
from detent.lifecycle.job.planning import (
    PLANNERS,
    Plan,
    Planned,
    called_off,
    plan_force,
    plan_loss,
    plan_time_out,
)
from detent.lifecycle.job.record import (
    SETTLED_BY,
    Accepted,
    Answer,
    Context,
    Job,
    Unchanged,
)
from detent.lifecycle.job.table import JOB, PARKED, Cause, JobEvent, JobState
from detent.lifecycle.job.values import ill_formed, ill_timed
from detent.lifecycle.job.waking import lease_over_at, limit_end, ready_end
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import EXPIRED_CODE, PROFILES, Again, Profile


def decide(job: Job | None, command: Command, now: int, ctx: Context) -> Answer:
    """What the command does to the job: accepted with its events, unchanged, or refused."""
    if isinstance(command, Enqueue):
        return _enqueue(job, command, now, ctx)
    if job is None:
        return JOB.refusal("unknown_job", None, command.event, ctx.by.kind, detail="no such job")
    planned = ill_formed(command, now, ctx) or _plan(job, command, now, ctx)
    if isinstance(planned, Unmet):
        return _unmet(planned, job.state, command.event, None, ctx)
    return _carry_out(job, planned, command, now, ctx)


def decide_late(job: Job | None, claim: Claim, report: Report, now: int, ctx: Context) -> Answer:
    """What a report does to a job that was lost and that nobody has taken since.

    The worker was slow, not dead. It takes the job again and reports, in one commit: otherwise work
    that lasts longer than a lease could never end. A job that came back to waiting in any other way
    is refused, because then the report is about a run whose end is known.
    """
    if job is not None and not job.is_lost:
        detail = "it was not lost, or somebody has taken it since"
        return JOB.refusal("not_lost", job.state, report.event, ctx.by.kind, detail=detail)
    claimed = decide(job, claim, now, ctx)
    if not isinstance(claimed, Accepted):
        return claimed
    under = replace(report, lease=claim.lease, holder=claim.holder)
    reported = decide(claimed.job, under, now, ctx)
    if not isinstance(reported, Accepted):
        return reported
    return Accepted(reported.job, (*claimed.events, *reported.events))


def tick(job: Job, now: int, ctx: Context) -> Answer:
    """What time alone does to the job by `now`; unchanged when nothing is due yet."""
    if job.ended_at is not None:
        return Unchanged(job)
    if unmet := ill_timed(now, ctx):
        return _unmet(unmet, job.state, "tick", None, ctx)
    if job.state in PARKED:
        plan = _overdue(job, now, ctx) or _settling(job, now, ctx, _place_of(job, ctx))
    else:
        plan = _first_due(job, now, ctx)
    return Unchanged(job) if plan is None else _carry_out(job, plan, None, now, ctx)


def _plan(job: Job, command: Command, now: int, ctx: Context) -> Planned:
    # A report under a lease that is over hears who won, whatever state the job is in by now.
    if isinstance(command, Report) and command.lease is not None and command.lease != job.lease:
        return lease_ended(job)
    return PLANNERS[type(command)](job, command, now, ctx)


def _carry_out(job: Job, plan: Plan, command: object, now: int, ctx: Context) -> Answer:
    found = JOB.fire(job.state, plan.event, plan.target, ctx.by.kind)
    if isinstance(found, Refusal):
        return found
    for guard in found.guards:
        unmet = GUARDS[guard](job, command, now, ctx)
        if unmet is None:
            continue
        if guard == "not_cancelling":
            return _carry_out(job, called_off(plan), command, now, ctx)
        return _unmet(unmet, job.state, plan.event, plan.target, ctx)
    if plan.idle:
        return Unchanged(job)
    event = _event(job, plan, now, ctx, ctx.by)
    return _settled(job, event, now, ctx)


def _settled(before: Job | None, event: Event, now: int, ctx: Context) -> Accepted:
    """Apply the event, then whatever is due at once: expired, without a queue, or time to go."""
    job = apply(before, event)
    check(before, event, job)
    if job.state not in PARKED:
        return Accepted(job, (event,))
    plan = _settling(job, now, ctx, _place_of(job, ctx))
    if plan is None:
        return Accepted(job, (event,))
    settling = _event(job, plan, now, ctx, SETTLED_BY)
    after = apply(job, settling)
    check(job, settling, after)
    return Accepted(after, (event, settling))


def _place_of(job: Job, ctx: Context) -> int | None:
    """Behind all others; or where it stood, if it was handed back or its profile goes by age."""
    keeps = job.returned_by == JobEvent.HAND_BACK or PROFILES[job.profile].keeps_place
    return job.place if keeps and job.place is not None else ctx.place


def _settling(job: Job, now: int, ctx: Context, place: int | None) -> Plan | None:
    if ctx.gate.queue_deleted:
        facts = {"cause": Cause.QUEUE_DELETED, "code": Cause.QUEUE_DELETED.value}
        return Plan(JobEvent.DROP, JobState.DISCARDED, facts)
    if job.expires_at is not None and job.expires_at <= now:
        facts = {"cause": Cause.TTL, "code": EXPIRED_CODE}
        return Plan(JobEvent.EXPIRE, JobState.DISCARDED, facts)
    if job.run_at is not None and job.run_at <= now:
        return Plan(JobEvent.DUE, JobState.AVAILABLE, {"place": place})
    return None


def _overdue(job: Job, now: int, ctx: Context) -> Plan | None:
    """The limit of `available` has passed, and its time to live did not pass before that."""
    end = ready_end(job, ctx.gate)
    if end is None or end > now or (job.expires_at is not None and job.expires_at <= end):
        return None
    code = PROFILES[job.profile].code(JobState.AVAILABLE, Cause.DEADLINE)
    return Plan(JobEvent.EXPIRE, JobState.DISCARDED, {"cause": Cause.DEADLINE, "code": code})


def _first_due(job: Job, now: int, ctx: Context) -> Plan | None:
    """The earliest thing due; at the same instant a cancel goes before a limit before a loss."""
    due: list[tuple[int, int]] = []
    if job.force_at is not None and job.force_at <= now:
        due.append((job.force_at, 0))
    end = limit_end(job)
    if end is not None and end <= now:
        due.append((end, 1))
    lost_at = lease_over_at(job, ctx.lease)
    if lost_at is not None and lost_at <= now:
        due.append((lost_at, 2))
    return _DUE[min(due)[1]](job, now, ctx) if due else None


_DUE = (plan_force, plan_time_out, plan_loss)


def _enqueue(job: Job | None, command: Enqueue, now: int, ctx: Context) -> Answer:
    later = command.run_at is not None and command.run_at > now
    target = JobState.SCHEDULED if later else JobState.AVAILABLE
    found = JOB.fire(job.state if job else None, JobEvent.ENQUEUE, target, ctx.by.kind)
    if isinstance(found, Refusal):
        return found
    if unmet := ill_formed(command, now, ctx) or _unfit(command, ctx):
        return _unmet(unmet, None, JobEvent.ENQUEUE, target, ctx)
    facts = _born_with(command, later, ctx)
    event = Event(
        command.tenant,
        command.id,
        1,
        now,
        JobEvent.ENQUEUE,
        None,
        target,
        ctx.by.kind,
        ctx.by.id,
        ctx.command_id,
        reason=ctx.reason,
        **facts,
    )
    return _settled(None, event, now, ctx)


def _born_with(command: Enqueue, later: bool, ctx: Context) -> dict[str, Any]:
    return {
        "made": _made(command),
        "queue": command.queue,
        "priority": command.priority,
        "held": command.held,
        "place": None if later else ctx.place,
        "run_at": command.run_at if later else None,
        "cause": Cause.RERUN if command.rerun_of else None,
    }


def _made(command: Enqueue) -> Made:
    profile = PROFILES[command.profile]
    limits = profile.deadlines if command.deadlines is None else command.deadlines
    return Made(
        profile=command.profile,
        delivery=command.delivery or profile.delivery,
        allowed=profile.allowed if command.allowed is None else command.allowed,
        losses_allowed=(
            profile.losses_allowed if command.losses_allowed is None else command.losses_allowed
        ),
        expires_at=command.expires_at,
        available_us=limits.available_us,
        pending_us=limits.pending_us,
        active_us=limits.active_us,
        rerun_of=command.rerun_of,
        workflow=command.workflow,
        step=command.step,
    )


def _unfit(command: Enqueue, ctx: Context) -> Unmet | None:
    """What the profile has against this wish."""
    profile = PROFILES.get(command.profile)
    if profile is None:
        return Unmet("unknown_profile", f"there is no profile {command.profile!r}")
    if command.delivery not in (None, *profile.deliveries):
        ways = " or ".join(profile.deliveries)
        return Unmet("bad_value", f"delivery of a job of profile {profile.name} is {ways}")
    if profile.allowed_is_fixed and command.allowed not in (None, profile.allowed):
        return Unmet("runs_once", f"a job of profile {profile.name} runs once; do not set allowed")
    return None if command.rerun_of is None else _unrepeatable(profile, ctx)


def _unrepeatable(profile: Profile, ctx: Context) -> Unmet | None:
    if profile.again is Again.NEVER:
        return Unmet("never_again", f"a job of profile {profile.name} is not run again by itself")
    if not ctx.reason:
        return Unmet("reason_needed", "say why it is to run again")
    return None


def _event(job: Job, plan: Plan, now: int, ctx: Context, by: By) -> Event:
    return Event(
        job.tenant,
        job.id,
        job.version + 1,
        max(now, job.last_at),
        plan.event,
        job.state,
        plan.target,
        by.kind,
        by.id,
        ctx.command_id,
        reason=ctx.reason if by is ctx.by else None,
        **plan.facts,
    )


def _unmet(
    unmet: Unmet, state: str | None, event: str, target: str | None, ctx: Context
) -> Refusal:
    detail = unmet.detail
    return JOB.refusal(unmet.code, state, event, ctx.by.kind, target=target, detail=detail)
