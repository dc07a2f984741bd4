"""Much at once, in order: many tasks, those that come back, priorities, long replies, a page."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detent import stores
from detent.engine.engine import Engine
from detent.engine.piecemeal import PIECE
from detent.lifecycle.views.jobnik import JOBNIK_PRIORITIES
from detent.stores.api import Record, Stored
from detent.surfaces.http.exchange import Settings
from detent.surfaces.jobnik import desk
from detent.surfaces.jobnik.jobs import PRIORITY
from tests.surfaces.jobnik import Jobnik, fresh, problem
from tests.surfaces.server import running
from tests.turns import Turns
from tests.waiting import eventually


def test_more_tasks_than_a_step_holds_come_at_once_or_not_at_all(jobnik: Jobnik) -> None:
    type_ = fresh()
    stage = jobnik.stage(jobnik.job(), type_)
    bad: list[Any] = [{"data": {}}] * 1_500 + [{"data": 1}]
    problem(jobnik.ask("POST", f"/stages/{stage}/tasks", bad), 400, "VALIDATION_ERROR")
    assert jobnik.counts(stage) == {}
    made = jobnik.tasks(stage, 1_500)
    assert jobnik.counts(stage) == {"pending": 1_500}
    # The answer and the dequeue go by the order of the request.
    assert made == sorted(made)
    assert [jobnik.take(type_) for _ in range(3)] == made[:3]


def test_a_body_holds_so_many_tasks_and_no_more(jobnik: Jobnik) -> None:
    stage = jobnik.stage(jobnik.job(), fresh())
    many: list[Any] = [{"data": {}}] * 20_001
    problem(jobnik.ask("POST", f"/stages/{stage}/tasks", many), 400, "VALIDATION_ERROR")


def test_a_task_that_is_tried_again_goes_before_younger_ones(jobnik: Jobnik) -> None:
    type_ = fresh()
    old = jobnik.stage(jobnik.job(), type_)
    first, second = jobnik.tasks(old, 2, maxAttempts=3)
    assert jobnik.take(type_) == first
    assert jobnik.take(type_) == second
    young = jobnik.tasks(jobnik.stage(jobnik.job(), type_), 1)
    for task in (second, first):
        assert jobnik.tell(task, "FAILED").ok()["status"] == "RETRIED"
    assert [jobnik.take(type_) for _ in range(3)] == [first, second, *young]


async def left_in_the_middle(url: str, job: str) -> None:
    """The priority of a job is set, and whoever set it is gone before its tasks have heard."""
    async with stores.open(url) as store, Engine(store) as engine:
        told = msgspec.json.encode({"job": job, "by": "somebody"}).decode()
        note = Record(PRIORITY, f"{job} 1", 1, told, store.now())
        done = await engine.workflows.annotate(
            ("", job), lambda meta: meta.replace('"LOW"', '"VERY_HIGH"'), (note,)
        )
        assert done


async def tasks_of(url: str, ids: list[str]) -> list[Stored | None]:
    async with stores.open(url) as store:
        return list(await store.get([("", one) for one in ids]))


def test_tasks_hear_of_a_priority_although_whoever_set_it_is_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    with running(url) as server:
        jobnik = Jobnik(server.port)
        job = jobnik.job(priority="LOW")
        tasks = jobnik.tasks(jobnik.stage(job, fresh()), 3)
        asyncio.run(left_in_the_middle(url, job))
        assert jobnik.get(f"/jobs/{job}")["priority"] == "VERY_HIGH"

        def has_heard() -> bool:
            found = asyncio.run(tasks_of(url, tasks))
            return {one.job.priority for one in found if one} == {JOBNIK_PRIORITIES["VERY_HIGH"]}

        eventually(has_heard)
        jobnik.close()


def test_a_long_reply_is_small_for_whoever_can_read_it(jobnik: Jobnik) -> None:
    stage = jobnik.stage(jobnik.job(), fresh(), data={"long": "x" * 2_000})
    path = f"/stages/{stage}"
    plain = jobnik.ask("GET", path)
    assert "content-encoding" not in plain.headers
    for asked in ("gzip", "br, gzip;q=0.5", "*"):
        small = jobnik.ask("GET", path, accept_encoding=asked)
        assert small.headers["content-encoding"] == "gzip"
        assert small.headers["vary"] == "accept-encoding"
        assert json.loads(gzip.decompress(small.text)) == plain.body
    for asked in ("br", "gzip;q=0", ""):
        assert "content-encoding" not in jobnik.ask("GET", path, accept_encoding=asked).headers
    short = jobnik.ask("GET", f"{path}/summary", accept_encoding="gzip")
    assert "content-encoding" not in short.headers


def test_a_page_shows_what_may_be_asked(jobnik: Jobnik) -> None:
    page = jobnik.ask("GET", "/docs/api")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert b"PATCH /v1/stages/{stageId}/tasks/dequeue" in page.text


def test_others_get_in_while_stages_are_shown_with_their_tasks(
    jobnik: Jobnik, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = jobnik.job()
    jobnik.tasks(jobnik.stage(job, fresh()), PIECE + 100)
    turns = Turns(monkeypatch, desk, "task_shown")
    [stage] = jobnik.get(f"/jobs/{job}/stages?should_return_tasks=true")
    assert len(stage["tasks"]) == turns.all == PIECE + 100
    assert turns.most == PIECE


def test_lists_come_in_pages_if_the_server_was_told_so(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db", Settings(jobnik_pages=True)) as server:
        jobnik = Jobnik(server.port)
        job = jobnik.job()
        jobnik.tasks(jobnik.stage(job, fresh()), 11)
        assert jobnik.get("/jobs")["total"] == 1
        found = jobnik.get("/tasks")
        assert (found["total"], len(found["items"])) == (11, 10)
        # The stages of one job are an array in both generations.
        assert len(jobnik.get(f"/jobs/{job}/stages")) == 1
        jobnik.close()
