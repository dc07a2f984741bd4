"""Jobs from the outside: what may be sent, what comes back, and what may be done to them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.surfaces.server import JSON, Client, eventually

ID = "0199f0aa-1111-7abc-8def-0123456789ab"


def test_a_job_with_defaults(client: Client) -> None:
    answer = client.post("/jobs", {"type": "mail.send", "args": ["a@b.c"]})
    job = answer.ok(201)["job"]
    assert answer.headers["content-type"] == JSON
    assert answer.headers["ojs-version"] == "1.0"
    assert answer.headers["location"] == f"/ojs/v1/jobs/{job['id']}"
    assert job.pop("id")
    assert job.pop("created_at") == job.pop("enqueued_at")
    assert job == {
        "specversion": "1.0",
        "type": "mail.send",
        "queue": "default",
        "args": ["a@b.c"],
        "meta": {},
        "priority": 0,
        "state": "available",
        "attempt": 0,
        "max_attempts": 3,
        "retry": {
            "max_attempts": 3,
            "initial_interval": "PT1S",
            "backoff_coefficient": 2.0,
            "max_interval": "PT5M",
            "jitter": True,
            "non_retryable_errors": [],
            "on_exhaustion": "discard",
        },
        "tags": [],
    }


def test_everything_that_was_said_comes_back(client: Client) -> None:
    text = (
        '{"type":"a.b-c","args":[1.0,10000000000000000000000,{"z":[null,true]}],"id":"%s",'
        '"meta":{"a.b":"c"},"schema":"urn:x","version":"2.1","ext_ml_gpu":{"n":1.50},'
        '"options":{"queue":"q.1","priority":"HIGH","expires_at":"2099-12-31T23:59:59Z",'
        '"scheduled_at":"2098-01-01T00:00:00+02:00","timeout_ms":5000,'
        '"visibility_timeout":"PT2M","tags":["x"],"metadata":{"m":1},'
        '"unique":{"keys":["type","args"]},"rate_limit":{"key":"k","concurrency":2}}}'
    ).replace("%s", ID)
    pushed = client.post("/jobs", text.encode())
    job = pushed.ok(201)["job"]
    assert b"[1.0,10000000000000000000000," in pushed.text
    assert b'"n":1.50' in pushed.text
    assert (job["state"], job["queue"], job["priority"]) == ("scheduled", "q.1", 10)
    assert job["scheduled_at"] == "2098-01-01T00:00:00+02:00"
    assert job["expires_at"] == "2099-12-31T23:59:59Z"
    assert job["meta"] == {"a.b": "c", "m": 1}
    assert (job["version"], job["schema"], job["tags"]) == ("2.1", "urn:x", ["x"])
    assert (job["timeout_ms"], job["visibility_timeout_ms"]) == (5000, 120000)
    assert job["rate_limit"] == {"key": "k", "concurrency": 2}
    assert "enqueued_at" not in job
    assert client.get(f"/jobs/{ID}").text == pushed.text


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_payload"),
        (b"{", 400, "invalid_payload"),
        (b"[]", 400, "invalid_payload"),
        (b'{"type":"a","args":["\xff"]}', 400, "invalid_payload"),
        ({"args": []}, 400, "invalid_request"),
        ({"type": "Mail", "args": []}, 400, "invalid_request"),
        ({"type": "a" * 256, "args": []}, 400, "invalid_request"),
        ({"type": "a"}, 400, "invalid_request"),
        ({"type": "a", "args": None}, 400, "invalid_request"),
        ({"type": "a", "args": {}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "id": ""}, 400, "invalid_request"),
        ({"type": "a", "args": [], "id": ID.upper()}, 400, "invalid_request"),
        ({"type": "a", "args": [], "meta": []}, 400, "invalid_request"),
        ({"type": "a", "args": [], "meta": {"$ojs": 1}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": []}, 400, "invalid_request"),
        ({"type": "a", "args": [], "schema": 1}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"queue": "a_b"}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"queue": "a" * 129}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"priority": 101}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"priority": "URGENT"}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"tags": [1]}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"pending": 1}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"timeout_ms": 0}}, 400, "invalid_request"),
        ({"type": "a", "args": [], "options": {"expires_at": "tomorrow"}}, 400, "invalid_request"),
        (
            {"type": "a", "args": [], "options": {"scheduled_at": "2099-01-01T00:00:00"}},
            400,
            "invalid_request",
        ),
        ({"type": "a", "args": ["x" * 1_100_000]}, 413, "envelope_too_large"),
        ({"type": "a", "args": [], "meta": {"m": "x" * 70_000}}, 413, "envelope_too_large"),
        (
            {"type": "a", "args": [], "options": {"rate_limit": {"on_limit": "drop"}}},
            400,
            "invalid_request",
        ),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    client: Client, body: Any, status: int, code: str
) -> None:
    client.post("/jobs", body, Content_Type=JSON).error(status, code)
    assert client.get("/queues/default/stats").ok()["stats"]["depth"] == 0


@pytest.mark.parametrize(
    ("retry", "field"),
    [
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"backoff_coefficient": 0.5}, "backoff_coefficient"),
        ({"initial_interval": "1s"}, "initial_interval"),
        ({"initial_interval": "PT0S"}, "initial_interval"),
        ({"initial_interval": "PT2S", "max_interval": "PT1S"}, "max_interval"),
        ({"jitter": 1}, "jitter"),
        ({"non_retryable_errors": "x"}, "non_retryable_errors"),
        ({"on_exhaustion": "explode"}, "on_exhaustion"),
        ({"backoff_strategy": "magic"}, "backoff_strategy"),
        ("often", "retry"),
    ],
)
def test_a_retry_policy_that_cannot_be_names_its_field(
    client: Client, retry: Any, field: str
) -> None:
    body = {"type": "a", "args": [], "options": {"retry": retry}}
    error = client.post("/jobs", body).error(422, "validation_error")
    assert error["type"] == "validation_error"
    assert field in error["message"]


def test_an_id_is_used_once(client: Client) -> None:
    client.post("/jobs", {"type": "a", "args": [], "id": ID}).ok(201)
    error = client.post("/jobs", {"type": "b", "args": [], "id": ID}).error(409, "duplicate")
    assert error["details"]["existing_job_id"] == ID
    assert error["retryable"] is False


def test_unique_jobs(client: Client) -> None:
    def push(value: int, **unique: Any) -> Any:
        options = {"unique": {"keys": ["type", "args"], **unique}}
        return client.post("/jobs", {"type": "u", "args": [value], "options": options})

    first = push(1).ok(201)["job"]
    push(2).ok(201)
    error = push(1).error(409, "duplicate")
    assert error["details"]["existing_job_id"] == first["id"]
    same = push(1, on_conflict="ignore").ok(200)
    assert (same["job"]["id"], same["deduplicated"]) == (first["id"], True)
    second = push(1, on_conflict="replace").ok(201)["job"]
    assert second["id"] != first["id"]
    assert client.job(first["id"])["state"] == "cancelled"
    push(1, states=["active"]).ok(201)


def test_a_replacement_may_keep_the_time_of_the_old_job(client: Client) -> None:
    unique = {"on_conflict": "replace_except_schedule"}
    first = client.push("u", scheduled_at="2098-01-01T00:00:00Z", unique=unique)
    second = client.push("u", unique=unique)
    assert second["state"] == "scheduled"
    assert second["scheduled_at"] == "2098-01-01T00:00:00.000Z"
    assert client.job(first["id"])["state"] == "cancelled"


@pytest.mark.parametrize(
    "unique",
    [
        [],
        {"keys": ["size"]},
        {"keys": [1]},
        {"keys": ["meta"]},
        {"states": ["asleep"]},
        {"on_conflict": "fight"},
        {"period": "1h"},
        {"args_keys": ["nothing"]},
    ],
)
def test_unique_policies_that_cannot_be(client: Client, unique: Any) -> None:
    body = {"type": "a", "args": [{"x": 1}], "options": {"unique": unique}}
    client.post("/jobs", body).error(400, "invalid_request")


def test_a_batch_is_all_or_nothing(client: Client) -> None:
    good, bad = {"type": "a", "args": []}, {"type": "A", "args": []}
    error = client.post("/jobs/batch", {"jobs": [good, bad]}).error(400, "invalid_request")
    assert error["details"]["index"] == 1
    taken = {**good, "id": ID}
    error = client.post("/jobs/batch", {"jobs": [good, taken, taken]}).error(409, "duplicate")
    client.post("/jobs/batch", {"jobs": []}).error(400, "invalid_request")
    client.post("/jobs/batch", {"jobs": [good] * 1_001}).error(413, "batch_too_large")
    assert client.get("/queues/default/stats").ok()["stats"]["depth"] == 0
    many = [{"type": "a", "args": [n]} for n in range(1_000)]
    made = client.post("/jobs/batch", {"jobs": many}).ok(201)
    assert (made["count"], [one["args"] for one in made["jobs"]]) == (
        1_000,
        [[n] for n in range(1_000)],
    )
    assert [one["args"] for one in client.fetch(count=3)] == [[0], [1], [2]]


def test_a_bulk_answers_for_each(client: Client) -> None:
    good, bad = {"type": "a", "args": []}, {"type": "A", "args": []}
    client.post("/jobs/bulk", {"jobs": [good]}).ok(200)
    mixed = client.post("/jobs/bulk", {"jobs": [good, bad]}).ok(207)
    assert (mixed["total"], mixed["succeeded"], mixed["failed"]) == (2, 1, 1)
    assert [one["status"] for one in mixed["items"]] == ["created", "failed"]
    client.post("/jobs/bulk", {"jobs": [bad]}).ok(422)
    client.post("/jobs/bulk", {"jobs": [good, bad], "atomicity": "atomic"}).error(
        422, "invalid_request"
    )
    whole = client.post("/jobs/bulk", {"jobs": [good, good], "atomicity": "atomic"}).ok(200)
    assert whole["succeeded"] == 2
    client.post("/jobs/bulk", {"jobs": [good], "atomicity": "x"}).error(400, "invalid_request")
    once = {"jobs": [good, good], "idempotency_key": "k"}
    first, second = (client.post("/jobs/bulk", once).ok()["items"] for _ in range(2))
    assert [one["status"] for one in second] == ["duplicate", "duplicate"]
    assert [one["job"]["id"] for one in first] == [one["job"]["id"] for one in second]
    client.post("/jobs/bulk", {**once, "idempotency_key": ""}).ok(422)


def test_cancel_and_what_cannot_be_cancelled(client: Client) -> None:
    waiting, running = client.push(), client.push("a", queue="q")
    job = client.delete(f"/jobs/{waiting['id']}").ok()["job"]
    assert (job["state"], job["previous_state"]) == ("cancelled", "available")
    assert "cancelled_at" in job
    assert "completed_at" not in job
    error = client.delete(f"/jobs/{waiting['id']}").error(409, "conflict")
    assert error["details"]["current_state"] == "cancelled"
    client.fetch("q")
    job = client.post(f"/jobs/{running['id']}/cancel").ok()["job"]
    assert job["state"] == "cancelled"
    assert "started_at" in job
    client.post("/workers/ack", {"job_id": running["id"]}).error(409, "conflict")
    client.delete(f"/jobs/{ID}").error(404, "not_found")


def test_a_staged_job_is_activated_once(client: Client) -> None:
    job = client.push(pending=True)
    assert job["state"] == "pending"
    assert client.fetch() == []
    assert client.get("/queues/default/stats").ok()["queue"]["pending"] == 1
    active = client.post(f"/jobs/{job['id']}/activate").ok()["job"]
    assert (active["state"], "activated_at" in active) == ("available", True)
    client.post(f"/jobs/{job['id']}/activate").error(409, "conflict")
    assert [one["id"] for one in client.fetch()] == [job["id"]]


def test_a_priority_can_be_changed_while_it_matters(client: Client) -> None:
    first, second = client.push("a"), client.push("b")
    changed = client.ask("PATCH", f"/jobs/{second['id']}", {"priority": 5}).ok()["job"]
    assert changed["priority"] == 5
    assert [one["id"] for one in client.fetch(count=2)] == [second["id"], first["id"]]
    client.ask("PATCH", f"/jobs/{first['id']}", {"priority": 5}).error(409, "conflict")
    client.ask("PATCH", f"/jobs/{first['id']}", {"priority": 500}).error(400, "invalid_request")


def test_results_are_waited_for(client: Client) -> None:
    job = client.push()
    client.get(f"/jobs/{job['id']}/result").error(408, "timeout")
    client.ack(client.fetch()[0], {"n": 1.50})
    found = client.get(f"/jobs/{job['id']}/result?wait=true&timeout=5").ok()
    assert (found["state"], found["result"]) == ("completed", {"n": 1.5})
    many = client.post("/jobs/results", {"ids": [job["id"], ID]}).ok()["results"]
    assert [one["job_id"] for one in many] == [job["id"]]


def test_the_history_tells_every_move(client: Client) -> None:
    job = client.push()
    client.ack(client.fetch()[0])
    events = client.get(f"/jobs/{job['id']}/history").ok()["events"]
    assert [one["event_type"] for one in events] == ["enqueue", "claim", "complete"]
    assert events[1]["actor"] == "worker w1"
    assert client.get(f"/jobs/{job['id']}/lineage").ok() == {"job_id": job["id"]}


def test_a_scheduled_job_comes_when_it_is_due_and_an_expired_one_goes(client: Client) -> None:
    late = client.push("late", scheduled_at="+PT0.3S")
    short = client.push("short", queue="q", expires_at="+PT0.3S")
    past = client.push("past", scheduled_at="2020-01-01T00:00:00Z")
    assert (late["state"], past["state"]) == ("scheduled", "available")
    assert [one["type"] for one in client.fetch(count=5)] == ["past"]
    eventually(lambda: client.job(late["id"])["state"] == "available")
    gone = eventually(lambda: (job := client.job(short["id"]))["state"] == "discarded" and job)
    assert "completed_at" not in gone
    assert "discarded_at" in gone
    assert client.fetch("q") == []


def test_a_veto_of_a_test_suite(client: Client) -> None:
    body = {"type": "a", "args": [], "meta": {"ojs_validate": True}}
    client.post("/jobs", body).error(422, "x_validation_failed")


def test_the_sdk_gets_a_type_it_can_read(client: Client) -> None:
    answer = client.post("/jobs", {"type": "a", "args": []}, OJS_Version="1.0")
    assert answer.headers["content-type"] == f'{JSON}; alt="application/json"'
    assert json.loads(answer.text)["job"]
    client.get("/queues", OJS_Version="7.0").error(422, "unsupported")
    body = b'{"type":"a","args":[]}'
    client.post("/jobs", body, Content_Type="text/plain").error(400, "invalid_request")
