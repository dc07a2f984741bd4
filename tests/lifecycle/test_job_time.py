"""What time alone does to a job, and when to look."""

from __future__ import annotations

from typing import Any

import pytest

from detent.lifecycle import job as j
from detent.lifecycle.job.waking import lease_end, limit_end, ready_end
from detent.lifecycle.profile import Deadlines
from tests.lifecycle.making import (
    AGAIN,
    ALIVE,
    LOST,
    MAKERS,
    NEVER,
    NOW,
    SECOND,
    SYSTEM,
    USER,
    WORKER,
    active,
    available,
    cancelling,
    ctx,
    names,
    pending,
    retryable,
    scheduled,
    take,
    ticked,
)

LIMITS = Deadlines(30 * SECOND, 10 * SECOND, 60 * SECOND)


def quiet(job: j.Job, now: int, **more: Any) -> None:
    answer = j.tick(job, now, ctx(SYSTEM, **more))
    assert isinstance(answer, j.Unchanged), answer
    assert answer.job is job


# --- waiting ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [scheduled, retryable])
def test_a_waiting_job_becomes_available_when_it_is_due_and_not_before(make: Any) -> None:
    job = make()
    assert job.run_at is not None
    quiet(job, job.run_at - 1)
    accepted = ticked(job, job.run_at, place=55)
    assert names(accepted) == ["due"]
    assert (accepted.job.state, accepted.job.place, accepted.job.run_at) == ("available", 55, None)
    assert accepted.job.enqueued_at == accepted.job.ready_at == job.run_at


def test_a_held_job_becomes_due_all_the_same_and_arrives_held() -> None:
    job = ticked(scheduled(held=True), NOW + 60 * SECOND).job
    assert (job.state, job.held) == ("available", True)


@pytest.mark.parametrize("make", [scheduled, available, retryable])
@pytest.mark.parametrize("held", [False, True])
def test_a_waiting_job_expires_gated_or_not(make: Any, held: bool) -> None:
    job = make(expires_at=NOW + 3 * SECOND)
    if held:
        job = take(job, j.Hold(), USER).job
    quiet(job, NOW + 3 * SECOND - 1)
    accepted = ticked(job, NOW + 3 * SECOND, gate=j.Gate(closed=True))
    assert names(accepted) == ["expire"]
    assert (accepted.job.state, accepted.job.cause) == ("discarded", "ttl")
    assert accepted.events[0].code == "expired"


def test_expiry_goes_before_being_due() -> None:
    job = scheduled(expires_at=NOW + 60 * SECOND)
    assert names(ticked(job, NOW + 60 * SECOND)) == ["expire"]


@pytest.mark.parametrize("make", [pending, active])
def test_a_job_in_somebodys_hands_does_not_expire(make: Any) -> None:
    quiet(make(expires_at=NOW + 1, deadlines=Deadlines()), NOW + 99 * SECOND, lease=ALIVE)


def test_a_job_of_a_deleted_queue_is_dropped() -> None:
    accepted = ticked(scheduled(), NOW, gate=j.Gate(queue_deleted=True))
    assert names(accepted) == ["drop"]
    assert (accepted.job.cause, accepted.events[0].code) == ("queue_deleted", "queue_deleted")


@pytest.mark.parametrize("state", ["completed", "discarded", "cancelled"])
def test_time_does_nothing_to_an_ended_job(state: str) -> None:
    quiet(MAKERS[state](), NOW * 9, lease=LOST, gate=j.Gate(queue_deleted=True))


# --- the limit of available -------------------------------------------------------------


def test_a_job_that_waited_too_long_for_a_worker_is_discarded() -> None:
    job = available(profile="engine")
    quiet(job, NOW + 30 * SECOND - 1)
    accepted = ticked(job, NOW + 30 * SECOND)
    assert (accepted.job.state, accepted.job.cause) == ("discarded", "deadline")
    assert accepted.events[0].code == "QUEUE_TIMEOUT"


def test_the_limit_of_available_stands_still_while_held_or_gated() -> None:
    late = NOW + 999 * SECOND
    quiet(available(profile="engine", held=True), late)
    quiet(available(profile="engine"), late, gate=j.Gate(closed=True))


def test_the_limit_of_available_restarts_in_full_when_the_gate_opens() -> None:
    gate = j.Gate(opened_at=NOW + 100 * SECOND)
    quiet(available(profile="engine"), NOW + 130 * SECOND - 1, gate=gate)
    assert ticked(available(profile="engine"), NOW + 130 * SECOND, gate=gate).job.ended_at


