"""A history that was edited does not hold: whatever is taken out, added or turned is noticed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event
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
    take,
)

# What every event of that name must carry, written out again on purpose.
CARRIED = {
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
                assert fault.version == event.version
                assert field in fault.why or (field == "charged" and "charges" in fault.why)
                tried.add((event.name, field))
    needed = {(name, field) for name, fields in CARRIED.items() for field in fields}
    assert needed <= tried


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


@pytest.mark.parametrize("charge", [Charge.NONE, Charge.LOSS, Charge.BOTH, None])
def test_a_failure_charges_a_failure(charge: Charge | None) -> None:
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
