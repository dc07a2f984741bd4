"""Who gets in, and what those who misbehave can do: nothing to anybody else."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import typer
from socketio.exceptions import ConnectionError as Unconnected

from detent import stores
from detent.cli.serve import engine_limits
from detent.engine.access import Scope
from detent.engine.asks import Ask
from detent.engine.engine import Engine as Kept
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.surfaces.engines import subscribers
from detent.surfaces.engines.wire import IN_FLIGHT_MAX
from detent.surfaces.http.exchange import Settings
from tests.surfaces.engines import Client, Engine, Listener, Yard, fresh, held
from tests.surfaces.server import running
from tests.waiting import until


async def _keys(url: str, **asked: tuple[Scope, ...]) -> dict[str, str]:
    async with stores.open(url) as store, Kept(store) as engine:
        made = {}
        for name, scopes in asked.items():
            tenants = (name,) if name.startswith("tenant") else ("*",)
            made[name] = (await engine.access.create(scopes, tenants=tenants))[1]
        return made


def test_keys_open_what_they_are_for(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    work, read, produce = Scope.WORK, Scope.READ, Scope.PRODUCE
    everything = (work, read, produce)
    keys = asyncio.run(
        _keys(url, work=(work,), read=(read,), tenant_a=everything, tenant_b=everything)
    )
    with running(url, Settings()) as server:
        asyncio.run(_speak(Yard(url, server.port), keys))


async def _speak(yard: Yard, keys: dict[str, str]) -> None:
    for client, key in ((Client, None), (Client, "dtk_no_key"), (Client, keys["read"])):
        with pytest.raises(Unconnected):
            await client(yard.port, key).connect()
    with pytest.raises(Unconnected):
        await Listener(yard.port, keys["work"]).connect()
    async with Engine(yard.port, "T", key=keys["work"]) as engine:
        await engine.refused("FORBIDDEN", "submit", {"jobType": "T"})
    async with (
        Engine(yard.port, "T", key=keys["tenant_a"]) as engine,
        Engine(yard.port, "T", key=keys["tenant_b"]) as other,
        Listener(yard.port, keys["tenant_b"]) as listener,
    ):
        await listener.hear()
        made = (await engine.ok("submit", {"jobType": "T"}))["job"]
        job = await engine.job(made["jobId"])
        # Another tenant's job is not there, whoever knows its id and its lease.
        await other.refused("UNKNOWN_JOB", "job_ack", held(job))
        mine = (await other.ok("submit", {"jobType": "T"}))["job"]
        await other.run(await other.job(mine["jobId"]))
        await listener.end_of(mine["jobId"])
        assert {data["jobId"] for _, data in listener.came} == {mine["jobId"]}
        bearer = f"Bearer {keys['tenant_b']}"
        answer = yard.ask("GET", f"/engine/jobs/{made['jobId']}", authorization=bearer)
        assert answer.ok(404)["error"]["code"] == "UNKNOWN_JOB"
    assert yard.ask("POST", "/engine/jobs", {"jobType": "T"}).ok(401)["ok"] is False
    # A key that is revoked opens nothing any more, also for those who are inside.
    async with Engine(yard.port, "T", key=keys["work"]) as engine:
        async with stores.open(yard.url) as store, Kept(store) as kept:
            await kept.access.revoke(keys["work"].split("_")[1])
        await asyncio.wait_for(engine.gone.wait(), 60)


# --- messages that are none ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("register", {}, "MISSING_FIELD"),
        ("register", [], "BAD_MESSAGE"),
        ("register", "x", "BAD_MESSAGE"),
        (
            "register",
            {"engineId": "a#b", "bootId": "b", "jobTypes": ["x"], "capacity": 1},
            "BAD_MESSAGE",
        ),
        (
            "register",
            {"engineId": "e", "bootId": "b", "jobTypes": [], "capacity": 1},
            "BAD_MESSAGE",
        ),
        (
            "register",
            {"engineId": "e", "bootId": "b", "jobTypes": ["x"], "capacity": 0},
            "BAD_MESSAGE",
        ),
        (
            "register",
            {"engineId": "e", "bootId": "b", "jobTypes": ["x"], "capacity": 10**6},
            "BAD_MESSAGE",
        ),
        ("job_ack", {"jobId": "x", "lease": "y"}, "NOT_REGISTERED"),
        ("job_progress", {"jobId": "x", "lease": "y", "progress": 101}, "BAD_MESSAGE"),
        ("job_failed", {"jobId": "x", "lease": "y", "error": {"code": "a b"}}, "BAD_MESSAGE"),
        ("job_failed", {"jobId": "x", "lease": "y", "error": {}}, "MISSING_FIELD"),
        ("job_log", {"jobId": "x", "lease": "y", "lines": ["z"] * 1_001}, "BAD_MESSAGE"),
        ("connect", {}, None),
        ("what", {}, "BAD_MESSAGE"),
        ("*", {}, "BAD_MESSAGE"),
        ("submit", {"jobType": "x" * 300}, "BAD_MESSAGE"),
        ("submit", {"jobType": "x", "payload": {"a": "b" * 1_100_000}}, "TOO_LARGE"),
        ("submit", {"jobType": "x", "deadlines": {"running": 0}}, "BAD_MESSAGE"),
    ],
)
async def test_a_message_that_is_none_is_refused_and_the_connection_stays(
    yard: Yard, name: str, data: Any, code: str | None
) -> None:
    async with Client(yard.port) as client:
        if code is None:
            await client.sio.emit(name, data, namespace="/engine")
        else:
            error = await client.refused(code, name, data)
            assert len(error["message"]) < 1_000
        await client.refused("NOT_REGISTERED", "heartbeat")


@asynccontextmanager
async def _raw(yard: Yard) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A connection that speaks Engine.IO by hand, and is on the namespace."""
    url = f"http://127.0.0.1:{yard.port}/socket.io/?EIO=4&transport=websocket"
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.receive()
        await socket.send_str("40/engine,")
        await socket.receive()
        yield socket


