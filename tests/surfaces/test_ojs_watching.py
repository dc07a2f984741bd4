"""Events, streams, the manifest, health, metrics, and what operators do."""

from __future__ import annotations

import threading

import pytest

from tests.surfaces.server import JSON, Client, Running, eventually
from tests.surfaces.streams import Stream

ID = "0199f0aa-1111-7abc-8def-0123456789ab"


# --- events by polling ------------------------------------------------------------------------


def types(client: Client, query: str = "") -> list[str]:
    """What has happened, in the order of the feed."""
    return [one["type"] for one in client.get(f"/events?{query}").ok()["events"]]


def test_events_of_a_life(client: Client) -> None:
    job = client.push("a", queue="q", retry={"max_attempts": 2, "initial_interval": "PT0.05S"})
    client.nack(client.fetch("q")[0])
    client.nack(eventually(lambda: client.fetch("q"))[0])
    expected = [
        "job.enqueued",
        "job.started",
        "job.failed",
        "job.retrying",
        "job.started",
        "job.failed",
        "job.discarded",
    ]
    eventually(lambda: types(client) == expected)
    events = client.get("/events").ok()["events"]
    assert len({one["id"] for one in events}) == len(events)
    assert all(one["id"].startswith("evt_") and one["subject"] == job["id"] for one in events)
    failed = events[2]["data"]
    assert (failed["job_type"], failed["queue"], failed["attempt"]) == ("a", "q", 1)
    assert failed["error"]["code"] == "boom"


def test_events_are_chosen_and_paged(client: Client) -> None:
    for queue in ("a", "b"):
        client.push("x", queue=queue, scheduled_at="+PT1H" if queue == "b" else None)
        client.delete(f"/jobs/{client.push('y', queue=queue)['id']}").ok()
    eventually(lambda: len(types(client)) == 6)
    assert types(client, "types=job.cancelled&queues=b") == ["job.cancelled"]
    assert types(client, "job_types=x") == ["job.enqueued", "job.scheduled"]
    first = client.get("/events?limit=4").ok()
    assert (len(first["events"]), first["has_more"]) == (4, True)
    rest = client.get(f"/events?after={first['cursor']}").ok()
    assert (len(rest["events"]), rest["has_more"]) == (2, False)
    assert client.get(f"/events?after={rest['cursor']}").ok()["events"] == []
    client.get("/events?after=nothing").error(400, "invalid_request")


# --- streams ----------------------------------------------------------------------------------


def test_a_job_is_followed_until_it_ends(client: Client, server: Running) -> None:
    job = client.push()
    stream = Stream(server, f"/jobs/{job['id']}/events?event_types=job.state_changed")
    assert stream.answer.getheader("content-type") == "text/event-stream"
    assert stream.answer.readline() == b"retry: 3000\n"
    client.ack(client.fetch()[0])
    frames = list(stream.frames())
    assert [(data["from"], data["to"]) for _, data, _ in frames] == [
        ("available", "active"),
        ("active", "completed"),
    ]
    stream.close()
    over = Stream(server, f"/jobs/{job['id']}/events")
    last = [(name, data["to"], seen) for name, data, seen in over.frames()]
    over.close()
    # The end has the same id, whether it is heard live or afterwards.
    assert last == [("job.state_changed", "completed", frames[1][2])]
    seen = frames[0][2]
    again = Stream(server, f"/jobs/{job['id']}/events", **{"Last-Event-ID": seen})
    missed = [name for name, _, _ in again.frames()]
    again.close()
    assert missed == ["job.started", "job.state_changed", "job.completed"]
    client.get(f"/jobs/{ID}/events").error(404, "not_found")


@pytest.mark.parametrize("path", ["/queues/q/events", "/events/stream?channel=queue:q"])
def test_a_queue_is_followed(client: Client, server: Running, path: str) -> None:
    client.push("a", queue="q")
    stream = Stream(server, path)
    assert stream.answer.readline() == b"retry: 3000\n"
    client.push("b", queue="other")
    client.push("c", queue="q")
    name, data, _ = next(stream.frames())
    assert (name, data["queue"], data["type"]) == ("job.state_changed", "q", "c")
    stream.close()
    client.get("/queues/none/events").error(404, "not_found")
    client.get("/events/stream?channel=moon").error(400, "invalid_request")


