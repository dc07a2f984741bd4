"""What is set about a queue holds for its jobs, unless they say otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surfaces.server import Client, eventually


def test_jobs_have_what_their_queue_says_unless_they_say_it(client: Client) -> None:
    told = {"default_retry": {"max_attempts": 7}, "default_timeout": "PT0.2S"}
    client.push("mail.send", queue="slow")
    client.put("/admin/queues/slow/config", told).ok()
    job = client.push("mail.send", queue="slow")
    assert job["max_attempts"] == 7
    own = client.push("mail.send", queue="slow", retry={"max_attempts": 2}, timeout_ms=60_000)
    assert own["max_attempts"] == 2
    [kept] = client.post(
        "/jobs/batch", {"jobs": [{"type": "a", "args": [], "options": {"queue": "slow"}}]}
    ).ok(201)["jobs"]
    assert kept["max_attempts"] == 7
    client.fetch("slow", count=5)
    eventually(lambda: client.job(job["id"])["state"] == "retryable")
    assert client.job(own["id"])["state"] == "active"


def test_steps_and_schedules_have_it_too(client: Client) -> None:
    client.put("/admin/queues/q/config", {"default_retry": {"max_attempts": 7}}).ok()
    step = {"type": "a", "args": [], "options": {"queue": "q"}}
    client.post("/workflows", {"type": "chain", "steps": [step]}).ok(201)
    [job] = client.fetch("q")
    assert job["max_attempts"] == 7
    cron = {"name": "n", "expression": "@daily", "job_template": step}
    told = client.post("/cron", cron).ok(201)["cron"]["job_template"]["options"]
    assert told["retry"]["max_attempts"] == 7


def test_a_reservation_lasts_as_its_queue_says(client: Client) -> None:
    client.put("/admin/queues/short/config", {"visibility_timeout": "PT0.3S"}).ok()
    job, own = (client.push("a", queue="short", **more) for more in ({}, {"priority": -1}))
    [taken] = client.fetch("short", worker="w1")
    assert taken["id"] == job["id"]
    [long] = client.fetch("short", worker="w2", visibility_timeout_ms=60_000)
    eventually(lambda: client.job(job["id"])["state"] == "available")
    assert (long["id"], client.job(own["id"])["state"]) == (own["id"], "active")


def test_a_queue_may_take_some_types_only(client: Client) -> None:
    client.put("/admin/queues/q/config", {"allowed_job_types": ["mail.send"]}).ok()
    client.push("mail.send", queue="q")
    body = {"type": "other", "args": [], "options": {"queue": "q"}}
    client.post("/jobs", body).error(422, "validation_error")
    client.post("/workflows", {"type": "group", "jobs": [body]}).error(422, "validation_error")
    client.post("/jobs/batch", {"jobs": [body]}).error(422, "validation_error")
    assert len(client.fetch("q", count=5)) == 1


def test_what_is_only_kept_is_named(client: Client) -> None:
    odd = {"colour": "red", "backpressure": {"max_depth": 5, "shape": "round"}}
    told = client.put("/admin/queues/q/config", odd).ok()
    assert (told["ignored"], told["config"]) == (["colour", "backpressure.shape"], odd)
    assert client.get("/admin/queues/q/config").ok()["ignored"] == told["ignored"]
    assert client.put("/admin/queues/q/config", {"concurrency": 2}).ok()["ignored"] == []
    told = client.put("/admin/queues/_default/config", {"concurrency": 2}).ok()
    assert told["ignored"] == ["concurrency"]
    whole = {
        "retention": {"completed": "P7D", "discarded": 60, "cancelled": "PT1S"},
        "backpressure": {"max_size_bytes": 5},
        "dead_letter_queue": "letters",
    }
    told = client.put("/admin/queues/q/config", whole).ok()
    assert (told["ignored"], told["config"]) == ([], whole)


@pytest.mark.parametrize(
    "config",
    [
        {"backpressure": []},
        {"backpressure": "x"},
        {"backpressure": {"max_depth": 1, "warning_threshold": "x"}},
        {"backpressure": {"max_depth": 1, "warning_threshold": 10**400}},
        {"backpressure": {"strategy": []}},
        {"backpressure": {"strategy": "burn"}},
        {"concurrency": True},
        {"visibility_timeout": "soon"},
        {"default_timeout": -1},
        {"default_retry": 5},
        {"allowed_job_types": 5},
        {"allowed_job_types": ["a"] * 101},
        {"retention": 5},
        {"retention": {"active": "P7D"}},
        {"retention": {"completed": "soon"}},
        {"retention": {"completed": 0}},
        {"dead_letter_queue": "NO"},
        {"dead_letter_queue": 5},
        {"backpressure": {"max_size_bytes": 0}},
        {"backpressure": {"max_size_bytes": True}},
        {"rate_limit": {"limit": 5, "on_limit": "drop"}},
    ],
)
def test_settings_that_cannot_be(client: Client, config: dict[str, Any]) -> None:
    assert client.put("/admin/queues/q/config", config).status in (400, 422)
    assert client.push("a", queue="q")["max_attempts"] == 3


@pytest.mark.parametrize("strategy", ["block", "drop_oldest"])
def test_strategies_of_full_queues_other_than_reject_are_refused(
    client: Client, strategy: str
) -> None:
    for queue in ("q", "_default"):
        told = {"backpressure": {"max_depth": 2, "strategy": strategy}}
        error = client.put(f"/admin/queues/{queue}/config", told).error(422, "unsupported")
        assert error["details"]["field"] == "backpressure.strategy"
        assert (f"'{strategy}'" in error["message"], "'reject'" in error["message"]) == (True, True)
        assert client.get(f"/admin/queues/{queue}/config").ok()["config"] == {}


def test_what_is_set_about_all_queues_holds_where_a_queue_says_nothing(client: Client) -> None:
    usual = {"default_retry": {"max_attempts": 7}, "backpressure": {"max_depth": 1}}
    client.put("/admin/queues/_default/config", usual).ok()
    client.put("/admin/queues/own/config", {"default_retry": {"max_attempts": 5}}).ok()
    assert client.push("a", queue="q")["max_attempts"] == 7
    assert client.push("a", queue="own")["max_attempts"] == 5
    assert client.push("a", queue="x", retry={"max_attempts": 2})["max_attempts"] == 2
    for queue in ("q", "own"):
        body = {"type": "a", "args": [], "options": {"queue": queue}}
        client.post("/jobs", body).error(429, "QUEUE_FULL")
    client.put("/admin/queues/_default/config", {}).ok()
    assert client.push("a", queue="q")["max_attempts"] == 3
    assert client.get("/admin/queues/_default/config").ok()["config"] == {}
    client.get("/queues/_default").error(400, "invalid_request")


def test_a_queue_holds_only_so_many_bytes(client: Client) -> None:
    bound = {"backpressure": {"max_size_bytes": 100}}
    client.put("/admin/queues/q/config", bound).ok()
    first = client.push("a", "x" * 50, queue="q")
    body = {"type": "a", "args": ["x" * 50], "options": {"queue": "q"}}
    error = client.post("/jobs", body)
    error.error(429, "QUEUE_FULL")
    assert error.body["error"]["details"]["max_size_bytes"] == 100
    assert error.headers["x-ojs-queue-depth"] == "1"
    told = client.post("/jobs", {**body, "args": ["x" * 30]})
    assert (told.status, told.headers["x-ojs-queue-pressure"]) == (201, "0.88")
    [job] = client.fetch("q")
    assert job["id"] == first["id"]
    client.ack(job)
    # What has ended weighs nothing; whoever was refused a moment ago looks again in half a second.
    eventually(lambda: client.post("/jobs", body).status == 201)
    small = {"type": "a", "args": [], "options": {"queue": "q"}}
    error = client.post("/jobs/batch", {"jobs": [small] * 20})
    assert error.error(429, "QUEUE_FULL")["details"]["size_bytes"] == 88


def test_a_queue_keeps_its_dead_letters_under_a_name(client: Client) -> None:
    client.put("/admin/queues/q/config", {"dead_letter_queue": "letters"}).ok()
    job = client.push("a", queue="q", retry={"max_attempts": 1})
    own = client.push("a", queue="q", retry={"max_attempts": 1, "on_exhaustion": "discard"})
    other = client.push("a", queue="x", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    assert [one["retry"]["on_exhaustion"] for one in (job, own)] == ["dead_letter", "discard"]
    for queue in ("q", "q", "x"):
        client.nack(client.fetch(queue)[0])
    [found] = client.get("/dead-letter?queue=letters").ok()["jobs"]
    assert (found["id"], found["dead_letter_queue"]) == (job["id"], "letters")
    assert [one["id"] for one in client.get("/dead-letter?queue=q").ok()["jobs"]] == [job["id"]]
    assert [one["id"] for one in client.get("/dead-letter?queue=x").ok()["jobs"]] == [other["id"]]
    client.put("/admin/queues/_default/config", {"dead_letter_queue": "letters"}).ok()
    both = client.get("/admin/dead-letter?queue=letters").ok()["items"]
    assert {one["id"] for one in both} == {job["id"], other["id"]}
    again = client.post(f"/dead-letter/{job['id']}/retry").ok()["job"]
    assert (again["queue"], again["state"]) == ("q", "available")


def test_a_queue_that_drains_takes_no_new_jobs(client: Client) -> None:
    letter = client.push("a", queue="q", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    client.nack(client.fetch("q")[0])
    left = client.push("a", queue="q")
    client.put("/admin/queues/q/config", {"default_timeout": 60}).ok()
    drained = client.post("/queues/q/drain").ok()
    assert (drained["status"], drained["queue"]["draining"]) == ("draining", True)
    client.put("/admin/queues/q/config", {"default_timeout": 30}).ok()
    body = {"type": "a", "args": [], "options": {"queue": "q"}}
    error = client.post("/jobs", body).error(409, "conflict")
    assert error["details"]["current_state"] == "draining"
    client.post("/jobs/batch", {"jobs": [body]}).error(409, "conflict")
    client.post("/workflows", {"type": "chain", "steps": [body]}).error(409, "conflict")
    client.post(f"/dead-letter/{letter['id']}/retry").error(409, "conflict")
    assert client.get("/queues/q").ok()["queue"]["status"] == "draining"
    assert client.get("/admin/queues/q").ok()["state"] == "draining"
    [job] = client.fetch("q")
    assert job["id"] == left["id"]
    client.ack(job)
    client.post("/queues/q/resume").ok()
    assert client.get("/queues/q/stats").ok()["status"] == "active"
    assert client.post("/jobs", body).ok(201)
