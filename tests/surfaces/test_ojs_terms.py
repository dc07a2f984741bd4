"""How long things may last: all attempts of a job, a silence while it runs, and its result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surfaces.server import Client, eventually

NO_JITTER = {"jitter": False, "initial_interval": "PT1H", "max_interval": "PT1H"}


def told_of(client: Client, name: str, kind: str) -> Any:
    """The data of an event of a job, as soon as it is told."""

    def look() -> list[Any]:
        told = client.get(f"/events?limit=1000&types={kind}").ok()["events"]
        return [one["data"] for one in told if one["data"]["job_id"] == name]

    return eventually(look)[0]


def test_a_job_that_was_discarded_while_it_waited_says_why(client: Client) -> None:
    expired, late = client.push(expires_at="+PT0.1S"), client.push(enqueue_ttl=0.1)
    failed = client.push(queue="r", enqueue_ttl=0.3, retry={"initial_interval": "PT1H"})
    client.nack(client.fetch("r")[0])
    jobs = [expired, late, failed]
    eventually(lambda: {client.job(one["id"])["state"] for one in jobs} == {"discarded"})
    found = [client.job(one["id"]) for one in jobs]
    types = [one["error"]["type"] for one in found]
    assert types == ["expired", "enqueue_ttl_expired", "enqueue_ttl_expired"]
    assert [len(one["errors"]) for one in found] == [1, 1, 2]
    assert all(one["error"]["message"] for one in found)


def test_an_attempt_that_was_lost_says_so_in_one_word(client: Client) -> None:
    job = client.push(visibility_timeout_ms=100)
    client.fetch()
    eventually(lambda: client.job(job["id"])["state"] == "available")
    error = client.job(job["id"])["error"]
    assert error["type"] == error["code"] == "visibility_timeout"


# --- total_timeout ------------------------------------------------------------------------------


def test_a_job_that_runs_ends_with_its_total_time(client: Client) -> None:
    pushed = client.push(total_timeout=0.4)
    assert pushed["total_timeout"] == 0.4
    [job] = client.fetch()
    eventually(lambda: client.job(job["id"])["state"] == "discarded")
    over = client.job(job["id"])
    assert over["error"]["type"] == over["error"]["code"] == "total_timeout"
    assert over["completed_at"] == over["discarded_at"]
    assert client.post("/workers/ack", {"job_id": job["id"]}).error(409, "conflict")
    told = told_of(client, job["id"], "job.total_timeout")
    assert (told["timeout_kind"], told["limit_seconds"], told["attempt"]) == ("total", 0.4, 1)
    assert told["elapsed_seconds"] >= 0.4


def test_a_job_that_waits_ends_with_its_total_time(client: Client) -> None:
    job = client.push(total_timeout=0.2)
    eventually(lambda: client.job(job["id"])["state"] == "discarded")
    over = client.job(job["id"])
    assert over["error"]["type"] == "total_timeout"
    assert "completed_at" not in over
    assert client.fetch() == []
    assert told_of(client, job["id"], "job.total_timeout")["attempt"] == 0


def test_a_retry_that_cannot_begin_in_time_is_none(client: Client) -> None:
    client.push(total_timeout=600, retry=NO_JITTER)
    [job] = client.fetch()
    assert client.nack(job)["state"] == "discarded"
    client.push(total_timeout=7_200, retry=NO_JITTER)
    [job] = client.fetch()
    assert client.nack(job)["state"] == "retryable"


def test_an_attempt_that_timed_out_is_not_followed_by_one_too_late(client: Client) -> None:
    client.push(total_timeout=600, timeout_ms=200, retry=NO_JITTER)
    [job] = client.fetch()
    eventually(lambda: client.job(job["id"])["state"] == "discarded")
    assert client.job(job["id"])["error"]["type"] == "timeout"


def test_whatever_happens_to_a_running_job_its_total_time_goes_on(client: Client) -> None:
    client.push(total_timeout=0.5)
    [job] = client.fetch()
    client.put(f"/jobs/{job['id']}/checkpoint", {"state": {"at": 1}}).ok()
    client.post("/workers/heartbeat", {"worker_id": "w1", "active_jobs": [job["id"]]}).ok()
    eventually(lambda: client.job(job["id"])["state"] == "discarded")


def test_a_job_of_a_schedule_counts_from_its_own_beginning(client: Client) -> None:
    template = {"type": "a", "args": [], "options": {"total_timeout": 600, "enqueue_ttl": 900}}
    cron = {"name": "c", "expression": "0 0 1 1 *", "job_template": template}
    client.post("/cron", cron).ok(201)
    name = client.post("/cron/c/trigger").ok()["job_id"]
    assert client.job(name)["expires_at"] > client.job(name)["created_at"]
    assert [one["id"] for one in client.fetch()] == [name]


# --- heartbeat_timeout --------------------------------------------------------------------------


def test_a_job_that_nobody_speaks_for_has_stalled(client: Client) -> None:
    assert client.push(heartbeat_timeout=0.3)["heartbeat_timeout"] == 0.3
    [job] = client.fetch()
    [again] = eventually(lambda: client.fetch(worker="w2"))
    assert (again["id"], again["attempt"]) == (job["id"], 2)
    assert again["error"]["type"] == again["error"]["code"] == "stalled"
    late = {"job_id": job["id"], "lease": job["lease"]}
    assert client.post("/workers/ack", late).error(409, "conflict")
    told = told_of(client, job["id"], "job.stalled")
    assert (told["timeout_kind"], told["limit_seconds"]) == ("heartbeat", 0.3)


def test_the_last_silence_is_the_end(client: Client) -> None:
    client.push(heartbeat_timeout=0.2, retry={"max_attempts": 1})
    [job] = client.fetch()
    eventually(lambda: client.job(job["id"])["state"] == "discarded")
    assert client.job(job["id"])["error"]["type"] == "stalled"


@pytest.mark.parametrize("how", ["heartbeat", "progress"])
def test_whoever_is_heard_of_keeps_the_job(client: Client, how: str) -> None:
    client.push("quiet", heartbeat_timeout=1.5)
    client.push("heard", heartbeat_timeout=1.5)
    quiet, heard = sorted(client.fetch(count=2), key=lambda one: one["type"], reverse=True)

    def is_over() -> bool:
        if how == "heartbeat":
            told = {"worker_id": "w1", "active_jobs": [heard["id"]]}
            client.post("/workers/heartbeat", told).ok()
        else:
            client.put(f"/jobs/{heard['id']}/progress", {"progress": 0.5}).ok()
        return bool(client.job(quiet["id"])["state"] == "available")

    eventually(is_over)
    assert client.job(heard["id"])["state"] == "active"
    assert client.ack(heard)["state"] == "completed"


# --- result_ttl ---------------------------------------------------------------------------------


def test_a_result_goes_when_its_time_is_up_and_nothing_else_does(client: Client) -> None:
    assert client.push(result_ttl=0.2)["result_ttl"] == 0.2
    [job] = client.fetch()
    before = client.ack(job, {"sum": 3})["job"]
    assert before["result"] == {"sum": 3}
    eventually(lambda: "result" not in client.job(job["id"]))
    assert client.job(job["id"]) == {k: v for k, v in before.items() if k != "result"}
    client.get(f"/jobs/{job['id']}/result").error(410, "gone")
    names = [one["event_type"] for one in client.get(f"/jobs/{job['id']}/history").ok()["events"]]
    assert names == ["enqueue", "claim", "complete"]


@pytest.mark.parametrize("options", [{"result_ttl": -1}, {}])
def test_a_result_may_be_kept(client: Client, options: dict[str, Any]) -> None:
    client.push("short", result_ttl=0.1)
    client.push("long", **options)
    short, long = sorted(client.fetch(count=2), key=lambda one: one["type"], reverse=True)
    for job in (short, long):
        client.ack(job, 7)
    eventually(lambda: "result" not in client.job(short["id"]))
    assert client.get(f"/jobs/{long['id']}/result").ok()["result"] == 7


def test_a_result_may_not_be_stored_at_all(client: Client) -> None:
    client.push(result_ttl=0)
    [job] = client.fetch()
    client.ack(job, 7)
    assert "result" not in client.job(job["id"])
    client.get(f"/jobs/{job['id']}/result").error(410, "gone")


def test_a_job_that_came_to_nothing_has_not_lost_a_result(client: Client) -> None:
    client.push()
    [job] = client.fetch()
    client.post("/workers/ack", {"job_id": job["id"]}).ok()
    assert "result" not in client.get(f"/jobs/{job['id']}/result").ok()


def test_whoever_comes_later_in_a_workflow_still_gets_it(client: Client) -> None:
    steps: list[Any] = [
        {"type": name, "args": [], "options": {"result_ttl": 0}} for name in ("a", "b")
    ]
    client.post("/workflows", {"type": "chain", "name": "c", "steps": steps}).ok(201)
    [first] = client.fetch()
    client.ack(first, {"n": 1})
    [second] = eventually(client.fetch)
    assert second["parent_results"] == [{"n": 1}]


# --- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"total_timeout": 0},
        {"total_timeout": -1},
        {"total_timeout": "PT1S"},
        {"total_timeout": True},
        {"total_timeout": 40_000_000},
        {"total_timeout": 1, "timeout_ms": 2_000},
        {"heartbeat_timeout": 0},
        {"heartbeat_timeout": 1e308},
        {"result_ttl": -2},
        {"result_ttl": "7d"},
        {"result_ttl": False},
    ],
)
def test_what_cannot_be_is_refused_with_its_field(client: Client, options: dict[str, Any]) -> None:
    asked = {"type": "a", "args": [], "options": options}
    error = client.post("/jobs", asked).error(400, "invalid_request")
    assert error["details"]["field"] in options


def test_how_long_a_result_is_kept_is_not_said_in_the_metadata(client: Client) -> None:
    asked = {"type": "a", "args": [], "meta": {"$keep": 1}}
    assert client.post("/jobs", asked).error(400, "invalid_request")["details"]["field"] == "meta"


def test_the_manifest_says_that_they_are_there(client: Client) -> None:
    told = client.get("/ojs/manifest").ok()["extensions"]
    names = {one["name"] for one in told["official"]}
    assert {"total-timeout", "stall-detection", "result-ttl"} <= names - set(told["absent"])
