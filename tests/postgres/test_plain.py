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
from tests.contract.making import (
    AGAIN,
    ALIVE,
    NEVER,
    SECOND,
    START,
    SYSTEM,
    USER,
    WORKER,
    Clock,
    Maker,
    accepted,
)

make = Maker(Clock())
ENDED = frozenset(re.findall(r"^ +(\w+) = ", SQL["end"].text, re.MULTILINE))
"""The columns that ends write."""
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


@pytest.mark.parametrize("is_called_off", [False, True])
@pytest.mark.parametrize("has_failed", [False, True])
def test_an_end_changes_only_what_is_written(is_called_off: bool, has_failed: bool) -> None:
    job = held(priority=3)
    if has_failed:
        failed = make.move(job, j.Fail(lease="l", code="x"), WORKER, verdict=AGAIN).job
        ready = accepted(j.tick(failed, failed.run_at or 0, make.ctx(SYSTEM))).job
        job = make.move(ready, j.Claim("l", "w1"), WORKER, lease=ALIVE).job
        assert job.failures
    if is_called_off:
        job = make.move(job, j.Cancel(), USER).job
    unit = reported(job, j.Complete(lease="l"))
    assert sort([unit]).ends is not None
    after = asdict(unit.moves[0].job)
    changed = {name for name, value in asdict(job).items() if after[name] != value}
    assert {"version", "state", "lease", "ended_at"} <= changed <= ENDED


def test_ends_that_are_alike_are_told_in_columns() -> None:
    units = [reported(held(), j.Complete(lease="l", digest=digest)) for digest in (None, "d")]
    said = replace(units[1].moves[0], result="1")
    batch = sort([replace(units[1], moves=(said,)), units[0]])
    assert batch.ends is not None
    told = batch.ends.told
    # In the order of their keys, whoever came first.
    first, second = (unit.moves[0].job.id for unit in units)
    assert (told["end_ids"], list(batch.ends.order)) == (f"{first}\x1f{second}", [1, 0])
    assert (told["end_results"], batch.ends.is_rich) == ("\x1f1", True)
    assert told["end_rests"] == '\x1f{"cause":"succeeded","digest":"d"}'
    assert told["end_rest"] == '{"cause":"succeeded"}'


def test_whoever_ends_otherwise_takes_all_of_them_the_long_way() -> None:
    done = reported(held(), j.Complete(lease="l"))
    move = done.moves[0]
    odd = [
        replace(move, wake_at=START),
        replace(move, lines=(Line(1, "x"),)),
        replace(move, lease=None),
        replace(move, lease="a\x1fb"),
        replace(move, version=move.version + 1),
        replace(move, job=replace(move.job, cause="other")),
        replace(move, job=replace(move.job, version=9)),
        replace(move, events=()),
        replace(move, events=(replace(move.events[0], record="another"),)),
        replace(move, events=(replace(move.events[0], reason="why"),)),
    ]
    for one in odd:
        assert (
            sort([reported(held(), j.Complete(lease="l")), replace(done, moves=(one,))]).ends
            is None
        )
    other = reported(held(), j.Complete(lease="l"))
    assert sort([done, other]).ends is not None
    assert sort([done, done]).ends is None
    assert sort([done, replace(other, new=(make.new(),))]).ends is None
    assert sort([done, reported(held(tenant="t"), j.Complete(lease="l"))]).ends is None
    assert sort([done, make.pushed()]).ends is None


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


@pytest.mark.parametrize(
    "name", ["births", "claim", "end", "end_and_claim", "end_richly", "end_richly_and_claim"]
)
def test_what_every_connection_sends_needs_no_question_about_types(name: str) -> None:
    """The driver knows texts and numbers, and lists of texts; it asks the server about all else."""
    assert set(re.findall(r"\$\d+::([\w.]+)\[\]", SQL[name].text)) <= {"text"}
