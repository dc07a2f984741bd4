"""Each document's own rules, row by row, about jobs that were really decided into their states."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest

from detent.lifecycle import job as j
from detent.lifecycle.profile import PROFILES
from detent.lifecycle.replay import at_version
from detent.lifecycle.retry import Verdict
from detent.lifecycle.views import (
    CANCELLED_CODE,
    CATEGORIES,
    DEFAULT_PRIORITY,
    JOBNIK_PRIORITIES,
    OJS_PRIORITIES,
    OJS_WORKFLOW_WORDS,
    OLD_NAMES,
    STAGE_WORDS,
    SUMMARY_KEYS,
    TELEMETRY,
    TELEMETRY_PROGRESS,
    VIEWS,
    WORKFLOW_WORDS,
    Category,
    Shown,
    ViewName,
    as_args,
    as_object,
    category,
    view,
)
from detent.lifecycle.workflow import bucket, delta
from detent.lifecycle.workflow.table import STEP, WORKFLOW
from tests.lifecycle.driver import live
from tests.lifecycle.making import (
    ALIVE,
    LOST,
    MAKERS,
    NOW,
    SECOND,
    SYSTEM,
    USER,
    WORKER,
    active,
    available,
    cancelled,
    cancelling,
    completed,
    discarded,
    pending,
    retryable,
    scheduled,
    take,
    ticked,
)
from tools.view_names import FOREIGN_WORDS, SHAPES

S = j.JobState
LATER = NOW + 100 * SECOND
AT_ONCE = Verdict(retry=True, delay_us=0, cause=None)


def ojs(job: j.Job) -> Shown:
    return view(job, ViewName.OJS)


def rest(job: j.Job) -> Shown:
    return view(job, ViewName.REST)


def engine(job: j.Job) -> Shown:
    return view(job, ViewName.ENGINE)


def jobnik(job: j.Job) -> Shown:
    return view(job, ViewName.JOBNIK)


def lost(job: j.Job) -> j.Job:
    return take(job, j.Lose(), SYSTEM, lease=LOST).job


def handed_back(job: j.Job) -> j.Job:
    return take(job, j.HandBack(lease=job.lease), WORKER).job


def claimed(job: j.Job, now: int = NOW) -> j.Job:
    return take(job, j.Claim("L2", "w2"), WORKER, now, lease=ALIVE).job


def held(job: j.Job) -> j.Job:
    return take(job, j.Hold(), USER).job


# --- Open Job Spec --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", S)
def test_ojs_uses_our_own_words(state: j.JobState) -> None:
    assert (
        ojs(MAKERS[state](profile="ojs", delivery="push" if state == "pending" else None)).state
        == state
    )


@pytest.mark.parametrize("maker", [scheduled, available, retryable])
def test_ojs_shows_a_held_job_as_pending(maker: Any) -> None:
    assert ojs(held(maker(profile="ojs"))).state == "pending"


def test_ojs_shows_a_job_made_to_wait_for_activation_as_pending() -> None:
    job = available(profile="ojs", held=True)
    assert ojs(job).state == "pending"
    assert "enqueued_at" not in ojs(job).fields
    activated = take(job, j.Activate(), USER, LATER).job
    assert ojs(activated).state == "available"
    assert ojs(activated).fields["enqueued_at"] == LATER


def test_ojs_shows_a_job_held_while_it_runs_as_active_until_it_comes_back() -> None:
    job = held(active(profile="ojs"))
    assert ojs(job).state == "active"
    assert ojs(lost(job)).state == "pending"


def test_ojs_shows_a_dispatched_job_as_pending() -> None:
    assert ojs(pending()).state == "pending"


def test_ojs_push_sets_created_at_and_only_a_ready_job_has_enqueued_at() -> None:
    assert ojs(available(profile="ojs")).fields["enqueued_at"] == NOW
    waits = scheduled(profile="ojs")
    assert ojs(waits).fields["created_at"] == NOW
    assert ojs(waits).fields["scheduled_at"] == waits.run_at
    assert "enqueued_at" not in ojs(waits).fields
    ready = ticked(waits, LATER).job
    assert ojs(ready).fields["enqueued_at"] == LATER
    assert "scheduled_at" not in ojs(ready).fields


def test_ojs_fetch_raises_attempt_and_sets_started_at_and_worker_id() -> None:
    before, after = ojs(available(profile="ojs")), ojs(active(profile="ojs"))
    assert (before.fields["attempt"], after.fields["attempt"]) == (0, 1)
    assert "started_at" not in before.fields
    assert after.fields["started_at"] == NOW
    assert after.fields["worker_id"] == "w1"


def test_ojs_ack_sets_completed_at() -> None:
    fields = ojs(completed(profile="ojs")).fields
    assert fields["completed_at"] == NOW
    assert not {"cancelled_at", "discarded_at", "worker_id"} & set(fields)


def test_ojs_nack_with_attempts_left_sets_the_next_attempt() -> None:
    fields = ojs(retryable(profile="ojs")).fields
    assert fields["next_attempt_at"] == NOW + 5 * SECOND
    assert fields["retry_delay_ms"] == 5_000
    assert fields["attempt"] == 1
    assert "started_at" in fields
    assert "completed_at" not in fields


@pytest.mark.parametrize("job", [scheduled(profile="ojs"), held(retryable(profile="ojs"))])
def test_ojs_the_next_attempt_is_shown_while_retryable_only(job: j.Job) -> None:
    assert ojs(job).state != "retryable"
    assert "next_attempt_at" not in ojs(job).fields


def test_ojs_shows_the_delay_on_the_next_fetch_too_but_not_at_the_end() -> None:
    again = claimed(ticked(retryable(profile="ojs"), LATER).job, LATER)
    assert ojs(again).fields["retry_delay_ms"] == 5_000
    assert "next_attempt_at" not in ojs(again).fields
    done = take(again, j.Complete(lease="L2"), WORKER, LATER).job
    assert "retry_delay_ms" not in ojs(done).fields


def test_ojs_final_nack_keeps_started_at_and_sets_both_ends() -> None:
    fields = ojs(discarded(profile="ojs")).fields
    assert fields["started_at"] == fields["completed_at"] == fields["discarded_at"] == NOW


@pytest.mark.parametrize(
    "maker", [available, scheduled, retryable, lambda **m: held(available(**m))]
)
def test_ojs_expiry_sets_discarded_at_and_no_completed_at(maker: Any) -> None:
    job = ticked(maker(profile="ojs", expires_at=LATER), LATER).job
    assert ojs(job).state == "discarded"
    assert ojs(job).fields["discarded_at"] == LATER
    assert "completed_at" not in ojs(job).fields


def test_ojs_the_loss_of_an_expired_job_shows_no_completed_at() -> None:
    job = take(active(profile="ojs", expires_at=LATER), j.Lose(), SYSTEM, LATER, lease=LOST).job
    assert ojs(job).state == "discarded"
    assert "completed_at" not in ojs(job).fields


def test_ojs_cancel_of_a_running_job_keeps_started_at_and_sets_no_completed_at() -> None:
    fields = ojs(take(active(profile="ojs"), j.Cancel(), USER).job).fields
    assert fields["started_at"] == fields["cancelled_at"] == NOW
    assert fields["previous_state"] == "active"
    assert not {"completed_at", "discarded_at"} & set(fields)


@pytest.mark.parametrize("maker", [scheduled, available, retryable, pending])
def test_ojs_cancel_of_a_waiting_job_names_the_state_it_was_in(maker: Any) -> None:
    job = maker(profile="ojs", delivery="push" if maker is pending else None)
    fields = ojs(take(job, j.Cancel(), USER).job).fields
    assert fields["previous_state"] == job.state
    assert ("started_at" in fields) == (maker is retryable)


def test_ojs_cancel_of_a_held_job_says_that_it_was_pending() -> None:
    fields = ojs(take(available(profile="ojs", held=True), j.Cancel(), USER).job).fields
    assert fields["previous_state"] == "pending"
    assert "enqueued_at" not in fields


def test_ojs_cancel_of_another_profile_shows_that_it_was_asked() -> None:
    shown = ojs(cancelling(profile="python"))
    assert shown.state == "active"
    assert shown.fields["cancel_requested_at"] == NOW


def test_ojs_reservation_expiry_shows_available_at_once_and_clears_the_start() -> None:
    job = lost(active(profile="ojs"))
    assert ojs(job).state == "available"
    assert ojs(job).fields["attempt"] == 1
    assert not {"started_at", "worker_id", "retry_delay_ms"} & set(ojs(job).fields)
    assert ojs(claimed(job)).fields["attempt"] == 2


def test_ojs_a_start_cleared_by_a_loss_stays_cleared_when_the_waiting_job_is_cancelled() -> None:
    job = take(lost(active(profile="ojs")), j.Cancel(), USER).job
    assert "started_at" not in ojs(job).fields


def test_ojs_requeue_keeps_the_number_of_the_attempt() -> None:
    job = handed_back(active(profile="ojs"))
    assert (ojs(job).state, ojs(job).fields["attempt"]) == ("available", 1)
    assert "started_at" not in ojs(job).fields
    again = claimed(job)
    assert ojs(again).fields["attempt"] == 1
    assert ojs(take(again, j.Fail(lease="L2", code="x"), WORKER).job).fields["attempt"] == 1
    assert ojs(take(job, j.Cancel(), USER).job).fields["attempt"] == 1


def test_ojs_a_job_handed_back_once_ends_with_the_number_it_ran_under() -> None:
    again = claimed(handed_back(active(profile="ojs")))
    fields = ojs(take(again, j.Complete(lease="L2"), WORKER).job).fields
    assert fields["attempt"] == 1
    assert "started_at" in fields


def test_ojs_a_hand_back_after_a_cancel_request_ends_the_attempt_it_was() -> None:
    job = take(cancelling(profile="python"), j.HandBack(lease="L1"), WORKER).job
    assert (job.state, job.cause) == (S.CANCELLED, "hand_back")
    assert ojs(job).fields["attempt"] == 1


def test_ojs_a_snoozed_job_that_ends_waiting_was_not_handed_back() -> None:
    job = take(active(), j.Snooze(lease="L1", delay_us=SECOND), WORKER).job
    assert ojs(job).fields["attempt"] == 1
    assert ojs(take(job, j.Cancel(), USER).job).fields["attempt"] == 1


def test_ojs_an_offer_that_failed_shows_no_start_of_an_earlier_run() -> None:
    ran = take(active(profile="engine", allowed=5), j.Fail(lease="L1", code="x"), WORKER).job
    offered = take(
        ticked(ran, LATER).job, j.Dispatch("L2", "w2"), SYSTEM, LATER, lease=j.Lease(LATER * 2)
    ).job
    assert "started_at" not in ojs(offered).fields
    assert "started_at" not in ojs(take(offered, j.Cancel(), USER, LATER).job).fields


def test_ojs_allows_exactly_the_moves_of_its_table() -> None:
    waiting = ("scheduled", "available", "pending", "retryable")
    assert VIEWS["ojs"].moves == {
        *((None, word) for word in ("scheduled", "available", "pending")),
        *((word, "available") for word in ("scheduled", "pending", "active", "retryable")),
        *(("active", word) for word in ("completed", "retryable", "discarded", "cancelled")),
        *product(waiting, ("cancelled", "discarded")),
        ("available", "active"),
    }


def test_ojs_has_a_word_for_every_workflow_state() -> None:
    assert set(OJS_WORKFLOW_WORDS) == {state.name for state in WORKFLOW.states}
    for state in WORKFLOW.states:
        assert (OJS_WORKFLOW_WORDS[state.name] == "running") is not state.is_terminal


# --- REST -----------------------------------------------------------------------------------------

REST_WORDS = {
    "scheduled": "pending",
    "available": "pending",
    "pending": "pending",
    "retryable": "pending",
    "active": "running",
    "completed": "success",
    "discarded": "failed",
    "cancelled": "cancelled",
}


@pytest.mark.parametrize(("state", "word"), REST_WORDS.items())
def test_rest_vocabulary(state: str, word: str) -> None:
    assert rest(MAKERS[state]()).state == word


def test_rest_moves_are_those_of_its_diagram() -> None:
    assert VIEWS["rest"].moves == {
        (None, "pending"),
        ("pending", "running"),
        ("pending", "cancelled"),
        ("running", "success"),
        ("running", "failed"),
        ("running", "cancelled"),
    }


def test_rest_goes_back_to_pending_for_every_profile_but_its_own() -> None:
    for profile in PROFILES:
        job = active(profile=profile)
        assert VIEWS["rest"].allows("running", "pending", job) == (profile != "rest")


def test_rest_created_at_is_always_there() -> None:
    assert all(rest(maker()).fields["createdAt"] == NOW for maker in MAKERS.values())


def test_rest_started_at_comes_with_running_and_stays() -> None:
    assert "startedAt" not in rest(available(profile="rest")).fields
    assert rest(active(profile="rest")).fields["startedAt"] == NOW
    assert rest(completed(profile="rest")).fields["startedAt"] == NOW


@pytest.mark.parametrize("maker", [completed, discarded, cancelled])
def test_rest_completed_at_is_set_on_every_end(maker: Any) -> None:
    assert rest(maker(profile="rest")).fields["completedAt"] == NOW
    assert "completedAt" not in rest(active(profile="rest")).fields


def test_rest_a_job_cancelled_before_it_started_has_no_start() -> None:
    assert "startedAt" not in rest(cancelled(profile="rest")).fields


def test_rest_cancel_of_a_running_job_shows_the_request() -> None:
    job = cancelling(profile="rest")
    assert rest(job).state == "running"
    assert rest(job).fields["cancelRequestedAt"] == NOW
    done = take(job, j.ConfirmCancel(lease="L1"), WORKER, LATER).job
    assert rest(done).state == "cancelled"
    assert rest(done).fields["completedAt"] == LATER


def test_rest_a_lost_worker_fails_the_job() -> None:
    assert rest(lost(active(profile="rest"))).state == "failed"


def test_rest_a_rerun_names_its_origin() -> None:
    again = j.Enqueue(id="job-1", profile="rest", rerun_of="job-0")
    job = take(None, again, USER, reason="it failed").job
    assert rest(job).fields["retriedFrom"] == "job-0"


# --- engines --------------------------------------------------------------------------------------

ENGINE_WORDS = {
    "scheduled": "queued",
    "available": "queued",
    "retryable": "queued",
    "pending": "dispatched",
    "active": "running",
    "completed": "completed",
    "discarded": "failed",
    "cancelled": "failed",
}


@pytest.mark.parametrize(("state", "word"), ENGINE_WORDS.items())
def test_engine_vocabulary(state: str, word: str) -> None:
    assert engine(MAKERS[state](profile="engine", allowed=5)).state == word


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("queued", "dispatched"),
        ("dispatched", "running"),
        ("running", "completed"),
        ("running", "failed"),
        ("queued", "failed"),
        ("dispatched", "failed"),
    ],
)
def test_engine_valid_transitions(source: str, target: str) -> None:
    """The four of the diagram, and the two that its timeouts add."""
    assert VIEWS["engine"].allows(source, target, available(profile="engine"))


INVALID = [
    ("queued", "running"),
    ("queued", "completed"),
    ("dispatched", "completed"),
    *(("completed", word) for word in ("queued", "dispatched", "running", "failed")),
    *(("failed", word) for word in ("queued", "dispatched", "running", "completed")),
]


@pytest.mark.parametrize(("source", "target"), INVALID)
def test_engine_invalid_transitions(source: str, target: str) -> None:
    assert not VIEWS["engine"].allows(source, target, available(profile="engine"))


def test_engine_shows_claimed_jobs_as_running_without_a_dispatch() -> None:
    job = active(profile="python")
    assert VIEWS["engine"].allows("queued", "running", job)
    assert "dispatchedAt" not in engine(job).fields


def test_engine_shows_a_cancelled_job_as_failed_with_a_code() -> None:
    shown = engine(cancelled(profile="engine"))
    assert (shown.state, shown.fields["error"]) == ("failed", CANCELLED_CODE)
    assert "error" not in engine(completed(profile="engine")).fields


def test_engine_instants_are_milliseconds_of_the_current_attempt() -> None:
    job = active(profile="engine", allowed=5)
    fields = engine(job).fields
    instants = {"submittedAt", "queuedAt", "dispatchedAt", "startedAt"}
    assert {fields[name] for name in instants} == {NOW // 1_000}
    again = take(job, j.Fail(lease="L1", code="x"), WORKER, LATER).job
    assert set(engine(again).fields) & instants == {"submittedAt", "queuedAt"}
    assert "engineId" not in engine(again).fields


def test_engine_a_scheduled_job_is_queued_from_its_creation() -> None:
    assert engine(scheduled(profile="engine")).fields["queuedAt"] == NOW // 1_000


def test_engine_counts_retries_but_not_hand_backs() -> None:
    job = active(profile="engine", allowed=5)
    assert [engine(one).fields["retryCount"] for one in (available(), job)] == [0, 0]
    again = take(handed_back(job), j.Dispatch("L2", "w2"), SYSTEM, lease=ALIVE).job
    assert engine(again).fields["retryCount"] == 0
    third = take(lost(again), j.Dispatch("L3", "w3"), SYSTEM, lease=ALIVE).job
    assert engine(third).fields["retryCount"] == 1


def test_engine_a_job_that_nobody_took_names_no_engine() -> None:
    stuck = ticked(available(profile="engine"), NOW + 30 * SECOND).job
    assert "engineId" not in engine(stuck).fields


def test_engine_names_the_engine_from_the_dispatch_on() -> None:
    job = pending()
    done = take(take(job, j.Acknowledge(lease="L1"), WORKER).job, j.Complete(lease="L1"), WORKER)
    assert [engine(one).fields["engineId"] for one in (job, done.job)] == ["w1", "w1"]


def test_engine_an_offer_never_confirmed_names_no_engine_and_no_start() -> None:
    job = ticked(pending(), NOW + 10 * SECOND).job
    assert engine(job).state == "failed"
    assert engine(job).fields["dispatchedAt"] == NOW // 1_000
    assert not {"engineId", "startedAt"} & set(engine(job).fields)


def test_engine_old_names() -> None:
    assert OLD_NAMES == {
        "queued": "queued",
        "running": "started",
        "completed": "finished",
        "failed": "failed",
    }
    assert set(OLD_NAMES) == {row.word for row in VIEWS["engine"].words} - {"dispatched"}


def test_engine_telemetry_names_every_edge_that_is_shown() -> None:
    for source, event, target in j.JOB.triples:
        silent = target is None or event == "due"
        assert ((event, target or "") in TELEMETRY) is not silent, (source, event, target)
    declared = {(event, target) for _, event, target in j.JOB.triples}
    assert set(TELEMETRY) <= declared
    assert TELEMETRY_PROGRESS not in TELEMETRY.values()


@pytest.mark.parametrize(
    ("code", "started", "expected"),
    [
        ("UNKNOWN_JOB_TYPE", False, Category.VALIDATION),
        ("MISSING_FIELD", False, Category.VALIDATION),
        ("SCHEMA_INVALID", False, Category.VALIDATION),
        ("QUEUE_TIMEOUT", False, Category.QUEUE),
        ("ENGINE_DISCONNECTED", False, Category.QUEUE),
        ("ENGINE_DISCONNECTED", True, Category.SYSTEM),
        ("ENGINE_NOT_RESPONDING", False, Category.SYSTEM),
        ("JOB_TIMEOUT", True, Category.SYSTEM),
        ("OUT_OF_MEMORY", True, Category.SYSTEM),
        ("NETWORK", True, Category.SYSTEM),
        ("BAD_ASSET", True, Category.ENGINE),
        ("INVALID_ENTITY", True, Category.ENGINE),
        ("SCENE_BUILD", True, Category.ENGINE),
        ("SOMETHING_OF_ITS_OWN", True, Category.ENGINE),
        ("CANCELLED", True, Category.CANCELLED),
    ],
)
def test_engine_failure_categories(code: str, started: bool, expected: Category) -> None:
    assert category(code, started=started) is expected


def test_engine_every_code_that_detent_itself_writes_has_a_category() -> None:
    written = {code for profile in PROFILES.values() for code in profile.codes.values()}
    assert written | {"POISON", "expired", "overflow", "queue_deleted"} <= set(CATEGORIES)


# --- Jobnik ---------------------------------------------------------------------------------------


def task(maker: Any, **more: Any) -> j.Job:
    made: j.Job = maker(profile="jobnik", allowed=3, **more)
    return made


def test_jobnik_a_new_task_is_pending_and_has_no_times() -> None:
    shown = jobnik(task(available))
    assert shown.state == "PENDING"
    assert not {"startTime", "endTime"} & set(shown.fields)
    assert (shown.fields["attempts"], shown.fields["maxAttempts"]) == (0, 3)


def test_jobnik_dequeue_sets_start_time_and_leaves_attempts_alone() -> None:
    shown = jobnik(task(active))
    assert shown.state == "IN_PROGRESS"
    assert (shown.fields["startTime"], shown.fields["attempts"]) == (NOW, 0)


def test_jobnik_three_attempts_are_retried_retried_failed() -> None:
    job, told = task(available), []
    for _ in range(3):
        job = claimed(job)
        job = take(job, j.Fail(lease="L2", code="x"), WORKER, verdict=AT_ONCE).job
        told.append((jobnik(job).state, jobnik(job).fields["attempts"]))
    assert told == [("RETRIED", 1), ("RETRIED", 2), ("FAILED", 3)]


def test_jobnik_completing_does_not_raise_attempts() -> None:
    job = claimed(ticked(task(retryable), LATER).job, LATER)
    done = jobnik(take(job, j.Complete(lease="L2"), WORKER, LATER).job)
    assert (done.state, done.fields["attempts"], done.fields["endTime"]) == ("COMPLETED", 1, LATER)
    assert done.fields["startTime"] == LATER


def test_jobnik_end_time_only_at_completed_or_failed() -> None:
    assert jobnik(task(discarded)).fields["endTime"] == NOW
    assert "endTime" not in jobnik(task(retryable)).fields
    called_off = take(task(available), j.Cancel(j.Cause.WORKFLOW), SYSTEM).job
    assert "endTime" not in jobnik(called_off).fields


def test_jobnik_a_lost_task_is_in_progress_until_another_worker_takes_it() -> None:
    gone = lost(task(active))
    shown = jobnik(gone)
    assert (shown.state, shown.fields["attempts"]) == ("IN_PROGRESS", 0)
    called_off = take(gone, j.Cancel(j.Cause.WORKFLOW), SYSTEM).job
    assert jobnik(called_off).state == "RETRIED"
    again = take(gone, j.Claim("L2", "w2", wire=True), WORKER).job
    again = take(again, j.Fail(lease="L2", code="boom"), WORKER).job
    assert jobnik(again).state == "RETRIED"


def test_jobnik_a_task_cancelled_in_somebodys_hands_has_failed() -> None:
    ended = take(task(active), j.Cancel(j.Cause.WORKFLOW), SYSTEM, now=NOW + 7).job
    shown = jobnik(ended)
    assert (shown.state, shown.fields["endTime"]) == ("FAILED", NOW + 7)


@pytest.mark.parametrize(("maker", "word"), [(available, "PENDING"), (retryable, "RETRIED")])
def test_jobnik_a_task_cancelled_while_it_waits_keeps_its_word(maker: Any, word: str) -> None:
    job = task(maker)
    assert jobnik(job).state == word
    assert jobnik(take(job, j.Cancel(j.Cause.WORKFLOW), SYSTEM).job).state == word


def test_jobnik_task_moves_are_those_of_its_table() -> None:
    assert VIEWS["jobnik"].moves == {
        (None, "PENDING"),
        ("PENDING", "IN_PROGRESS"),
        ("RETRIED", "IN_PROGRESS"),
        ("IN_PROGRESS", "COMPLETED"),
        ("IN_PROGRESS", "RETRIED"),
        ("IN_PROGRESS", "FAILED"),
    }


def test_jobnik_update_time_is_the_last_event() -> None:
    job = take(task(available), j.Annotate("d"), USER, LATER).job
    assert jobnik(job).fields["updateTime"] == LATER
    assert jobnik(job).fields["creationTime"] == NOW


def test_jobnik_stage_and_job_words_cover_both_machines() -> None:
    assert {state.name: state.name.upper() for state in STEP.states} == STAGE_WORDS
    assert {state.name: state.name.upper() for state in WORKFLOW.states} == WORKFLOW_WORDS
    assert "IN_PROGRESS" in STAGE_WORDS.values()


def test_jobnik_summary_counts_every_task_word() -> None:
    assert {row.word for row in VIEWS["jobnik"].words} | {"CREATED"} == set(SUMMARY_KEYS)


def test_jobnik_priorities_agree_with_ojs() -> None:
    assert JOBNIK_PRIORITIES["HIGH"] == OJS_PRIORITIES["HIGH"]
    assert JOBNIK_PRIORITIES["LOW"] == OJS_PRIORITIES["LOW"]
    assert JOBNIK_PRIORITIES[DEFAULT_PRIORITY] == OJS_PRIORITIES["NORMAL"]


# --- other systems and shapes ---------------------------------------------------------------------


FOREIGN = {
    "Sidekiq": "scheduled enqueued - busy retrying - dead -",
    "Celery": "PENDING PENDING PENDING STARTED RETRY SUCCESS FAILURE REVOKED",
    "BullMQ": "delayed waiting - active delayed completed failed -",
    "Oban": "scheduled available - executing retryable completed discarded cancelled",
}


@pytest.mark.parametrize(("system", "words"), FOREIGN.items())
def test_what_another_system_calls_each_of_our_states(system: str, words: str) -> None:
    assert [FOREIGN_WORDS[system].get(state, "-") for state in S] == words.split()


def test_no_other_systems_are_listed() -> None:
    assert set(FOREIGN_WORDS) == set(FOREIGN)


@pytest.mark.parametrize(
    ("thing", "names"),
    [
        ("payload", ("args", "inputs", "payload", "data")),
        ("type", ("type", "action", "jobType", "type")),
        ("id", ("id", "id", "jobId", "id")),
        ("state", ("state", "state", "status", "status")),
        ("attempts so far", ("attempt", None, "retryCount", "attempts")),
        ("priority", ("options.priority", None, None, "priority")),
    ],
)
def test_where_each_document_puts_it(thing: str, names: tuple[str | None, ...]) -> None:
    [shape] = [shape for shape in SHAPES if shape.thing == thing]
    slots = [shape.slot(name) for name in ViewName]
    assert tuple(found and found.name for found in slots) == names


def test_shapes_name_each_thing_once_and_only_fields_that_exist() -> None:
    assert len({shape.thing for shape in SHAPES}) == len(SHAPES)
    columns = {field.name for field in msgspec.structs.fields(j.Job)}
    for shape in SHAPES:
        for name in shape.inside.split(", "):
            owner, _, column = name.partition(".")
            assert owner != "Job" or column in columns


@pytest.mark.parametrize(
    ("payload", "args", "named"),
    [
        ([1, 2], [1, 2], {"args": [1, 2]}),
        ({"to": "a"}, [{"to": "a"}], {"to": "a"}),
        ("text", ["text"], {"args": ["text"]}),
        (None, [None], {"args": [None]}),
    ],
)
def test_a_payload_fits_where_an_array_or_an_object_is_wanted(
    payload: Any, args: list[Any], named: dict[str, Any]
) -> None:
    assert as_args(payload) == args
    assert as_object(payload) == named


def test_what_is_shown_is_the_callers_own_copy() -> None:
    payload = [1]
    as_args(payload).append(2)
    assert payload == [1]


def test_the_summary_of_a_stage_counts_every_task_under_the_word_it_is_shown_with() -> None:
    """Over many lives: what the counters of a step say is what its tasks say."""
    for seed in range(200):
        life = live(Random(seed), Counter(), steps=40)
        for record in (
            at_version(life.events, number) for number in range(1, len(life.events) + 1)
        ):
            word = "in_progress" if delta(None, record).lost else bucket(record)
            assert SUMMARY_KEYS[view(record, "jobnik").state] == _camel(word), record


def _camel(word: str) -> str:
    return {"in_progress": "inProgress"}.get(word, word)


def test_engine_an_attempt_that_was_only_offered_has_no_start_of_its_own() -> None:
    """The start of an earlier attempt is not that of this one, neither while offered nor after."""
    ran = take(active(profile="engine", allowed=3), j.Fail(lease="L1", code="x"), WORKER).job
    ran = take(ran, j.Reschedule(NOW), USER).job
    offered = take(ran, j.Dispatch("L2", "e2"), SYSTEM, now=NOW + 9, lease=ALIVE).job
    assert "startedAt" in engine(take(offered, j.Acknowledge(lease="L2"), WORKER).job).fields
    assert "startedAt" not in engine(offered).fields
    called_off = take(offered, j.Cancel(), USER, now=NOW + 10).job
    assert "startedAt" not in engine(called_off).fields


def test_engine_retry_count_counts_attempts_whether_or_not_they_were_charged() -> None:
    job = take(active(), j.Lose(), SYSTEM, lease=LOST).job
    job = take(job, j.Claim("L2", "w2"), WORKER, lease=ALIVE).job
    assert (job.failures, engine(job).fields["retryCount"]) == (0, 1)


def test_ojs_activation_has_its_moment() -> None:
    held = available(profile="ojs", held=True)
    assert "activated_at" not in view(held, "ojs").fields
    job = take(held, j.Activate(), USER, now=NOW + 5).job
    assert view(job, "ojs").fields["activated_at"] == NOW + 5
