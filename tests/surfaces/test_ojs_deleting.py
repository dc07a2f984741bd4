"""Queues are deleted once nothing in them is left to be done."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import msgspec

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


def test_a_queue_with_jobs_that_have_not_ended_is_not_deleted(client: Client) -> None:
    client.push("a", queue="q")
    error = client.delete("/queues/q").error(409, "conflict")
    assert error["details"]["depth"] == 1
    assert len(client.fetch("q")) == 1


def test_nothing_that_was_set_is_left(client: Client) -> None:
    config = {"backpressure": {"max_depth": 1}, "concurrency": 1, "default_timeout": 1}
    client.put("/admin/queues/q/config", config).ok()
    client.post("/queues/q/pause").ok()
    client.push("a", queue="q")
    [job] = client.get("/admin/jobs?queue=q").ok()["items"]
    client.delete(f"/jobs/{job['id']}").ok()
    told = client.delete("/queues/q", {"strategy": "reject"}).ok()
    assert (told["deleted"], told["strategy"], told["remaining"]) == (True, "reject", 0)
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


def test_strategies_other_than_reject_are_refused(client: Client) -> None:
    client.push("a", queue="q")
    for strategy in ("discard", "move"):
        for error in (
            client.delete("/queues/q", {"strategy": strategy, "target": "other"}),
            client.delete(f"/queues/q?strategy={strategy}"),
        ):
            assert error.error(422, "unsupported")["details"]["field"] == "strategy"
    bad: list[Any] = [{"strategy": 5}, []]
    for body in bad:
        client.delete("/queues/q", body).error(400, "invalid_request")
    assert len(client.fetch("q")) == 1
