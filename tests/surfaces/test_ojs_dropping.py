"""A job that does not wait for a limit goes when somebody meets it there, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surfaces.server import Client

ONE = {"key": "k", "concurrency": 1}


def limited(client: Client, on_limit: str | None = None, **more: Any) -> str:
    """A job under a limit of one at a time, by id."""
    limit = {**ONE, "on_limit": on_limit} if on_limit else ONE
    found: str = client.push("a", **{"rate_limit": limit, **more})["id"]
    return found


def states(client: Client, *names: str) -> list[str]:
    return [client.job(name)["state"] for name in names]


def test_what_does_not_wait_goes_when_it_is_met(client: Client) -> None:
    first, wait, drop = limited(client), limited(client, "wait"), limited(client, "drop")
    later = limited(client, "reschedule")
    [job] = client.fetch()
    assert job["id"] == first
    assert states(client, wait, drop, later) == ["available"] * 3
    assert client.fetch() == []
    assert states(client, wait, drop, later) == ["available", "discarded", "available"]
    gone = client.job(drop)
    assert gone["rate_limit"] == {**ONE, "on_limit": "drop"}
    assert ("completed_at" in gone, "discarded_at" in gone, gone["meta"]) == (False, True, {})
    assert (gone["error"]["type"], len(gone["errors"])) == ("overflow", 1)
    [event] = client.get("/events?types=job.discarded").ok()["events"]
    assert event["data"]["job_id"] == drop
    client.ack(job)
    assert [one["id"] for one in client.fetch()] == [wait]


def test_it_runs_where_there_is_room(client: Client) -> None:
    drop = limited(client, "drop")
    assert [one["id"] for one in client.fetch(count=5)] == [drop]


def test_it_goes_although_another_is_taken_in_its_place(client: Client) -> None:
    limited(client)
    client.fetch()
    drop, free = limited(client, "drop", priority=9), client.push("b")["id"]
    assert [one["id"] for one in client.fetch()] == [free]
    assert states(client, drop) == ["discarded"]


def test_what_nobody_could_have_taken_stays(client: Client) -> None:
    limited(client)
    client.fetch()
    paused = limited(client, "drop", queue="paused")
    client.post("/queues/paused/pause").ok()
    held, late = limited(client, "drop", pending=True), limited(client, "drop", delay_until="+PT1H")
    step = {"type": "a", "args": [], "options": {"rate_limit": {**ONE, "on_limit": "drop"}}}
    first = {"type": "b", "args": [], "options": {"queue": "elsewhere"}}
    flow = client.post("/workflows", {"type": "chain", "steps": [first, step]}).ok(201)["workflow"]
    other = limited(client, "drop", queue="other")
    met = limited(client, "drop")
    client.fetch("paused")
    client.fetch()
    assert states(client, paused, other) == ["available", "available"]
    assert states(client, held, late) == ["pending", "scheduled"]
    assert states(client, met) == ["discarded"]
    assert client.get(f"/workflows/{flow['id']}").ok()["workflow"]["state"] == "running"


def test_a_step_that_goes_fails_its_workflow(client: Client) -> None:
    limited(client)
    client.fetch()
    step = {"type": "a", "args": [], "options": {"rate_limit": {**ONE, "on_limit": "drop"}}}
    flow = client.post("/workflows", {"type": "group", "jobs": [step]}).ok(201)["workflow"]
    client.fetch()
    assert client.get(f"/workflows/{flow['id']}").ok()["workflow"]["state"] == "failed"


def test_the_limit_of_a_queue_is_for_those_who_name_no_key(client: Client) -> None:
    rate = {"max_per_second": 1, "on_limit": "drop"}
    first, second = (client.push("a", queue="q", rate_limit=rate)["id"] for _ in range(2))
    keyed = limited(client, "drop", queue="q")
    assert [one["id"] for one in client.fetch("q")] == [first]
    assert client.fetch("q") == []
    # The key of the third has room; it is its queue that has none.
    assert states(client, second, keyed) == ["discarded", "available"]


@pytest.mark.parametrize("told", ["never", 5, []])
def test_words_that_are_none(client: Client, told: Any) -> None:
    body = {"type": "a", "args": [], "options": {"rate_limit": {**ONE, "on_limit": told}}}
    client.post("/jobs", body).error(400, "invalid_request")


def test_only_a_job_says_what_becomes_of_it(client: Client) -> None:
    client.put("/rate-limits/k", {**ONE, "on_limit": "drop"}).error(422, "unsupported")
    told = {"limit": 1, "period": "PT1S", "on_limit": "drop"}
    client.put("/admin/queues/q/rate-limit", told).error(422, "unsupported")
