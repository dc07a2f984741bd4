"""What operators are told about queues and jobs, and what they do with many at once."""

from __future__ import annotations

import pytest

from tests.surfaces.server import Client


def test_how_a_queue_has_done_of_late(client: Client) -> None:
    for number in range(3):
        client.push("a", number, queue="q", retry={"max_attempts": 1})
        [job] = client.fetch("q")
        client.nack(job) if number == 2 else client.ack(job)
    client.push("a", queue="q")
    told = client.get("/queues/q/stats").ok()["stats"]
    assert (told["completed_last_hour"], told["failed_last_hour"]) == (2, 1)
    assert told["avg_duration_ms"] >= 0 <= told["avg_wait_ms"]
    assert told["throughput_per_second"] == round(2 / 60, 3)
    pace = {"processed_per_minute": 3, "failed_per_minute": 1}
    assert client.get("/admin/stats").ok()["throughput"] == pace
    [queue] = [one for one in client.get("/admin/queues").ok()["items"] if one["name"] == "q"]
    assert (queue["throughput"], queue["counts"]["completed"]) == (pace, 2)
    assert {"latency_ms", "created_at", "state"} <= queue.keys()
    client.put("/admin/queues/q/config", {"concurrency": 4}).ok()
    told = client.get("/admin/queues/q").ok()
    assert (told["name"], told["configuration"]) == ("q", {"concurrency": 4})
    assert told["oldest_available_at"]
    assert client.get("/admin/queues/none").ok()["oldest_available_at"] is None


def test_one_job_for_operators_has_its_times_together(client: Client) -> None:
    job = client.push("a")
    told = client.get(f"/admin/jobs/{job['id']}").ok()
    assert told["metadata"]["created_at"] == job["created_at"]


def test_many_jobs_by_their_names_or_by_what_they_are(client: Client) -> None:
    names = [client.push("a", queue="q")["id"] for _ in range(3)]
    told = client.post("/jobs/bulk/cancel", {"job_ids": names[:2]}).ok()
    assert (told["action"], told["matched"], told["succeeded"]) == ("cancel", 2, 2)
    client.post("/jobs/bulk/cancel", {"filter": {"queue": "q"}}).error(400, "invalid_request")
    both = {"filter": {"queue": "q"}, "job_ids": names, "confirm": True}
    client.post("/jobs/bulk/cancel", both).error(400, "invalid_request")
    client.post("/admin/jobs/bulk/cancel", {"job_ids": names}).error(400, "invalid_request")
    assert client.post("/jobs/bulk/retry", {"job_ids": names[:1]}).ok()["succeeded"] == 1
    assert client.post("/jobs/bulk/delete", {"job_ids": names[1:2]}).ok()["succeeded"] == 1
    assert [client.get(f"/jobs/{name}").status for name in names] == [200, 404, 200]
    told = client.post("/jobs/bulk/cancel", {"filter": {"queue": "q"}, "confirm": True}).ok()
    assert told["succeeded"] == 2


def test_the_limits_of_the_server_are_told(client: Client) -> None:
    assert client.get("/admin/system/config").ok()["limits"]["max_batch_size"] == 1_000


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/stats/history"),
        ("GET", "/admin/system/maintenance"),
        ("POST", "/admin/system/maintenance"),
        ("GET", "/dead-letter/replay-rules"),
        ("PUT", "/dead-letter/replay-rules/twice"),
        ("DELETE", "/dead-letter/replay-rules/twice"),
        ("GET", "/ws"),
    ],
)
def test_operations_of_the_specification_that_are_not_here(
    client: Client, method: str, path: str
) -> None:
    client.ask(method, path, {} if method in ("POST", "PUT") else None).error(404, "not_found")
    assert f"/ojs/v1{path}" not in client.get("/ojs/manifest").ok()["endpoints"].values()


def test_a_pool_names_queues_and_how_they_are_chosen(client: Client) -> None:
    fair = {"strategy": "round_robin", "queues": ["a", "b"], "weight": 3}
    told = client.put("/admin/pools/both", fair).ok()["pool"]
    assert (told["name"], told["order"], told["weight"]) == ("both", "in_turns", 3)
    client.put("/admin/pools/strict", {"strategy": "priority", "queues": ["a", "b"]}).ok()
    for queue in "aaabbb":
        client.push("x", queue=queue)

    def fetched(pool: str) -> list[str]:
        found = client.post("/workers/fetch", {"pool": pool, "count": 2}).ok()["jobs"]
        return [one["queue"] for one in found]

    assert sorted(fetched("both")) == ["a", "b"]
    assert fetched("strict") == ["a", "a"]
    stats = client.get("/admin/scheduling/stats").ok()["stats"]
    assert stats["pools"]["both"] == {"strategy": "round_robin", "available": 2, "active": 4}
    names = [one["name"] for one in client.get("/admin/pools").ok()["pools"]]
    assert sorted(names) == ["both", "strict"]
    client.delete("/admin/pools/both").ok()
    client.get("/admin/pools/both").error(404, "not_found")
    client.post("/workers/fetch", {"pool": "both"}).error(404, "not_found")
    for bad in ({"queues": "a"}, {"queues": ["A_"]}, {"strategy": 5}, {"queues": ["a"] * 101}):
        client.put("/admin/pools/bad", bad).error(400, "invalid_request")
