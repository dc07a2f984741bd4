"""What is set about a queue holds for its jobs, unless they say otherwise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from tests.surfaces.server import Client, Running, eventually


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
    told = client.put("/admin/queues/q/config", {"retention": {"completed": "P7D"}}).ok()
    assert (told["ignored"], told["config"]) == (["retention"], {"retention": {"completed": "P7D"}})
    sized = {"backpressure": {"max_depth": 5, "max_size_bytes": 5}}
    told = client.put("/admin/queues/q/config", sized).ok()
    assert (told["ignored"], told["config"]) == (["backpressure.max_size_bytes"], sized)
    assert client.put("/admin/queues/q/config", {"concurrency": 2}).ok()["ignored"] == []


@pytest.mark.parametrize(
    "config",
    [
        {"backpressure": []},
        {"backpressure": "x"},
        {"backpressure": {"max_depth": 1, "warning_threshold": "x"}},
        {"backpressure": {"max_depth": 1, "warning_threshold": 10**400}},
        {"backpressure": {"strategy": []}},
        {"backpressure": {"strategy": "drop_oldest", "max_depth": 1_001}},
        {"concurrency": True},
        {"visibility_timeout": "soon"},
        {"default_timeout": -1},
        {"default_retry": 5},
        {"allowed_job_types": 5},
        {"allowed_job_types": ["a"] * 101},
        {"retention": 5},
    ],
)
def test_settings_that_cannot_be(client: Client, config: dict[str, Any]) -> None:
    assert client.put("/admin/queues/q/config", config).status in (400, 422)
    assert client.push("a", queue="q")["max_attempts"] == 3


def test_a_full_queue_lets_the_oldest_go(client: Client) -> None:
    client.put(
        "/admin/queues/q/config", {"backpressure": {"max_depth": 2, "strategy": "drop_oldest"}}
    ).ok()
    first, second, third = (client.push("a", number, queue="q")["id"] for number in range(3))
    told = client.job(first)
    assert (told["state"], "discarded_at" in told) == ("discarded", True)
    assert [one["id"] for one in client.fetch("q", count=5)] == [second, third]
    # Those that run are not let go for others.
    body = {"type": "a", "args": [], "options": {"queue": "q"}}
    client.post("/jobs", body).error(429, "QUEUE_FULL")


def test_a_full_queue_keeps_waiting_until_there_is_room(client: Client, server: Running) -> None:
    config = {"backpressure": {"max_depth": 1, "strategy": "block"}}
    client.put("/admin/queues/q/config", config).ok()
    client.push("a", queue="q")
    [job] = client.fetch("q")
    other = Client(server.port)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(other.push, "b", queue="q")
        wait([waiting], 0.3)
        assert not waiting.done()
        client.ack(job)
        assert waiting.result(10)["type"] == "b"
    other.close()
