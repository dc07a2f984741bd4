"""What replies carry besides the main thing: how lists go on, times, errors, headers."""

from __future__ import annotations

from typing import Any

from tests.surfaces.rest import Rest
from tests.surfaces.server import Client, eventually


def paged(client: Client, path: str, name: str, limit: int = 2) -> list[Any]:
    """All items of a list, page by page."""
    found: list[Any] = []
    cursor = ""
    while True:
        page = client.get(f"{path}?limit={limit}&cursor={cursor}").ok()
        found += page[name]
        pages = page["pagination"]
        assert ("next_cursor" in pages) == pages["has_more"]
        if not pages["has_more"]:
            return found
        cursor = pages["next_cursor"]


def test_lists_go_on_by_cursors(client: Client) -> None:
    for number in range(5):
        job = client.push("a", queue=f"q{number}", retry={"max_attempts": 1})
        client.nack(client.fetch(f"q{number}")[0], "DEAD_LETTER")
        cron = {"name": f"c{number}", "expression": "@daily", "type": "a", "args": []}
        client.post("/cron", cron).ok(201)
        client.post("/workflows", {"type": "group", "jobs": [{"type": "w", "args": []}]}).ok(201)
    assert len(paged(client, "/queues", "queues")) == 6
    letters = paged(client, "/dead-letter", "jobs")
    assert (len(letters), letters[0]["id"]) == (5, job["id"])
    assert [one["name"] for one in paged(client, "/cron", "crons")] == [f"c{n}" for n in range(5)]
    flows = paged(client, "/workflows", "workflows")
    assert len({one["id"] for one in flows}) == 5
    for path in ("/queues", "/dead-letter", "/cron", "/workflows"):
        client.get(f"{path}?cursor=garbage").error(400, "invalid_request")


def test_a_list_of_the_pages_of_an_application_goes_on_from_a_job(client: Client) -> None:
    rest = Rest(client.port)
    for number in range(3):
        rest.post("", {"action": "paged", "inputs": {"n": number}}).ok(202)
    first = rest.get("?limit=2&action=paged").ok()
    assert len(rest.get(f"?limit=2&action=paged&cursor={first['nextCursor']}").ok()["jobs"]) >= 1
    rest.refused(rest.get("?cursor=garbage"), 400, "BAD_REQUEST")
    rest.close()


def test_a_workflow_tells_when_and_why(client: Client) -> None:
    steps = [{"type": f"s{n}", "args": [], "options": {"retry": {"max_attempts": 1}}} for n in "ab"]
    flow = client.post("/workflows", {"type": "chain", "steps": steps}).ok(201)["workflow"]
    path = f"/workflows/{flow['id']}"
    client.ack(client.fetch()[0], {"n": 1})
    [job] = eventually(client.fetch)
    assert job["parent_results"] == job["meta"]["parent_results"] == [{"n": 1}]
    told = client.get(path).ok()["workflow"]
    assert told["metadata"]["started_at"] >= told["created_at"]
    assert told["steps"][0]["completed_at"] >= told["steps"][0]["started_at"]
    assert "started_at" in told["steps"][1]
    assert "completed_at" not in told["steps"][1]
    client.nack(job, "broken")
    told = client.get(path).ok()["workflow"]
    [error] = told["errors"]
    assert (told["failed_step_index"], told["failed_job_ids"]) == (1, [job["id"]])
    assert (error["job_id"], error["code"], error["message"]) == (job["id"], "broken", "it broke")


def test_a_job_says_whose_it_is_or_nothing(client: Client) -> None:
    mine = {"type": "a", "args": [], "meta": {"tenant_id": "acme"}}
    for _ in range(3):
        client.post("/jobs", mine, X_OJS_Tenant="acme").ok(201)
        client.post("/jobs", mine).ok(201)
        client.post("/jobs", mine, X_OJS_Tenant="other").error(400, "invalid_request")


