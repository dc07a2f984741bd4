"""What each command does to a job, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from detent.errors import BadHistory
from detent.lifecycle import job as j
from detent.lifecycle.event import By, Charge
from detent.lifecycle.job.commands import Report
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import PROFILES, Deadlines
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
    ask,
    available,
    cancelled,
    cancelling,
    completed,
    ctx,
    discarded,
    names,
    pending,
    refused,
    retryable,
    scheduled,
    take,
)

LIVE = ("scheduled", "available", "pending", "active", "retryable")
ENDED = ("completed", "discarded", "cancelled")


# --- being created ----------------------------------------------------------------------


def test_a_job_without_a_start_time_or_with_a_past_one_is_available_at_once() -> None:
    for run_at in (None, NOW - 1, NOW):
        job = available(run_at=run_at)
        assert (job.state, job.enqueued_at, job.ready_at, job.place) == ("available", NOW, NOW, 1)
        assert job.run_at is None


def test_a_job_with_a_future_start_is_scheduled_and_has_no_place_yet() -> None:
    job = available(run_at=NOW + 1)
    assert (job.state, job.run_at, job.place, job.enqueued_at) == ("scheduled", NOW + 1, None, None)


def test_a_new_job_takes_what_it_was_not_told_from_its_profile() -> None:
    for name, profile in PROFILES.items():
        job = available(profile=name)
        assert job.allowed == profile.allowed
        assert job.losses_allowed == profile.losses_allowed
        assert job.delivery is profile.delivery
        limits = Deadlines(job.available_us, job.pending_us, job.active_us)
        assert limits == profile.deadlines


def test_a_new_job_keeps_what_it_was_told() -> None:
    job = available(
        profile="python",
        tenant="acme",
        queue="gpu",
        priority=7,
        delivery="push",
        allowed=4,
        losses_allowed=9,
        deadlines=Deadlines(1, 2, 3),
        expires_at=NOW + 9,
        held=True,
        workflow="flow-1",
        step="step-1",
    )
    assert (job.tenant, job.queue, job.priority, job.delivery) == ("acme", "gpu", 7, "push")
    assert (job.allowed, job.losses_allowed, job.expires_at, job.held) == (4, 9, NOW + 9, True)
    assert (job.available_us, job.pending_us, job.active_us) == (1, 2, 3)
    assert (job.workflow, job.step, job.cause, job.rerun_of) == ("flow-1", "step-1", None, None)


def test_a_rerun_is_a_new_job_that_names_the_old_one() -> None:
    again = j.Enqueue(id="job-2", profile="python", rerun_of="job-1")
    accepted = take(None, again, USER, reason="the disk was full")
    assert (accepted.job.rerun_of, accepted.job.cause) == ("job-1", None)
    assert accepted.events[0].cause == "rerun"
    assert available().cause is None


def test_a_rerun_needs_a_reason_and_a_profile_that_knows_again() -> None:
    again = j.Enqueue(id="job-2", profile="python", rerun_of="job-1")
    for reason in (None, ""):
        assert refused(None, again, USER, reason=reason).code == "reason_needed"
    task = j.Enqueue(id="job-2", profile="jobnik", rerun_of="job-1")
    assert refused(None, task, USER, reason="please").code == "never_again"


def test_a_job_that_is_born_expired_ends_in_the_same_commit() -> None:
    accepted = take(None, j.Enqueue(id="job-2", profile="python", expires_at=NOW), USER)
    assert names(accepted) == ["enqueue", "expire"]
    assert (accepted.job.state, accepted.job.cause) == ("discarded", "ttl")


def test_a_job_that_is_born_into_a_deleted_queue_is_dropped_in_the_same_commit() -> None:
    gate = j.Gate(queue_deleted=True)
    accepted = take(None, j.Enqueue(id="job-2", profile="python"), USER, gate=gate)
    assert names(accepted) == ["enqueue", "drop"]
    assert accepted.events[1].code == accepted.job.cause == "queue_deleted"


@pytest.mark.parametrize(
    ("code", "wish"),
    [
        ("unknown_profile", {"profile": "celery"}),
        ("runs_once", {"profile": "rest", "allowed": 2}),
        ("bad_value", {"allowed": 0}),
        ("bad_value", {"losses_allowed": 0}),
        ("bad_value", {"delivery": "carrier pigeon"}),
        ("bad_value", {"deadlines": Deadlines(available_us=0)}),
        ("bad_value", {"deadlines": Deadlines(pending_us=-1)}),
        ("bad_value", {"deadlines": Deadlines(active_us=0)}),
    ],
)
def test_an_impossible_wish_is_refused_before_anything_exists(code: str, wish: Any) -> None:
    refusal = refused(None, j.Enqueue(id="job-2", **{"profile": "python", **wish}), USER)
    assert (refusal.code, refusal.state, refusal.event) == (code, None, "enqueue")
    assert refusal.target == "available"


def test_a_rest_job_may_say_that_it_runs_once() -> None:
    assert available(profile="rest", allowed=1).allowed == 1


def test_a_worker_may_not_enqueue_and_an_existing_job_is_not_enqueued_again() -> None:
    assert refused(None, j.Enqueue(id="x", profile="python"), WORKER).code == "wrong_actor"
    again = refused(available(), j.Enqueue(id="x", profile="python"), USER)
    assert (again.code, again.state) == ("no_edge", "available")


def test_every_event_says_who_when_and_why() -> None:
    enqueue = j.Enqueue(id="job-9", tenant="acme", profile="python")
    [event] = take(None, enqueue, USER, reason="the customer asked").events
    assert (event.tenant, event.record, event.version, event.at) == ("acme", "job-9", 1, NOW)
    assert (event.actor, event.actor_id, event.command_id) == ("user", "ada", "command-1")
    assert (event.reason, event.kind) == ("the customer asked", "job")


def test_the_reason_belongs_to_what_was_asked_not_to_what_followed() -> None:
    moved, settled = take(active(), j.HandBack(lease="L1"), WORKER, reason="deploy").events
    assert (moved.reason, settled.reason) == ("deploy", None)


def test_a_new_job_was_created_and_entered_its_state_now() -> None:
    job = available()
    assert (job.created_at, job.state_at, job.last_at, job.version) == (NOW, NOW, NOW, 1)


# --- nobody may ask anything of a job that is not there ---------------------------------


def test_a_command_to_no_job_at_all_is_refused() -> None:
    refusal = refused(None, j.Complete(lease="L1"), WORKER)
    assert (refusal.code, refusal.event, refusal.detail) == (
        "unknown_job",
        "complete",
        "no such job",
    )


# --- being taken ------------------------------------------------------------------------


def test_a_claim_starts_the_job_under_a_lease() -> None:
    accepted = take(available(), j.Claim("L1", "w1"), WORKER, now=NOW + 5, lease=ALIVE)
    job = accepted.job
    assert (job.state, job.lease, job.holder, job.wire) == ("active", "L1", "w1", False)
    assert (job.attempt, job.claimed_at, job.started_at, job.lease_us) == (
        1,
        NOW + 5,
        NOW + 5,
        None,
    )
    [event] = accepted.events
    assert (event.lease, event.holder, event.wire, event.lease_us) == ("L1", "w1", False, None)


def test_a_wire_claim_has_a_lease_row_as_long_as_asked_or_as_the_profile_says() -> None:
    asked = take(available(), j.Claim("L1", "w1", wire=True, lease_us=9), WORKER)
    assert (asked.job.wire, asked.job.lease_us) == (True, 9)
    silent = take(available(), j.Claim("L1", "w1", wire=True), WORKER)
    assert silent.job.lease_us == PROFILES["python"].lease_us == 1_800 * SECOND


@pytest.mark.parametrize(
    ("code", "more"),
    [
        ("holder_lost", {"lease": LOST}),
        ("holder_lost", {"lease": j.Lease(NOW)}),
        ("holder_lost", {"lease": None}),
        ("gate_closed", {"lease": ALIVE, "gate": j.Gate(closed=True)}),
        ("gate_closed", {"lease": ALIVE, "gate": j.Gate(queue_deleted=True)}),
    ],
)
def test_a_claim_needs_a_living_holder_and_an_open_gate(code: str, more: Any) -> None:
    refusal = refused(available(), j.Claim("L1", "w1"), WORKER, **more)
    assert (refusal.code, refusal.target) == (code, "active")
    push = refused(available(profile="engine"), j.Dispatch("L1", "w1"), SYSTEM, **more)
    assert (push.code, push.target) == (code, "pending")


def test_a_held_job_is_not_claimed() -> None:
    assert refused(available(held=True), j.Claim("L1", "w"), WORKER, lease=ALIVE).code == "held"


def test_only_claim_and_dispatch_look_at_the_clock_for_expiry() -> None:
    job = available(expires_at=NOW + 1)
    assert take(job, j.Claim("L1", "w"), WORKER, lease=ALIVE).job.state == "active"
    late = refused(job, j.Claim("L1", "w"), WORKER, now=NOW + 1, lease=ALIVE)
    assert late.code == "expired"
    engine = available(profile="engine", expires_at=NOW + 1)
    late = refused(engine, j.Dispatch("L1", "w"), SYSTEM, now=NOW + 1, lease=ALIVE)
    assert late.code == "expired"


def test_a_push_job_is_never_claimed_and_a_pull_job_never_dispatched() -> None:
    engine = available(profile="engine")
    assert refused(engine, j.Claim("L", "w"), WORKER, lease=ALIVE).code == "delivery"
    assert refused(available(), j.Dispatch("L", "w"), SYSTEM, lease=ALIVE).code == "delivery"


def test_a_push_job_may_not_skip_pending() -> None:
    engine = available(profile="engine")
    for command in (j.Acknowledge(), j.Complete()):
        assert refused(engine, command, WORKER).code == "no_edge"
    assert refused(pending(), j.Complete(lease="L1"), WORKER).code == "no_edge"


def test_dispatch_offers_and_acknowledge_starts_under_the_same_lease() -> None:
    offered = take(available(profile="engine"), j.Dispatch("L1", "e1"), SYSTEM, lease=ALIVE).job
    assert (offered.state, offered.lease, offered.holder, offered.attempt) == (
        "pending",
        "L1",
        "e1",
        1,
    )
    assert (offered.claimed_at, offered.started_at) == (NOW, None)
    started = take(offered, j.Acknowledge(lease="L1"), WORKER, now=NOW + 3).job
    assert (started.state, started.lease, started.attempt) == ("active", "L1", 1)
    assert (started.claimed_at, started.started_at) == (NOW, NOW + 3)


def test_an_engine_that_queues_locally_says_so_once() -> None:
    accepted = take(pending(), j.Receive(lease="L1", start_us=9), WORKER, now=NOW + 2)
    assert (accepted.job.state, accepted.job.received_at, accepted.job.start_us) == (
        "pending",
        NOW + 2,
        9,
    )
    again = ask(accepted.job, j.Receive(lease="L1", start_us=9), WORKER)
    assert isinstance(again, j.Unchanged)
    assert refused(pending(), j.Receive(lease="L1", start_us=0), WORKER).code == "bad_value"


def test_what_an_engine_received_is_forgotten_when_the_offer_ends() -> None:
    received = take(pending(allowed=2), j.Receive(lease="L1", start_us=9), WORKER).job
    back = take(received, j.HandBack(), SYSTEM).job
    assert (back.received_at, back.start_us, back.lease) == (None, None, None)


# --- under which lease ------------------------------------------------------------------

REPORTS: tuple[Report, ...] = (
    j.Complete(),
    j.Fail(code="x"),
    j.Snooze(delay_us=1),
    j.HandBack(),
    j.ConfirmCancel(),
    j.SeeCancel(),
    j.Interrupt(),
    j.Checkpoint(digest="d"),
)


def named(report: Report, lease: str | None, holder: str | None = None) -> Any:
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    return type(report)(**{**fields, "lease": lease, "holder": holder})


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_under_a_lease_that_is_over_hears_who_won(report: Report) -> None:
    taken_over = refused(active(), named(report, "L0"), WORKER)
    assert taken_over.code == "lease_ended"
    assert "held by w1" in taken_over.detail
    done = refused(completed(), named(report, "L1"), WORKER)
    assert done.code == "lease_ended"
    assert "completed (succeeded)" in done.detail


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_of_our_own_worker_must_name_its_lease(report: Report) -> None:
    job = cancelling()
    assert refused(job, named(report, None), WORKER).code == "lease_required"


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_wire_report_without_a_lease_means_the_current_one_of_that_holder(report: Report) -> None:
    job = cancelling(wire=True)
    assert refused(job, named(report, None, "stranger"), WORKER).code == "not_holder"
    for holder in (None, "w1"):
        assert isinstance(ask(job, named(report, None, holder), WORKER), j.Accepted)


def test_the_same_report_twice_moves_the_job_once() -> None:
    job = completed()
    assert refused(job, j.Complete(lease="L1"), WORKER).code == "lease_ended"
    assert refused(job, j.Complete(), WORKER).code == "final"


# --- ends and returns -------------------------------------------------------------------


def test_a_success_completes() -> None:
    accepted = take(active(), j.Complete(lease="L1", digest="abc"), WORKER, now=NOW + 4)
    job = accepted.job
    assert (job.state, job.ended_at, job.cause, job.lease) == (
        "completed",
        NOW + 4,
        "succeeded",
        None,
    )
    assert (job.holder, job.previous, accepted.events[0].digest) == ("w1", "active", "abc")


def test_a_failure_with_tries_left_waits_as_long_as_the_policy_says() -> None:
    accepted = take(active(), j.Fail(lease="L1", code="boom", digest="d"), WORKER, now=NOW + 1)
    job = accepted.job
    assert (job.state, job.failures, job.losses) == ("retryable", 1, 0)
    assert (job.run_at, job.delay_us, job.returned_by) == (NOW + 1 + 5 * SECOND, 5 * SECOND, "fail")
    assert job.cause is None
    [event] = accepted.events
    assert (event.code, event.charged, event.digest) == ("boom", Charge.FAILURE, "d")
    assert (event.run_at, event.delay_us) == (job.run_at, job.delay_us)


def test_the_nth_charged_failure_is_final() -> None:
    job = active(allowed=2)
    job = take(job, j.Fail(lease="L1", code="one"), WORKER).job
    job = take(job, j.Reschedule(NOW), USER).job
    job = take(job, j.Claim("L2", "w2"), WORKER, lease=ALIVE).job
    ended = take(job, j.Fail(lease="L2", code="two"), WORKER).job
    assert (ended.state, ended.failures, ended.cause, ended.attempt) == (
        "discarded",
        2,
        "exhausted",
        2,
    )


def test_a_failure_that_is_not_retryable_is_final_at_once_and_says_why() -> None:
    ended = take(active(), j.Fail(lease="L1", code="x"), WORKER, verdict=NEVER).job
    assert (ended.state, ended.failures, ended.cause) == ("discarded", 1, "not_retryable")


def test_the_system_may_fail_a_job_for_good_but_not_for_another_try() -> None:
    assert take(active(), j.Fail(code="x"), SYSTEM, verdict=NEVER).job.state == "discarded"
    assert refused(active(), j.Fail(code="x"), SYSTEM).code == "wrong_actor"


def test_an_engine_that_declines_an_offer_charges_a_failure() -> None:
    final = take(pending(), j.Refuse(lease="L1", code="busy"), WORKER)
    assert (final.job.state, final.job.failures, final.events[0].code) == ("discarded", 1, "busy")
    again = take(pending(allowed=2), j.Refuse(lease="L1", code="busy"), WORKER)
    assert (again.job.state, again.job.returned_by) == ("retryable", "refuse")


def test_a_snooze_charges_nothing_and_zero_means_at_once_at_the_back_of_the_queue() -> None:
    job = take(active(), j.Snooze(lease="L1", delay_us=9), WORKER).job
    assert (job.state, job.run_at, job.failures, job.handed_back) == ("retryable", NOW + 9, 0, 0)
    at_once = take(active(), j.Snooze(lease="L1", delay_us=0), WORKER, place=55)
    assert names(at_once) == ["snooze", "due"]
    assert (at_once.job.state, at_once.job.place) == ("available", 55)
    assert refused(active(), j.Snooze(lease="L1", delay_us=-1), WORKER).code == "bad_value"


@pytest.mark.parametrize("by", [WORKER, SYSTEM])
def test_a_hand_back_charges_nothing_and_keeps_its_place(by: By) -> None:
    accepted = take(active(), j.HandBack(lease="L1"), by, place=55)
    job = accepted.job
    assert names(accepted) == ["hand_back", "due"]
    assert (job.state, job.place, job.handed_back) == ("available", 1, 1)
    assert (job.failures, job.losses, job.attempt, job.returned_by) == (0, 0, 1, "hand_back")
    assert {event.command_id for event in accepted.events} == {"command-1"}
    assert (accepted.events[1].actor, accepted.events[1].actor_id) == ("system", "settle")


def test_the_word_for_why_it_waits_is_forgotten_when_it_is_taken_again() -> None:
    job = take(active(), j.HandBack(lease="L1"), WORKER).job
    assert take(job, j.Claim("L2", "w2"), WORKER, lease=ALIVE).job.returned_by is None
    offered = take(active(profile="engine"), j.HandBack(lease="L1"), WORKER).job
    assert offered.returned_by == "hand_back"
    assert take(offered, j.Dispatch("L2", "w2"), SYSTEM, lease=ALIVE).job.returned_by is None


def test_how_a_job_last_came_back_outlives_its_end() -> None:
    job = take(retryable(), j.Cancel(), USER).job
    assert (job.cause, job.returned_by) == ("requested", "fail")
    assert refused(retryable(), j.Complete(lease="L1"), WORKER).detail.endswith("retryable (fail)")


def test_a_rest_job_is_neither_snoozed_nor_handed_back() -> None:
    job = active(profile="rest")
    assert refused(job, j.Snooze(lease="L1", delay_us=1), WORKER).code == "runs_once"
    assert refused(job, j.HandBack(lease="L1"), WORKER).code == "runs_once"
    pushed = pending(profile="rest", delivery="push")
    assert refused(pushed, j.HandBack(), SYSTEM).code == "runs_once"


# --- losses -----------------------------------------------------------------------------


def test_a_loss_goes_back_at_once_and_its_charge_is_written_down() -> None:
    accepted = take(active(), j.Lose(), SYSTEM, lease=LOST, place=55)
    job = accepted.job
    assert names(accepted) == ["lose", "due"]
    assert (job.state, job.losses, job.failures, job.place) == ("available", 1, 0, 55)
    assert (accepted.events[0].code, accepted.events[0].charged) == ("lease_lost", Charge.LOSS)


@pytest.mark.parametrize(
    ("profile", "state", "charged", "code"),
    [
        ("python", "available", Charge.LOSS, "lease_lost"),
        ("ojs", "available", Charge.BOTH, "visibility_timeout"),
        ("rest", "discarded", Charge.BOTH, "WORKER_LOST"),
        ("jobnik", "available", Charge.LOSS, "lease_lost"),
        ("engine", "discarded", Charge.BOTH, "ENGINE_DISCONNECTED"),
    ],
)
def test_what_a_loss_costs_is_the_profiles(
    profile: str, state: str, charged: Charge, code: str
) -> None:
    accepted = take(active(profile=profile), j.Lose(), SYSTEM, lease=LOST)
    assert (accepted.job.state, accepted.job.losses) == (state, 1)
    assert (accepted.events[0].charged, accepted.events[0].code) == (charged, code)


def test_a_job_that_keeps_killing_its_workers_is_discarded_as_poison() -> None:
    job = available()
    for number in range(3):
        job = take(job, j.Claim(f"L{number}", "w"), WORKER, lease=ALIVE).job
        accepted = take(job, j.Lose(), SYSTEM, lease=LOST)
        job = accepted.job
    assert (job.state, job.losses, job.failures, job.cause) == ("discarded", 3, 0, "poison")
    assert accepted.events[0].code == "POISON"


@pytest.mark.parametrize("profile", ["python", "jobnik"])
def test_the_end_of_a_wire_lease_never_poisons_a_jobnik_task(profile: str) -> None:
    job = active(profile=profile, losses_allowed=2, wire=True)
    job = take(job, j.Lose(), SYSTEM, lease=LOST).job
    job = take(job, j.Claim("L2", "w", wire=True), WORKER).job
    after = take(job, j.Lose(), SYSTEM, lease=LOST)
    is_spared = profile == "jobnik"
    assert (after.job.state, after.job.losses) == ("available" if is_spared else "discarded", 2)
    assert j.doubted(job, after.events[0]) is None
    if is_spared:
        # A worker of ours whose death is proven is another matter.
        job = take(after.job, j.Claim("L3", "w"), WORKER, lease=ALIVE).job
        after = take(job, j.Lose(), SYSTEM, lease=LOST)
        assert (after.job.state, after.job.cause) == ("discarded", "poison")


# --- late reports -----------------------------------------------------------------------


def late(job: j.Job | None, report: j.Report) -> j.Answer:
    claim = j.Claim("L2", "jobnik", wire=True, lease_us=SECOND)
    return j.decide_late(job, claim, report, NOW, ctx(WORKER))


@pytest.mark.parametrize(
    ("report", "state"),
    [(j.Complete(lease="L1"), "completed"), (j.Fail(lease="L1", code="no"), "retryable")],
)
def test_a_late_report_takes_a_lost_job_again_and_ends_it_in_one_commit(
    report: j.Report, state: str
) -> None:
    lost = take(active(profile="jobnik", allowed=2, wire=True), j.Lose(), SYSTEM, lease=LOST).job
    assert lost.is_lost
    answer = late(lost, report)
    assert isinstance(answer, j.Accepted)
    assert names(answer) == ["claim", report.event]
    assert [event.lease for event in answer.events] == ["L2", None]
    assert (answer.job.state, answer.job.attempt, answer.job.losses) == (state, 2, 1)
    assert not answer.job.is_lost


def test_only_what_was_lost_and_is_still_free_takes_a_late_report() -> None:
    lost = take(active(profile="jobnik", wire=True), j.Lose(), SYSTEM, lease=LOST).job
    taken = take(lost, j.Claim("L3", "jobnik", wire=True), WORKER).job
    cancelled = take(lost, j.Cancel(j.Cause.WORKFLOW), SYSTEM).job
    for job in (available(profile="jobnik"), retryable(allowed=2), taken, cancelled, completed()):
        answer = late(job, j.Complete())
        assert isinstance(answer, Refusal)
        assert answer.code == "not_lost"
    held = late(take(lost, j.Hold(), USER).job, j.Complete())
    unknown = late(None, j.Complete())
    assert isinstance(held, Refusal)
    assert isinstance(unknown, Refusal)
    assert (held.code, unknown.code) == ("held", "unknown_job")


def test_a_charging_profile_ends_by_failures_alone() -> None:
    job = available(profile="ojs", allowed=5)
    for number in range(5):
        assert job.state == "available"
        job = take(job, j.Claim(f"L{number}", "w"), WORKER, lease=ALIVE).job
        job = take(job, j.Lose(), SYSTEM, lease=LOST).job
    assert (job.state, job.losses, job.failures, job.cause) == ("discarded", 5, 5, "exhausted")


def test_a_lease_that_was_renewed_loses_nothing() -> None:
    for lease in (None, j.Lease(NOW + 1)):
        assert refused(active(wire=True), j.Lose(), SYSTEM, lease=lease).code == "lease_alive"
    assert take(active(wire=True), j.Lose(), SYSTEM, lease=j.Lease(NOW)).job.losses == 1


def test_a_worker_row_that_merely_ran_out_loses_nothing_until_it_is_marked_lost() -> None:
    assert refused(active(), j.Lose(), SYSTEM, lease=j.Lease(NOW)).code == "lease_alive"
    assert refused(cancelling(), j.Lose(), SYSTEM, lease=j.Lease(NOW)).code == "lease_alive"


def test_a_supervisor_reports_its_childs_loss_under_the_lease_of_record() -> None:
    job = active()
    assert take(job, j.Lose(lease="L1"), WORKER, lease=LOST).job.losses == 1
    assert refused(job, j.Lose(), WORKER, lease=LOST).code == "lease_required"


def test_the_code_of_a_loss_can_be_given() -> None:
    accepted = take(active(profile="ojs"), j.Lose(code="worker_death"), SYSTEM, lease=LOST)
    assert accepted.events[0].code == "worker_death"


def test_losing_a_job_that_nobody_holds_is_refused() -> None:
    assert refused(available(), j.Lose(), SYSTEM, lease=LOST).code == "no_edge"


def test_the_loss_of_an_expired_job_ends_it_in_the_same_commit() -> None:
    job = active(expires_at=NOW + 5)
    accepted = take(job, j.Lose(), SYSTEM, now=NOW + 6, lease=LOST)
    assert names(accepted) == ["lose", "expire"]
    assert (accepted.job.state, accepted.job.losses) == ("discarded", 1)


# --- calling off ------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["scheduled", "available", "pending", "retryable"])
@pytest.mark.parametrize("by", [USER, SYSTEM])
def test_a_job_that_is_not_running_is_cancelled_at_once(state: str, by: By) -> None:
    job = take(MAKERS[state](), j.Cancel(), by, now=NOW + 2).job
    assert (job.state, job.cause, job.previous) == ("cancelled", "requested", state)
    assert (job.ended_at, job.lease, job.run_at) == (NOW + 2, None, None)


@pytest.mark.parametrize("profile", ["python", "rest", "engine"])
def test_cooperative_cancel_asks_first_and_asks_once(profile: str) -> None:
    accepted = take(active(profile=profile), j.Cancel(), USER)
    job = accepted.job
    assert names(accepted) == ["cancel_requested"]
    assert accepted.events[0].target is None
    assert (job.state, job.cancel_at, job.lease) == ("active", NOW, "L1")
    assert job.force_at == NOW + (10 + 15) * SECOND
    assert isinstance(ask(job, j.Cancel(), USER), j.Unchanged)


def test_a_wire_holder_gets_its_whole_lease_on_top_of_the_grace() -> None:
    job = take(active(wire=True, lease_us=60 * SECOND), j.Cancel(), USER).job
    assert job.force_at == NOW + (10 + 60) * SECOND


def test_cancel_of_a_running_ojs_job_takes_effect_now() -> None:
    job = take(active(profile="ojs"), j.Cancel(), USER).job
    assert (job.state, job.cause, job.lease) == ("cancelled", "requested", None)


def test_a_jobnik_task_ends_only_through_its_workflow() -> None:
    for state in LIVE:
        delivery = "push" if state == "pending" else "pull"
        job = MAKERS[state](profile="jobnik", allowed=2, delivery=delivery)
        assert refused(job, j.Cancel(), USER).code == "through_workflow"
        ended = take(job, j.Cancel(j.Cause.WORKFLOW), SYSTEM).job
        assert (ended.state, ended.cause) == ("cancelled", "workflow")


def test_only_the_system_may_cancel_without_asking() -> None:
    assert refused(active(), j.Cancel(force=True), USER).code == "force_is_for_system"
    assert take(active(), j.Cancel(force=True), SYSTEM).job.state == "cancelled"


def test_a_cancel_carries_one_of_its_own_causes() -> None:
    assert refused(available(), j.Cancel(j.Cause.POISON), USER).code == "bad_value"
    assert take(available(), j.Cancel(j.Cause.REPLACED), SYSTEM).job.cause == "replaced"


@pytest.mark.parametrize("cause", ["confirmed", "killed", "abandoned"])
def test_a_worker_ends_a_job_as_cancelled_only_when_asked(cause: str) -> None:
    command = j.ConfirmCancel(lease="L1", cause=j.Cause(cause))
    assert refused(active(), command, WORKER).code == "not_asked"
    assert take(cancelling(), command, WORKER).job.cause == cause


def test_a_confirmation_carries_one_of_its_own_causes() -> None:
    command = j.ConfirmCancel(lease="L1", cause=j.Cause.TTL)
    assert refused(cancelling(), command, WORKER).code == "bad_value"


def test_each_rung_of_the_ladder_is_recorded() -> None:
    job = cancelling()
    for command, event in (
        (j.SeeCancel(lease="L1"), "cancel_seen"),
        (j.Interrupt(lease="L1"), "interrupted"),
    ):
        accepted = take(job, command, WORKER)
        assert names(accepted) == [event]
        assert accepted.job.version == job.version + 1
        job = accepted.job
    assert refused(active(), j.SeeCancel(lease="L1"), WORKER).code == "not_asked"


def test_a_success_that_comes_first_wins() -> None:
    job = take(cancelling(), j.Complete(lease="L1"), WORKER).job
    assert (job.state, job.cause, job.cancel_at) == ("completed", "succeeded", NOW)


def test_a_reported_failure_with_nothing_left_is_still_a_failure() -> None:
    for job, verdict in ((cancelling(allowed=1), AGAIN), (cancelling(), NEVER)):
        ended = take(job, j.Fail(lease="L1", code="x"), WORKER, verdict=verdict).job
        assert (ended.state, ended.failures) == ("discarded", 1)


@pytest.mark.parametrize(
    ("command", "by", "word"),
    [
        (j.Fail(lease="L1", code="x"), WORKER, "fail"),
        (j.Snooze(lease="L1", delay_us=5), WORKER, "snooze"),
        (j.HandBack(lease="L1"), WORKER, "hand_back"),
        (j.HandBack(), SYSTEM, "hand_back"),
        (j.Lose(), SYSTEM, "lose"),
    ],
)
def test_every_other_end_after_a_request_is_cancelled_and_free(
    command: Any, by: By, word: str
) -> None:
    accepted = take(cancelling(), command, by, lease=LOST)
    job = accepted.job
    assert names(accepted) == ["cancel"]
    assert (job.state, job.cause, job.failures, job.losses) == ("cancelled", word, 0, 0)
    assert job.handed_back == 0


def test_the_error_code_survives_an_end_as_cancelled() -> None:
    assert take(cancelling(), j.Fail(lease="L1", code="x"), WORKER).events[0].code == "x"
    assert take(cancelling(), j.Lose(), SYSTEM, lease=LOST).events[0].code == "lease_lost"


# --- amendments -------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVE)
def test_a_hold_is_legal_in_every_live_state_and_idempotent(state: str) -> None:
    job = take(MAKERS[state](), j.Hold(), USER).job
    assert (job.held, job.state) == (True, state)
    assert isinstance(ask(job, j.Hold(), USER), j.Unchanged)


@pytest.mark.parametrize("state", ENDED)
def test_an_ended_job_is_neither_held_moved_nor_reprioritised(state: str) -> None:
    job = MAKERS[state]()
    same: tuple[Any, ...] = (j.Hold(), j.Activate(), j.Reprioritise(0), j.Move("default"))
    for command in (*same, j.Reprioritise(9), j.Move("other"), j.Reschedule(1), j.Drop()):
        by = SYSTEM if isinstance(command, j.Drop) else USER
        assert refused(job, command, by).code == "final"


def test_a_job_that_ended_while_held_is_not_held_again() -> None:
    job = take(take(available(held=True), j.Cancel(), USER).job, j.Annotate("d"), USER).job
    assert job.held
    assert refused(job, j.Hold(), USER).code == "final"


def test_activation_in_available_counts_as_arriving_there() -> None:
    job = take(available(held=True), j.Activate(), USER, now=NOW + 9, place=55).job
    assert (job.held, job.place, job.enqueued_at, job.ready_at) == (False, 55, NOW + 9, NOW + 9)


@pytest.mark.parametrize("state", ["scheduled", "pending", "active", "retryable"])
def test_activation_elsewhere_only_lifts_the_hold(state: str) -> None:
    job = MAKERS[state]()
    after = take(take(job, j.Hold(), USER).job, j.Activate(), USER, now=NOW + 9, place=55).job
    assert (after.held, after.place, after.enqueued_at) == (False, job.place, job.enqueued_at)


def test_what_is_not_held_is_not_activated() -> None:
    assert refused(available(), j.Activate(), USER).code == "not_held"


def test_a_hold_on_a_running_job_bites_on_return() -> None:
    job = take(active(), j.Hold(), USER).job
    job = take(job, j.HandBack(lease="L1"), WORKER).job
    assert (job.state, job.held) == ("available", True)
    assert refused(job, j.Claim("L2", "w"), WORKER, lease=ALIVE).code == "held"


def test_another_priority_keeps_the_place() -> None:
    accepted = take(available(), j.Reprioritise(9), USER, place=55)
    assert (accepted.job.priority, accepted.job.place) == (9, 1)
    assert accepted.events[0].priority == 9
    assert isinstance(ask(accepted.job, j.Reprioritise(9), USER), j.Unchanged)


def test_another_start_time_and_one_that_is_already_due() -> None:
    job = take(scheduled(), j.Reschedule(NOW + 9), USER).job
    assert (job.state, job.run_at) == ("scheduled", NOW + 9)
    assert isinstance(ask(job, j.Reschedule(NOW + 9), USER), j.Unchanged)
    at_once = take(retryable(), j.Reschedule(NOW), SYSTEM, place=55)
    assert names(at_once) == ["rescheduled", "due"]
    assert (at_once.job.state, at_once.job.place) == ("available", 55)


def test_another_queue_takes_a_new_place_and_restarts_the_limit() -> None:
    accepted = take(available(), j.Move("other"), USER, now=NOW + 9, place=55)
    job = accepted.job
    assert (job.queue, job.place, job.ready_at, job.enqueued_at) == ("other", 55, NOW + 9, NOW)
    assert isinstance(ask(job, j.Move("other"), USER), j.Unchanged)
    waiting = take(scheduled(), j.Move("other"), USER, place=55).job
    assert (waiting.queue, waiting.place, waiting.ready_at) == ("other", None, None)


def test_a_checkpoint_is_the_running_workers_or_by_profile_anybodys() -> None:
    accepted = take(active(), j.Checkpoint(lease="L1", digest="d"), WORKER)
    assert (names(accepted), accepted.events[0].digest) == (["checkpointed"], "d")
    assert refused(available(), j.Checkpoint(digest="d"), USER).code == "not_running"
    for state in LIVE:
        delivery = "push" if state == "pending" else "pull"
        job = MAKERS[state](profile="ojs", delivery=delivery)
        assert take(job, j.Checkpoint(digest="d"), USER).job.state == state


@pytest.mark.parametrize("state", [*LIVE, *ENDED])
def test_every_job_ended_ones_too_can_be_annotated(state: str) -> None:
    job = MAKERS[state]()
    accepted = take(job, j.Annotate("d"), USER)
    assert (accepted.job.state, accepted.job.version) == (state, job.version + 1)
    assert accepted.events[0].digest == "d"


@pytest.mark.parametrize("state", ENDED)
def test_an_ended_job_is_erased_once(state: str) -> None:
    job = take(MAKERS[state](), j.Erase(), USER, now=NOW + 9).job
    assert (job.state, job.erased_at) == (state, NOW + 9)
    assert isinstance(ask(job, j.Erase(), USER), j.Unchanged)


def test_a_live_job_is_not_erased() -> None:
    assert refused(active(), j.Erase(), USER).code == "no_edge"


@pytest.mark.parametrize("state", ["scheduled", "available", "retryable"])
@pytest.mark.parametrize("cause", ["overflow", "queue_deleted"])
def test_a_waiting_job_can_be_dropped(state: str, cause: str) -> None:
    accepted = take(MAKERS[state](), j.Drop(j.Cause(cause)), SYSTEM)
    assert (accepted.job.state, accepted.job.cause) == ("discarded", cause)
    assert accepted.events[0].code == cause


def test_a_drop_carries_one_of_its_own_causes() -> None:
    assert refused(available(), j.Drop(j.Cause.TTL), SYSTEM).code == "bad_value"


# --- what every command is held to ------------------------------------------------------


COMMANDS: tuple[Any, ...] = (
    j.Claim("L9", "w9"),
    j.Dispatch("L9", "w9"),
    j.Acknowledge(),
    j.Receive(start_us=1),
    *REPORTS,
    j.Refuse(code="x"),
    j.Lose(),
    j.Cancel(),
    j.Hold(),
    j.Activate(),
    j.Reprioritise(9),
    j.Reschedule(NOW + 1),
    j.Move("other"),
    j.Annotate("d"),
    j.Erase(),
    j.Drop(),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("actor", Actor)
@pytest.mark.parametrize("state", [*LIVE, *ENDED])
def test_every_state_command_and_actor_moves_legally_or_not_at_all(
    state: str, actor: Actor, command: Any
) -> None:
    """All combinations: what is accepted is in the table, what is refused leaves no trace."""
    job = MAKERS[state]()
    answer = ask(job, command, By(actor, "x"), lease=LOST)
    if isinstance(answer, j.Accepted):
        assert answer.events[0].actor is actor
        for event in answer.events:
            assert (event.source, event.name, event.target) in j.JOB.triples
        assert state not in ENDED or {event.target for event in answer.events} == {None}


def test_an_event_is_never_older_than_the_one_before_but_delays_count_from_now() -> None:
    """Order uses the later of the two clocks; what is computed uses the caller's."""
    job = active()
    accepted = take(job, j.Fail(lease="L1", code="x"), WORKER, now=NOW - 50)
    assert accepted.events[0].at == NOW
    assert accepted.job.run_at == NOW - 50 + 5 * SECOND


