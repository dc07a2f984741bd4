"""A queue never holds more than its bound, and refuses nobody wrongly, however many come at once.

Two servers have one store, so that nothing that one of them knows can be what keeps the bound.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from detent.engine.asks import Ask
from detent.engine.entering import Entry
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.surfaces.ojs import crowds
from detent.surfaces.ojs.crowds import Crowds
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.server import eventually
from tests.surfaces.town import BOUND, PUSHERS, Town, Watch, job, statuses


def test_many_at_once_find_as_much_room_as_there_is(town: Town) -> None:
    town.bound("r", "reject")
    answers = town.at_once(lambda client, n: client.post("/jobs", job("r", n)))
    assert statuses(answers) == {201: BOUND, 429: PUSHERS - BOUND}
    assert town.live("r") == BOUND


def test_many_at_once_are_all_taken_instead_of_older_ones(town: Town) -> None:
    town.bound("d", "drop_oldest")
    with Watch(town, "d") as watch:
        answers = town.at_once(lambda client, n: client.post("/jobs", job("d", n)), each=8)
    assert statuses(answers) == {201: PUSHERS * 8}
    assert (watch.most, town.live("d")) == (BOUND, BOUND)
    taken = [answer.body["job"]["id"] for answer in answers]
    states = Counter(town.client.job(name)["state"] for name in taken)
    assert states == {"available": BOUND, "discarded": PUSHERS * 8 - BOUND}


def test_those_who_wait_for_their_turn_share_it(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, stored = list[int](), Crowds._stored  # noqa: SLF001 - what one commit has

    async def noted(own: Crowds, some: Sequence[Any], entry: Entry | None) -> Any:
        sizes.append(len(some))
        return await stored(own, some, entry)

    monkeypatch.setattr(Crowds, "_stored", noted)
    town.bound("s1", "reject", 1_000)
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


def test_those_who_are_dropped_may_be_fetched_meanwhile(town: Town) -> None:
    town.bound("f", "drop_oldest")
    for number in range(BOUND):
        town.client.post("/jobs", job("f", number)).ok(201)
    worker, is_over, seen = town.visitor(), threading.Event(), list[str]()

    def work() -> None:
        while not is_over.is_set():
            for one in worker.fetch("f"):
                worker.ack(one)
                seen.append(one["id"])

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        answers = town.at_once(lambda client, n: client.post("/jobs", job("f", n)), each=4)
        is_over.set()
        working.result(20)
    assert statuses(answers) == {201: PUSHERS * 4}
    assert town.live("f") <= BOUND
    assert {town.client.job(name)["state"] for name in seen} <= {"completed"}


def test_those_who_wait_come_in_one_by_one_as_there_is_room(town: Town) -> None:
    town.bound("b", "block")
    done: list[str] = []

    def drain() -> bool:
        for one in town.client.fetch("b", count=2):
            town.client.ack(one)
            done.append(one["id"])
        return len(done) == PUSHERS

    with Watch(town, "b") as watch, ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(town.at_once, lambda client, n: client.post("/jobs", job("b", n)))
        eventually(lambda: watch.most == BOUND)
        eventually(drain)
        assert statuses(pushing.result(20)) == {201: PUSHERS}
    assert (watch.most, len(set(done))) == (BOUND, PUSHERS)


def test_batches_come_whole_into_several_queues(town: Town) -> None:
    town.bound("m1", "reject")
    town.bound("m2", "drop_oldest")
    some = {"jobs": [job("m1"), job("m2"), job("m2")]}
    answers = town.at_once(lambda client, _: client.post("/jobs/batch", some))
    assert statuses(answers) == {201: BOUND, 429: PUSHERS - BOUND}
    assert (town.live("m1"), town.live("m2")) == (BOUND, BOUND)


def test_steps_of_workflows_need_room_too(town: Town) -> None:
    town.bound("w", "reject")
    flow = {"type": "group", "jobs": [job("w"), job("w")]}
    answers = town.at_once(lambda client, _: client.post("/workflows", flow))
    assert statuses(answers) == {201: BOUND // 2, 429: PUSHERS - BOUND // 2}
    assert town.live("w") == BOUND // 2 * 2
    town.bound("w", "drop_oldest")
    town.client.post("/workflows", flow).ok(201)
    assert town.live("w") == BOUND


def test_a_job_that_is_there_already_drops_nobody(town: Town) -> None:
    town.bound("u", "drop_oldest", 2)
    oldest = town.client.post("/jobs", job("u")).ok(201)["job"]
    one = {**job("u", unique={"on_conflict": "ignore"}), "type": "y"}
    first = town.client.post("/jobs", one).ok(201)["job"]
    again = town.visitor().post("/jobs", one).ok(200)
    assert (again["deduplicated"], again["job"]["id"]) == (True, first["id"])
    assert town.client.job(oldest["id"])["state"] == "available"


def test_a_job_takes_the_place_of_the_one_that_it_replaces(town: Town) -> None:
    town.bound("p", "drop_oldest", 1)
    one = job("p", unique={"keys": ["type", "queue"], "on_conflict": "replace"})
    first = town.client.post("/jobs", one).ok(201)["job"]
    second = town.visitor().post("/jobs", one).ok(201)["job"]
    assert second["id"] != first["id"]
    assert town.live("p") == 1


def test_more_than_can_ever_fit_do_not_wait(town: Town) -> None:
    town.bound("s", "block", 1)
    many = {"jobs": [job("s"), job("s")]}
    error = town.client.post("/jobs/batch", many)
    error.error(429, "QUEUE_FULL")
    assert (error.headers["x-ojs-queue-depth"], error.headers["x-ojs-queue-bound"]) == ("0", "1")


def test_a_schedule_is_set_up_whatever_its_queue_holds(town: Town) -> None:
    town.bound("c", "reject", 1)
    town.client.post("/jobs", job("c")).ok(201)
    cron = {"name": "n", "expression": "@yearly", "job_template": job("c")}
    town.client.post("/cron", cron).ok(201)


def test_tasks_that_others_fetch_by_the_same_name_are_left_alone(town: Town) -> None:
    jobnik, client = Jobnik(town.client.port), town.client
    [task] = jobnik.tasks(jobnik.stage(jobnik.job(), "j"), 1)
    client.delete("/queues/j").error(409, "conflict")
    for body in ({"strategy": "discard"}, {"strategy": "move", "target": "other"}):
        assert client.delete("/queues/j", body).ok()["remaining"] == 1
    town.bound("j", "drop_oldest", 1)
    client.post("/jobs", job("j")).error(429, "QUEUE_FULL")
    assert jobnik.take("j") == task
    jobnik.close()
