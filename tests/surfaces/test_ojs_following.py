"""Those who follow events lose none where they come back, and hear how far a job is."""

from __future__ import annotations

import re

from tests.surfaces.server import Client, Running, eventually
from tests.surfaces.streams import Stream

STRANGE = ("evt_0199f0aa-1111-7abc-8def-0123456789ab", "garbage", "9" * 30)


def test_who_has_seen_what_is_no_event_here_is_told_so(client: Client, server: Running) -> None:
    """To go on from there would be to wait for ever."""
    client.push("a", queue="q")
    for seen in STRANGE:
        client.get(f"/events?after={seen}").error(400, "invalid_request")
        stream = Stream(server, "/queues/q/events", **{"Last-Event-ID": seen})
        name, data, _ = next(stream.frames())
        assert (name, data["channel"], data["gap_start"]) == ("system.gap", "queue:q", seen)
        stream.close()


def test_who_comes_back_hears_each_event_once(client: Client, server: Running) -> None:
    """Those that happen while it is told what it has missed, too."""
    client.push("a", queue="q")
    first = eventually(lambda: client.get("/events").ok()["events"])[0]["id"]
    for number in range(20):
        client.push("a", number, queue="q")
    path = "/queues/q/events?event_types=job.enqueued"
    stream = Stream(server, path, **{"Last-Event-ID": first})
    client.push("b", queue="q")
    heard: list[str] = []
    for _, data, seen in stream.frames():
        heard.append(seen)
        if data["job_type"] == "b":
            break
    stream.close()
    assert len(heard) == len(set(heard)) == 21
    again = Stream(server, path, **{"Last-Event-ID": first})
    frames = again.frames()
    assert [next(frames)[2] for _ in heard] == heard
    again.close()


def test_each_of_several_events_of_one_move_can_be_the_last_that_was_seen(
    client: Client, server: Running
) -> None:
    client.push("a", queue="q", retry={"initial_interval": "PT1H"})
    first = eventually(lambda: client.get("/events").ok()["events"])[0]["id"]
    stream = Stream(server, "/queues/q/events", **{"Last-Event-ID": first})
    client.nack(client.fetch("q")[0])
    frames = stream.frames()
    heard = [(name, seen) for name, _, seen in (next(frames) for _ in range(5))]
    stream.close()
    assert [name for name, _ in heard] == [
        "job.state_changed",
        "job.started",
        "job.state_changed",
        "job.failed",
        "job.retrying",
    ]
    ids = [seen for _, seen in heard]
    assert len(set(ids)) == len(ids)
    for number, seen in enumerate(ids[:-1], start=1):
        again = Stream(server, "/queues/q/events", **{"Last-Event-ID": seen})
        rest = again.frames()
        assert [next(rest)[2] for _ in ids[number:]] == ids[number:]
        again.close()
    polled = client.get(f"/events?after={ids[3]}").ok()["events"]
    assert [one["id"] for one in polled] == ids[4:]
    assert client.get(f"/events?after={ids[4]}").ok()["events"] == []


def test_how_far_a_job_is_is_told_to_those_who_follow_it(client: Client, server: Running) -> None:
    job = client.push()
    path = f"/jobs/{job['id']}"
    events = Stream(server, f"{path}/events?event_types=job.progress,job.state_changed")
    steps = Stream(server, f"{path}/progress/stream")
    assert events.answer.readline() == steps.answer.readline() == b"retry: 3000\n"
    client.fetch()
    client.put(f"{path}/progress", {"progress": 0.25, "message": "a quarter"}).ok()
    told = [(name, data) for name, data, _ in (next(events.frames()) for _ in range(2))]
    assert {name for name, _ in told} == {"job.state_changed", "job.progress"}
    [data] = [data for name, data in told if name == "job.progress"]
    assert (data["job_id"], data["progress"], data["message"]) == (job["id"], 25, "a quarter")
    name, data, _ = next(steps.frames())
    assert (name, data["progress"], data["message"]) == ("progress", 0.25, "a quarter")
    client.ack(job)
    assert [data["to"] for name, data, _ in events.frames() if "to" in data] == ["completed"]
    assert [(name, data["progress"]) for name, data, _ in steps.frames()] == [("completed", 1.0)]
    events.close()
    steps.close()
    client.get("/jobs/nobody/progress/stream").error(404, "not_found")


def test_metrics_count_however_much_has_happened(client: Client) -> None:
    """More between two scrapes than anybody would keep for a slow listener."""

    def enqueued() -> float:
        told = (
            'detent_transitions_total{event="enqueue",kind="job",source="new",target="available"}'
        )
        found = re.search(rf"^{re.escape(told)} (.*)$", client.get("/metrics").text.decode(), re.M)
        return 0.0 if found is None else float(found[1])

    before = enqueued()
    job = {"type": "a", "args": []}
    for _ in range(2):
        client.post("/jobs/batch", {"jobs": [job] * 1_000}).ok(201)
    assert eventually(lambda: enqueued() >= before + 2_000)
    assert enqueued() == before + 2_000
