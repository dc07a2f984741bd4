"""Whoever waits for jobs may leave, and so may the server: nothing is left in nobody's hands."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.keyring import Keyring, new_key
from detent.engine.secrets import Secrets
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import Want, key_of
from detent.stores.select import Filter, Page
from tests.postgres.server import databases
from tests.surfaces.server import Client, Running, eventually, running
from tests.surfaces.test_http_server import served
from tests.surfaces.test_ojs_silence import Rig

WAITERS = 4
LONG_MS = 25_000


def url_of(name: str, folder: Path) -> str:
    """A store of its own."""
    return f"sqlite:///{folder}/detent.db" if name == "sqlite" else databases().of(folder)


class Waiter(threading.Thread):
    """Somebody who waits for a job of a queue."""

    def __init__(self, port: int, queue: str) -> None:
        super().__init__()
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = json.dumps({"queues": [queue], "wait_ms": LONG_MS})
        told = {"Content-Type": "application/json"}
        self._connection.request("POST", "/ojs/v1/workers/fetch", body, told)
        self.jobs: list[str] | None = None

    def run(self) -> None:
        answer = self._connection.getresponse()
        if answer.status == HTTPStatus.OK:
            self.jobs = [job["id"] for job in json.loads(answer.read())["jobs"]]
        self._connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_server_that_stops_answers_those_who_wait_and_keeps_nothing(
    tmp_path: Path, store: str
) -> None:
    url = url_of(store, tmp_path)
    with served(url, tmp_path / "log") as (first, port), running(url) as other:
        begun, producer, watcher = time.monotonic(), Client(other.port), Client(port)
        waiting = [Waiter(port, f"q{number}") for number in range(WAITERS)]
        for _ in range(WAITERS):
            watcher.get("/health").ok()
        for one in waiting:
            one.start()
        # Some of them get a job in this very moment, the others never will.
        pushed = [producer.push(queue="q0")["id"]]
        first.send_signal(signal.SIGTERM)
        pushed += [producer.push(queue=f"q{number}")["id"] for number in (1, 2)]
        for one in waiting:
            one.join()
        assert first.wait(30) == 0
        assert time.monotonic() - begun < LONG_MS / 1_000, "somebody waited for the whole time"
        assert None not in [one.jobs for one in waiting]
        taken = {name for one in waiting for name in one.jobs or ()}
        assert {name for name in pushed if producer.job(name)["state"] == "active"} == taken
        producer.close()
        watcher.close()


def test_whoever_has_left_is_given_nothing(client: Client, server: Running) -> None:
    body = json.dumps({"queues": ["default"], "wait_ms": LONG_MS}).encode()
    head = f"POST /ojs/v1/workers/fetch HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", server.port)) as leaver:
        leaver.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
        # It has been heard when somebody who asked after it has been answered.
        client.get("/health").ok()
    for number in range(5):
        name = client.push("a", number)["id"]
        [job] = eventually(client.fetch)
        assert (job["id"], job["attempt"]) == (name, 1)
        client.ack(job)


async def test_whoever_is_called_off_leaves_nothing_claimed() -> None:
    """At whichever turn of the loop that comes; what was told is told, all else goes back."""
    async with Rig() as rig:
        told = 0
        for turns in range(40):
            await rig.post("/jobs", type="a", args=[])
            asking = asyncio.ensure_future(rig.post("/workers/fetch", queues=["default"]))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                told += bool((await asking)["jobs"])
            await rig.service.engine.returning.close()
            counts = {one.state: one.count for one in await rig.service.engine.store.counts()}
            assert counts.get("active", 0) == told
        assert 0 < told < 40


async def test_whoever_is_called_off_while_a_key_is_missing_leaves_nothing_claimed() -> None:
    """Those that opened were left to their leases, half an hour each, and then charged for it."""
    async with Rig() as rig:
        store, told = rig.service.engine.store, 0
        keyed = Engine(store, secrets=Secrets(Keyring([new_key()])))
        pay = Ask(type="pay", payload='{"token":"t"}', secret=("token",))
        for turns in range(40):
            await keyed.enqueue([pay, Ask(type="a", payload="[]")], By(Actor.USER, "test"))
            asking = asyncio.ensure_future(
                rig.post("/workers/fetch", queues=["default"], count=100)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                told += len((await asking)["jobs"])
            await rig.service.engine.returning.close()
            counts = {one.state: one.count for one in await store.counts()}
            assert counts.get("active", 0) == told, turns
        assert told


async def test_what_may_not_go_back_has_failed() -> None:
    async with Rig() as rig:
        engine, by = rig.service.engine, By(Actor.USER, "test")
        asks = [Ask(type="a", profile=name, secret=()) for name in ("ojs", "rest")]
        await engine.enqueue(asks, by)
        worker = By(Actor.WORKER, "w1")
        want = Want(
            command_id="c",
            by=worker,
            holder="w1",
            leases=("1", "2"),
            queues=("default",),
            wire=True,
        )
        claimed = await engine.claim(want)
        engine.returning.soon(claimed.jobs)
        await engine.returning.close()
        found = await engine.store.get([key_of(one.job) for one in claimed.jobs])
        assert [one.job.state for one in found if one] == ["available", "discarded"]
        [*_, last] = await engine.store.history(key_of(claimed.jobs[1].job))
        assert (last.name, last.code, last.actor) == ("fail", "INTERRUPTED", "system")


async def test_a_server_without_the_key_of_a_job_hands_out_the_others() -> None:
    async with Rig() as rig:
        store, by = rig.service.engine.store, By(Actor.USER, "test")
        keyed = Engine(store, secrets=Secrets(Keyring([new_key()])))
        pay = Ask(type="pay", payload='{"token":"t"}', secret=("token",))
        await keyed.enqueue([pay, Ask(type="mail", payload="{}")], by)
        for records in (False, True):
            told = await rig.post("/workers/fetch", queues=["default"], count=5, records=records)
            found = told["records"] if records else told["jobs"]
            assert len(found) == (0 if records else 1)
        [left] = await store.find(Filter(type="pay"), Page())
        names = [event.name for event in await store.history(key_of(left.job))]
        assert names == ["enqueue", *["claim", "hand_back", "due"] * 2]