@pytest.mark.parametrize("text", ["", "9", "x", "451-[]", "hello", b"\x00\x01"])
async def test_what_is_no_socket_io_ends_the_connection(yard: Yard, text: str | bytes) -> None:
    async with _raw(yard) as socket:
        await (socket.send_bytes(text) if isinstance(text, bytes) else socket.send_str(text))
        await until(lambda: _is_closed(socket))


async def _is_closed(socket: aiohttp.ClientWebSocketResponse) -> bool:
    return (await socket.receive(timeout=30)).type in (
        aiohttp.WSMsgType.CLOSE,
        aiohttp.WSMsgType.CLOSING,
        aiohttp.WSMsgType.CLOSED,
        aiohttp.WSMsgType.ERROR,
    )


@pytest.mark.parametrize(
    "text", ["42/engine,", "42/engine,{}", "42/engine,1[]", "42/engine,1[", "43/engine,7[]"]
)
async def test_garbage_in_packets_hurts_nobody(yard: Yard, text: str) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, _raw(yard) as socket:
        await socket.send_str(text)
        await socket.send_str('42/engine,9["heartbeat",{}]')
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.run(job)


@pytest.mark.parametrize("name", ["{}", "[1]", "null", "7", '"*"'])
async def test_a_message_whose_name_is_none_is_answered(yard: Yard, name: str) -> None:
    async with _raw(yard) as socket:
        await socket.send_str(f"42/engine,3[{name},{{}}]")
        answer = await socket.receive_str(timeout=30)
        assert answer.startswith("43/engine,3[")
        assert "BAD_MESSAGE" in answer


async def test_a_message_that_is_too_large_ends_the_connection(yard: Yard) -> None:
    async with Client(yard.port) as client:
        await client.sio.emit("heartbeat", {"jobs": ["x" * 3_000_000]}, namespace="/engine")
        await asyncio.wait_for(client.gone.wait(), 30)


async def test_a_flood_slows_down_only_itself(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine, _raw(yard) as socket:
        beat = '42/engine,["heartbeat",{}]'
        for _ in range(4 * IN_FLIGHT_MAX):
            await socket.send_str(beat)
        flooding = asyncio.create_task(_flood(socket, beat))
        for _ in range(3):
            await engine.run(await engine.job(yard.submit(kind)["jobId"]))
            engine.came.clear()
        flooding.cancel()


async def _flood(socket: aiohttp.ClientWebSocketResponse, text: str) -> None:
    while not socket.closed:
        await socket.send_str(text)
        await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.0001)


async def test_an_engine_that_never_acknowledges_costs_only_what_it_was_given(yard: Yard) -> None:
    kind, quick = fresh(), {"dispatched": 2_000}
    async with Engine(yard.port, kind, capacity=1) as mute:
        lost = yard.submit(kind, deadlines=quick)["jobId"]
        await mute.jobs(1)
        async with Engine(yard.port, kind) as engine:
            names = [yard.submit(kind, deadlines=quick)["jobId"] for _ in range(4)]
            await engine.jobs(4)
            for job in engine.pushed:
                await engine.run(job)
            assert (await yard.comes_to(lost, "failed"))["error"].startswith("ENGINE_NOT")
            assert {yard.job(name)["status"] for name in names} == {"completed"}


