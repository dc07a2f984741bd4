"""What workers of our own say over the wire: claims that can be repeated, reports in batches."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.surfaces.server import Client


def claimed(client: Client, claim: str = "c1", worker: str = "w1", **more: Any) -> list[Any]:
    """The records of a claim."""
    asked = {"queues": ["default"], "worker_id": worker, "claim_id": claim, "records": True}
    found: list[Any] = client.post("/workers/fetch", {"count": 10, **asked, **more}).ok()["records"]
    return found


def report(client: Client, *said: dict[str, Any], worker: str = "w1") -> list[dict[str, Any]]:
    """The answers."""
    body = {"worker_id": worker, "reports": list(said)}
    found: list[dict[str, Any]] = client.post("/workers/report", body).ok()["answers"]
    return found


def said(record: dict[str, Any], event: str | None, **more: Any) -> dict[str, Any]:
    job = record["job"]
    return {"job_id": job["id"], "lease": job["lease"], "event": event, **more}


def names(client: Client, name: str) -> list[str]:
    """What happened to a job."""
    found = client.get(f"/jobs/{name}/history").ok()["events"]
    return [event["event_type"] for event in found]


def test_a_claim_that_is_repeated_gets_the_same_jobs(client: Client) -> None:
    pushed = [client.push()["id"] for _ in range(2)]
    first = claimed(client)
    assert [one["job"]["id"] for one in first] == pushed
    assert claimed(client) == first
    client.push()
    assert claimed(client) == first, "a claim is answered once and for all"
    assert claimed(client, worker="w2") != first, "the name of a claim is its worker's own"


def test_many_reports_are_answered_one_by_one(client: Client) -> None:
    for _ in range(3):
        client.push()
    good, bad, back = claimed(client)
    failure = {"attempt": 9, "at": 1, "code": "boom", "message": "it broke"}
    answers = report(
        client,
        said(good, "complete", result='{"n":1}', lines=[{"at": 1, "text": "done"}]),
        said(bad, "fail", code="boom", failure=failure, error={"code": "boom"}),
        said(back, "hand_back"),
        {"job_id": "nobody", "lease": "x", "event": "complete"},
    )
    assert [one.get("accepted", {}).get("job", {}).get("state") for one in answers] == [
        "completed",
        "retryable",
        "available",
        None,
    ]
    assert answers[3]["refusal"]["code"] == "unknown_job"
    assert client.job(good["job"]["id"])["result"] == {"n": 1}
    [error] = client.job(bad["job"]["id"])["errors"]
    assert (error["code"], error["attempt"]) == ("boom", 1), "the attempt is not theirs to say"


def test_a_report_that_is_repeated_is_answered_as_it_was(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    told = said(record, "complete", result="1")
    first, again = report(client, told), report(client, told)
    assert first[0]["accepted"]["events"] == again[0]["accepted"]["events"]
    assert names(client, record["job"]["id"]).count("complete") == 1


def test_a_report_of_somebody_else_is_refused(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    report(client, said(record, "complete"))
    [answer] = report(client, said(record, "complete"), worker="w2")
    assert "refusal" in answer
    [answer] = report(client, said(record, "fail", code="late"))
    assert "refusal" in answer


def test_lines_and_progress_need_no_event(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    note = {"at": 1, "attempt": 1, "percent": 30, "text": "on the way"}
    told = said(record, None, note=note, lines=[{"at": 1, "text": "hello", "level": "info"}])
    assert report(client, told) == [{}]
    assert client.get(f"/jobs/{record['job']['id']}/progress").ok()["progress"] == 0.3


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"event": "dispatch"}, "event"),
        ({"event": "complete", "lines": [{"at": 1, "text": "x" * 20_000}]}, "lines"),
        ({"event": "complete", "lines": [{"at": 1, "text": "x"}] * 501}, "lines"),
        ({"event": "complete", "new": [{"type": "a", "id": "mine"}]}, "new"),
        ({"event": "complete", "new": [{"type": "a", "rerun_of": "x"}]}, "new"),
    ],
)
def test_what_no_worker_may_say_is_refused_whole(
    client: Client, what: dict[str, Any], field: str
) -> None:
    client.push()
    [record] = claimed(client)
    body = {"worker_id": "w1", "reports": [said(record, "complete"), said(record, **what)]}
    told = client.post("/workers/report", body).error(400, "invalid_request")
    assert told["details"]["field"] == field
    assert client.job(record["job"]["id"])["state"] == "active", "not even the good half is done"


def test_jobs_follow_a_completion(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    tenant = record["job"]["tenant"]
    new = [{"type": "later", "payload": "[1]", "tenant": tenant, "profile": "ojs"}]
    report(client, said(record, "complete", new=new))
    [follower] = claimed(client, "c2")
    assert (follower["body"]["type"], follower["body"]["payload"]) == ("later", "[1]")


def test_a_heartbeat_names_leases_and_hears_who_should_stop(client: Client) -> None:
    for _ in range(3):
        client.push()
    kept, lost, cancelled = claimed(client)
    ids = [one["job"]["id"] for one in (kept, lost, cancelled)]
    client.delete(f"/jobs/{ids[2]}").ok()
    leases = {ids[0]: kept["job"]["lease"], ids[1]: "another", ids[2]: cancelled["job"]["lease"]}
    body = {"worker_id": "w1", "leases": leases, "visibility_timeout_ms": 15_000}
    told = client.post("/workers/heartbeat", body).ok()
    assert told["jobs_extended"] == ids[:1]
    assert told["jobs_lost"] == ids[1:]


def test_who_is_gone_holds_nothing(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    client.post("/workers/heartbeat", {"worker_id": "w1"}).ok()
    assert client.post("/workers/gone", {"worker_id": "w1"}).ok()["jobs_lost"] == 1
    assert client.job(record["job"]["id"])["state"] == "available"
    assert "refusal" in report(client, said(record, "complete"))[0]


def test_whoever_waits_is_woken(client: Client) -> None:
    seen = client.post(
        "/workers/fetch", {"queues": ["default"], "worker_id": "w1", "records": True}
    ).ok()["seen"]
    other = Client(client.port)
    waited = threading.Event()

    def wait() -> None:
        other.post("/workers/wait", {"wait_ms": 20_000, "seen": seen}).ok()
        waited.set()

    thread = threading.Thread(target=wait)
    thread.start()
    client.push()
    assert waited.wait(10), "it does not wait for its time to be over"
    thread.join()
    # What came before is heard of at once, too; what another server has seen says nothing here.
    other.post("/workers/wait", {"wait_ms": 20_000, "seen": seen}).ok()
    other.post("/workers/wait", {"wait_ms": 1, "seen": "1.0"}).ok()
    other.close()


def test_only_the_holder_reads_what_came_before(client: Client) -> None:
    client.push()
    [record] = claimed(client)
    job = record["job"]
    told = client.post("/workers/results", {"job_id": job["id"], "lease": job["lease"]}).ok()
    assert told == {"before": {"near": [], "all": []}, "results": {}}
    client.post("/workers/results", {"job_id": job["id"], "lease": "x"}).error(404, "not_found")
