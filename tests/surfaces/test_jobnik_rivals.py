"""Many at once, at random: nothing is given twice, nothing is wedged, and every count is right."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.surfaces.jobnik import Jobnik, at_once, fresh
from tests.surfaces.server import eventually

OVER = ("COMPLETED", "FAILED", "ABORTED")
WORKABLE = ("PENDING", "IN_PROGRESS")


def test_twelve_dequeuers_get_twelve_tasks(jobnik: Jobnik) -> None:
    type_ = fresh()
    tasks = [*jobnik.tasks(jobnik.stage(jobnik.job(), type_), 6)]
    tasks += jobnik.tasks(jobnik.stage(jobnik.job(), type_), 6)
    asks: list[tuple[Any, ...]] = [("PATCH", f"/stages/{type_}/tasks/dequeue")] * 12
    answers = at_once(jobnik.port, asks)
    assert sorted(one.ok()["id"] for one in answers) == sorted(tasks)
    jobnik.nothing(type_)


def test_eight_stages_at_once_get_eight_orders(jobnik: Jobnik) -> None:
    job, type_ = jobnik.job(), fresh()
    body = {"type": type_, "data": {}}
    answers = at_once(jobnik.port, [("POST", f"/jobs/{job}/stage", body)] * 8)
    assert sorted(one.ok(201)["order"] for one in answers) == list(range(1, 9))
    assert [one["order"] for one in jobnik.get(f"/jobs/{job}/stages")] == list(range(1, 9))
    assert Counter(jobnik.states(job)[1]) == {"PENDING": 1, "CREATED": 7}


def test_of_eight_who_delete_a_job_one_does(jobnik: Jobnik) -> None:
    job = jobnik.job()
    jobnik.tasks(jobnik.stage(job, fresh()), 20)
    jobnik.ask("PUT", f"/jobs/{job}/status", {"status": "ABORTED"}).ok()
    answers = at_once(jobnik.port, [("DELETE", f"/jobs/{job}")] * 8)
    assert Counter(one.status for one in answers) == {200: 1, 404: 7}
    assert {one.body["code"] for one in answers if one.status == 404} == {"JOB_NOT_FOUND"}


class Chance:
    """Rival workers and users on a few jobs, and what none of them may ever see."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.type = fresh()
        self.chance = random.Random(seed)
        self.done = threading.Event()
        self.runs: list[tuple[str, int]] = []
        self.over: dict[str, str] = {}
        client = Jobnik(port)
        self.jobs = [client.job(priority=word) for word in ("LOW", "MEDIUM", "HIGH")]
        for job in self.jobs:
            for number in range(3):
                stage = client.stage(job, self.type, startAsWaiting=number == 1)
                client.tasks(stage, 3, maxAttempts=2)
        client.close()

    def worker(self, seed: int) -> None:
        """Takes what there is, and completes or fails it."""
        chance, client = random.Random(seed), Jobnik(self.port)
        while not self.done.is_set():
            taken = client.ask("PATCH", f"/stages/{self.type}/tasks/dequeue")
            if taken.status == 404:
                self.done.wait(0.01)
                continue
            task = taken.ok()
            self.runs.append((task["id"], task["attempts"]))
            word = "FAILED" if chance.random() < 0.15 else "COMPLETED"
            assert client.tell(task["id"], word).status == 200
        client.close()

    def user(self, client: Jobnik) -> None:
        """Does something to one of the jobs, and looks."""
        job = self.chance.choice(self.jobs)
        act = self.chance.choice(
            ["pause", "resume", "resume", "release", "release", "abort", "add"]
        )
        if act in ("pause", "resume"):
            client.steer(job, "PAUSED" if act == "pause" else "PENDING")
        elif act == "abort" and self.chance.random() < 0.2:
            client.steer(job, "ABORTED")
        elif act == "release":
            for stage in client.get(f"/jobs/{job}/stages"):
                if stage["status"] == "WAITING":
                    client.release(stage["id"])
        elif act == "add" and self.chance.random() < 0.3:
            added = client.ask("POST", f"/jobs/{job}/stage", {"type": self.type, "data": {}})
            if added.status == 201:
                client.ask("POST", f"/stages/{added.body['id']}/tasks", [{"data": {}}])
        for one in self.jobs:
            self.look(client, one)

    def look(self, client: Jobnik, job: str) -> bool:
        """One moment of a job, checked; whether it is over."""
        found = client.get(f"/jobs/{job}?should_return_stages=true")
        stages = found["stages"]
        assert [one["order"] for one in stages] == list(range(1, len(stages) + 1))
        words = [one["status"] for one in stages]
        workable = [word for word in words if word in WORKABLE]
        assert len(workable) <= 1
        if found["status"] in OVER:
            assert workable == []
        for name, word in [(job, found["status"]), *((s["id"], s["status"]) for s in stages)]:
            assert (
                self.over.setdefault(name, word) == word if word in OVER else name not in self.over
            )
        for one in stages:
            summary = dict(one["summary"])
            total = summary.pop("total")
            assert sum(summary.values()) == total
            assert one["percentage"] == (100 * summary["completed"] // total if total else 0)
        return found["status"] in OVER

    def finish(self, client: Jobnik) -> None:
        """Let everything go on; every job ends by itself then."""

        def ended() -> bool:
            for job in self.jobs:
                client.steer(job, "PENDING")
                for stage in client.get(f"/jobs/{job}/stages"):
                    client.release(stage["id"])
            return all(self.look(client, job) for job in self.jobs)

        eventually(ended, 60)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_given_twice_and_nothing_is_wedged(jobnik: Jobnik, seed: int) -> None:
    chance = Chance(jobnik.port, seed)
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(chance.worker, seed * 10 + number) for number in range(4)]
        try:
            for _ in range(25):
                chance.user(jobnik)
            chance.finish(jobnik)
        finally:
            chance.done.set()
        for one in workers:
            one.result()
    # Each run of a task was given to one worker, and each task is counted where it is.
    assert max(Counter(chance.runs).values(), default=0) == 1
    jobnik.nothing(chance.type)
    for job in chance.jobs:
        for stage in jobnik.get(f"/jobs/{job}/stages?should_return_tasks=true"):
            words = Counter(task["status"] for task in stage["tasks"])
            assert "IN_PROGRESS" not in words
            told = {"inProgress" if k == "IN_PROGRESS" else k.lower(): v for k, v in words.items()}
            summary = {name: count for name, count in stage["summary"].items() if count}
            assert summary == {**told, **({"total": sum(words.values())} if words else {})}
            assert all(task["attempts"] <= task["maxAttempts"] for task in stage["tasks"])
    # Whatever was asked is in the history, and nothing of what is stored contradicts it.
    for job in chance.jobs:
        assert jobnik.ask("DELETE", f"/jobs/{job}").status == 200
