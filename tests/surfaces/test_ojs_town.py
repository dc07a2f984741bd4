"""What is said of Open Job Spec holds whichever of several servers is asked."""

from __future__ import annotations

from collections import Counter

from tests.surfaces.town import PUSHERS, Town, job, statuses


def test_of_many_who_register_a_schedule_at_once_one_has_made_it(town: Town) -> None:
    cron = {"name": "first", "expression": "@yearly", "job_template": job("c")}
    answers = town.at_once(lambda client, _: client.post("/cron", cron))
    assert statuses(answers) == {201: 1, 200: PUSHERS - 1}
    town.client.delete("/cron/first").ok()
    again = town.at_once(lambda client, _: client.post("/cron", {**cron, "enabled": False}))
    assert Counter(one.status for one in again) == {201: 1, 200: PUSHERS - 1}
    assert town.client.get("/cron/first").ok()["cron"]["enabled"] is False
    assert town.client.post("/cron", cron).ok()["cron"]["next_run_at"] is not None


def test_many_at_once_are_let_in_by_their_bytes(town: Town) -> None:
    payload = "x" * 96
    told = {"backpressure": {"max_size_bytes": 5 * 100}}
    for one in (town.client, town.visitor()):
        one.put("/admin/queues/bytes/config", told).ok()
    answers = town.at_once(lambda client, _: client.post("/jobs", job("bytes", payload)))
    assert statuses(answers) == {201: 5, 429: PUSHERS - 5}
    some = {"jobs": [job("bytes", payload)] * 2}
    town.client.fetch("bytes", count=4)
    answers = town.at_once(lambda client, _: client.post("/jobs/batch", some))
    # What runs weighs too.
    assert (statuses(answers), town.live("bytes")) == ({429: PUSHERS}, 5)


def test_what_is_set_about_a_queue_outlives_those_who_know_it_as_deleted(town: Town) -> None:
    here, there = town.client, town.visitor()
    here.put("/admin/queues/phoenix/config", {"default_timeout": 60}).ok()
    here.delete("/queues/phoenix").ok()
    there.get("/queues/phoenix/stats").ok()
    told = {"default_retry": {"max_attempts": 7}}
    here.put("/admin/queues/phoenix/config", told).ok()
    there.post("/jobs", job("phoenix")).ok(201)
    assert here.get("/admin/queues/phoenix/config").ok()["config"] == told


def test_nothing_comes_into_a_queue_once_it_is_said_to_drain(town: Town) -> None:
    for one in (town.client, town.visitor()):
        one.post("/jobs", job("drained")).ok(201)
    town.client.post("/queues/drained/drain").ok()
    answers = town.at_once(lambda client, n: client.post("/jobs", job("drained", n)))
    assert (statuses(answers), town.live("drained")) == ({409: PUSHERS}, 2)


def test_of_many_who_do_not_wait_as_many_run_as_there_is_room(town: Town) -> None:
    limit = {"key": "few", "concurrency": 2, "on_limit": "drop"}
    ids = [town.client.push("x", queue="few", rate_limit=limit)["id"] for _ in range(30)]
    ask = {"queues": ["few"], "count": 5}
    answers = town.at_once(lambda client, _: client.post("/workers/fetch", ask), each=2)
    taken = [one["id"] for answer in answers for one in answer.ok()["jobs"]]
    states = Counter(town.client.job(name)["state"] for name in ids)
    assert (len(taken), states) == (2, {"active": 2, "discarded": 28})
