"""What the worker tests share: the contract written out by hand, and instances in every state."""

from __future__ import annotations

from detent.lifecycle import worker as w
from detent.lifecycle.event import By, WorkerFacts
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.worker import Accepted, Governor, Unchanged
from detent.lifecycle.worker import WorkerState as S

SECOND = 1_000_000
START = 100 * SECOND
USER, WORKER, SYSTEM = By(Actor.USER, "ops"), By(Actor.WORKER, "i-1"), By(Actor.SYSTEM, "sup-1")
HELD = w.Detail(run_at=START + 9, facts=WorkerFacts(governor=Governor.BACKOFF))
TERMINAL = (S.STOPPED, S.FINISHED, S.FAILED, S.KILLED)

# Section 3 of the contract, written out by hand: the table under test may not judge itself.
EDGES = {
    "E1": (S.CREATED, "start", S.STARTING, "user system"),
    "E2": (S.CREATED, "hold", S.PENDING, "system"),
    "E3": (S.PENDING, "release", S.STARTING, "user system"),
    "E4": (S.PENDING, "cancel", S.STOPPED, "user system"),
    "E5": (S.STARTING, "ready", S.RUNNING, "worker system"),
    "E6": (S.STARTING, "fail", S.FAILED, "worker system"),
    "E7": (S.STARTING, "comply", S.STOPPED, "worker system"),
    "E8": (S.RUNNING, "suspend", S.SUSPENDED, "user system"),
    "E9": (S.RUNNING, "stop", S.STOPPING, "user system"),
    "E10": (S.RUNNING, "finish", S.FINISHED, "worker system"),
    "E11": (S.RUNNING, "fail", S.FAILED, "worker system"),
    "E12": (S.RUNNING, "interrupt", S.STOPPED, "worker system"),
    "E13": (S.SUSPENDED, "resume", S.RUNNING, "user system"),
    "E14": (S.SUSPENDED, "stop", S.STOPPING, "user system"),
    "E15": (S.STOPPING, "comply", S.STOPPED, "worker system"),
    "E16": (S.STOPPING, "fail", S.FAILED, "worker system"),
    "E17": (S.STOPPING, "kill", S.KILLED, "user system"),
}
AMENDMENTS = {
    (S.PENDING, "hold_changed", "system"),
    (S.STARTING, "spawned", "system"),
    (S.STARTING, "stop_requested", "user system"),
    (S.STARTING, "hastened", "user system"),
    (S.STOPPING, "hastened", "user system"),
    (S.STOPPING, "kill_ordered", "user system"),
    (S.RUNNING, "health_changed", "worker system"),
}
WAYS = {
    S.CREATED: (),
    S.PENDING: (S.PENDING,),
    S.STARTING: (S.STARTING,),
    S.RUNNING: (S.STARTING, S.RUNNING),
    S.SUSPENDED: (S.STARTING, S.RUNNING, S.SUSPENDED),
    S.STOPPING: (S.STARTING, S.RUNNING, S.STOPPING),
    S.STOPPED: (S.PENDING, S.STOPPED),
    S.FINISHED: (S.STARTING, S.RUNNING, S.FINISHED),
    S.FAILED: (S.STARTING, S.FAILED),
    S.KILLED: (S.STARTING, S.RUNNING, S.STOPPING, S.KILLED),
}


def order(now: int = START, by: By = SYSTEM, **more: bool) -> w.Order:
    return w.Order(now, by, "c-1", **more)


def done(answer: w.Answer) -> Accepted:
    assert isinstance(answer, Accepted), answer
    return answer


def unchanged(answer: w.Answer) -> w.Instance:
    assert isinstance(answer, Unchanged), answer
    return answer.instance


def refused(answer: w.Answer) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def born(*, suspendable: bool = True) -> w.Instance:
    birth = w.Birth("i-1", "mail", "acme", suspendable)
    return done(w.create(birth, order())).instance


def at(state: S, *, suspendable: bool = True, ordered: bool = True) -> w.Instance:
    """An instance that has come to `state` by legal moves; in stopping the kill is ordered."""
    one = born(suspendable=suspendable)
    for step in WAYS[state]:
        one = done(w.move(one, step, order(), HELD if step is S.PENDING else None)).instance
        if step is S.STOPPING and (ordered or state is S.KILLED):
            one = done(w.order_kill(one, order())).instance
    return one


def told(answer: w.Answer) -> list[str]:
    """The edges of an answer by their numbers, amendments by name."""
    numbers = {(source, event, target): key for key, (source, event, target, _) in EDGES.items()}
    return [
        numbers[S(str(one.source)), one.name, S(one.target)] if one.target else one.name
        for one in done(answer).events
    ]
