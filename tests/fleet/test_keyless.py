"""Workers that were started without the key, or with another: no job pays for that."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import pytest

from detent import Handle
from detent.engine.keyring import new_key
from tests.fleet.yard import Yard
from tests.waiting import eventually

pytestmark = pytest.mark.slow
OURS, OTHER = new_key(), new_key()
KEY = "DETENT_SECRET_KEYS"


@pytest.fixture
def store() -> str:
    """A server, which has no file beside it that a key could be in."""
    return "postgresql"


@pytest.fixture
def program() -> str:
    return "locked.txt"


@pytest.fixture
def keyed(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """We have the key; fleets have what their test says."""
    monkeypatch.setenv(KEY, OURS)
    yard.environment = {KEY: ""}
    return yard


def names(yard: Yard, handles: Sequence[Handle[Any]]) -> list[list[str]]:
    return [[event.name for event in events] for events in yard.events_of(handles)]


def said(yard: Yard, fleet: str) -> str:
    """What its workers wrote."""
    logs = (yard.folder / f".detent/{fleet}/logs").glob("*.log")
    return "".join(one.read_text() for one in logs)


def test_without_a_key_jobs_with_secrets_are_left_alone(keyed: Yard) -> None:
    jobs = [keyed.enqueue("pay", "tok-1234") for _ in range(20)]
    fleet = keyed.start("--name", "without")
    assert keyed.enqueue("plain", 1).result(timeout=60) == 1
    assert names(keyed, jobs) == [["enqueue"]] * 20, "not even claimed"
    assert "locked, and the key is not here" in keyed.log(fleet)
    eventually(lambda: "jobs of pay are left to other workers" in said(keyed, "without"))
    assert "who has no key does not take it" in " ".join(
        keyed.detent("jobs", "why", jobs[0].id).split()
    )
    assert "give workers the key" in " ".join(keyed.detent("doctor", code=1).split())
    keyed.environment = {KEY: OURS}
    keyed.start("--name", "with")
    assert [job.result(timeout=60) for job in jobs] == [8] * 20
    eventually(lambda: "paying with [secret]" in said(keyed, "with"))
    assert "tok-1234" not in said(keyed, "with")


def test_with_another_key_they_go_back_and_nothing_is_charged(keyed: Yard) -> None:
    jobs = [keyed.enqueue("call", "tok-1234") for _ in range(40)]
    keyed.environment = {KEY: OTHER}
    other = keyed.start("--name", "other", "--workers", "1", "--slots", "10")
    eventually(lambda: any("hand_back" in told for told in names(keyed, jobs)))
    assert keyed.enqueue("plain", 1).result(timeout=60) == 1
    eventually(lambda: "jobs of call are left to others for 1 s" in said(keyed, "other"))
    [back, *_] = [job for job, told in zip(jobs, names(keyed, jobs), strict=True) if told[1:]]
    shown = " ".join(keyed.detent("jobs", "show", back.id).split())
    assert "which is not among the keys of this process" in shown
    # On a busy machine it went on to win the race for some of them, and put those off for minutes.
    other.send_signal(signal.SIGTERM)
    assert other.wait(60) == 0
    keyed.environment = {KEY: f"{OTHER},{OURS}"}
    keyed.start("--name", "both")
    assert [job.result(timeout=90) for job in jobs] == [8] * 40
    told = names(keyed, jobs)
    assert all({"lose", "fail", "discard"}.isdisjoint(one) for one in told)
    # Ten at a time, after 1, 2, 4 seconds and so on.
    assert sum(one.count("claim") for one in told) <= 40 + 10 * 8, "it went round in circles"
