"""What goes wrong again and again is said when it begins, now and then, and when it is over."""

from __future__ import annotations

import logging
from itertools import chain, repeat

import pytest

from detent.complaining import AGAIN_S, Complaint

LOG = logging.getLogger("tests.complaining")


def test_what_fails_every_second_is_said_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    seconds = iter(range(10_000))
    complaint = Complaint(LOG, "the beat fails", clock=lambda: float(next(seconds)))
    reasons = chain(repeat("the disk is full", int(3 * AGAIN_S)), ["it is away"], repeat("full", 1))
    for why in reasons:
        complaint.say(why)
    complaint.end()
    complaint.end()
    complaint.say("full")
    again = "the beat fails, and is tried again: "
    expected = [*["the disk is full"] * 3, "it is away", "full", None, "full"]
    assert caplog.messages == [
        again + why if why else "the beat fails: that is over" for why in expected
    ]


def test_what_fails_after_a_while_has_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    hours = iter(range(0, 100_000, 20))
    complaint = Complaint(LOG, "upkeep stands still", clock=lambda: float(next(hours)))
    for _ in range(3):
        complaint.say("it is away")
    assert len(caplog.messages) == 3