@pytest.mark.slow
async def test_a_subscriber_that_never_reads_is_let_go_of_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "QUEUE_MAX", 100)
    url = f"sqlite:///{tmp_path}/detent.db"
    with running(url, Settings(stall_s=0.2)) as server:
        yard = Yard(url, server.port)
        stuck = await _mute_subscriber(yard.port)
        metric = 'detent_event_subscribers{names="new"}'
        await until(lambda: yard.counted(metric) == 1)
        async with Listener(yard.port) as listener, stores.open(url) as store, Kept(store) as kept:
            await listener.hear()
            long = "x" * 255
            meta = json.dumps({"userId": long})
            ask = Ask(type=long, profile="engine", queue="engines", meta=meta)
            for count in range(1, 16):
                await kept.enqueue([ask] * 1_000, By(Actor.USER, "test"))
                await until(partial(_has_heard, listener, count * 1_000))
                if yard.counted(metric) == 1:
                    break
            assert yard.counted(metric) == 1
        stuck.close()


def _has_heard(listener: Listener, count: int) -> bool:
    return len(listener.came) >= count


async def _mute_subscriber(port: int) -> socket.socket:
    """Somebody who subscribes to everything and then reads nothing, with little room for it."""
    mute = socket.socket()
    mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    mute.connect(("127.0.0.1", port))
    key = base64.b64encode(bytes(16)).decode()
    head = (
        "GET /socket.io/?EIO=4&transport=websocket HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
    )
    mute.sendall(("\r\n".join(head) + "\r\n\r\n").encode())
    mute.recv(1_000)
    for text in ("40/events,", '42/events,["subscribe",{}]'):
        data = text.encode()
        # Frames of clients are masked; a mask of zeros changes nothing.
        mute.sendall(bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data)
    return mute


async def test_one_connection_is_one_engine(yard: Yard) -> None:
    async with Engine(yard.port, fresh()) as engine:
        await engine.refused("ENGINE_IN_USE", "register", {**engine.told, "engineId": fresh("e")})
        assert (await engine.register(capacity=3))["engineId"] == engine.id


def test_limits_of_queues_are_told_in_seconds() -> None:
    assert engine_limits(["a=b=1,2.5,3", "c=1,1,1"]) == {
        "a=b": (1_000, 2_500, 3_000),
        "c": (1_000, 1_000, 1_000),
    }
    for bad in ("1,2,3", "q=1,2", "q=0,1,1", "q=x,1,1", "q=1,1,inf"):
        with pytest.raises(typer.BadParameter):
            engine_limits([bad])


async def test_there_is_no_long_polling(yard: Yard) -> None:
    answer = yard.ask("GET", "/socket.io/?EIO=4&transport=polling")
    assert "websocket" in answer.ok(400)["error"]["message"]


async def test_log_lines_and_progress_are_kept_with_the_job(yard: Yard) -> None:
    kind = fresh()
    async with Engine(yard.port, kind) as engine:
        job = await engine.job(yard.submit(kind)["jobId"])
        await engine.ok("job_ack", held(job))
        for start in range(0, 10_000, 1_000):
            lines = [f"line {start + number}" for number in range(1_000)]
            assert (await engine.ok("job_log", held(job, lines=lines)))["kept"] == 1_000
        assert (await engine.ok("job_log", held(job, lines=["more"])))["kept"] == 0
        await engine.ok("job_progress", held(job, progress=70, message="most of it"))
        shown = yard.ask("GET", f"/api/jobs/{job['jobId']}/logs?limit=1000").ok()["lines"]
        assert [one["line"] for one in shown[:2]] == ["line 0", "line 1"]
        await engine.ok("job_complete", held(job))


def test_the_document_names_every_route(yard: Yard) -> None:
    told = yard.ask("GET", "/engine/openapi.json").ok()
    assert {"/engine/jobs", "/engine/jobs/{id}", "/engine/types", "/engine/types/{jobType}"} <= set(
        told["paths"]
    )
    shapes = told["components"]["schemas"]
    assert {"Submit", "Job", "Error"} <= set(shapes)
    kind = fresh()
    yard.ask("PUT", f"/engine/types/{kind}", {"schema": {}}).ok()
    job = yard.submit(kind, deadlines={"queued": 50})
    assert set(shapes["Job"]["properties"]) == set(job)
    assert json.dumps(told)
