"""Any past moment of a job can be rebuilt, and a history that was tampered with is explained."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detent.errors import BadHistory
from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event
from detent.lifecycle.replay import at_time, at_version, audit, recount
from tests.lifecycle.making import ALIVE, LOST, NOW, SECOND, SYSTEM, USER, WORKER, take


def life() -> tuple[list[Event], list[j.Job]]:
    """Enqueued, claimed, lost, claimed again, failed, due, claimed, completed, annotated."""
    asked: list[tuple[Any, Any, dict[str, Any]]] = [
        (j.Enqueue(id="job-1", profile="python"), USER, {}),
        (j.Claim("L1", "w1"), WORKER, {"lease": ALIVE}),
        (j.Lose(), SYSTEM, {"lease": LOST}),
        (j.Claim("L2", "w2"), WORKER, {"lease": ALIVE}),
        (j.Fail(lease="L2", code="boom"), WORKER, {}),
        (j.Reschedule(NOW), USER, {}),
        (j.Claim("L3", "w3"), WORKER, {"lease": ALIVE}),
        (j.Complete(lease="L3"), WORKER, {}),
        (j.Annotate("d"), USER, {}),
    ]
    job: j.Job | None = None
    events: list[Event] = []
    records: list[j.Job] = []
    for number, (command, by, more) in enumerate(asked):
        accepted = take(job, command, by, now=NOW + number * SECOND, **more)
        for event in accepted.events:
            records.append(j.apply(records[-1] if records else None, event))
            events.append(event)
        job = accepted.job
    return events, records


EVENTS, RECORDS = life()


def test_a_record_is_rebuilt_at_any_version() -> None:
    assert at_version(EVENTS, 0) is None
    for number, record in enumerate(RECORDS, start=1):
        assert at_version(EVENTS, number) == record
    assert at_version(EVENTS, 99) == RECORDS[-1]


def test_a_record_is_rebuilt_at_any_time() -> None:
    assert at_time(EVENTS, NOW - 1) is None
    at_start = at_time(EVENTS, NOW)
    assert at_start is not None
    assert at_start.state == "available"
    between = at_time(EVENTS, NOW + 3 * SECOND + 1)
    assert between is not None
    assert (between.state, between.holder) == ("active", "w2")
    assert at_time(EVENTS, NOW * 9) == RECORDS[-1]


def test_an_honest_history_has_no_fault() -> None:
    assert audit(EVENTS) is None
    assert audit(EVENTS, RECORDS[-1]) is None
    assert audit([]) is None


def test_the_counters_are_recounted_without_the_writer_of_records() -> None:
    expected = {"attempt": 3, "failures": 1, "losses": 1, "handed_back": 0, "version": len(EVENTS)}
    assert recount(EVENTS) == expected


def tampered(index: int, **wrong: Any) -> list[Event]:
    return [*EVENTS[:index], replace(EVENTS[index], **wrong), *EVENTS[index + 1 :]]


@pytest.mark.parametrize(
    ("version", "why", "history"),
    [
        (2, "version 1 is missing", EVENTS[1:]),
        (4, "version 3 is missing", [*EVENTS[:2], *EVENTS[3:]]),
        (2, "version 3 is missing", [*EVENTS[:2], EVENTS[1], *EVENTS[2:]]),
        (3, "an event of another record", tampered(2, record="job-2")),
        (3, "an event of another record", tampered(2, tenant="other")),
        (1, "an event of another record", tampered(0, kind="worker")),
        (
            3,
            "it starts from pending, but the record stood at active",
            tampered(2, source="pending"),
        ),
        (2, "the lifecycle declares no such move", tampered(1, target="completed")),
        (2, "not for this actor", tampered(1, actor="user")),
        (3, "the lifecycle declares no such move", tampered(2, name="teleport")),
        (10, "'magic' is not a cause", tampered(9, cause="magic")),
        (2, "claim charges nothing", tampered(1, charged=Charge.FAILURE)),
        (2, "event times never decrease", tampered(1, at=NOW - 1)),
        (2, "a lease is held exactly", tampered(1, lease=None)),
        (1, "which creates nothing", tampered(0, made=None)),
        (1, "which creates nothing", tampered(0, queue=None)),
        (1, "which creates nothing", tampered(0, priority=None)),
    ],
)
def test_the_first_illegal_step_of_a_corrupted_history_is_explained(
    version: int, why: str, history: list[Event]
) -> None:
    fault = audit(history)
    assert fault is not None
    assert why in fault.why
    assert fault.version == version
    assert fault.message == f"{fault.record} version {version}: {fault.why}"


def test_a_stored_record_that_differs_from_its_history_is_named_by_its_fields() -> None:
    stored = replace(RECORDS[-1], attempt=9, queue="elsewhere")
    fault = audit(EVENTS, stored)
    assert fault is not None
    assert fault.why == "the record differs in queue, attempt"


def test_a_counter_that_the_history_does_not_support_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recount is a second opinion: it must speak up when the writer of records is wrong."""
    monkeypatch.setattr("detent.lifecycle.replay.recount", lambda _: {"attempt": 7})
    fault = audit(EVENTS)
    assert fault is not None
    assert fault.why == "attempt is 3, not 7"


def test_folding_what_creates_nothing_is_an_error() -> None:
    with pytest.raises(BadHistory) as caught:
        j.fold(EVENTS[1:])
    assert caught.value.code == "bad_history"
    assert caught.value.fields == {"record": "job-1", "version": 2}


def test_folding_nothing_gives_nothing() -> None:
    assert j.fold([]) is None