def test_a_gate_that_opened_before_the_job_came_does_not_shorten_its_limit() -> None:
    gate = j.Gate(opened_at=NOW - 100 * SECOND)
    quiet(available(profile="engine"), NOW + 30 * SECOND - 1, gate=gate)
    assert j.next_wake(available(profile="engine"), gate=gate) == NOW + 30 * SECOND


def test_the_limit_of_available_restarts_on_activation() -> None:
    job = take(available(profile="engine", held=True), j.Activate(), USER, now=NOW + 9 * SECOND).job
    quiet(job, NOW + 39 * SECOND - 1)
    assert ticked(job, NOW + 39 * SECOND).job.cause == "deadline"


def test_of_two_ways_to_run_out_the_earlier_one_is_named() -> None:
    job = available(profile="engine", expires_at=NOW + 31 * SECOND)
    assert ticked(job, NOW + 99 * SECOND).job.cause == "deadline"
    job = available(profile="engine", expires_at=NOW + 30 * SECOND)
    assert ticked(job, NOW + 99 * SECOND).job.cause == "ttl"


def test_a_scheduled_job_has_no_limit_of_available() -> None:
    quiet(scheduled(profile="engine"), NOW + 59 * SECOND)


# --- the limits of pending and active ---------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "code"),
    [
        ("python", "not_acknowledged"),
        ("ojs", "not_acknowledged"),
        ("rest", "WORKER_LOST"),
        ("jobnik", "not_acknowledged"),
        ("engine", "ENGINE_NOT_RESPONDING"),
    ],
)
def test_an_offer_that_is_not_acknowledged_times_out(profile: str, code: str) -> None:
    job = pending(profile=profile, delivery="push", deadlines=LIMITS)
    quiet(job, NOW + 10 * SECOND - 1, lease=ALIVE)
    accepted = ticked(job, NOW + 10 * SECOND, lease=ALIVE)
    assert accepted.events[0].name == "time_out"
    assert (accepted.events[0].code, accepted.job.failures) == (code, 1)


def test_a_receipt_replaces_the_limit_of_pending_by_the_start_limit() -> None:
    job = take(pending(), j.Receive(lease="L1", start_us=60 * SECOND), WORKER, now=NOW + 5).job
    quiet(job, NOW + 5 + 60 * SECOND - 1)
    assert names(ticked(job, NOW + 5 + 60 * SECOND)) == ["time_out"]


@pytest.mark.parametrize(
    ("profile", "code"),
    [
        ("python", "timeout"),
        ("ojs", "timeout"),
        ("rest", "TIMEOUT"),
        ("jobnik", "timeout"),
        ("engine", "JOB_TIMEOUT"),
    ],
)
def test_a_run_that_takes_too_long_times_out(profile: str, code: str) -> None:
    job = active(profile=profile, deadlines=LIMITS)
    quiet(job, NOW + 60 * SECOND - 1, lease=ALIVE)
    accepted = ticked(job, NOW + 60 * SECOND, lease=ALIVE)
    assert (accepted.events[0].name, accepted.events[0].code) == ("time_out", code)


def test_a_time_out_with_tries_left_waits_by_the_policy() -> None:
    job = ticked(active(deadlines=LIMITS), NOW + 60 * SECOND, verdict=AGAIN).job
    assert (job.state, job.run_at, job.returned_by) == ("retryable", NOW + 65 * SECOND, "time_out")
    final = ticked(active(deadlines=LIMITS), NOW + 60 * SECOND, verdict=NEVER).job
    assert (final.state, final.cause) == ("discarded", "not_retryable")


def test_holds_and_gates_do_not_stop_the_limit_of_a_run() -> None:
    job = take(active(deadlines=LIMITS), j.Hold(), USER).job
    assert names(ticked(job, NOW + 60 * SECOND, gate=j.Gate(closed=True))) == ["time_out"]


def test_each_limit_restarts_on_entry() -> None:
    job = active(deadlines=LIMITS)
    job = take(job, j.HandBack(lease="L1"), WORKER, now=NOW + 59 * SECOND).job
    job = take(job, j.Claim("L2", "w"), WORKER, now=NOW + 59 * SECOND, lease=ALIVE).job
    quiet(job, NOW + 60 * SECOND)


# --- leases -----------------------------------------------------------------------------


def test_a_wire_lease_that_ran_out_is_a_loss() -> None:
    job = active(wire=True)
    quiet(job, NOW + 5, lease=j.Lease(NOW + 6))
    assert names(ticked(job, NOW + 6, lease=j.Lease(NOW + 6))) == ["lose", "due"]


def test_a_worker_row_is_a_loss_only_once_it_is_marked_lost() -> None:
    quiet(active(), NOW + 99, lease=j.Lease(NOW))
    assert names(ticked(active(), NOW, lease=LOST)) == ["lose", "due"]


