"""Every refusal is told in a sentence that says what is wrong; people act on these words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from detent.errors import BadHistory, BadPolicy
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import Verdict
from tests.lifecycle.making import (
    ALIVE,
    LOST,
    NOW,
    SYSTEM,
    USER,
    WORKER,
    active,
    ask,
    available,
    cancelling,
    completed,
    pending,
    refused,
    scheduled,
    take,
)

Make = Callable[[], j.Job | None]
KEY = ("code", "detail", "make", "command", "by", "more")
NAMES = ["", "x" * 256, "\ud800", "a\0b", 7]
TEXT = "must be a text of 1 to 255 characters that UTF-8 can write, without NUL"
MOMENT = "must be microseconds since the epoch, from 0 to 2**62"
SPAN = "must be a positive number of microseconds, at most 100 years"
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
            "start_us must be a positive number of microseconds, at most 100 years",
            pending,
            j.Receive(lease="L1", start_us=0),
            WORKER,
            {},
        ),
        (
            "bad_value",
            "delay_us must be a positive number of microseconds, at most 100 years",
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
            "delivery of a job of profile python is pull or push",
            nothing,
            j.Enqueue(**ENQUEUE, delivery="x"),
            USER,
            {},
        ),
        (
            "bad_value",
            "allowed must be a whole number from 1 to 100000",
            nothing,
            j.Enqueue(**ENQUEUE, allowed=0),
            USER,
            {},
        ),
        (
            "bad_value",
            "losses_allowed must be a whole number from 1 to 100000",
            nothing,
            j.Enqueue(**ENQUEUE, losses_allowed=0),
            USER,
            {},
        ),
        (
            "bad_value",
            "delivery of a job of profile engine is push",
            nothing,
            j.Enqueue(id="x", profile="engine", delivery="pull"),
            USER,
            {},
        ),
        (
            "never_again",
            "a job of profile jobnik is not run again by itself",
            nothing,
            j.Enqueue(id="x", profile="jobnik", rerun_of="y"),
            USER,
            {"reason": "please"},
        ),
        (
            "reason_needed",
            "say why it is to run again",
            nothing,
            j.Enqueue(**ENQUEUE, rerun_of="y"),
            USER,
            {},
        ),
        (
            "wrong_actor",
            "only its worker can say that the run has ended",
            cancelling,
            j.ConfirmCancel(),
            USER,
            {},
        ),
        *(
            (
                "bad_value",
                f"deadlines {field} {SPAN}, or None for no limit",
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


@pytest.mark.parametrize(
    ("field", "bad", "rule", "make", "build", "by"),
    [
        *(
            ("id", one, TEXT, nothing, lambda v: j.Enqueue(id=v, profile="python"), USER)
            for one in NAMES
        ),
        *(
            (field, one, TEXT, nothing, lambda v, f=field: j.Enqueue(**ENQUEUE, **{f: v}), USER)
            for field in ("queue", "rerun_of", "workflow", "step")
            for one in NAMES
        ),
        *(
            (field, one, "must be a whole number from 1 to 100000", nothing, build, USER)
            for field, build in (
                ("allowed", lambda v: j.Enqueue(**ENQUEUE, allowed=v)),
                ("losses_allowed", lambda v: j.Enqueue(**ENQUEUE, losses_allowed=v)),
            )
            for one in (0, -1, 100_001, 2**70, "x")
        ),
        (
            "held",
            "x",
            "must be true or false",
            nothing,
            lambda v: j.Enqueue(**ENQUEUE, held=v),
            USER,
        ),
        ("profile", [], TEXT, nothing, lambda v: j.Enqueue(id="x", profile=v), USER),
        ("tenant", "\ud800", TEXT, nothing, lambda v: j.Enqueue(**ENQUEUE, tenant=v), USER),
        *(
            (field, one, MOMENT, nothing, lambda v, f=field: j.Enqueue(**ENQUEUE, **{f: v}), USER)
            for field in ("run_at", "expires_at")
            for one in (-1, 2**62 + 1, 1.5)
        ),
        *(
            ("priority", one, "must be a whole number within 32 bits", make, build, USER)
            for one in (2**31, -(2**31), 0.5)
            for make, build in (
                (nothing, lambda v: j.Enqueue(**ENQUEUE, priority=v)),
                (available, j.Reprioritise),
            )
        ),
        *(("lease", one, TEXT, available, lambda v: j.Claim(v, "w"), WORKER) for one in NAMES),
        *(("holder", one, TEXT, available, lambda v: j.Claim("L", v), WORKER) for one in NAMES),
        *(
            ("lease_us", one, SPAN, available, lambda v: j.Claim("L", "w", True, v), WORKER)
            for one in (0, -5, 10**17)
        ),
        *(
            ("code", one, TEXT, active, lambda v: j.Fail(lease="L1", code=v), WORKER)
            for one in NAMES
        ),
        *(
            ("code", one, TEXT, pending, lambda v: j.Refuse(lease="L1", code=v), WORKER)
            for one in NAMES
        ),
        ("code", "", TEXT, active, lambda v: j.Lose(code=v), SYSTEM),
        ("delay_us", 10**30, SPAN, active, lambda v: j.Snooze(lease="L1", delay_us=v), WORKER),
        *(("run_at", one, MOMENT, scheduled, j.Reschedule, USER) for one in (-5, 2**62 + 1)),
        *(("queue", one, TEXT, available, j.Move, USER) for one in NAMES),
        *(("digest", one, TEXT, available, j.Annotate, USER) for one in NAMES),
        ("digest", "", TEXT, active, lambda v: j.Complete(lease="L1", digest=v), WORKER),
        ("digest", "", TEXT, active, lambda v: j.Checkpoint(lease="L1", digest=v), WORKER),
    ],
)
def test_nothing_that_cannot_be_stored_or_sealed_gets_in(
    field: str, bad: Any, rule: str, make: Make, build: Callable[[Any], Any], by: By
) -> None:
    refusal = refused(make(), build(bad), by, lease=ALIVE)
    assert (refusal.code, refusal.detail) == ("bad_value", f"{field} {rule}")


@pytest.mark.parametrize(
    ("detail", "now", "ctx"),
    [
        (f"now {MOMENT}", -5, j.Context(USER, "c", 1)),
        (f"now {MOMENT}", 2**62 + 1, j.Context(USER, "c", 1)),
        (f"now {MOMENT}", None, j.Context(USER, "c", 1)),
        (f"place {MOMENT}", NOW, j.Context(USER, "c", -1)),
        (f"place {MOMENT}", NOW, j.Context(USER, "c", "x")),  # type: ignore[arg-type]
        (f"command_id {TEXT}", NOW, j.Context(USER, "", 1)),
        (f"command_id {TEXT}", NOW, j.Context(USER, "a\0b", 1)),
        (f"the actor's id {TEXT}", NOW, j.Context(By(USER.kind, "\ud800"), "c", 1)),
        (
            "reason must be a text of at most 2000 characters that UTF-8 can write, without NUL",
            NOW,
            j.Context(USER, "c", 1, reason="x" * 2_001),
        ),
        (
            "reason must be a text of at most 2000 characters that UTF-8 can write, without NUL",
            NOW,
            j.Context(USER, "c", 1, reason="\ud800"),
        ),
    ],
)
def test_nor_does_an_impossible_moment_or_asker(detail: str, now: int, ctx: j.Context) -> None:
    for answer in (
        j.decide(None, j.Enqueue(**ENQUEUE), now, ctx),
        j.decide(available(), j.Hold(), now, ctx),
        j.tick(available(), now, ctx),
    ):
        assert isinstance(answer, Refusal)
        assert (answer.code, answer.detail) == ("bad_value", detail)


def test_words_of_other_alphabets_and_the_edges_of_every_range_are_taken() -> None:
    job = available(queue="очередь-ü", priority=2**31 - 1, expires_at=2**62)
    assert (job.queue, job.priority, job.expires_at) == ("очередь-ü", 2**31 - 1, 2**62)
    assert take(job, j.Move("x" * 255), USER).job.queue == "x" * 255
    anonymous = j.Context(By(USER.kind), "c", 0, reason="x" * 2_000)
    assert isinstance(j.decide(job, j.Hold(), 0, anonymous), j.Accepted)


def test_a_failure_is_not_decided_without_the_policys_verdict() -> None:
    for verdict in (None, *(Verdict(retry=True, delay_us=d, cause=None) for d in (-1, 10**30))):
        with pytest.raises(BadPolicy) as caught:
            refused(active(), j.Fail(lease="L1", code="x"), WORKER, verdict=verdict)
        assert caught.value.fields == {"field": "verdict"}
        assert "ask retry.judge first" in caught.value.message
    odd = Verdict(retry=False, delay_us=0, cause="banana")
    with pytest.raises(ValueError, match="banana"):
        refused(active(), j.Fail(lease="L1", code="x"), WORKER, verdict=odd)


def test_a_job_does_not_become_available_without_a_place() -> None:
    with pytest.raises(BadHistory) as caught:
        j.decide(None, j.Enqueue(**ENQUEUE), NOW, j.Context(USER, "c"))
    assert "an available job has a place" in caught.value.message


@pytest.mark.parametrize("by", [USER, SYSTEM, WORKER])
@pytest.mark.parametrize("report", [j.Fail(code="x"), j.Snooze(delay_us=5), j.HandBack(), j.Lose()])
def test_a_cancel_request_opens_no_back_door(report: Any, by: By) -> None:
    """Who may not report a run while it goes on may not do so while it is being called off."""
    before = ask(active(), report, by, lease=LOST)
    after = ask(cancelling(), report, by, lease=LOST)
    assert isinstance(before, Refusal) == isinstance(after, Refusal)
    if isinstance(before, Refusal) and isinstance(after, Refusal):
        assert before.code == after.code


@pytest.mark.parametrize("by", [USER, SYSTEM])
def test_nobody_else_ends_a_run_that_was_not_called_off(by: By) -> None:
    for profile in ("python", "rest", "engine"):
        assert isinstance(ask(active(profile=profile), j.ConfirmCancel(), by), Refusal)
    killed = j.ConfirmCancel(cause=j.Cause.KILLED)
    assert take(cancelling(), killed, SYSTEM).job.cause == "killed"


@pytest.mark.parametrize("report", [j.Snooze(lease="L1", delay_us=5), j.HandBack(lease="L1")])
def test_a_rest_job_refuses_to_return_even_while_being_called_off(report: Any) -> None:
    assert refused(cancelling(profile="rest"), report, WORKER).code == "runs_once"


def test_a_worker_without_a_lease_saves_no_checkpoint() -> None:
    failed = take(active(profile="ojs", wire=True), j.Fail(code="x"), WORKER).job
    assert (failed.state, failed.wire) == ("retryable", False)
    assert refused(failed, j.Checkpoint(digest="d"), WORKER).code == "lease_required"
    assert take(failed, j.Checkpoint(digest="d"), USER).job.state == "retryable"


@pytest.mark.parametrize(
    ("make", "command", "by"),
    [
        (lambda: available(held=True), j.Hold(), WORKER),
        (cancelling, j.Cancel(), WORKER),
        (
            lambda: take(pending(), j.Receive(lease="L1", start_us=1), WORKER).job,
            j.Receive(start_us=1),
            USER,
        ),
        (lambda: take(completed(), j.Erase(), USER).job, j.Erase(), WORKER),
        (available, j.Reprioritise(0), SYSTEM),
        (available, j.Move("default"), WORKER),
    ],
)
def test_only_who_may_do_a_thing_hears_that_it_is_done_already(
    make: Make, command: Any, by: By
) -> None:
    assert refused(make(), command, by).code == "wrong_actor"


def test_at_the_end_of_time_everything_still_fits_into_64_bits() -> None:
    """The latest moment and the longest length together stay within a database's integers."""
    end, longest = 2**62, 100 * 366 * 24 * 3600 * 1_000_000
    job = take(active(), j.Snooze(lease="L1", delay_us=longest), WORKER, now=end).job
    assert job.run_at == end + longest < 2**63
    asked = take(active(wire=True, lease_us=longest), j.Cancel(), USER, now=end).job
    assert asked.force_at is not None
    assert asked.force_at < 2**63
