"""Every row, invariant, question and example of the document that this surface is made from.

Its diagram has seven moves and its table three instants; each has a test that names it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.surfaces.rest import (
    DOORS,
    Rest,
    Site,
    door,
    follow,
    following,
    lines_of,
    states_of,
    worker,
)
from tests.surfaces.server import eventually


def instant(text: str) -> datetime:
    """An instant of RFC 3339, in UTC."""
    found = datetime.fromisoformat(text)
    assert text.endswith("Z")
    assert found.utcoffset() == timedelta(0)
    return found


def idle(rest: Rest) -> dict[str, Any]:
    """A job that nobody takes."""
    return rest.start("idle")


def running_job(rest: Rest, **more: int) -> tuple[str, str]:
    """A job that runs until its door is opened, and the door."""
    name = door()
    job = rest.start("wait", door=name, **more)
    rest.in_state(job["id"], "running")
    return job["id"], name


# --- the moves of the diagram -----------------------------------------------------------------


def test_move_new_to_pending_sets_created_at(rest: Rest) -> None:
    answer = rest.post("", {"action": "idle"})
    job = answer.ok(202)["job"]
    assert job["state"] == "pending"
    assert answer.headers["location"] == f"/api/jobs/{job['id']}"
    instant(job["createdAt"])
    assert job.keys() == {"id", "state", "createdAt", "logs", "metadata"}
    assert job["logs"] == []


def test_move_pending_to_running_sets_started_at(rest: Rest) -> None:
    name, opener = running_job(rest)
    job = rest.job(name)
    assert instant(job["startedAt"]) >= instant(job["createdAt"])
    assert "completedAt" not in job
    DOORS[opener].set()


def test_move_pending_to_cancelled_before_start(rest: Rest) -> None:
    job = rest.post(f"/{idle(rest)['id']}/cancel").ok(200)["job"]
    assert job["state"] == "cancelled"
    assert "startedAt" not in job
    assert instant(job["completedAt"]) >= instant(job["createdAt"])


def test_move_running_to_success_with_output(rest: Rest) -> None:
    job = rest.ended(rest.start("greet", name="you")["id"])
    assert (job["state"], job["output"]) == ("success", {"greeted": "you"})
    assert instant(job["completedAt"]) >= instant(job["startedAt"])
    assert job["logs"] == ["hello you 1"]
    assert "error" not in job


def test_move_running_to_failed_with_error(rest: Rest) -> None:
    job = rest.ended(rest.start("break")["id"])
    assert job["state"] == "failed"
    assert job["error"] == {"code": "handler_error", "message": "it broke"}
    assert instant(job["completedAt"]) >= instant(job["startedAt"])
    assert "output" not in job


def test_move_running_to_cancelled_by_its_user(rest: Rest) -> None:
    name = rest.start("heed")["id"]
    rest.in_state(name, "running")
    asked = rest.post(f"/{name}/cancel").ok(202)["job"]
    assert asked["state"] == "running"
    assert instant(asked["cancelRequestedAt"]) >= instant(asked["startedAt"])
    job = rest.ended(name)
    assert job["state"] == "cancelled"
    assert instant(job["completedAt"]) >= instant(asked["cancelRequestedAt"])


@pytest.mark.parametrize("action", ["greet", "break", "cancelled"])
def test_ends_are_absorbing(rest: Rest, action: str) -> None:
    if action == "cancelled":
        name = idle(rest)["id"]
        rest.post(f"/{name}/cancel").ok(200)
    else:
        name = rest.start(action, **({"name": "x"} if action == "greet" else {}))["id"]
    job = rest.ended(name)
    again = rest.post(f"/{name}/cancel")
    if action == "cancelled":
        assert again.ok(200)["job"] == job
    else:
        assert rest.refused(again, 409, "CONFLICT")["details"]["state"] == job["state"]
    assert rest.job(name) == job


# --- the two sources of a cancellation --------------------------------------------------------


def test_cancelling_a_running_job_twice_asks_once(rest: Rest) -> None:
    name, opener = running_job(rest)
    first = rest.post(f"/{name}/cancel").ok(202)["job"]
    assert (
        rest.post(f"/{name}/cancel").ok(202)["job"]["cancelRequestedAt"]
        == (first["cancelRequestedAt"])
    )
    DOORS[opener].set()
    # It finished before it heard of it: whatever came first counts, and stays.
    assert rest.ended(name)["state"] in ("success", "cancelled")


# --- the profile: once, and never back --------------------------------------------------------


def test_a_lost_worker_fails_the_job(site: Site, rest: Rest) -> None:
    name = idle(rest)["id"]
    # Those of other tests wait there too.
    eventually(lambda: rest.fetch("elsewhere", visibility_timeout_ms=100)["id"] == name)
    job = rest.ended(name)
    assert (job["state"], job["error"]["code"]) == ("failed", "WORKER_LOST")
    assert job["error"]["message"]
    assert states_of(follow(site.port, name)) == ["failed"]


def test_a_deploy_lets_it_finish_or_fails_it(site: Site, rest: Rest) -> None:
    doors = [door(), door()]
    with worker(site.url, grace=0.3, queues=("deploys",)):
        names = [rest.start("deployed", door=one)["id"] for one in doors]
        for name in names:
            rest.in_state(name, "running")
        DOORS[doors[0]].set()
    finished, interrupted = map(rest.job, names)
    DOORS[doors[1]].set()
    assert finished["state"] == "success"
    assert (interrupted["state"], interrupted["error"]["code"]) == ("failed", "INTERRUPTED")
    assert interrupted["logs"] == ["begun"]


# --- questions and answers --------------------------------------------------------------------


def test_question_can_failed_become_success_after_a_retry(rest: Rest) -> None:
    """No: a retry is a new job with a new id."""
    failed = rest.ended(rest.start("break")["id"])
    answer = rest.post(f"/{failed['id']}/retry")
    again = answer.ok(202)["job"]
    assert again["id"] != failed["id"]
    assert again["retriedFrom"] == failed["id"]
    assert again["state"] == "pending"
    assert again["metadata"]["requestId"] == answer.body["requestId"]
    assert again["metadata"]["inputs"] == failed["metadata"]["inputs"]
    rest.ended(again["id"])
    assert rest.job(failed["id"]) == failed


def test_a_cancelled_job_can_be_retried_and_a_successful_one_cannot(rest: Rest) -> None:
    gone = idle(rest)["id"]
    rest.refused(rest.post(f"/{gone}/retry"), 409, "CONFLICT")
    rest.post(f"/{gone}/cancel").ok(200)
    assert rest.post(f"/{gone}/retry").ok(202)["job"]["retriedFrom"] == gone
    done = rest.ended(rest.start("greet", name="x")["id"])["id"]
    rest.refused(rest.post(f"/{done}/retry"), 409, "CONFLICT")


def test_question_is_completed_at_set_on_cancelled(rest: Rest) -> None:
    """Yes: cancelled is an end, so its time is told."""
    name = idle(rest)["id"]
    rest.post(f"/{name}/cancel").ok(200)
    instant(rest.job(name)["completedAt"])


def test_question_what_is_shown_during_pending(site: Site, rest: Rest) -> None:
    """A spinner and no log output: there is a state, and there are no lines."""
    name = idle(rest)["id"]
    frames = following(site.port, name, most=1)
    first = next(frames)
    assert (first.event, first.data, first.id) == ("status", {"state": "pending"}, "0")
    frames.close()
    assert rest.job(name)["logs"] == []


# --- the example ------------------------------------------------------------------------------


def test_example_trigger_watch_and_a_single_final_status(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=2, after=2)["id"]
    frames = following(site.port, name)
    seen = [next(frames)]
    while seen[-1].data.get("line") != "line 2":
        seen.append(next(frames))
    DOORS[opener].set()
    seen += frames
    assert states_of(seen)[-2:] == ["running", "success"]
    assert states_of(seen).count("success") == 1
    assert lines_of(seen) == [f"line {number}" for number in range(1, 5)]
    last = seen[-1]
    assert (last.event, last.data, last.id) == ("status", {"state": "success", "output": 4}, "4")


def test_logs_outlive_the_end_and_never_change(site: Site, rest: Rest) -> None:
    name = rest.ended(rest.start("greet", name="x", times=5)["id"])["id"]
    whole = rest.get(f"/{name}/logs").ok()
    assert [one["cursor"] for one in whole["lines"]] == [1, 2, 3, 4, 5]
    assert whole["lines"][0].keys() == {"cursor", "line", "at", "level"}
    assert whole["lines"][0]["level"] == "info"
    instant(whole["lines"][0]["at"])
    page = rest.get(f"/{name}/logs?cursor=1&limit=2").ok()
    assert page["lines"] == whole["lines"][1:3]
    assert page["nextCursor"] == 3
    rest_of_it = rest.get(f"/{name}/logs?cursor={page['nextCursor']}").ok()
    assert rest_of_it["lines"] == whole["lines"][3:]
    assert rest.get(f"/{name}/logs?cursor=5").ok()["nextCursor"] == 5
    assert lines_of(follow(site.port, name)) == rest.job(name)["logs"]


# --- jobs of other ways in --------------------------------------------------------------------


def test_a_job_of_another_profile_is_shown_and_may_go_back(site: Site, rest: Rest) -> None:
    """The one declared extension: running, then pending again."""
    pushed = {"type": "other", "args": [1], "options": {"queue": "others"}}
    pushed["options"]["retry"] = {"max_attempts": 2, "initial_interval": "PT0.3S"}  # type: ignore[index]
    name = rest.post("/ojs/v1/jobs", pushed).ok(201)["job"]["id"]
    frames = following(site.port, name)
    seen = [next(frames).data["state"]]
    for _ in range(2):
        rest.fetch("others")
        seen.append(next(frames).data["state"])
        failed = {"job_id": name, "error": {"code": "boom", "message": "no"}}
        rest.post("/ojs/v1/workers/nack", failed).ok()
        last = next(frames)
        seen.append(last.data["state"])
    assert seen == ["pending", "running", "pending", "running", "failed"]
    assert last.data["error"] == {"code": "boom", "message": "no"}
    job = rest.job(name)
    assert job["metadata"]["inputs"] == {"args": [1]}
    assert job["metadata"]["userId"] is None
    eventually(lambda: list(frames) == [])