def test_a_lease_that_was_not_looked_at_loses_nothing() -> None:
    quiet(active(wire=True), NOW + 10**15)


def test_an_engine_that_is_gone_loses_its_offers() -> None:
    accepted = ticked(pending(), NOW, lease=LOST)
    assert (names(accepted), accepted.events[0].code) == (["lose"], "ENGINE_DISCONNECTED")


# --- being called off -------------------------------------------------------------------


def test_a_cancel_that_nobody_answers_is_forced_after_grace_and_lease() -> None:
    job = cancelling()
    quiet(job, NOW + 25 * SECOND - 1)
    accepted = ticked(job, NOW + 25 * SECOND)
    assert names(accepted) == ["cancel"]
    assert (accepted.job.state, accepted.job.cause) == ("cancelled", "forced")


def test_a_time_out_while_being_called_off_ends_cancelled_and_free() -> None:
    job = cancelling(deadlines=Deadlines(active_us=5 * SECOND))
    accepted = ticked(job, NOW + 5 * SECOND)
    assert (names(accepted), accepted.job.cause) == (["cancel"], "time_out")
    assert (accepted.job.failures, accepted.events[0].code) == (0, "timeout")


@pytest.mark.parametrize(
    ("active_us", "lease", "cause"),
    [
        (25 * SECOND, j.Lease(NOW + 25 * SECOND), "forced"),
        (24 * SECOND, j.Lease(NOW + 24 * SECOND), "time_out"),
        (25 * SECOND, j.Lease(NOW + 24 * SECOND), "lose"),
        (24 * SECOND, LOST, "lose"),
    ],
)
def test_of_several_things_due_the_earliest_goes_first_and_ties_have_an_order(
    active_us: int, lease: j.Lease, cause: str
) -> None:
    """At one instant a cancel goes before a limit before a loss; a lost holder is instant 0."""
    limits = Deadlines(active_us=active_us)
    job = cancelling(wire=True, lease_us=15 * SECOND, deadlines=limits)
    assert ticked(job, NOW + 99 * SECOND, lease=lease).job.cause == cause


# --- when to look -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "wake"),
    [
        (scheduled(), NOW + 60 * SECOND),
        (scheduled(expires_at=NOW + 7), NOW + 7),
        (retryable(), NOW + 5 * SECOND),
        (available(), None),
        (available(expires_at=NOW + 7), NOW + 7),
        (available(profile="engine"), NOW + 30 * SECOND),
        (available(profile="engine", expires_at=NOW + 7), NOW + 7),
        (available(profile="engine", held=True), None),
        (pending(), NOW + 10 * SECOND),
        (pending(wire=True, deadlines=Deadlines()), NOW + 1_800 * SECOND),
        (take(pending(), j.Receive(lease="L1", start_us=3), WORKER).job, NOW + 3),
        (active(), None),
        (active(profile="engine"), NOW + 60 * SECOND),
        (active(wire=True, lease_us=9), NOW + 9),
        (cancelling(), NOW + 25 * SECOND),
        (cancelling(deadlines=Deadlines(active_us=5)), NOW + 5),
        *((MAKERS[state](), None) for state in ("completed", "discarded", "cancelled")),
    ],
)
def test_the_next_wake_is_the_earliest_thing_that_time_can_do(job: j.Job, wake: int | None) -> None:
    assert j.next_wake(job) == wake


def test_a_closed_gate_pushes_the_wake_by_a_whole_limit_from_now() -> None:
    job, closed = available(profile="engine"), j.Gate(closed=True)
    assert j.next_wake(job, NOW + 9, gate=closed) == NOW + 9 + 30 * SECOND
    assert j.next_wake(job, NOW - 99, gate=closed) == NOW + 30 * SECOND
    assert j.next_wake(available(), NOW + 9, gate=closed) is None


def test_an_opened_gate_restarts_the_wake() -> None:
    gate = j.Gate(opened_at=NOW + 9)
    assert j.next_wake(available(profile="engine"), gate=gate) == NOW + 9 + 30 * SECOND


def test_the_true_end_of_a_lease_is_used_when_it_is_known() -> None:
    assert j.next_wake(active(wire=True, lease_us=9), lease=j.Lease(NOW + 99)) == NOW + 99
    assert j.next_wake(active(), lease=j.Lease(NOW + 99)) is None


def test_a_job_without_limits_has_no_ends() -> None:
    job = active()
    assert limit_end(job) is None
    assert lease_end(job, None) is None
    assert ready_end(job, j.OPEN) is None
    assert ready_end(available(), j.OPEN) is None
