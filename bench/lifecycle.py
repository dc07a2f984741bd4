"""The lifecycle core against two state machine libraries, and the decisions built on it."""

from __future__ import annotations

from typing import Any

import transitions
from statemachine.exceptions import TransitionNotAllowed

from bench.measure import Bench, Case, Goal
from bench.rivals import statemachine_job, transitions_job
from detent.lifecycle import job as core
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import ErrorInfo, RetryPolicy, Verdict, judge

__all__ = ["bench"]

NOW = 1_700_000_000_000_000
USER = By(Actor.USER, "ann")
WORKER = By(Actor.WORKER, "worker-1")
SYSTEM = By(Actor.SYSTEM, "upkeep")
ALIVE = core.Lease(until=NOW + 60_000_000)
LOST = core.Lease(until=0, lost=True)
AGAIN = Verdict(retry=True, delay_us=1_000_000, cause=None)
CLAIM = core.Claim(lease="lease-1", holder="worker-1")


def bench() -> Bench:
    """All of it in one run, so that every ratio compares neighbours in time."""
    return Bench((*_fire(), *_transitions(), *_statemachine(), *_decide(), _judge()), _goals())


def _goals() -> tuple[Goal, ...]:
    # One bar per rival for every way it has of answering, also where we do not reach it.
    rivals = (
        ("transitions", 10, ("may, legal", "bare transition"), ("may, refused", "try, refused")),
        (
            "python-statemachine",
            100,
            ("allowed_events, legal", "enabled_events", "bare transition"),
            ("allowed_events, refused", "try, refused"),
        ),
    )
    bare = "transitions: bare transition"
    decisions = ("claim", "complete", "fail", "refused")
    return (
        *(
            Goal("fire: legal", f"{name}: {way}", bar)
            for name, bar, ways, _ in rivals
            for way in ways
        ),
        *(
            Goal("fire: refused", f"{name}: {way}", bar)
            for name, bar, _, ways in rivals
            for way in ways
        ),
        *(Goal(f"decide: {name}", bare, 1) for name in decisions),
        # Two moves with two events are held against one bare transition each.
        Goal("decide: lose + due", bare, 0.5),
        Goal("tick: nothing due", bare, 1),
    )


def _fire() -> tuple[Case, ...]:
    ask = "fire(state, event, target, actor)"
    names: dict[str, Any] = {"fire": core.JOB.fire, "state": "available", "actor": Actor.WORKER}
    legal = {**names, "event": "claim", "target": "active"}
    refused = {**names, "event": "complete", "target": "completed"}
    assert not isinstance(core.JOB.fire("available", "claim", "active", Actor.WORKER), Refusal)
    assert isinstance(core.JOB.fire("available", "complete", "completed", Actor.WORKER), Refusal)
    return Case("fire: legal", ask, legal), Case("fire: refused", ask, refused)


def _transitions() -> tuple[Case, ...]:
    _, job = transitions_job()
    names = {"job": job, "Refused": transitions.MachineError}
    assert job.may_claim_active()
    assert not job.may_complete_completed()
    return (
        Case("transitions: may, legal", "job.may_claim_active()", names),
        Case("transitions: may, refused", "job.may_complete_completed()", names),
        Case("transitions: try, refused", _TRY, names),
        Case("transitions: bare transition", _ROUND, names, operations=3),
    )


def _statemachine() -> tuple[Case, ...]:
    job = statemachine_job()
    names = {"job": job, "Refused": TransitionNotAllowed}
    assert "claim_active" in job.allowed_events
    assert "complete_completed" not in job.allowed_events
    rival = "python-statemachine"
    return (
        Case(f"{rival}: allowed_events, legal", "'claim_active' in job.allowed_events", names),
        Case(
            f"{rival}: allowed_events, refused", "'complete_completed' in job.allowed_events", names
        ),
        Case(f"{rival}: enabled_events", "'claim_active' in job.enabled_events()", names),
        Case(f"{rival}: try, refused", _TRY, names),
        Case(f"{rival}: bare transition", _ROUND, names, operations=3),
    )


