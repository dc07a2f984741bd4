"""Every refusal is told in a sentence that says what is wrong; people act on these words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.profile import Deadlines
from tests.lifecycle.making import (
    ALIVE,
    LOST,
    NOW,
    SYSTEM,
    USER,
    WORKER,
    active,
    available,
    cancelling,
    completed,
    pending,
    refused,
    take,
)

Make = Callable[[], j.Job | None]
KEY = ("code", "detail", "make", "command", "by", "more")
ENQUEUE: dict[str, Any] = {"id": "job-2", "profile": "python"}


def nothing() -> None:
    return None


@pytest.mark.parametrize(
    KEY,
    [
        (
            "delivery",
            "this job is offered to engines, nobody may claim it from the store",
            lambda: available(profile="engine"),
            j.Claim("L", "w"),
            WORKER,
            {"lease": ALIVE},
        ),
        (
            "delivery",
            "this job is claimed from the store, it cannot be offered",
            available,
            j.Dispatch("L", "w"),
            SYSTEM,
            {"lease": ALIVE},
        ),
        (
            "held",
            "the job is held; activate it first",
            lambda: available(held=True),
            j.Claim("L", "w"),
            WORKER,
            {"lease": ALIVE},
        ),
        (
            "gate_closed",
            "its queue, type, workflow or step is paused or closed",
            available,
            j.Claim("L", "w"),
            WORKER,
            {"lease": ALIVE, "gate": j.Gate(closed=True)},
        ),
        (
            "expired",
            "its time to live has passed",
            lambda: available(expires_at=NOW + 1),
            j.Claim("L", "w"),
            WORKER,
            {"lease": ALIVE, "now": NOW + 1},
        ),
        (
            "holder_lost",
            "whoever takes it is unknown or marked lost; it must register anew",
            available,
            j.Claim("L", "w"),
            WORKER,
            {"lease": LOST},
        ),
        (
            "lease_required",
            "it is held by a worker whose reports must name their lease",
            active,
            j.Complete(),
            WORKER,
            {},
        ),
        (
            "not_holder",
            "it is held by w1",
            lambda: active(wire=True),
            j.Complete(holder="w2"),
            WORKER,
            {},
        ),
        (
            "lease_ended",
            "that lease has ended; the job is now held by w1",
            active,
            j.Complete(lease="L0"),
            WORKER,
            {},
        ),
        (
            "lease_ended",
            "that lease has ended; the job is now completed (succeeded)",
            completed,
            j.Complete(lease="L1"),
            WORKER,
            {},
        ),
        (
            "lease_alive",
            "the lease was renewed, or was never looked at",
            active,
            j.Lose(),
            SYSTEM,
            {"lease": ALIVE},
        ),
        (
            "runs_once",
            "a job of profile rest never goes back once it has started",
            lambda: active(profile="rest"),
            j.HandBack(lease="L1"),
            WORKER,
            {},
        ),
        (
            "through_workflow",
            "it ends only through its workflow; abort that instead",
            lambda: active(profile="jobnik"),
            j.Cancel(),
            USER,
            {},
        ),
        (
            "force_is_for_system",
            "only the system may cancel without asking the worker",
            active,
            j.Cancel(force=True),
            USER,
            {},
        ),
        (
            "not_asked",
            "no cancel was requested",
            active,
            j.ConfirmCancel(lease="L1"),
            WORKER,
            {},
        ),
        ("not_held", "the job is not held", available, j.Activate(), USER, {}),
        (
            "not_running",
            "only a running job of this profile takes checkpoints",
            available,
            j.Checkpoint(digest="d"),
            USER,
            {},
        ),
        ("unknown_job", "no such job", nothing, j.Complete(lease="L"), WORKER, {}),
    ],
)
def test_a_condition_that_does_not_hold_is_told(
    code: str, detail: str, make: Make, command: Any, by: By, more: dict[str, Any]
) -> None:
    job = make()
    refusal = refused(job, command, by, **more)
    assert (refusal.code, refusal.detail) == (code, detail)
    assert (refusal.event, refusal.actor) == (command.event, by.kind)
    assert refusal.state == (None if job is None else job.state)
    assert f": {detail}." in refusal.message


@pytest.mark.parametrize(
    KEY,
    [
        (
            "bad_value",
            "start_us must be a positive number of microseconds",
            pending,
            j.Receive(lease="L1", start_us=0),
            WORKER,
            {},
        ),
        (
            "bad_value",
            "delay_us must not be negative",
            active,
            j.Snooze(lease="L1", delay_us=-1),
            WORKER,
            {},
        ),
        (
            "bad_value",
            "cause must be one of replaced, requested, workflow",
            available,
            j.Cancel(j.Cause.TTL),
            USER,
            {},
        ),
        (
            "bad_value",
            "cause must be one of abandoned, confirmed, killed",
            cancelling,
            j.ConfirmCancel(lease="L1", cause=j.Cause.TTL),
            WORKER,
            {},
        ),
        (
            "bad_value",
            "cause must be one of overflow, queue_deleted",
            available,
            j.Drop(j.Cause.TTL),
            SYSTEM,
            {},
        ),
        (
            "unknown_profile",
            "there is no profile 'celery'",
            nothing,
            j.Enqueue(id="x", profile="celery"),
            USER,
            {},
        ),
        (
            "runs_once",
            "a job of profile rest runs once; do not set allowed",
            nothing,
            j.Enqueue(id="x", profile="rest", allowed=2),
            USER,
            {},
        ),
        (
            "bad_value",
            "delivery must be pull or push",
            nothing,
            j.Enqueue(**ENQUEUE, delivery="x"),
            USER,
            {},
        ),
        (
            "bad_value",
            "allowed must be at least 1",
            nothing,
            j.Enqueue(**ENQUEUE, allowed=0),
            USER,
            {},
        ),
        (
            "bad_value",
            "losses_allowed must be at least 1",
            nothing,
            j.Enqueue(**ENQUEUE, losses_allowed=0),
            USER,
            {},
        ),
        *(
            (
                "bad_value",
                f"{field} must be positive, or None for no limit",
                nothing,
                j.Enqueue(**ENQUEUE, deadlines=Deadlines(**{field: 0})),
                USER,
                {},
            )
            for field in ("available_us", "pending_us", "active_us")
        ),
    ],
)
def test_a_value_that_cannot_be_is_told_with_what_could(
    code: str, detail: str, make: Make, command: Any, by: By, more: dict[str, Any]
) -> None:
    refusal = refused(make(), command, by, **more)
    assert (refusal.code, refusal.detail) == (code, detail)


def test_the_smallest_values_that_can_be_are_taken() -> None:
    assert take(pending(), j.Receive(lease="L1", start_us=1), WORKER).job.start_us == 1
    assert take(active(), j.Snooze(lease="L1", delay_us=0), WORKER).job.state == "available"
    tiny = available(allowed=1, losses_allowed=1, deadlines=Deadlines(1, 1, 1))
    assert (tiny.allowed, tiny.losses_allowed, tiny.available_us) == (1, 1, 1)
