"""A queue never holds more than its bound, and refuses nobody wrongly, however many come at once.

Two servers have one store, so that nothing that one of them knows can be what keeps the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from detent.engine.asks import Ask
from detent.engine.entering import Entry
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.surfaces.ojs import crowds
from detent.surfaces.ojs.crowds import Crowds
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.town import BOUND, PUSHERS, Town, job, statuses


def test_many_at_once_find_as_much_room_as_there_is(town: Town) -> None:
    town.bound("r")
    answers = town.at_once(lambda client, n: client.post("/jobs", job("r", n)))
    assert statuses(answers) == {201: BOUND, 429: PUSHERS - BOUND}
    assert town.live("r") == BOUND


def test_those_who_wait_for_their_turn_share_it(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, stored = list[int](), Crowds._stored  # noqa: SLF001 - what one commit has

    async def noted(own: Crowds, some: Sequence[Any], entry: Entry | None) -> Any:
        sizes.append(len(some))
        return await stored(own, some, entry)

    monkeypatch.setattr(Crowds, "_stored", noted)
    town.bound("s1", 1_000)
    answers = town.at_once(lambda client, n: client.post("/jobs", job("s1", n)), each=4)
    assert statuses(answers) == {201: PUSHERS * 4}
    assert len({answer.body["job"]["id"] for answer in answers}) == town.live("s1") == PUSHERS * 4
    assert max(sizes) > 1


def test_only_those_share_a_turn_who_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "_CHARS_MAX", 10)
    call: Any = None
    a, b = By(Actor.USER, "a"), By(Actor.USER, "b")
    pushed = [
        crowds._Pushed(call, Ask(type="x", payload="." * size), by)  # noqa: SLF001
        for size, by in ((2, a), (2, a), (2, b), (9, b), (1, b), (99, b), (1, b))
    ]
    found = [[len(one.ask.payload) for one in some] for some in crowds._alike(pushed)]  # noqa: SLF001
    assert found == [[2, 2], [2], [9, 1], [99], [1]]


def test_batches_come_whole_into_several_queues(town: Town) -> None:
    town.bound("m1")
    town.bound("m2", 2 * BOUND)
    some = {"jobs": [job("m1"), job("m2"), job("m2")]}
    answers = town.at_once(lambda client, _: client.post("/jobs/batch", some))
    assert statuses(answers) == {201: BOUND, 429: PUSHERS - BOUND}
    assert (town.live("m1"), town.live("m2")) == (BOUND, 2 * BOUND)


def test_steps_of_workflows_need_room_too(town: Town) -> None:
    town.bound("w")
    flow = {"type": "group", "jobs": [job("w"), job("w")]}
    answers = town.at_once(lambda client, _: client.post("/workflows", flow))
    assert statuses(answers) == {201: BOUND // 2, 429: PUSHERS - BOUND // 2}
    assert town.live("w") == BOUND // 2 * 2


def test_a_batch_that_can_never_fit_is_refused(town: Town) -> None:
    town.bound("s", 1)
    many = {"jobs": [job("s"), job("s")]}
    error = town.client.post("/jobs/batch", many)
    error.error(429, "QUEUE_FULL")
    assert (error.headers["x-ojs-queue-depth"], error.headers["x-ojs-queue-bound"]) == ("0", "1")


def test_a_schedule_is_set_up_whatever_its_queue_holds(town: Town) -> None:
    town.bound("c", 1)
    town.client.post("/jobs", job("c")).ok(201)
    cron = {"name": "n", "expression": "@yearly", "job_template": job("c")}
    town.client.post("/cron", cron).ok(201)


def test_tasks_that_others_fetch_by_the_same_name_are_left_alone(town: Town) -> None:
    jobnik, client = Jobnik(town.client.port), town.client
    [task] = jobnik.tasks(jobnik.stage(jobnik.job(), "j"), 1)
    client.delete("/queues/j").error(409, "conflict")
    town.bound("j", 1)
    client.post("/jobs", job("j")).error(429, "QUEUE_FULL")
    assert jobnik.take("j") == task
    jobnik.close()
