"""Workers that fall silent, on a clock that is moved by hand; no socket is needed for that."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

from detent import stores
from detent.engine.engine import Engine
from detent.surfaces.http.app import WebApp
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.service import Service
from detent.surfaces.ojs.surface import OjsSurface
from detent.testing import VirtualClock


class Rig:
    """The application on a store in memory, whose upkeep runs when the test says so."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self._stack = AsyncExitStack()
        settings = Settings()
        self.service = Service(self._opening)
        self.surface = OjsSurface(self.service, settings)
        self.app = WebApp(self.service, [self.surface], settings)

    async def _opening(self, stack: AsyncExitStack) -> Engine:
        store = await stack.enter_async_context(stores.open("memory:", clock=self.clock))
        return await stack.enter_async_context(Engine(store, jitter=lambda: 0.5))

    async def __aenter__(self) -> Rig:
        self.service.opened(await self._opening(self._stack))
        self.surface.opened()
        await self.pass_time(0)
        await self.pass_time(20)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def pass_time(self, seconds: float) -> None:
        """Let it pass as a server would see it: turn by turn, without a gap."""
        for _ in range(int(seconds) + 1):
            self.clock.advance(min(seconds, 1))
            await self.service.engine.upkeep.turn()

    async def post(self, path: str, **body: Any) -> Any:
        """The answer to a request."""
        data = json.dumps(body).encode()
        told: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": data}

        async def send(message: Any) -> None:
            told.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
        scope = {"type": "http", "method": "POST", "path": f"/ojs/v1{path}", "headers": headers}
        await self.app(scope, receive, send)
        return json.loads(told[1]["body"])

    async def held(self, worker: str) -> Any:
        """A job in the hands of a worker."""
        await self.post("/jobs", type="a", args=[])
        return (await self.post("/workers/fetch", queues=["default"], worker_id=worker))["jobs"][0]


async def test_a_worker_that_fell_silent_has_lost_its_jobs() -> None:
    async with Rig() as rig:
        job = await rig.held("w1")
        await rig.post("/workers/heartbeat", worker_id="w1", active_jobs=[job["id"]])
        await rig.pass_time(25)
        assert (await rig.post("/workers/fetch", queues=["default"]))["jobs"] == []
        await rig.pass_time(10)
        [again] = (await rig.post("/workers/fetch", queues=["default"]))["jobs"]
        assert (again["id"], again["attempt"]) == (job["id"], 2)
        assert again["error"]["code"] == "worker_death"
        late = await rig.post("/workers/ack", job_id=job["id"], lease=job["lease"])
        assert late["error"]["code"] == "conflict"
        assert await rig.surface.workers.get(("", "w1")) is None
        events = await rig.service.engine.store.history(("", job["id"]))
        assert "worker_death" in [event.code for event in events]


@pytest.mark.parametrize(("lapsed", "name"), [(True, "hand_back"), (False, "lose")])
async def test_who_was_stopped_because_the_server_was_away_does_not_pay(
    lapsed: bool, name: str
) -> None:
    async with Rig() as rig:
        job = await rig.held("w1")
        told = await rig.post("/workers/gone", worker_id="w1", lapsed=lapsed)
        assert told["jobs_lost"] == 1
        events = await rig.service.engine.store.history(("", job["id"]))
        assert (events[2].name, events[2].actor) == (name, "system")


async def test_a_worker_that_goes_on_beating_keeps_them() -> None:
    async with Rig() as rig:
        job = await rig.held("w1")
        for _ in range(6):
            await rig.post("/workers/heartbeat", worker_id="w1", active_jobs=[job["id"]])
            await rig.pass_time(20)
        done = await rig.post("/workers/ack", job_id=job["id"], worker_id="w1")
        assert done["state"] == "completed"


async def test_a_worker_that_never_beat_is_trusted_for_the_reservation() -> None:
    async with Rig() as rig:
        job = await rig.held("w1")
        await rig.pass_time(100)
        done = await rig.post("/workers/ack", job_id=job["id"], worker_id="w1")
        assert done["state"] == "completed"


async def test_nobody_is_buried_after_a_gap_of_our_own() -> None:
    async with Rig() as rig:
        job = await rig.held("w1")
        await rig.post("/workers/heartbeat", worker_id="w1", active_jobs=[job["id"]])
        # The server stood still; the worker could not beat either.
        rig.clock.advance(120)
        await rig.service.engine.upkeep.turn()
        await rig.post("/workers/heartbeat", worker_id="w1", active_jobs=[job["id"]])
        await rig.pass_time(20)
        done = await rig.post("/workers/ack", job_id=job["id"], worker_id="w1")
        assert done["state"] == "completed"


async def test_after_a_gap_only_older_reservations_are_trusted_longer() -> None:
    async with Rig() as rig:
        await rig.post("/jobs", type="old", args=[])
        asked = {"queues": ["default"], "visibility_timeout_ms": 2_000}
        await rig.post("/workers/fetch", **asked)
        rig.clock.advance(60)
        await rig.service.engine.upkeep.turn()
        await rig.post("/jobs", type="new", args=[])
        assert [j["type"] for j in (await rig.post("/workers/fetch", **asked))["jobs"]] == ["new"]
        await rig.pass_time(4)
        [again] = (await rig.post("/workers/fetch", queues=["default"], count=9))["jobs"]
        assert again["type"] == "new"
