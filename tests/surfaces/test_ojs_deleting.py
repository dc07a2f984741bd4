"""Queues can be deleted, and how it went can be looked up period by period."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from detent import stores
from detent.engine.engine import Engine
from detent.stores.api import Record
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.service import Service
from detent.surfaces.ojs.configs import Config
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.setting import KIND, Setting
from tests.surfaces.server import Client


def names(client: Client) -> list[str]:
    return [one["name"] for one in client.get("/queues").ok()["queues"]]


def waiting(client: Client, queue: str = "q") -> list[str]:
    """A job of each kind that waits, and one that runs."""
    running = client.push("a", queue=queue, priority=9)
    [taken] = client.fetch(queue)
    assert taken["id"] == running["id"]
    later = client.push("a", queue=queue, scheduled_at="+PT1H")["id"]
    held = client.push("a", queue=queue, pending=True)["id"]
    ready = client.push("a", queue=queue)["id"]
    return [later, held, ready, running["id"]]


def test_a_queue_with_jobs_is_not_deleted_unless_it_is_said_what_becomes_of_them(
    client: Client,
) -> None:
    client.push("a", queue="q")
    error = client.delete("/queues/q").error(409, "conflict")
    assert error["details"]["depth"] == 1
    assert len(client.fetch("q")) == 1


def test_what_waits_is_discarded_and_what_runs_goes_on(client: Client) -> None:
    *some, running = waiting(client)
    told = client.delete("/queues/q", {"strategy": "discard"}).ok()
    assert (told["deleted"], told["discarded"], told["remaining"]) == (True, 3, 1)
    assert [client.job(name)["state"] for name in some] == ["discarded"] * 3
    history = client.get(f"/jobs/{some[0]}/history").ok()["events"]
    assert history[-1]["data"]["cause"] == "queue_deleted"
    client.ack({"id": running})
    assert names(client) == ["default"]


def test_what_waits_is_moved(client: Client) -> None:
    *some, running = waiting(client)
    told = client.delete("/queues/q?strategy=move&target=other").ok()
    assert (told["moved"], told["remaining"]) == (3, 1)
    assert [client.job(name)["queue"] for name in [*some, running]] == ["other"] * 3 + ["q"]
    assert [one["id"] for one in client.fetch("other", count=5)] == some[2:]


def test_nothing_that_was_set_is_left(client: Client) -> None:
    config = {"backpressure": {"max_depth": 1}, "concurrency": 1, "default_timeout": 1}
    client.put("/admin/queues/q/config", config).ok()
    client.post("/queues/q/pause").ok()
    client.push("a", queue="q")
    client.delete("/queues/q", {"strategy": "discard"}).ok()
    assert names(client) == ["default"]
    for _ in range(3):
        client.push("a", queue="q")
    assert names(client) == ["default", "q"]
    assert len(client.fetch("q", count=5)) == 3
    assert client.get("/admin/queues/q").ok()["configuration"] == {}


def test_a_queue_is_there_again_as_soon_as_somebody_uses_it(client: Client) -> None:
    client.delete("/queues/q").ok()
    assert names(client) == ["default"]
    client.push("a", queue="q")
    [job] = client.fetch("q")
    client.ack(job)
    assert names(client) == ["default", "q"]


async def test_deleted_queues_are_known_however_many_there_are() -> None:
    async with stores.open("memory:") as store:
        engine = Engine(store)
        service = Service(nobody_opens)
        service.opened(engine)
        setting = Setting(Desk(service, Settings()))
        told = msgspec.json.encode(Config(0, is_deleted=True)).decode()
        names = [f"q{number:04}" for number in range(1_001)]
        await asyncio.gather(*(engine.put(Record(KIND, name, 1, told)) for name in names))
        assert await setting.gone("") == set(names)


async def nobody_opens(_: AsyncExitStack) -> Engine:
    raise AssertionError


@pytest.mark.parametrize(
    "body",
    [
        {"strategy": "burn"},
        {"strategy": "move"},
        {"strategy": "move", "target": "q"},
        {"strategy": "move", "target": "Not A Queue"},
        {"strategy": 5},
        [],
    ],
)
def test_what_cannot_be_meant(client: Client, body: Any) -> None:
    client.push("a", queue="q")
    client.delete("/queues/q", body).error(400, "invalid_request")
    assert len(client.fetch("q")) == 1


# --- how it went ----------------------------------------------------------------------------------


def test_how_it_went_is_told_by_period(client: Client) -> None:
    for number in range(4):
        client.push("a", number, queue="q", retry={"max_attempts": 1})
    client.push("a", queue="other")
    first, second, third, _ = client.fetch("q", count=4)
    client.ack(first)
    client.ack(second)
    client.nack(third)
    told = client.get("/admin/stats/history?period=1h&queue=q").ok()
    assert (told["period"], told["is_partial"], len(told["data"])) == ("1h", False, 24)
    sums = {name: sum(one[name] for one in told["data"]) for name in ("processed", "failed")}
    assert sums == {"processed": 3, "failed": 1}
    assert sum(one["enqueued"] for one in told["data"]) == 4
    assert told["data"][-1]["timestamp"] > told["data"][0]["timestamp"]
    assert told["data"][-1]["latency_p99_ms"] >= told["data"][-1]["latency_p50_ms"] >= 0
    whole = client.get("/admin/stats/history").ok()
    assert sum(one["enqueued"] for one in whole["data"]) == 5


def test_an_hour_that_is_over_has_what_was_in_it(client: Client) -> None:
    client.push("a")
    path = "/admin/stats/history?since=2020-01-01T00:20:00Z&until=2020-01-01T02:00:00Z"
    data = client.get(f"{path}&period=PT30M").ok()["data"]
    assert [one["timestamp"] for one in data] == [
        "2020-01-01T00:00:00.000Z",
        "2020-01-01T00:30:00.000Z",
        "2020-01-01T01:00:00.000Z",
        "2020-01-01T01:30:00.000Z",
    ]
    assert [one["enqueued"] for one in data] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "query",
    [
        "period=often",
        "since=yesterday",
        "since=2020-01-01T00:00:00Z",
        "since=2030-01-01T00:00:00Z&until=2029-01-01T00:00:00Z",
        "queue=Not+A+Queue",
    ],
)
def test_times_that_cannot_be(client: Client, query: str) -> None:
    client.get(f"/admin/stats/history?{query}").error(400, "invalid_request")
