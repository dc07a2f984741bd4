"""Queues, dead letters, schedules and workflows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surfaces.server import Client, eventually

ID = "0199f0aa-1111-7abc-8def-0123456789ab"
DEAD = {"max_attempts": 1, "on_exhaustion": "dead_letter"}


def dead(client: Client, type_: str = "a", **options: Any) -> dict[str, Any]:
    """A dead letter."""
    client.push(type_, 7, retry=DEAD, **options)
    [job] = client.fetch(options.get("queue", "default"))
    found: dict[str, Any] = client.nack(job)["job"]
    return found


# --- queues -----------------------------------------------------------------------------------


def test_queues_and_their_numbers(client: Client) -> None:
    client.push("a", queue="b.1")
    client.push("a", queue="b.1", scheduled_at="2099-01-01T00:00:00Z")
    client.push("a", queue="b.1")
    client.ack(client.fetch("b.1")[0])
    found = client.get("/queues").ok()
    assert [one["name"] for one in found["queues"]] == ["b.1", "default"]
    assert found["pagination"]["total"] == 2
    assert client.get("/queues?limit=1").ok()["pagination"]["has_more"] is True
    assert client.get("/queues/b.1").ok()["queue"]["completed"] == 1
    stats = client.get("/queues/b.1/stats").ok()
    assert stats["queue"]["available"] == stats["stats"]["available"] == 1
    assert (stats["stats"]["depth"], stats["stats"]["queue"], stats["status"]) == (
        2,
        "b.1",
        "active",
    )
    for text in ("0", "x", "-1", "9" * 30):
        client.get(f"/queues?limit={text}").error(400, "invalid_request")


def test_a_paused_queue_takes_jobs_and_gives_none(client: Client) -> None:
    client.push("a")
    paused = client.post("/queues/default/pause").ok()
    assert (paused["queue"], paused["status"]) == ({"name": "default", "paused": True}, "paused")
    client.push("b")
    assert client.fetch() == []
    assert client.get("/queues/default/stats").ok()["queue"]["paused"] is True
    assert client.post("/queues/default/resume").ok()["status"] == "active"
    assert [one["type"] for one in client.fetch(count=2)] == ["a", "b"]


def test_a_queue_with_a_bound(client: Client) -> None:
    config = {"backpressure": {"max_depth": 2, "strategy": "reject"}}
    set_ = client.put("/admin/queues/few/config", config).ok()
    assert set_["backpressure"] == config["backpressure"]
    client.push("a", queue="few")
    near = client.post("/jobs", {"type": "a", "args": [], "options": {"queue": "few"}})
    near.ok(201)
    assert near.headers["x-ojs-queue-pressure"] == "1.00"
    full = client.post("/jobs", {"type": "a", "args": [], "options": {"queue": "few"}})
    assert full.error(429, "QUEUE_FULL")["retryable"] is True
    assert (full.headers["retry-after"], full.headers["x-ojs-queue-bound"]) == ("1", "2")
    assert client.get("/queues/few/stats").ok()["stats"]["max_depth"] == 2
    bad = {"backpressure": {"strategy": "pray"}}
    client.put("/admin/queues/few/config", bad).error(400, "invalid_request")
    client.put("/admin/queues/few/config", {"backpressure": {"max_depth": 0}}).error(
        400, "invalid_request"
    )


def test_a_queue_with_a_limit(client: Client) -> None:
    client.put("/admin/queues/q/config", {"concurrency": 1, "rate_limit": {"limit": 9}}).ok()
    client.push("a", queue="q")
    client.push("a", queue="q")
    assert len(client.fetch("q", count=2)) == 1
    client.put("/admin/queues/q/config", {"concurrency": 0}).error(400, "invalid_request")
    client.put("/admin/queues/q/config", {"concurrency": None}).ok()
    assert len(client.fetch("q", count=2)) == 1


# --- dead letters -----------------------------------------------------------------------------


def test_dead_letters_are_those_that_asked_for_it(client: Client) -> None:
    job = dead(client)
    client.push("plain", retry={"max_attempts": 1})
    client.nack(client.fetch()[0])
    client.push("said")
    client.nack(client.fetch()[0], "DEAD_LETTER")
    found = client.get("/dead-letter").ok()
    assert sorted(one["type"] for one in found["jobs"]) == ["a", "said"]
    assert found["pagination"]["total"] == 2
    assert client.get(f"/dead-letter/{job['id']}").ok()["job"]["errors"][0]["code"] == "boom"
    stats = client.get("/dead-letter/stats").ok()
    assert (stats["total"], stats["by_queue"]) == (2, {"default": 2})
    assert client.get("/dead-letter?queue=other").ok()["jobs"] == []


def test_a_dead_letter_runs_again_under_its_id(client: Client) -> None:
    name = dead(client)["id"]
    for _ in range(2):
        again = client.post(f"/dead-letter/{name}/retry").ok()["job"]
        assert (again["id"], again["state"], again["attempt"]) == (name, "available", 0)
        assert "error" not in again
        assert client.job(name)["state"] == "available"
        assert client.get("/dead-letter").ok()["jobs"] == []
        client.post(f"/dead-letter/{name}/retry").error(404, "not_found")
        [job] = client.fetch()
        assert (job["id"], job["args"], job["attempt"]) == (name, [7], 1)
        client.nack(job)
        assert [one["id"] for one in client.get("/dead-letter").ok()["jobs"]] == [name]
    override = {"override": {"queue": "q", "meta": {"m": 1}, "retry": {"max_attempts": 9}}}
    again = client.post(f"/dead-letter/{name}/retry", override).ok()["job"]
    assert (again["queue"], again["meta"], again["max_attempts"]) == ("q", {"m": 1}, 9)
    [job] = client.fetch("q")
    done = client.ack(job, "fine")
    assert (done["id"], client.job(name)["result"]) == (name, "fine")
    assert client.get("/events?types=job.completed").ok()["events"][0]["subject"] == name


def test_a_dead_letter_is_erased(client: Client) -> None:
    name = dead(client)["id"]
    assert client.delete(f"/dead-letter/{name}").ok() == {"deleted": True, "job_id": name}
    assert client.get("/dead-letter").ok()["jobs"] == []
    client.get(f"/jobs/{name}").error(404, "not_found")
    client.delete(f"/dead-letter/{name}").error(404, "not_found")
    client.post(f"/dead-letter/{ID}/retry").error(404, "not_found")


def test_many_dead_letters_at_once(client: Client) -> None:
    names = {dead(client, type_)["id"] for type_ in ("a", "a", "b")}
    client.post("/dead-letter/retry", {"filter": {"type": "a"}}).error(400, "invalid_request")
    told = {"filter": {"type": "a", "error_type": "boom", "since": "2020-01-01T00:00:00Z"}}
    assert client.post("/dead-letter/retry", {**told, "confirm": True}).ok()["retried"] == 2
    assert {one["id"] for one in client.fetch(count=5)} < names
    assert client.delete("/dead-letter", {"confirm": True}).ok()["deleted"] == 1


# --- schedules --------------------------------------------------------------------------------

CRON = {
    "name": "nightly.1",
    "expression": "@daily",
    "timezone": "Asia/Tokyo",
    "job_template": {"type": "a.b", "args": [1], "options": {"queue": "q"}, "meta": {"m": 1}},
}


def test_schedules(client: Client) -> None:
    made = client.post("/cron", CRON).ok(201)
    cron = made["cron"]
    assert made["cron_job"] == cron
    assert (cron["expression"], cron["cron"], cron["enabled"]) == ("@daily", "@daily", True)
    assert (cron["run_count"], cron["last_run_at"]) == (0, None)
    assert cron["next_run_at"].endswith("15:00:00.000Z")
    assert cron["job_template"]["args"] == [1]
    # The HTTP binding has the job beside the times.
    assert {name: cron[name] for name in cron["job_template"]} == cron["job_template"]
    assert (cron["type"], cron["args"], cron["options"]["queue"]) == ("a.b", [1], "q")
    assert cron["status"] == "active"
    client.post("/cron", CRON).ok(200)
    flat = {"name": "flat", "cron": "*/5 * * * *", "type": "a", "args": []}
    client.post("/cron", {**flat, "enabled": False}).ok(201)
    found = client.get("/cron").ok()
    assert [one["name"] for one in found["crons"]] == ["flat", "nightly.1"]
    assert found["cron_jobs"] == found["crons"]
    assert client.get("/cron/flat").ok()["cron"]["next_run_at"] is None
    assert client.get("/cron/flat").ok()["cron_job"]["status"] == "paused"
    assert client.ask("PATCH", "/cron/flat", {"enabled": True}).ok()["cron"]["next_run_at"]
    client.ask("PATCH", "/cron/flat", {}).error(400, "invalid_request")
    fired = client.post("/cron/nightly.1/trigger").ok()
    [job] = client.fetch("q")
    assert (job["id"], job["meta"]["m"]) == (fired["job_id"], 1)
    gone = client.delete("/cron/flat").ok()
    assert (gone["deleted"], gone["name"]) == (True, "flat")
    client.delete("/cron/flat").error(404, "not_found")


def test_a_schedule_fires(client: Client) -> None:
    every = {"name": "often", "expression": "@every 1s", "type": "tick", "args": []}
    client.post("/cron", every).ok(201)
    [job] = eventually(client.fetch)
    assert (job["type"], job["meta"]["cron_name"]) == ("tick", "often")
    client.delete("/cron/often").ok()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Bad Name"},
        {"name": None},
        {"expression": None},
        {"expression": "99 25 32 13 8"},
        {"expression": "* * * * * * *"},
        {"timezone": "EST"},
        {"overlap_policy": "fight"},
        {"job_template": {"args": []}},
        {"job_template": {"type": "a", "args": [], "options": {"scheduled_at": "+PT1S"}}},
    ],
)
def test_schedules_that_cannot_be(client: Client, change: dict[str, Any]) -> None:
    client.post("/cron", {**CRON, **change}).error(400, "invalid_request")
    assert client.get("/cron").ok()["crons"] == []


# --- workflows --------------------------------------------------------------------------------


def steps(*names: str) -> list[dict[str, Any]]:
    """Jobs of these types."""
    return [{"type": name, "args": []} for name in names]


def state(client: Client, name: str) -> dict[str, Any]:
    """A workflow as it is."""
    found: dict[str, Any] = client.get(f"/workflows/{name}").ok()["workflow"]
    return found


def test_a_chain_hands_on_its_results(client: Client) -> None:
    answer = client.post(
        "/workflows", {"type": "chain", "name": "c", "steps": steps("a", "b", "c")}
    )
    flow = answer.ok(201)["workflow"]
    assert answer.headers["location"] == f"/ojs/v1/workflows/{flow['id']}"
    assert (flow["state"], flow["name"], flow["steps_total"]) == ("running", "c", 3)
    for number, (type_, parents) in enumerate(
        [("a", []), ("b", [{"n": 0}]), ("c", [{"n": 0}, {"n": 1}])]
    ):
        [job] = eventually(lambda: client.fetch(count=5))
        assert (job["type"], job["parent_results"]) == (type_, parents)
        assert job["workflow_id"] == flow["id"]
        client.ack(job, {"n": number})
    done = eventually(lambda: (f := state(client, flow["id"]))["state"] == "completed" and f)
    assert (done["steps_completed"], [one["state"] for one in done["steps"]]) == (
        3,
        ["completed"] * 3,
    )
    client.delete(f"/workflows/{flow['id']}").error(409, "conflict")
    assert client.get(f"/workflows/{flow['id']}/progress").ok()["progress"] == 1.0
    assert client.get("/workflows").ok()["workflows"][0]["id"] == flow["id"]


def test_a_chain_ends_with_its_first_failure(client: Client) -> None:
    flow = client.post("/workflows", {"type": "chain", "steps": steps("a", "b", "c")}).ok(201)
    name = flow["workflow"]["id"]
    client.ack(client.fetch()[0])
    client.nack(eventually(client.fetch)[0], retryable=False)
    failed = eventually(lambda: (f := state(client, name))["state"] == "failed" and f)
    assert (failed["steps_completed"], failed["failed_step_index"]) == (1, 1)
    assert client.fetch() == []


def test_a_group_in_a_chain(client: Client) -> None:
    group = {"type": "group", "jobs": steps("x", "y")}
    client.post("/workflows", {"type": "chain", "steps": [group, *steps("z")]}).ok(201)
    for job in client.fetch(count=5):
        client.ack(job, job["type"])
    [last] = eventually(client.fetch)
    assert last["parent_results"] == [["x", "y"]]


def test_the_jobs_of_a_workflow_bring_their_limits(client: Client) -> None:
    limit = {"rate_limit": {"key": "w", "concurrency": 1}}
    jobs = [{"type": "a", "args": [], "options": limit} for _ in range(2)]
    client.post("/workflows", {"type": "group", "jobs": jobs}).ok(201)
    assert len(client.fetch(count=2)) == 1
    cron = {"name": "n", "expression": "@daily", "type": "a", "args": []}
    limit = {"rate_limit": {"key": "c", "concurrency": 3}}
    client.post("/cron", {**cron, "options": limit}).ok(201)
    assert client.get("/rate-limits/c").ok()["concurrency"]["limit"] == 3


def test_a_group_waits_for_all(client: Client) -> None:
    flow = client.post("/workflows", {"type": "group", "jobs": steps("a", "b")}).ok(201)["workflow"]
    one, two = client.fetch(count=5)
    client.nack(one, retryable=False)
    assert state(client, flow["id"])["state"] == "running"
    client.ack(two)
    done = state(client, flow["id"])
    assert (done["state"], done["jobs_completed"], done["jobs_total"]) == ("failed", 1, 2)
    assert done["failed_job_ids"] == [one["id"]]


@pytest.mark.parametrize(("fails", "called"), [(False, ["done", "good"]), (True, ["bad", "done"])])
def test_a_batch_calls_back(client: Client, fails: bool, called: list[str]) -> None:
    callbacks = {
        "on_complete": {"type": "done", "args": []},
        "on_success": {"type": "good", "args": []},
        "on_failure": {"type": "bad", "args": []},
    }
    body = {"type": "batch", "jobs": steps("a", "b"), "callbacks": callbacks}
    client.post("/workflows", body).ok(201)
    one, two = client.fetch(count=5)
    client.ack(one, 1)
    client.nack(two, retryable=False) if fails else client.ack(two, 2)
    jobs = eventually(lambda: client.fetch(count=5))
    assert len(jobs) == 2
    assert sorted(job["type"] for job in jobs) == called
    assert jobs[0]["parent_results"] == [1, None if fails else 2]


def test_steps_that_depend_on_each_other(client: Client) -> None:
    def step(name: str, *before: str, **options: Any) -> dict[str, Any]:
        return {"id": name, "type": name, "args": [], "depends_on": before, "options": options}

    body = {"name": "d", "steps": [step("a"), step("b"), step("c", "a", "b"), step("d", "c")]}
    flow = client.post("/workflows", {**body, "options": {"queue": "q"}}).ok(201)["workflow"]
    assert [one["id"] for one in flow["steps"]] == ["a", "b", "c", "d"]
    for job in client.fetch("q", count=5):
        client.ack(job, job["type"])
    [job] = eventually(lambda: client.fetch("q"))
    assert (job["type"], job["parent_results"]) == ("c", ["a", "b"])
    cancelled = client.delete(f"/workflows/{flow['id']}").ok()["workflow"]
    assert cancelled["state"] == "cancelled"
    client.ack(job)
    eventually(lambda: state(client, flow["id"])["steps"][3]["state"] == "cancelled")
    client.get(f"/workflows/{ID}").error(404, "not_found")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "spiral", "jobs": []},
        {"type": "chain", "steps": []},
        {"type": "chain", "steps": [{"type": "a"}]},
        {"type": "group"},
        {"type": "batch", "jobs": [{"type": "a", "args": []}]},
        {"steps": [{"type": "a", "args": []}]},
        {"steps": [{"id": "a", "type": "a", "args": [], "depends_on": ["b"]}]},
        {"steps": [{"id": "a", "type": "a", "args": [], "depends_on": ["a"]}]},
        {"steps": [{"id": "a", "type": "a", "args": [], "depends_on": "b"}]},
        {"type": "chain", "steps": [{"type": "a", "args": [], "options": {"unique": {}}}]},
    ],
)
def test_workflows_that_cannot_be(client: Client, body: dict[str, Any]) -> None:
    client.post("/workflows", body).error(400, "invalid_request")
    assert client.get("/workflows").ok()["workflows"] == []
