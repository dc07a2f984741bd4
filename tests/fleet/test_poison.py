"""Jobs that take their process with them, hang, hoard or shout: nobody else is disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from detent import Handle
from detent.stores.api import Failure
from tests.fleet.yard import Yard
from tests.waiting import eventually

pytestmark = pytest.mark.slow
DEADLY = {"segfault": '"signal":11', "leave": '"code":3', "hoard": '"signal":6'}
"""What dies of its own doing, and what its failures say about it."""
LINES_MAX = 20_000


@pytest.fixture
def program() -> str:
    return "poison.txt"


def test_poison_is_discarded_and_the_innocent_complete(yard: Yard) -> None:
    spin = yard.enqueue("spin")
    yard.start("--workers", "2", "--slots", "20")
    eventually(lambda: yard.begun("spin"))
    deadly = {name: yard.enqueue(name) for name in DEADLY}
    greedy, loud = yard.enqueue("greedy"), [yard.enqueue("shout"), yard.enqueue("mutter")]
    innocent = [yard.enqueue("innocent", number) for number in range(200)]
    assert [one.result(timeout=90) for one in innocent] == list(range(200))
    for name, handle in deadly.items():
        lost(yard, handle, DEADLY[name])
    assert ended(spin) == ("time_out", "timeout")
    assert ended(greedy) == ("fail", "handler_error")
    for handle in loud:
        assert handle.result(timeout=60) == "done"
        said = list(handle.logs())
        assert len(said) <= LINES_MAX
        assert "more lines were dropped" in said[-1].text
    assert yard.states() == {"worker-1": "Running", "worker-2": "Running"}
    assert yard.detent("verify")


def test_who_runs_apart_pays_for_no_crash_of_others(yard: Yard) -> None:
    yard.start()
    patient = yard.enqueue("deaf_thread", "long")
    for number in range(1, 5):
        eventually(lambda number=number: len(yard.begun("long")) == number)  # type: ignore[misc]
        if number < 4:
            yard.enqueue("segfault")
    yard.let_go("long")
    patient.result(timeout=60)
    names = [event.name for event in patient.history()]
    assert names.count("lose") == 1, "only the first may have been its own doing"
    assert names.count("hand_back") == 2
    again = next(event for event in patient.history() if event.name == "hand_back")
    assert "signal 11" in (again.reason or "")
    assert yard.detent("verify")


def ended(handle: Handle[Any]) -> tuple[str, str | None]:
    """By what it was discarded."""
    eventually(lambda: handle.status().is_ended)
    last = handle.history()[-1]
    assert (handle.status().state, last.target) == ("discarded", "discarded")
    return last.name, last.code


def lost(yard: Yard, handle: Handle[Any], why: str) -> None:
    """It ended as poison by three losses, of which the first may be that of its whole worker.

    Between them it may be handed back at no cost, when its worker dies of another one.
    """
    assert ended(handle) == ("lose", "POISON")
    names = [event.name for event in handle.history()]
    assert names.count("lose") == names.count("claim") - names.count("hand_back") == 3
    causes = failures(yard, handle)
    assert [one.attempt for one in causes] == sorted({one.attempt for one in causes})
    assert len(causes) == 3
    assert {one.code for one in causes} <= {"lease_lost", "process_died"}
    assert any(why in (one.details or "") for one in causes[1:]), causes


def failures(yard: Yard, handle: Handle[Any]) -> list[Failure]:
    async def read() -> list[Failure]:
        [stored] = await (await yard.app.engine()).store.get([("", handle.id)])
        assert stored is not None
        return list(stored.failures)

    return yard.app.bridge.run(read())


def test_a_job_that_hears_nothing_is_killed_rung_by_rung(yard: Yard) -> None:
    yard.start()
    job = yard.enqueue("deaf", "wall")
    [pid] = eventually(lambda: yard.begun("wall"))
    job.cancel("it takes too long")
    eventually(lambda: job.status().is_ended)
    assert rungs(job) == [
        ("claim", None),
        ("cancel_requested", None),
        ("cancel_seen", None),
        ("interrupted", None),
        ("cancel", "killed"),
    ]
    assert job.history()[2].reason == "it takes too long"
    assert "in deaf" in next(job.logs()).text, "its stacks are kept"
    assert pid not in yard.processes()


def test_a_thread_that_hears_nothing_is_abandoned(yard: Yard) -> None:
    yard.start()
    job = yard.enqueue("deaf_thread", "wall")
    eventually(lambda: yard.begun("wall"))
    job.cancel()
    eventually(lambda: job.status().is_ended)
    assert rungs(job) == [
        ("claim", None),
        ("cancel_requested", None),
        ("cancel_seen", None),
        ("cancel", "abandoned"),
    ]
    assert yard.enqueue("innocent", 1).result(timeout=30) == 1


def rungs(job: Handle[Any]) -> list[tuple[str, str | None]]:
    """The ladder, as its history tells it."""
    return [(event.name, event.cause) for event in job.history()[1:]]