# The same words drive both rivals: there and back again, and one move that must be refused.
_ROUND = "job.claim_active(); job.fail_retryable(); job.due_available()"
_TRY = """
try:
    job.complete_completed()
except Refused:
    pass
"""


def _decide() -> tuple[Case, ...]:
    new = _accepted(None, core.Enqueue(id="job-1", profile="python"), _context(USER)).job
    active = _accepted(new, CLAIM, _context(WORKER, ALIVE)).job
    done = core.Complete(lease="lease-1", digest="sha256:0")
    failed = core.Fail(lease="lease-1", code="handler_error")
    lost = core.Lose(lease="lease-1")
    cases = (
        ("enqueue", None, core.Enqueue(id="job-1", profile="python"), _context(USER), 1),
        ("claim", new, CLAIM, _context(WORKER, ALIVE), 1),
        ("complete", active, done, _context(WORKER), 1),
        ("fail", active, failed, _context(WORKER), 1),
        ("lose + due", active, lost, _context(SYSTEM, LOST), 2),
    )
    return (
        *(_decision(name, job, command, ctx, events) for name, job, command, ctx, events in cases),
        _refused(new, done),
        _idle(active),
        _fold(),
    )


def _decision(
    name: str, job: core.Job | None, command: core.Command, ctx: core.Context, events: int
) -> Case:
    assert len(_accepted(job, command, ctx).events) == events
    names = {"decide": core.decide, "job": job, "command": command, "now": NOW, "ctx": ctx}
    return Case(f"decide: {name}", "decide(job, command, now, ctx)", names)


def _refused(job: core.Job, command: core.Command) -> Case:
    ctx = _context(WORKER)
    assert isinstance(core.decide(job, command, NOW, ctx), Refusal)
    names = {"decide": core.decide, "job": job, "command": command, "now": NOW, "ctx": ctx}
    return Case("decide: refused", "decide(job, command, now, ctx)", names)


def _idle(job: core.Job) -> Case:
    ctx = _context(SYSTEM, ALIVE)
    assert isinstance(core.tick(job, NOW, ctx), core.Unchanged)
    names = {"tick": core.tick, "job": job, "now": NOW, "ctx": ctx}
    return Case("tick: nothing due", "tick(job, now, ctx)", names)


def _fold() -> Case:
    """Ten events: claimed and lost twice, then claimed, checkpointed and completed."""
    answer = _accepted(None, core.Enqueue(id="job-1", profile="python"), _context(USER))
    events: list[Event] = list(answer.events)
    job = answer.job
    rounds: list[tuple[core.Command, core.Context]] = [
        (CLAIM, _context(WORKER, ALIVE)),
        (core.Lose(lease="lease-1"), _context(SYSTEM, LOST)),
    ] * 2
    rounds += [
        (CLAIM, _context(WORKER, ALIVE)),
        (core.Checkpoint(lease="lease-1", digest="sha256:0"), _context(WORKER)),
        (core.Complete(lease="lease-1"), _context(WORKER)),
    ]
    for command, ctx in rounds:
        answer = _accepted(job, command, ctx)
        job, events = answer.job, [*events, *answer.events]
    assert len(events) == _FOLDED
    assert core.fold(events) == job
    return Case("fold: 10 events", "fold(events)", {"fold": core.fold, "events": events})


_FOLDED = 10


def _judge() -> Case:
    policy = RetryPolicy(non_retryable=("auth.*", "quota"))
    names = {"judge": judge, "policy": policy, "error": ErrorInfo(code="handler_error")}
    return Case("retry: judge", "judge(policy, error, 1, 0.5)", names)


def _context(by: By, lease: core.Lease | None = None) -> core.Context:
    return core.Context(by=by, command_id="command-1", place=1, lease=lease, verdict=AGAIN)


def _accepted(job: core.Job | None, command: core.Command, ctx: core.Context) -> core.Accepted:
    answer = core.decide(job, command, NOW, ctx)
    assert isinstance(answer, core.Accepted), answer
    return answer
