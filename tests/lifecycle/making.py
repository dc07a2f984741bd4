"""Short words for building jobs in tests: every job here got where it is by being decided there."""

from __future__ import annotations

from typing import Any

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import Verdict

SECOND = 1_000_000
NOW = 1_000 * SECOND
USER = By(Actor.USER, "ada")
WORKER = By(Actor.WORKER, "w1")
SYSTEM = By(Actor.SYSTEM, "upkeep")
ALIVE = j.Lease(NOW + 10_000 * SECOND)
LOST = j.Lease(0, lost=True)
AGAIN = Verdict(retry=True, delay_us=5 * SECOND, cause=None)
NEVER = Verdict(retry=False, delay_us=0, cause="not_retryable")


def ctx(by: By, **more: Any) -> j.Context:
    more.setdefault("place", 77)
    more.setdefault("verdict", AGAIN)
    return j.Context(by, "command-1", **more)


def ask(job: j.Job | None, command: j.Command, by: By, now: int = NOW, **more: Any) -> j.Answer:
    return j.decide(job, command, now, ctx(by, **more))


def take(job: j.Job | None, command: j.Command, by: By, now: int = NOW, **more: Any) -> j.Accepted:
    answer = ask(job, command, by, now, **more)
    assert isinstance(answer, j.Accepted), answer
    return answer


def refused(job: j.Job | None, command: j.Command, by: By, now: int = NOW, **more: Any) -> Refusal:
    answer = ask(job, command, by, now, **more)
    assert isinstance(answer, Refusal), answer
    return answer


def ticked(job: j.Job, now: int, **more: Any) -> j.Accepted:
    answer = j.tick(job, now, ctx(SYSTEM, **more))
    assert isinstance(answer, j.Accepted), answer
    return answer


def names(answer: j.Accepted) -> list[str]:
    return [str(event.name) for event in answer.events]


def available(**more: Any) -> j.Job:
    more.setdefault("profile", "python")
    return take(None, j.Enqueue(id="job-1", **more), USER, place=1).job


def scheduled(**more: Any) -> j.Job:
    return available(run_at=NOW + 60 * SECOND, **more)


def active(*, wire: bool = False, lease_us: int | None = None, **more: Any) -> j.Job:
    job = available(**more)
    if job.delivery == "push":
        return take(pending(wire=wire, **more), j.Acknowledge(lease="L1"), WORKER).job
    return take(job, j.Claim("L1", "w1", wire, lease_us), WORKER, lease=ALIVE).job


def pending(*, wire: bool = False, **more: Any) -> j.Job:
    more.setdefault("profile", "engine")
    return take(available(**more), j.Dispatch("L1", "w1", wire), SYSTEM, lease=ALIVE).job


def retryable(**more: Any) -> j.Job:
    return take(active(**more), j.Fail(lease="L1", code="boom"), WORKER).job


def cancelling(**more: Any) -> j.Job:
    return take(active(**more), j.Cancel(), USER).job


def completed(**more: Any) -> j.Job:
    return take(active(**more), j.Complete(lease="L1"), WORKER).job


def discarded(**more: Any) -> j.Job:
    return take(active(**more), j.Fail(lease="L1", code="boom"), WORKER, verdict=NEVER).job


def cancelled(**more: Any) -> j.Job:
    return take(available(**more), j.Cancel(), USER).job


MAKERS = {
    "scheduled": scheduled,
    "available": available,
    "pending": pending,
    "active": active,
    "retryable": retryable,
    "completed": completed,
    "discarded": discarded,
    "cancelled": cancelled,
}
