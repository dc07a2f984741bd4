"""A server that is killed in the middle of everything leaves nothing half done."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from detent import stores
from detent.engine.verify import Verification
from tests.surfaces.jobnik import Jobnik
from tests.surfaces.server import eventually
from tests.surfaces.test_http_server import served
from tests.surfaces.test_jobnik_rivals import Chance


def hammer(port: int, type_: str, done: list[str], stop: threading.Event) -> None:
    """Take and complete tasks until told to stop, or until the server is gone."""
    client = Jobnik(port)
    try:
        while not stop.is_set():
            taken = client.ask("PATCH", f"/stages/{type_}/tasks/dequeue")
            if taken.status == 404:
                stop.wait(0.01)
            elif client.tell(taken.ok()["id"], "COMPLETED").ok()["status"] == "COMPLETED":
                done.append(taken.body["id"])
    except (OSError, http.client.HTTPException):
        pass
    finally:
        client.close()


def findings(url: str) -> list[Any]:
    """What is wrong with a store."""

    async def found() -> list[Any]:
        async with stores.open(url) as store:
            return [one async for one in Verification(store).findings()]

    return asyncio.run(found())


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_nothing_half_done(tmp_path: Path) -> None:
    url, done, stop = f"sqlite:///{tmp_path}/detent.db", list[str](), threading.Event()
    with served(url, tmp_path / "one") as (process, port), ThreadPoolExecutor(4) as pool:
        chance = Chance(port, seed=7)
        for _ in range(4):
            pool.submit(hammer, port, chance.type, done, stop)
        eventually(lambda: len(done) >= 5)
        process.kill()
    assert findings(url) == []
    with served(url, tmp_path / "two") as (_, port), ThreadPoolExecutor(4) as pool:
        client = Jobnik(port)
        words = {
            task["id"]: task["status"] for task in client.get(f"/tasks?stage_type={chance.type}")
        }
        assert {words[name] for name in done} == {"COMPLETED"}
        # Nobody has these any more; whoever knows their ids may still say how they went.
        for name, word in words.items():
            if word == "IN_PROGRESS":
                client.tell(name, "COMPLETED").ok()
        for _ in range(4):
            pool.submit(hammer, port, chance.type, done, stop)
        try:
            chance.finish(client)
        finally:
            stop.set()
        for job in chance.jobs:
            assert client.states(job) == ("COMPLETED", ["COMPLETED"] * 3)
        assert max(Counter(done).values()) == 1
        client.close()
    assert findings(url) == []
