"""A history that was edited does not hold: whatever is taken out, added or turned is noticed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event, Made, StepMade, WorkerFacts
from detent.lifecycle.machine import Actor
from detent.lifecycle.replay import audit
from tests.lifecycle.driver import live
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
    scheduled,
    take,
    ticked,
)

# What every event of that name must carry, written out again on purpose.
CARRIED = {
    "due": {"place"},
    "complete": {"cause"},
    "snooze": {"run_at"},
    "hand_back": {"run_at"},
    "expire": {"cause", "code"},
    "drop": {"cause", "code"},
    "cancel": {"cause"},
    "enqueue": {"made", "queue", "priority", "held"},
    "claim": {"lease", "holder", "wire"},
    "dispatch": {"lease", "holder", "wire"},
    "fail": {"code", "charged"},
    "time_out": {"code", "charged"},
    "refuse": {"code", "charged"},
    "lose": {"code", "charged"},
    "cancel_requested": {"force_at"},
    "activated": {"place"},
    "moved": {"queue", "place"},
    "reprioritised": {"priority"},
    "rescheduled": {"run_at"},
    "received": {"start_us"},
    "checkpointed": {"digest"},
    "annotated": {"digest"},
}
BY_TARGET = {
    "available": {"place"},
    "scheduled": {"run_at"},
    "retryable": {"run_at"},
    "completed": {"cause"},
    "discarded": {"cause"},
    "cancelled": {"cause"},
}


def lives(count: int) -> list[list[Event]]:
    return [live(Random(seed), Counter(), steps=40).events for seed in range(count)]


def edited(events: list[Event], index: int, **wrong: Any) -> list[Event]:
    return [*events[:index], replace(events[index], **wrong), *events[index + 1 :]]


def test_no_event_can_lose_what_it_must_carry() -> None:
    """Over hundreds of lives: every required field of every event, removed one at a time."""
    tried: set[tuple[str, str]] = set()
    for events in lives(150):
        for index, event in enumerate(events):
            for field in CARRIED.get(event.name, set()) | BY_TARGET.get(event.target or "", set()):
                fault = audit(edited(events, index, **{field: None}))
                assert fault is not None, (event, field)
                assert (fault.version, field in fault.why) == (event.version, True)
                tried.add((event.name, field))
    needed = {(name, field) for name, fields in CARRIED.items() for field in fields}
    assert needed <= tried


# What it may carry besides; everything else would be somebody's addition.
OPTIONAL = {
    "enqueue": {"place", "run_at", "cause"},
    "claim": {"lease_us"},
    "dispatch": {"lease_us"},
    "complete": {"digest"},
    "fail": {"digest", "cause", "run_at", "delay_us"},
    "time_out": {"cause", "run_at", "delay_us"},
    "refuse": {"cause", "run_at", "delay_us"},
    "lose": {"cause", "run_at", "delay_us"},
    "cancel": {"code", "digest"},
}
ADDED: dict[str, Any] = {
    "cause": "ttl",
    "code": "x",
    "charged": Charge.NONE,
    "place": 1,
    "run_at": 1,
    "delay_us": 1,
    "queue": "q",
    "priority": 1,
    "held": True,
    "lease": "x",
    "holder": "x",
    "wire": False,
    "lease_us": 1,
    "force_at": 1,
    "start_us": 1,
    "digest": "d",
    "made": Made("python", "pull", 1, 1),
    "step_made": StepMade("w", 1, "at_first", "success", "wait"),
    "worker": WorkerFacts(),
}


def test_nothing_can_be_slipped_into_an_event() -> None:
    """Over many lives: every field that does not belong to an event, added one at a time."""
    tried: set[str] = set()
    for events in lives(60):
        for index, event in enumerate(events):
            known = CARRIED.get(event.name, set()) | OPTIONAL.get(event.name, set())
            for field in ADDED.keys() - known:
                fault = audit(edited(events, index, **{field: ADDED[field]}))
                assert fault is not None, (event, field)
                assert (fault.version, fault.why) == (
                    event.version,
                    f"{event.name} carries no {field}",
                )
            tried.add(event.name)
    assert tried == set(j.JOB.events)


@pytest.mark.parametrize(
    ("name", "target", "cause", "why"),
    [
        ("complete", "completed", "poison", "poison is not why a job would complete"),
        ("cancel", "cancelled", "succeeded", "succeeded is not why a job would cancel"),
        ("expire", "discarded", "rerun", "rerun is not why a job would expire"),
        ("fail", "discarded", "poison", "poison is not why a job would fail"),
        ("lose", "discarded", "not_retryable", "not_retryable is not why a job would lose"),
        ("drop", "discarded", "ttl", "ttl is not why a job would drop"),
        ("enqueue", "available", "ttl", "ttl is not why a job would enqueue"),
    ],
)
def test_every_event_has_its_own_words_for_why(
    name: str, target: str, cause: str, why: str
) -> None:
    for events in lives(40):
        for index, event in enumerate(events):
            if (event.name, event.target) == (name, target):
                fault = audit(edited(events, index, cause=cause))
                assert fault is not None
                assert fault.why == why


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"profile": "celery"}, "nothing is made with profile celery and delivery pull"),
        ({"delivery": "teleport"}, "nothing is made with profile python and delivery teleport"),
        ({"allowed": 0}, "nothing is made that may not even be tried once"),
        ({"losses_allowed": 0}, "nothing is made that may not even be tried once"),
        ({"rerun_of": "job-0"}, "a rerun names the job it repeats, and says that it is one"),
    ],
)
def test_a_birth_that_could_not_have_been_is_doubted(wrong: dict[str, Any], why: str) -> None:
    born = take(None, j.Enqueue(id="x", profile="python"), USER).events[0]
    assert born.made is not None
    assert j.doubted(None, replace(born, made=replace(born.made, **wrong))) == why
    assert "a rerun names" in str(j.doubted(None, replace(born, cause="rerun")))


def test_a_wire_claim_and_a_wait_carry_their_lengths() -> None:
    claimed = take(available(), j.Claim("L", "w", wire=True), WORKER).events[0]
    assert j.doubted(available(), claimed) is None
    assert "lease_us" in str(j.doubted(available(), replace(claimed, lease_us=None)))
    failed = take(active(), j.Fail(lease="L1", code="x"), WORKER).events[0]
    assert "delay_us" in str(j.doubted(active(), replace(failed, delay_us=None)))
    assert "command_id" in str(j.doubted(active(), replace(failed, command_id="")))


def test_only_the_loss_that_uses_it_up_is_poison() -> None:
    job = active(losses_allowed=2)
    poison = take(active(losses_allowed=1), j.Lose(), SYSTEM, lease=LOST).events[0]
    assert j.doubted(active(losses_allowed=1), poison) is None
    assert j.doubted(job, poison) == "loss 1 of 2 is not final"


@pytest.mark.parametrize(
    ("make", "command", "by"),
    [
        (available, j.Hold(), USER),
        (active, j.Cancel(), USER),
        (pending, j.Receive(lease="L1", start_us=5), WORKER),
        (completed, j.Erase(), USER),
    ],
)
def test_what_is_so_already_is_no_event(make: Any, command: Any, by: Any) -> None:
    accepted = take(make(), command, by)
    again = replace(accepted.events[0], version=accepted.job.version + 1)
    assert j.doubted(make(), accepted.events[0]) is None
    assert j.doubted(accepted.job, again) == f"it was {again.name} before"


def test_nothing_is_due_before_its_time_and_a_hand_back_keeps_its_place() -> None:
    due = ticked(scheduled(), NOW + 60_000_000).events[0]
    assert j.doubted(scheduled(), due) is None
    early = replace(due, at=NOW + 59_999_999)
    assert j.doubted(scheduled(), early) == "it became due before its time"
    back, due = take(active(), j.HandBack(lease="L1"), WORKER).events
    waiting = j.apply(active(), back)
    assert j.doubted(waiting, due) is None
    moved = replace(due, place=99)
    assert j.doubted(waiting, moved) == "a job that was handed back keeps its place"


def test_a_run_is_not_called_off_without_having_been_asked_to_stop() -> None:
    for cause in ("confirmed", "killed", "forced", "time_out"):
        event = replace(FORCED, cause=cause)
        assert j.doubted(cancelling(), event) is None
        assert j.doubted(active(), event) == f"{cause} follows only from a cancel request"
    waiting = take(available(), j.Cancel(), USER).events[0]
    assert j.doubted(available(), waiting) is None


def test_no_event_can_change_its_name_source_target_or_charge() -> None:
    """Turned into any other word, an event no longer fits where it stands."""
    for events in lives(25):
        for index, event in enumerate(events):
            for wrong in _turned(event):
                found = audit(edited(events, index, **wrong), j.fold(events))
                assert found is not None, (event, wrong)


def _turned(event: Event) -> list[dict[str, Any]]:
    states = [None, *(state.name for state in j.JOB.states)]
    charges = [None, *Charge]
    return [
        *({"source": state} for state in states if state != event.source),
        *({"target": state} for state in states if state != event.target),
        *({"charged": charge} for charge in charges if charge != event.charged),
        *({"version": event.version + step} for step in (-1, 1)),
    ]


@pytest.mark.parametrize("charge", [Charge.NONE, Charge.LOSS, Charge.BOTH])
def test_a_failure_charges_a_failure(charge: Charge) -> None:
    event = replace(take(active(), j.Fail(lease="L1", code="x"), WORKER).events[0], charged=charge)
    assert j.doubted(active(), event) == f"fail charges failure, not {charge}"


def test_what_is_used_up_does_not_go_back_to_waiting() -> None:
    failed = take(active(allowed=2), j.Fail(lease="L1", code="x"), WORKER).events[0]
    assert j.doubted(active(allowed=2), failed) is None
    assert j.doubted(active(allowed=1), failed) == "failure 1 of 1 is final"
    lost = take(active(losses_allowed=2), j.Lose(), SYSTEM, lease=LOST).events[0]
    assert j.doubted(active(losses_allowed=2), lost) is None
    assert j.doubted(active(losses_allowed=1), lost) == "loss 1 of 1 is final"
    both = take(active(profile="ojs"), j.Lose(), SYSTEM, lease=LOST).events[0]
    assert j.doubted(active(profile="ojs", losses_allowed=1), both) is None
    assert j.doubted(active(profile="ojs", allowed=1), both) == "failure 1 of 1 is final"
    ended = take(active(allowed=1), j.Fail(lease="L1", code="x"), WORKER).events[0]
    assert j.doubted(active(allowed=1), ended) is None


CLAIM = j.Claim("L1", "w1")
CLAIMED = take(available(), CLAIM, WORKER, lease=ALIVE).events[0]
OFFERED = take(available(profile="engine"), j.Dispatch("L", "e"), SYSTEM, lease=ALIVE).events[0]
SEEN = take(cancelling(), j.SeeCancel(lease="L1"), WORKER).events[0]
CONFIRMED = take(cancelling(), j.ConfirmCancel(lease="L1"), WORKER).events[0]
FORCED = take(cancelling(), j.Cancel(force=True), SYSTEM).events[0]
ACTIVATED = take(available(held=True), j.Activate(), USER).events[0]
SNOOZED = take(active(), j.Snooze(lease="L1", delay_us=5), WORKER).events[0]


@pytest.mark.parametrize(
    ("event", "good", "bad", "why"),
    [
        (CLAIMED, available(), available(held=True), "the job is held; activate it first"),
        (CLAIMED, available(), available(delivery="push"), "nobody may claim it from the store"),
        (OFFERED, available(profile="engine"), available(), "it cannot be offered"),
        (SEEN, cancelling(), active(), "no cancel was requested"),
        (CONFIRMED, cancelling(), active(), "no cancel was requested"),
        (ACTIVATED, available(held=True), available(), "the job is not held"),
        (SNOOZED, active(), cancelling(), "it may not go back to waiting"),
    ],
)
def test_what_the_record_did_not_allow_was_not_decided(
    event: Event, good: j.Job, bad: j.Job, why: str
) -> None:
    assert j.doubted(good, event) is None
    assert why in str(j.doubted(bad, event))


def test_the_system_may_cancel_without_having_asked() -> None:
    assert j.doubted(active(), FORCED) is None


def test_leases_gates_and_profiles_are_not_asked_again() -> None:
    """They may have changed since; an old history must not become false by a new table."""
    back = take(active(), j.HandBack(lease="L1"), WORKER).events[0]
    assert j.doubted(active(profile="rest"), back) is None
    assert j.doubted(available(expires_at=NOW + 1), replace(CLAIMED, at=NOW + 9)) is None


def test_a_birth_and_an_undeclared_move_are_left_to_the_table() -> None:
    born = take(None, j.Enqueue(id="x", profile="python"), USER).events[0]
    assert j.doubted(None, born) is None
    assert j.doubted(available(), replace(CLAIMED, actor=Actor.USER)) is None
