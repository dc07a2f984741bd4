"""What a worker says arrives as it was meant, and says nothing that is not for a worker."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from detent.engine.commands import Beside, Change
from detent.engine.reports import EVENTS, Report, before_it, change_of, report_of
from detent.lifecycle import job as j
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Delivery
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Body, Failure, Line, Stored

NOW = 1_000
BY = By(Actor.WORKER, "w1")
JOB = j.Job(
    *("t", "1", 2, j.JobState.ACTIVE, "python", "default", 0, Delivery.PULL, 3, 3, 1, 1, 1),
    attempt=2,
    lease="l1",
)
STORED = Stored(JOB, Body("mail"))


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


WHY = Failure(2, NOW, "boom", "why")
SAID = [
    (j.Complete(lease="l1", digest=digest("1")), Beside(result="1")),
    (j.Fail(lease="l1", code="boom", digest=digest("why")), Beside(failure=WHY)),
    (j.Snooze(lease="l1", delay_us=5), Beside(lines=(Line(1, "later"),))),
    (j.HandBack(lease="l1"), Beside()),
    (j.Lose(lease="l1"), Beside(failure=Failure(2, NOW, "died"))),
    (j.ConfirmCancel(lease="l1", cause=j.Cause.KILLED), Beside()),
    (j.SeeCancel(lease="l1"), Beside()),
    (j.Interrupt(lease="l1"), Beside()),
    (j.Checkpoint(lease="l1", digest=digest("[1]")), Beside(checkpoint="[1]")),
    (None, Beside(failure=Failure(2, NOW, "timeout"))),
]


def sent(change: Change) -> Change:
    """The same, after it has crossed a wire."""
    text = msgspec.json.encode(report_of(change))
    return change_of(msgspec.json.decode(text, type=Report), STORED, "w1", NOW)


@pytest.mark.parametrize(("command", "beside"), SAID)
def test_a_change_crosses_whole(command: j.Command | None, beside: Beside) -> None:
    by = BY if command is not None else By(Actor.SYSTEM, "w1")
    change = Change(("t", "1"), command, by, beside=beside, known=STORED)
    assert sent(change) == change


def test_every_word_of_a_worker_was_tried() -> None:
    assert {command.event for command, _ in SAID if command is not None} == set(EVENTS)


def test_what_a_failure_wants_comes_along() -> None:
    told = Change(("t", "1"), j.Fail(lease="l1", code="x"), BY, known=STORED)
    change = msgspec.structs.replace(told, error=ErrorInfo("x", "E"), delay_us=7)
    assert sent(change) == change


def event(name: str, by: str = "w1", lease: str | None = None, cause: str | None = None) -> Event:
    told = Event("t", "1", 1, NOW, name, None, None, Actor.WORKER, by, "c")
    return msgspec.structs.replace(told, lease=lease, cause=cause)


HISTORY = [
    event("enqueue", "user"),
    event("claim", lease="l0"),
    event("fail"),
    event("claim", lease="l1"),
    event("checkpointed"),
    event("complete"),
]


@pytest.mark.parametrize(
    ("lease", "word", "worker", "is_own"),
    [
        ("l1", "complete", "w1", True),
        ("l0", "fail", "w1", True),
        ("l0", "complete", "w1", False),
        ("l1", "fail", "w1", False),
        ("l1", "complete", "w2", False),
        ("l2", "complete", "w1", False),
    ],
)
def test_a_report_is_recognised_by_its_lease(
    lease: str, word: str, worker: str, is_own: bool
) -> None:
    report = Report(job_id="1", lease=lease, event=j.JobEvent(word))
    assert (before_it(report, worker, HISTORY) is not None) is is_own


def test_a_cancel_that_took_its_place_is_its_own() -> None:
    history = [event("claim", lease="l1"), event("cancel", cause="hand_back")]
    report = Report(job_id="1", lease="l1", event=j.JobEvent.HAND_BACK)
    assert before_it(report, "w1", history) is history[1]