# --- what is here -----------------------------------------------------------------------------


def test_the_manifest_names_only_paths_that_are_there(client: Client) -> None:
    found = client.get("/ojs/manifest").ok()
    assert (found["specversion"], found["conformance_level"]) == ("1.0", 4)
    assert found["implementation"]["name"] == "detent"
    for path in found["endpoints"].values():
        method = "OPTIONS"
        answer = client.ask(method, path.replace("{id}", ID).replace("{name}", "x"))
        assert answer.status == 405, path


def test_health_and_probes(client: Client) -> None:
    health = client.get("/ojs/v1/health").ok()
    assert (health["status"], health["backend"]["status"]) == ("ok", "ok")
    # The Go client reads whole milliseconds, and SDKs have their own words for the backend.
    assert isinstance(health["backend"]["latency_ms"], int)
    sdk = client.get("/ojs/v1/health", OJS_Version="1.0").ok()
    assert (sdk["status"], sdk["backend"]["status"]) == ("ok", "connected")
    for path in ("/health", "/ready", "/readyz", "/livez"):
        assert client.get(path).ok()["status"] == "ok"
    answer = client.get("/health", X_Request_Id="mine-1")
    assert answer.headers["x-request-id"] == "mine-1"
    assert client.get("/health").headers["x-request-id"].startswith("req_")
    assert client.ask("HEAD", "/health").text == b""