def test_the_metadata_of_a_job_names_its_tenant(client: Client) -> None:
    plain, acme = Client(client.port), Client(client.port, X_OJS_Tenant="acme")
    # The third of a kind is answered from a text with blanks.
    for number in range(4):
        assert acme.push("a", number)["meta"] == {"tenant_id": "acme"}
        assert plain.push("a", number)["meta"] == {}
    [job] = acme.fetch()
    assert job["meta"] == {"tenant_id": "acme"}
    assert acme.job(job["id"])["meta"] == {"tenant_id": "acme"}
    told = {"type": "a", "args": [], "meta": {"tenant_id": "acme", "b": 1}}
    assert acme.post("/jobs", told).ok(201)["job"]["meta"] == told["meta"]
    slash = Client(client.port, X_OJS_Tenant="acme/eu")
    assert slash.push("a")["meta"] == {"tenant_id": "acme/eu"}
    slash.post("/jobs", told).error(400, "invalid_request")
    step = {"type": "b", "args": [], "options": {"queue": "flow"}}
    acme.post("/workflows", {"type": "chain", "steps": [step, step]}).ok(201)
    acme.ack(acme.fetch("flow")[0], 7)
    [second] = eventually(lambda: acme.fetch("flow"))
    assert second["meta"] == {"tenant_id": "acme", "parent_results": [7]}
    for one in (plain, acme, slash):
        one.close()


def test_a_limit_tells_how_much_it_lets_through(client: Client) -> None:
    limit = {"key": "mail", "concurrency": 2}
    for _ in range(4):
        body = {"type": "a", "args": [], "options": {"rate_limit": limit}}
        assert client.post("/jobs", body).headers["x-ratelimit-limit"] == "2"
    assert len(client.fetch(count=10)) == 2
    assert client.get("/rate-limits/mail").ok()["waiting_count"] == 2
    path = "/admin/queues/q/rate-limit"
    client.put(path, {"limit": 1, "period": "PT1H"}).ok()
    client.push("a", queue="q"), client.push("a", queue="q")
    assert len(client.fetch("q", count=10)) == 1
    client.put(path, {}).ok()
    assert len(client.fetch("q", count=10)) == 1
    client.put(path, {"limit": 0}).error(400, "invalid_request")


def limit_of(client: Client, key: str) -> tuple[int, bool]:
    """How many it lets through at a time, and whether only for a while."""
    told = client.get(f"/rate-limits/{key}").ok()
    return told["concurrency"]["limit"], "expires_at" in told


def test_another_limit_may_be_meant_for_a_while(client: Client) -> None:
    path = "/rate-limits/mail"
    client.put(path, {"concurrency": 2}).ok()
    long = {"concurrency": 5, "expires_at": "2099-01-01T00:00:00Z"}
    assert client.put(path, long).ok()["expires_at"] == "2099-01-01T00:00:00.000Z"
    assert limit_of(client, "mail") == (5, True)
    # What was allowed before both of them comes back.
    client.put(path, {"concurrency": 7, "expires_at": "+PT0.3S"}).ok()
    eventually(lambda: limit_of(client, "mail") == (2, False))
    client.put(path, long).ok()
    client.put(path, {"concurrency": 4}).ok()
    assert limit_of(client, "mail") == (4, False)
    client.put(path, {"concurrency": 1, "expires_at": "+PT0S"}).error(400, "invalid_request")
    client.put("/rate-limits/new", {"concurrency": 1, "expires_at": "+PT0.3S"}).ok()
    eventually(lambda: client.get("/rate-limits/new").status == 404)


def test_a_bulk_that_is_too_large_or_atomic(client: Client) -> None:
    job = {"type": "a", "args": []}
    large = client.post("/jobs/bulk", {"jobs": [job] * 1_001})
    assert large.error(413, "BATCH_SIZE_EXCEEDED")["details"]["max_batch_size"] == 1_000
    whole = {"atomicity": "atomic", "jobs": [job, {"args": []}]}
    assert client.post("/jobs/bulk", whole).error(422, "invalid_request")["details"]["index"] == 1
    taken = client.push("a")["id"]
    whole["jobs"] = [job, {**job, "id": taken}]
    client.post("/jobs/bulk", whole).error(422, "duplicate")
    assert len(client.fetch(count=10)) == 1


def test_the_next_attempt_and_the_history_in_pages(client: Client) -> None:
    job = client.push("a")
    client.fetch()
    told = client.nack(job)["job"]
    assert told["next_retry_at"] == told["next_attempt_at"]
    path = f"/jobs/{job['id']}/history"
    moves = [one["event_type"] for one in paged(client, path, "events")]
    assert moves == ["enqueue", "claim", "fail"]
    client.get(f"{path}?limit=0").error(400, "invalid_request")
