"""Each invariant can be broken, and is then named; a check that cannot fail would prove nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event
from tests.lifecycle.making import (
    NOW,
    SYSTEM,
    USER,
    WORKER,
    active,
    available,
    cancelling,
    completed,
    retryable,
    take,
)

NOTED = take(available(), j.Annotate("d"), USER)
FAILED = take(active(), j.Fail(lease="L1", code="x"), WORKER)
HANDED = take(active(), j.HandBack(lease="L1"), SYSTEM)
BORN = take(None, j.Enqueue(id="job-1", profile="python"), USER)


@pytest.mark.parametrize(
    ("fault", "job", "wrong"),
    [
        ("a lease is held exactly", active(), {"lease": None}),
        ("a lease is held exactly", available(), {"lease": "L"}),
        ("ended_at is set exactly", completed(), {"ended_at": None}),
        ("ended_at is set exactly", active(), {"ended_at": 1}),
        ("run_at is set exactly", retryable(), {"run_at": None}),
        ("run_at is set exactly", available(), {"run_at": 1}),
        ("an available job has a place", available(), {"place": None}),
        ("an available job has a place", available(), {"ready_at": None}),
        ("never waits again", available(), {"cancel_at": 1}),
        ("every end has a cause", completed(), {"cause": None}),
    ],
)
def test_a_record_that_contradicts_itself_is_named(fault: str, job: j.Job, wrong: Any) -> None:
    """A note changes nothing about a job, so whatever is wrong afterwards was wrong in itself."""
    event = replace(NOTED.events[0], version=job.version + 1, source=job.state)
    after = replace(job, version=job.version + 1)
    assert j.broken(job, event, after) is None
    assert fault in str(j.broken(job, event, replace(after, **wrong)))


@pytest.mark.parametrize(
    "job", [cancelling(), take(cancelling(), j.Complete(lease="L1"), WORKER).job]
)
def test_a_job_being_called_off_may_run_or_have_ended(job: j.Job) -> None:
    event = replace(NOTED.events[0], version=job.version + 1, source=job.state)
    assert j.broken(job, event, replace(job, version=job.version + 1)) is None


def step_of(accepted: j.Accepted, before: j.Job, number: int = 0) -> tuple[j.Job, Event, j.Job]:
    event = accepted.events[number]
    return before, event, j.apply(before, event)


@pytest.mark.parametrize(
    ("fault", "before", "event", "after"),
    [
        ("versions count the events, without gaps", {}, {}, {"version": 9}),
        ("event times never decrease", {}, {"at": NOW - 1}, {}),
        (
            "the event starts where the record stands and ends where it then stands",
            {},
            {"source": "pending"},
            {},
        ),
        (
            "the event starts where the record stands and ends where it then stands",
            {},
            {"target": "discarded"},
            {},
        ),
        ("state_at is when the state was entered", {}, {}, {"state_at": 5}),
        ("failures grow by exactly what was charged", {}, {}, {"failures": 0}),
        ("failures grow by exactly what was charged", {}, {"charged": None}, {}),
        ("losses grow by exactly what was charged", {}, {"charged": Charge.BOTH}, {}),
        ("losses grow by exactly what was charged", {}, {}, {"losses": 1}),
        ("attempt grows by one with each claim and dispatch", {}, {}, {"attempt": 2}),
        ("handed_back grows by one with each hand-back", {}, {}, {"handed_back": 1}),
    ],
)
def test_a_step_that_cannot_have_happened_is_named(
    fault: str, before: Any, event: Any, after: Any
) -> None:
    old, happened, new = step_of(FAILED, active())
    wrong = j.broken(replace(old, **before), replace(happened, **event), replace(new, **after))
    assert wrong == fault


def test_nothing_leaves_a_terminal_state() -> None:
    ended = completed()
    event = replace(FAILED.events[0], version=ended.version + 1, source="completed")
    after = replace(FAILED.job, version=ended.version + 1)
    assert "nothing leaves a terminal state" in str(j.broken(ended, event, after))


def test_a_hand_back_and_a_claim_must_be_counted() -> None:
    old, event, new = step_of(HANDED, active())
    assert j.broken(old, event, new) is None
    assert "handed_back grows by one with each hand-back" in str(
        j.broken(old, event, replace(new, handed_back=0))
    )


@pytest.mark.parametrize("wrong", [{"version": 2}, {}])
def test_a_life_starts_at_version_one_from_nothing(wrong: Any) -> None:
    born = replace(BORN.job, **wrong)
    event = BORN.events[0] if wrong else replace(BORN.events[0], source="available")
    assert "a life starts at version 1" in str(j.broken(None, event, born))
    assert j.broken(None, BORN.events[0], BORN.job) is None


def test_times_are_compared_with_the_last_event_not_with_the_last_move() -> None:
    noted = take(available(), j.Annotate("d"), USER, now=NOW + 9).job
    event = replace(NOTED.events[0], version=noted.version + 1, at=NOW + 5)
    after = replace(noted, version=noted.version + 1, last_at=NOW + 5)
    assert j.broken(noted, event, after) == "event times never decrease"
