"""How many units are judged together: a wide step must not be drained job by job."""

from __future__ import annotations

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.profile import Delivery
from detent.stores.api import Unit
from detent.stores.postgres.sorting import waves
from tests.contract.making import USER, Clock, Maker

make = Maker(Clock())


def held(flow: str | None) -> Unit:
    """A move of a job of that workflow."""
    step = None if flow is None else "a"
    new = make.new(workflow=flow, step=step, delivery=Delivery.PULL)
    return make.doing(new.job, j.Hold(), USER)


def sizes(*units: Unit) -> list[int]:
    return [len(wave) for wave in waves(units)]


def made(flow: str) -> Unit:
    """A command to the workflow itself."""
    return make.flowing(None, w.Make(id=flow, steps=w.chain("a"), jobs={"a": 1}))


def test_moves_of_one_workflow_are_judged_together() -> None:
    assert sizes(*(held("w") for _ in range(100)), held(None), held("v")) == [102]


def test_who_moves_a_workflow_is_judged_after_its_jobs_and_before_later_ones() -> None:
    assert sizes(held("w"), held("w"), made("w"), held("w"), held("w")) == [2, 1, 2]


def test_who_brings_new_jobs_is_judged_by_how_the_workflow_stands() -> None:
    new = make.inserting(make.new(workflow="w", step="a"))
    assert sizes(held("w"), new, held("w")) == [1, 1, 1]


def test_two_moves_of_one_job_are_judged_one_after_the_other() -> None:
    unit = held("w")
    assert sizes(unit, unit) == [1, 1]
