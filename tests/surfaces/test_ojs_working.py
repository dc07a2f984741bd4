"""Workers: fetching, reporting, beating, falling silent."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.surfaces.server import Client, Running, eventually

ID = "0199f0aa-1111-7abc-8def-0123456789ab"


def test_one_life(client: Client) -> None:
    pushed = client.push("mail.send", 1)
    [job] = client.fetch()
    assert (job["id"], job["state"], job["attempt"]) == (pushed["id"], "active", 1)
    assert (job["worker_id"], "started_at" in job) == ("w1", True)
    assert job["lease"]
    done = client.ack(job, [1, {"a": None}])
    assert done["acknowledged"] is True
    assert done["id"] == done["job_id"] == done["job"]["id"] == job["id"]
    assert done["state"] == done["job"]["state"] == "completed"
    assert done["completed_at"] == done["job"]["completed_at"]
    assert client.job(job["id"]) == done["job"]
    assert done["job"]["result"] == [1, {"a": None}]
    client.post("/workers/ack", {"job_id": job["id"]}).error(409, "conflict")
    client.post("/workers/nack", {"job_id": job["id"], "error": {}}).error(409, "conflict")


def test_the_aliases_of_operations(client: Client) -> None:
    client.push("a")
    client.push("b")
    [job] = client.post("/jobs/fetch", {"queues": ["default"]}).ok()["jobs"]
    assert "worker_id" not in job
    assert client.post(f"/jobs/{job['id']}/ack", {"worker_id": "w9"}).ok()["state"] == "completed"
    [job] = client.fetch()
    told = {"error": {"code": "x", "message": "y"}}
    assert client.post(f"/jobs/{job['id']}/nack", told).ok()["state"] == "retryable"


def test_queues_from_left_to_right_then_priority_then_first_come(client: Client) -> None:
    for queue, priority, name in [("b", 0, "b1"), ("a", 0, "a1"), ("a", 5, "a2"), ("a", 0, "a3")]:
        client.push(name, queue=queue, priority=priority)
    found = client.post("/workers/fetch", {"queues": ["a", "b"], "count": 10}).ok()
    assert [one["type"] for one in found["jobs"]] == ["a2", "a1", "a3", "b1"]
    assert found["job"]["type"] == "a2"


def test_queues_with_weights_are_fetched_from_the_heaviest_first(client: Client) -> None:
    for queue in ("a", "b", "c", "d"):
        client.push(queue, queue=queue)
    weighted = [{"name": "a", "weight": 0.5}, "b", {"name": "c", "weight": 3}, {"name": "d"}]
    found = client.post("/workers/fetch", {"queues": weighted, "count": 10}).ok()
    assert [one["type"] for one in found["jobs"]] == ["c", "b", "d", "a"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/workers/fetch", {}),
        ("/workers/fetch", {"queues": [{"weight": 1}]}),
        ("/workers/fetch", {"queues": [{"name": "a", "weight": "heavy"}]}),
        ("/workers/fetch", {"queues": []}),
        ("/workers/fetch", {"queues": "a"}),
        ("/workers/fetch", {"queues": ["A!"]}),
        ("/workers/fetch", {"queues": ["a"], "count": 0}),
        ("/workers/fetch", {"queues": ["a"], "visibility_timeout_ms": -1}),
        ("/workers/ack", {}),
        ("/workers/nack", {"job_id": ID}),
        ("/workers/heartbeat", {}),
    ],
)
def test_what_cannot_be_asked(client: Client, path: str, body: Any) -> None:
    client.post(path, body).error(400, "invalid_request")


def test_reports_about_nothing(client: Client) -> None:
    client.post("/workers/ack", {"job_id": ID}).error(404, "not_found")
    client.post("/workers/nack", {"job_id": ID, "error": {}}).error(404, "not_found")


def test_a_failure_is_tried_again_and_the_last_one_ends_it(client: Client) -> None:
    retry = {"max_attempts": 2, "initial_interval": "PT0.1S", "jitter": False}
    pushed = client.push(retry=retry)
    failed = client.nack(client.fetch()[0], details={"n": 1}, backtrace=["a", "b"])
    assert (failed["state"], failed["attempt"], failed["max_attempts"]) == ("retryable", 1, 2)
    assert failed["retry_delay_ms"] == 100
    assert failed["next_attempt_at"]
    [job] = eventually(client.fetch)
    assert (job["attempt"], job["retry_delay_ms"]) == (2, 100)
    assert job["error"]["details"] == {"n": 1}
    assert job["error"]["backtrace"] == "a\nb"
    ended = client.nack(job, "worse", type="Fatal")
    assert (ended["state"], ended["attempt"]) == ("discarded", 2)
    assert ended["completed_at"] == ended["discarded_at"]
    errors = client.job(pushed["id"])["errors"]
    assert [(e["code"], e["type"], e["attempt"]) for e in errors] == [
        ("boom", "boom", 1),
        ("worse", "Fatal", 2),
    ]


def test_a_worker_that_was_told_when_to_come_again_tells_it(client: Client) -> None:
    for until, least, most in (("+PT1H", 3_500_000, 3_600_000), ("2020-01-01T00:00:00Z", 0, 0)):
        client.push("a", retry={"max_attempts": 3}, queue="told")
        [job] = client.fetch("told")
        told = client.nack(job, rate_limit_until=until)
        assert told["state"] == ("retryable" if most else "available")
        assert least <= told["job"].get("retry_delay_ms", 0) <= most
        client.delete(f"/jobs/{job['id']}").ok()
    client.push("a", queue="told")
    [job] = client.fetch("told")
    error = {"code": "x", "message": "m", "rate_limit_until": "soon"}
    body = {"job_id": job["id"], "error": error}
    client.post("/workers/nack", body).error(400, "invalid_request")
    assert client.job(job["id"])["state"] == "active"


def test_labels_of_workers_may_be_a_list(client: Client) -> None:
    client.post("/workers/register", {"worker_id": "w7", "labels": ["gpu", "eu"]}).ok()
    [worker] = client.get("/admin/workers").ok()["items"]
    assert worker["metadata"] == ["gpu", "eu"]


def test_the_error_goes_with_success(client: Client) -> None:
    pushed = client.push(retry={"initial_interval": "PT0.05S", "jitter": False})
    client.nack(client.fetch()[0])
    client.ack(eventually(client.fetch)[0], 1)
    job = client.job(pushed["id"])
    assert "error" not in job
    assert len(job["errors"]) == 1


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ({}, {"retryable": False}),
        ({"non_retryable_errors": ["Fatal"]}, {"type": "Fatal"}),
        ({"non_retryable_errors": ["db.*"]}, {"details": {"error_class": "db.gone"}}),
        ({"max_attempts": 0}, {}),
        ({}, {"code": "DISCARD"}),
    ],
)
def test_what_is_not_tried_again(
    client: Client, policy: dict[str, Any], error: dict[str, Any]
) -> None:
    client.push(retry=policy)
    [job] = client.fetch()
    told = {"code": "c", "message": "m", **error}
    done = client.post("/workers/nack", {"job_id": job["id"], "error": told}).ok()
    assert done["state"] == "discarded"
    assert client.get("/dead-letter").ok()["jobs"] == []


def test_a_job_that_is_given_back_has_lost_nothing(client: Client) -> None:
    client.push("a")
    [job] = client.fetch()
    told = {
        "job_id": job["id"],
        "error": {"code": "cancelled", "retryable": False},
        "requeue": True,
    }
    back = client.post("/workers/nack", told).ok()
    assert (back["state"], back["attempt"]) == ("available", 1)
    assert "started_at" not in back["job"]
    [again] = client.fetch()
    assert (again["id"], again["attempt"]) == (job["id"], 1)


def test_who_does_not_hold_it_cannot_report(client: Client) -> None:
    client.push()
    [job] = client.fetch()
    for told in ({"worker_id": "w2"}, {"lease": ID}, {"attempt": 2}):
        client.post("/workers/ack", {"job_id": job["id"], **told}).error(409, "conflict")
    client.post("/workers/ack", {"job_id": job["id"]}, OJS_Lease=ID).error(409, "conflict")
    told = {"job_id": job["id"], "worker_id": "w1", "lease": job["lease"], "attempt": 1}
    client.post("/workers/ack", told).ok()


def test_a_reservation_runs_out_and_counts_as_a_failure(client: Client) -> None:
    pushed = client.push(visibility_timeout_ms=300, retry={"max_attempts": 2})
    [first] = client.fetch(visibility_timeout_ms=60_000)
    [second] = eventually(client.fetch)
    assert (second["id"], second["attempt"]) == (pushed["id"], 2)
    assert second["error"]["code"] == "visibility_timeout"
    told = {"job_id": first["id"], "lease": first["lease"]}
    client.post("/workers/ack", told).error(409, "conflict")
    ended = eventually(lambda: (job := client.job(first["id"]))["state"] == "discarded" and job)
    assert len(ended["errors"]) == 2


def test_a_heartbeat_holds_on_to_jobs(client: Client) -> None:
    client.push("a", visibility_timeout_ms=60_000)
    client.push("b")
    jobs = client.fetch(count=2)
    names = [one["id"] for one in jobs]
    told = {"worker_id": "w1", "active_jobs": [*names, ID], "visibility_timeout_ms": 60_000}
    beat = client.post("/workers/heartbeat", told).ok()
    assert (beat["state"], beat["directive"], beat["jobs_lost"]) == ("running", "", [])
    assert sorted(beat["jobs_extended"]) == sorted(names)
    client.delete(f"/jobs/{names[0]}").ok()
    beat = client.post("/workers/heartbeat", told).ok()
    assert (beat["jobs_extended"], beat["jobs_lost"]) == ([names[1]], [names[0]])
    other = {"worker_id": "w2", "active_job_ids": names, "active_jobs": 2}
    assert client.post("/workers/beat", other).ok()["jobs_extended"] == []


def test_an_attempt_that_takes_too_long_has_failed(client: Client) -> None:
    pushed = client.push(timeout_ms=200, retry={"initial_interval": "PT10M"})
    client.fetch()
    late = eventually(lambda: (job := client.job(pushed["id"]))["state"] == "retryable" and job)
    assert late["error"]["code"] == "timeout"
    assert "next_attempt_at" in late


@pytest.mark.parametrize("directive", ["quiet", "terminate"])
def test_a_worker_is_told_what_to_become(client: Client, directive: str) -> None:
    client.push("a", metadata={"test_directive": directive})
    client.push("b")
    assert client.post("/workers/register", {"worker_id": "w1", "pid": 7}).ok()["ok"] is True
    client.fetch()
    beat = client.post("/workers/heartbeat", {"worker_id": "w1"}).ok()
    assert (beat["state"], beat["directive"]) == (directive, directive)
    assert client.fetch() == []
    assert [one["type"] for one in client.fetch(worker="w2")] == ["b"]
    assert client.get("/workers/w1/health").status == 503
    assert client.get("/workers/w3/health").status == 404
    client.post("/workers/heartbeat", {"worker_id": "w2"}).ok()
    assert client.get("/workers/w2/health").ok()["state"] == "running"


def test_a_fetch_may_wait_for_what_comes(client: Client, server: Running) -> None:
    found: list[Any] = []
    other = Client(server.port)
    waiting = threading.Thread(target=lambda: found.extend(other.fetch(wait_ms=20_000)))
    waiting.start()
    pushed = client.push()
    waiting.join()
    other.close()
    assert [one["id"] for one in found] == [pushed["id"]]
    assert client.fetch(wait_ms=50) == []


def test_two_fetches_at_once_get_different_jobs(client: Client, server: Running) -> None:
    client.post("/jobs/batch", {"jobs": [{"type": "a", "args": [n]} for n in range(40)]}).ok(201)
    taken: list[str] = []

    def work() -> None:
        mine = Client(server.port)
        while jobs := mine.fetch(count=3):
            taken.extend(one["id"] for one in jobs)
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 40


def test_limits_hold(client: Client) -> None:
    for _ in range(3):
        client.push("a", queue="slow", rate_limit={"max_per_second": 2})
        client.push("b", queue="few", rate_limit={"key": "k", "concurrency": 1})
    assert len(client.fetch("slow", count=5)) == 1
    assert client.fetch("slow") == []
    eventually(lambda: client.fetch("slow"))
    [job] = client.fetch("few", count=5)
    assert client.fetch("few") == []
    client.ack(job)
    assert len(client.fetch("few", count=5)) == 1


def test_progress_is_kept_and_never_goes_back(client: Client) -> None:
    pushed = client.push()
    path = f"/jobs/{pushed['id']}/progress"
    assert client.put(path, {"progress": 0.5}).ok()["progress"] is None
    [job] = client.fetch()
    told = {"progress": 0.25, "message": "copying", "data": {"rows": 10}}
    found = client.put(path, told).ok()
    assert (found["progress"], found["message"], found["data"]) == (0.25, "copying", {"rows": 10})
    assert client.put(path, {"progress": 0.1}).ok()["progress"] == 0.25
    assert client.put(path, {"progress": 1.5}).ok()["progress"] == 1.0
    assert client.get(path).ok()["state"] == "active"
    client.put(path, {"message": "no number"}).error(400, "invalid_request")
    client.put(path, {"progress": 1, "data": "x" * 5_000}).error(400, "invalid_request")
    sdk = {"job_id": job["id"], "percentage": 100}
    assert client.post("/workers/progress", sdk).ok()["progress"] == 1.0


def test_checkpoints_outlive_an_attempt(client: Client) -> None:
    pushed = client.push(retry={"initial_interval": "PT0.05S", "jitter": False})
    path = f"/jobs/{pushed['id']}/checkpoint"
    client.get(path).error(404, "not_found")
    client.put(path, {}).error(400, "invalid_request")
    saved = client.put(path, {"state": {"n": 1}}).ok()
    assert (saved["state"], saved["sequence"], saved["job_id"]) == ({"n": 1}, 1, pushed["id"])
    [job] = client.fetch()
    assert job["checkpoint"] == {"state": {"n": 1}, "sequence": 1}
    assert client.post(path, {"state": [2]}).ok()["sequence"] == 2
    client.nack(job)
    [job] = eventually(client.fetch)
    assert job["checkpoint"] == {"state": [2], "sequence": 2}
    client.delete(path).ok()
    client.delete(path).ok()
    client.get(path).error(404, "not_found")
    assert client.put(path, {"state": 3}).ok()["sequence"] == 1
    client.ack(job)
    assert client.get(path).ok()["state"] == 3
    client.put(path, {"state": 4}).error(409, "conflict")
