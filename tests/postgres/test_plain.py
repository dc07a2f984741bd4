"""What is not told about plain jobs follows from what is: nothing else may change with it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from detent.lifecycle import job as j
from detent.stores.api import Line, Unit
from detent.stores.postgres.sorting import sort
from detent.stores.postgres.statements import SQL
from tests.contract.making import AGAIN, ALIVE, NEVER, SECOND, START, USER, WORKER, Clock, Maker

make = Maker(Clock())
WRITTEN = frozenset(re.findall(r"^ +(\w+) = ", SQL["report"].text, re.MULTILINE))
"""The columns that a report writes."""


def held(**more: Any) -> j.Job:
    """A job in the hands of a worker."""
    return make.move(make.new(**more).job, j.Claim("l", "w1"), WORKER, lease=ALIVE).job


def reported(job: j.Job, command: j.Command, **more: Any) -> Unit:
    return make.doing(job, command, WORKER, store={"lease": job.lease}, **more)


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        (j.Complete(lease="l"), AGAIN),
        (j.Fail(lease="l", code="x"), AGAIN),
        (j.Fail(lease="l", code="x"), NEVER),
        (j.Snooze(lease="l", delay_us=SECOND), AGAIN),
    ],
)
@pytest.mark.parametrize("is_called_off", [False, True])
def test_a_report_changes_only_what_is_written(
    command: j.Command, verdict: Any, is_called_off: bool
) -> None:
    job = held(priority=3)
    if is_called_off:
        job = make.move(job, j.Cancel(), USER).job
    unit = reported(job, command, verdict=verdict)
    assert sort([unit]).reports
    after = asdict(unit.moves[0].job)
    changed = {name for name, value in asdict(job).items() if after[name] != value}
    assert {"version", "state", "lease"} <= changed
    assert changed <= WRITTEN


def test_a_report_may_say_something() -> None:
    unit = reported(held(), j.Complete(lease="l"))
    said = replace(unit.moves[0], result="1", lines=(Line(1, "x"),))
    assert sort([replace(unit, moves=(said,))]).reports


def test_what_is_more_than_a_report_is_told_in_full() -> None:
    job = held()
    back = reported(job, j.HandBack(lease="l"))
    unnamed = make.doing(job, j.Complete(lease="l"), WORKER)
    amended = make.doing(job, j.Hold(), USER)
    done = reported(job, j.Complete(lease="l"))
    odd = replace(done.moves[0], job=replace(done.moves[0].job, state_at=1))
    for unit in (back, unnamed, amended, replace(done, moves=(odd,))):
        batch = sort([unit])
        assert batch.moves
        assert not batch.reports
    assert not sort([done, back]).reports


@pytest.mark.parametrize("more", [{}, {"run_at": START + SECOND}, {"priority": 7, "held": True}])
def test_an_enqueued_job_is_fresh(more: dict[str, Any]) -> None:
    unit = make.pushed(**more)
    assert sort([unit]).fresh


def test_what_is_more_than_enqueued_is_told_in_full() -> None:
    new = make.new()
    taken = make.move(new.job, j.Claim("l", "w1"), WORKER, lease=ALIVE)
    begun = replace(new, job=taken.job, events=(*new.events, *taken.events))
    odd = replace(new, job=replace(new.job, attempt=1))
    for one in (begun, odd):
        batch = sort([make.inserting(one)])
        assert batch.news
        assert not batch.fresh