def test_a_decision_that_would_break_an_invariant_never_gets_out() -> None:
    """The last line of defence: a job that claims to wait after a cancel request is impossible."""
    impossible = cancelled()
    broken = j.Job(
        **{name: getattr(impossible, name) for name in impossible.__struct_fields__}
        | {"cause": None}
    )
    with pytest.raises(BadHistory) as caught:
        j.decide(broken, j.Annotate("d"), NOW, ctx(USER))
    assert "every end has a cause" in caught.value.message
    assert caught.value.fields["version"] == broken.version + 1


def test_discarded_jobs_keep_their_last_holder_for_the_record() -> None:
    assert (discarded().holder, discarded().lease) == ("w1", None)


def test_the_guard_against_waiting_again_holds_even_without_the_planner() -> None:
    """Planning never asks for it; the edge refuses it all the same, should a planner ever do so."""
    guard = j.GUARDS["not_cancelling"]
    unmet = guard(cancelling(), None, NOW, ctx(SYSTEM))
    assert unmet is not None
    assert unmet.code == "cancelling"
    assert guard(active(), None, NOW, ctx(SYSTEM)) is None


# --- what planted bugs once survived ------------------------------------------------------


def test_the_force_of_a_cancel_counts_from_the_callers_clock() -> None:
    job = take(active(), j.Annotate("d"), USER, now=NOW + 9 * SECOND).job
    asked = take(job, j.Cancel(), USER, now=NOW + SECOND)
    assert (asked.events[0].at, asked.job.force_at) == (NOW + 9 * SECOND, NOW + 26 * SECOND)