def test_whatever_is_asked_gets_an_answer(client: Client) -> None:
    client.get("/nothing/here").error(404, "not_found")
    wrong = client.ask("OPTIONS", "/jobs")
    wrong.error(405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    assert client.get("/ojs/v1/jobs//x").status == 404
    assert wrong.headers["content-type"] == JSON
    assert "access-control-allow-origin" not in wrong.headers


def test_metrics(client: Client) -> None:
    assert client.get("/metrics").headers["content-type"] == "text/plain"
    client.push("counted.type", queue="counted")
    client.ack(client.fetch("counted")[0])

    def found() -> bool:
        text = client.get("/metrics").text.decode()
        wanted = (
            'detent_jobs{queue="counted",state="completed"} 1.0',
            'detent_attempts_total{outcome="complete",type="counted.type"} 1.0',
            'detent_queue_latency_seconds_count{queue="counted"} 1.0',
            'detent_http_requests_total{method="POST",route="/ojs/v1/jobs",status="201"}',
            'detent_workers{state="running"} ',
        )
        return all(one in text for one in wanted)

    eventually(found)


# --- operators --------------------------------------------------------------------------------


def test_operators_look(client: Client) -> None:
    for number in range(3):
        client.push(f"a.{'xyz'[number]}", queue="q")
    client.push("b", queue="r")
    client.post("/workers/heartbeat", {"worker_id": "w1", "hostname": "h", "active_jobs": 2}).ok()
    stats = client.get("/admin/stats").ok()
    assert (stats["queues"], stats["workers"], stats["jobs"]["available"]) == (3, 1, 4)
    items = client.get("/admin/queues").ok()["items"]
    assert [one["name"] for one in items] == ["default", "q", "r"]
    page = client.get("/admin/jobs?queue=q&page=2&per_page=2&order=asc").ok()
    assert [one["type"] for one in page["items"]] == ["a.z"]
    assert page["pagination"] == {"total": 3, "page": 2, "per_page": 2}
    assert client.get("/admin/jobs?type=a.*").ok()["pagination"]["total"] == 3
    assert client.get("/admin/jobs?state=active").ok()["items"] == []
    assert client.get("/admin/jobs?until=2020-01-01T00:00:00Z").ok()["items"] == []
    client.get("/admin/jobs?state=odd").error(400, "invalid_request")
    job = page["items"][0]
    assert client.get(f"/admin/jobs/{job['id']}").ok()["type"] == "a.z"
    workers = client.get("/admin/workers").ok()
    assert workers["summary"] == {"total": 1, "running": 1, "quiet": 0, "stale": 0}
    assert (workers["items"][0]["id"], workers["items"][0]["active_jobs"]) == ("w1", 2)
    assert client.get("/admin/tenants/x/stats").ok() == {"tenant_id": "x", "total_jobs": 0}


def test_operators_act(client: Client) -> None:
    assert client.post("/admin/queues/q/pause").ok()["paused"] is True
    assert client.post("/admin/queues/q/resume").ok()["paused"] is False
    first, second = client.push("a", queue="q"), client.push("b", queue="q")
    client.post("/admin/jobs/bulk/cancel", {"filter": {"queue": "q"}}).error(400, "invalid_request")
    told = {"filter": {"queue": "q"}, "confirm": True}
    done = client.post("/admin/jobs/bulk/cancel", told).ok()
    assert (done["matched"], done["succeeded"], done["failed"]) == (2, 2, 0)
    again = client.post(f"/admin/jobs/{first['id']}/retry").ok()["job"]
    assert (again["id"], again["state"]) == (first["id"], "available")
    client.post(f"/admin/jobs/{first['id']}/retry").error(409, "conflict")
    chosen = {"job_ids": [second["id"]], "confirm": True}
    assert client.post("/admin/jobs/bulk/retry", chosen).ok()["succeeded"] == 1
    client.post(f"/admin/jobs/{second['id']}/cancel").ok()
    gone = client.post("/admin/jobs/bulk/delete", chosen).ok()
    assert gone["succeeded"] == 1
    client.get(f"/jobs/{second['id']}").error(404, "not_found")
    purge = {"states": ["available"], "confirm": True}
    assert client.delete("/admin/queues/q/jobs", purge).ok()["purged_count"] == 1
    client.delete("/admin/queues/q/jobs", {"states": ["available"]}).error(400, "invalid_request")


def test_operators_and_workers(client: Client) -> None:
    client.post("/workers/heartbeat", {"worker_id": "w1"}).ok()
    client.post("/admin/workers/w1/quiet").ok()
    assert client.post("/workers/heartbeat", {"worker_id": "w1"}).ok()["state"] == "quiet"
    assert client.delete("/admin/workers/w1").status == 204
    client.delete("/admin/workers/w1").error(404, "not_found")
    client.post("/admin/workers/w1/quiet").error(404, "not_found")


def test_operators_and_dead_letters(client: Client) -> None:
    client.push("a", retry={"max_attempts": 1, "on_exhaustion": "dead_letter"})
    name = client.nack(client.fetch()[0])["id"]
    assert [one["id"] for one in client.get("/admin/dead-letter").ok()["items"]] == [name]
    assert client.get("/admin/dead-letter/stats").ok()["total"] == 1
    assert client.delete(f"/admin/dead-letter/{name}").status == 204


def test_tenants_do_not_see_each_other(client: Client) -> None:
    one = client.post("/jobs", {"type": "a", "args": []}, X_OJS_Tenant="one").ok(201)["job"]
    client.get(f"/jobs/{one['id']}").error(404, "not_found")
    client.get(f"/jobs/{one['id']}", X_OJS_Tenant="two").error(404, "not_found")
    assert client.get(f"/jobs/{one['id']}", X_OJS_Tenant="one").ok()
    asked = {"queues": ["default"]}
    assert client.post("/workers/fetch", asked, X_OJS_Tenant="two").ok()["jobs"] == []
    assert client.post("/workers/fetch", asked, X_OJS_Tenant="one").ok()["jobs"]
    assert client.get("/admin/tenants/one/stats").ok()["total_jobs"] == 1


def test_many_at_once(client: Client, server: Running) -> None:
    def push(number: int) -> None:
        mine = Client(server.port)
        for _ in range(10):
            mine.push("a", number)
        mine.close()

    threads = [threading.Thread(target=push, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("/queues/default/stats").ok()["stats"]["available"] == 160
