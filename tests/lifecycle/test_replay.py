"""Any past moment of a record can be rebuilt, and a history that was tampered with is explained."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detent.errors import BadHistory
from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event, WorkerFacts
from detent.lifecycle.replay import at_time, at_version, audit, recount
from tests.lifecycle.making import ALIVE, LOST, NOW, SECOND, SYSTEM, USER, WORKER, take


@pytest.fixture
def events() -> list[Event]:
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
    lived: list[Event] = []
    for number, (command, by, more) in enumerate(asked):
        accepted = take(job, command, by, now=NOW + number * SECOND, **more)
        job = accepted.job
        lived.extend(accepted.events)
    return lived


def records(events: list[Event]) -> list[j.Job]:
    built: list[j.Job] = []
    for event in events:
        built.append(j.apply(built[-1] if built else None, event))
    return built


def test_a_record_is_rebuilt_at_any_version(events: list[Event]) -> None:
    assert at_version(events, 0) is None
    for number, record in enumerate(records(events), start=1):
        assert at_version(events, number) == record
    assert at_version(events, 99) == records(events)[-1]


def test_a_record_is_rebuilt_at_any_time(events: list[Event]) -> None:
    assert at_time(events, NOW - 1) is None
    assert at_time(events, NOW).state == "available"
    between = at_time(events, NOW + 3 * SECOND + 1)
    assert (between.state, between.holder) == ("active", "w2")
    assert at_time(events, NOW * 9) == records(events)[-1]


def test_an_honest_history_has_no_fault(events: list[Event]) -> None:
    assert audit(events) is None
    assert audit(events, records(events)[-1]) is None
    assert audit([]) is None


def test_the_counters_are_recounted_without_the_writer_of_records(events: list[Event]) -> None:
    assert recount(events) == {"attempt": 3, "failures": 1, "losses": 1, "handed_back": 0}
    both = [replace(events[2], charged=Charge.BOTH), replace(events[2], name="hand_back")]
    assert recount(both) == {"attempt": 0, "failures": 1, "losses": 2, "handed_back": 1}
    assert recount([replace(events[1], name="dispatch")])["attempt"] == 1


@pytest.mark.parametrize(
    ("version", "why", "index", "wrong"),
    [
        (3, "an event of another record", 2, {"record": "job-2"}),
        (3, "an event of another record", 2, {"tenant": "other"}),
        (3, "an event of another record", 2, {"kind": "worker"}),
        (1, "there is no lifecycle of the kind 'cat'", 0, {"kind": "cat"}),
        (3, "it starts from pending, but the record stood at active", 2, {"source": "pending"}),
        (1, "it starts from active, but the record stood at None", 0, {"source": "active"}),
        (2, "the lifecycle declares no such move", 1, {"target": "completed"}),
        (2, "not for this actor", 1, {"actor": "user"}),
        (3, "the lifecycle declares no such move", 2, {"name": "teleport"}),
        (10, "'magic' is not a cause that the lifecycle knows", 9, {"cause": "magic"}),
        (2, "claim carries no charged", 1, {"charged": Charge.FAILURE}),
        (2, "event times never decrease", 1, {"at": NOW - 1}),
        (2, "it does not carry lease", 1, {"lease": None}),
        (1, "it does not carry made, queue", 0, {"made": None, "queue": None}),
        (3, "lose charges loss or both, not failure", 2, {"charged": Charge.FAILURE}),
        (6, "it does not carry charged", 5, {"charged": None}),
    ],
)
def test_the_first_illegal_step_of_a_corrupted_history_is_explained(
    events: list[Event], version: int, why: str, index: int, wrong: Any
) -> None:
    events[index] = replace(events[index], **wrong)
    fault = audit(events)
    assert fault is not None
    assert why in fault.why
    assert fault.version == version
    assert fault.message == f"{fault.record} version {version}: {fault.why}"


def test_a_missing_or_doubled_event_is_explained(events: list[Event]) -> None:
    for history, version, why in (
        (events[1:], 2, "version 1 is missing; found 2 in its place"),
        ([*events[:2], *events[3:]], 4, "version 3 is missing; found 4 in its place"),
        ([*events[:2], *events[1:]], 2, "version 3 is missing; found 2 in its place"),
    ):
        fault = audit(history)
        assert fault is not None
        assert (fault.version, fault.why) == (version, why)


def test_a_stored_record_that_differs_is_named_by_its_fields(events: list[Event]) -> None:
    stored = replace(records(events)[-1], attempt=9, queue="elsewhere")
    fault = audit(events, stored)
    assert fault is not None
    assert (fault.record, fault.version) == ("job-1", len(events))
    assert fault.why == "the record differs in queue, attempt"


def test_a_counter_that_the_history_does_not_support_is_caught(
    events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recount is a second opinion: it must speak up when the writer of records is wrong."""
    monkeypatch.setattr("detent.lifecycle.replay.recount", lambda _: {"attempt": 7})
    fault = audit(events)
    assert fault is not None
    assert (fault.record, fault.version) == ("job-1", len(events))
    assert fault.why == "attempt is 3, not 7"


def test_folding_what_creates_nothing_is_an_error(events: list[Event]) -> None:
    with pytest.raises(BadHistory) as caught:
        j.fold(events[1:])
    assert caught.value.code == "bad_history"
    assert caught.value.fields == {"record": "job-1", "version": 2}
    assert "job job-1: its first event is claim, which creates nothing" in caught.value.message


def test_a_record_of_an_unknown_kind_is_not_rebuilt(events: list[Event]) -> None:
    with pytest.raises(BadHistory, match="no lifecycle of the kind 'cat'") as caught:
        at_version([replace(events[0], kind="cat")], 1)
    assert caught.value.fields == {"record": "job-1", "version": 1}


def test_a_word_that_cannot_be_read_is_a_fault_and_not_a_crash() -> None:
    born = Event("", "i-1", 1, 5, "create", None, "created", SYSTEM.kind, "", "c", kind="worker")
    born = replace(born, worker=WorkerFacts(slot="web"))
    held = replace(born, version=2, name="hold", source="created", target="pending")
    fault = audit([born, replace(held, worker=WorkerFacts(governor="banana"))])
    assert fault is not None
    assert "banana" in fault.why


def test_folding_nothing_gives_nothing() -> None:
    assert j.fold([]) is None