def test_losses_do_not_count_as_failures_where_the_profile_says_so() -> None:
    job = take(active(allowed=2), j.Lose(), SYSTEM, lease=LOST).job
    job = take(job, j.Claim("L2", "w"), WORKER, lease=ALIVE).job
    assert take(job, j.Fail(lease="L2", code="x"), WORKER).job.state == "retryable"


def test_the_policys_word_for_the_end_is_stronger_than_the_count() -> None:
    ended = take(active(allowed=1), j.Fail(lease="L1", code="x"), WORKER, verdict=NEVER).job
    assert ended.cause == "not_retryable"


def test_a_job_may_be_allowed_more_losses_than_usual() -> None:
    job = available(losses_allowed=5)
    for number in range(4):
        job = take(job, j.Claim(f"L{number}", "w"), WORKER, lease=ALIVE).job
        job = take(job, j.Lose(), SYSTEM, lease=LOST).job
    assert (job.state, job.losses) == ("available", 4)


def test_a_move_to_the_queue_it_is_in_is_nothing_in_any_state() -> None:
    for make in (scheduled, available, retryable):
        assert isinstance(ask(make(), j.Move("default"), USER), j.Unchanged)


def test_nothing_of_a_lease_outlives_it() -> None:
    job = take(active(wire=True, lease_us=9), j.Fail(code="x"), WORKER).job
    assert (job.lease, job.lease_us, job.wire, job.holder) == (None, None, False, "w1")
    job = take(job, j.Reschedule(NOW), USER).job
    job = take(job, j.Claim("L2", "w2"), WORKER, lease=ALIVE).job
    assert refused(job, j.Complete(), WORKER).code == "lease_required"


def test_the_delay_of_an_older_failure_does_not_survive_a_return_without_one() -> None:
    for report in (j.Snooze(lease="L2", delay_us=5), j.HandBack(lease="L2")):
        job = take(retryable(), j.Reschedule(NOW), USER).job
        job = take(job, j.Claim("L2", "w2"), WORKER, lease=ALIVE).job
        assert job.delay_us == 5 * SECOND
        assert take(job, report, WORKER).job.delay_us is None


def test_a_start_of_just_now_is_no_start_in_the_future() -> None:
    accepted = take(None, j.Enqueue(id="job-1", profile="python", run_at=NOW), USER)
    assert names(accepted) == ["enqueue"]


def test_a_holder_is_its_whole_name() -> None:
    job = active(wire=True)
    for holder in ("w", "w11", "W1"):
        assert refused(job, j.Complete(holder=holder), WORKER).code == "not_holder"


def test_activation_is_remembered() -> None:
    job = take(available(held=True), j.Activate(), USER, now=NOW + 3).job
    assert (job.activated_at, available().activated_at) == (NOW + 3, None)
    assert take(take(active(), j.Hold(), USER).job, j.Activate(), USER).job.activated_at == NOW
