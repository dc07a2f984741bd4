"""Clients that attack the server before they show a key: memory stays bounded and is given back."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import signal
import socket
import sqlite3
import struct
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from detent.engine.access import Scope
from detent.surfaces.http.connection import MAX_WAITING_REQUESTS
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.logs import JsonLines, PlainLines
from tests.surfaces.engines import Engine
from tests.surfaces.server import eventually, running
from tests.surfaces.test_http_connection import request, serving, talk
from tests.surfaces.test_http_gate import key
from tests.surfaces.test_http_server import served

_GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n"
_PROBE = _GET % (b"/livez", b"")
_CLOSE = _GET % (b"/livez", b"Connection: close\r\n")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/detent.db"


@pytest.fixture
def process(url: str, tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server whose store has a key."""
    with served(url, tmp_path / "log") as (found, port):
        key(url, Scope.ADMIN)
        assert talk(port, _CLOSE).startswith(b"HTTP/1.1 200")
        yield found.pid, port
    assert "Traceback" not in (tmp_path / "log").read_text()


def memory_mb(pid: int) -> int:
    """The resident memory of a process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def push(to: socket.socket, data: bytes, total: int) -> None:
    """Send so many bytes, or as many as are taken until nothing is taken for half a second."""
    to.settimeout(0.5)
    with suppress(OSError):
        while total > 0:
            total -= to.send(data[:total])


def rest(to: socket.socket) -> bytes:
    """All that comes until the connection is over."""
    return b"".join(iter(lambda: to.recv(65_536), b""))


# --- many requests on one connection --------------------------------------------------------------


@pytest.mark.parametrize("number", [100, 3_000])
def test_pipelined_requests_are_all_answered_in_order(url: str, number: int) -> None:
    asked = [_GET % (b"/nothing/%d" % n, b"") for n in range(number)]
    with running(url) as server:
        told = talk(server.port, b"".join(asked) + _CLOSE)
    named = re.findall(rb"there is nothing at /nothing/(\d+)", told)
    assert [int(one) for one in named] == list(range(number))


def test_few_requests_wait_on_one_connection() -> None:
    released = threading.Event()

    async def slow(scope: Any, _: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            await anyio.to_thread.run_sync(released.wait)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    def waiting() -> int:
        return sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())

    before = waiting()
    with serving(slow) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as to:
        to.sendall(_GET % (b"/slow", b"") + _PROBE * 5_000 + _CLOSE)
        try:
            eventually(lambda: waiting() > before)
            # An answer on another connection: by then all that was sent has been seen.
            assert talk(port, _CLOSE).endswith(b"ok")
            assert waiting() - before < 4 * MAX_WAITING_REQUESTS
        finally:
            released.set()
        told = b"".join(iter(lambda: to.recv(1 << 20), b""))
    assert told.count(b"HTTP/1.1 200 OK") == 5_002


def test_a_large_head_is_refused_before_all_of_it_has_come(url: str) -> None:
    with running(url) as server:
        told = talk(server.port, _PROBE[:-2] + b"a:\r\n" * 20_000)
    assert told.startswith(b"HTTP/1.1 400")


@pytest.mark.slow
def test_pipelining_without_reading_does_not_fill_the_memory(process: tuple[int, int]) -> None:
    pid, port = process
    before = memory_mb(pid)
    with ExitStack() as stack:
        for _ in range(3):
            to = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            push(to, _PROBE * 2_000, 30_000_000)
        assert memory_mb(pid) - before < 30
    assert talk(port, _CLOSE).startswith(b"HTTP/1.1 200")


# --- bodies that nobody asked for ---------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/livez", b"/ojs/manifest", b"/ojs/v1/queues", b"/nothing"])
def test_bodies_are_not_kept_where_none_is_taken(process: tuple[int, int], path: bytes) -> None:
    pid, port = process
    before = memory_mb(pid)
    size = 10 * 1024 * 1024
    with ExitStack() as stack:
        for _ in range(20):
            to = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            to.sendall(_GET % (path, b"Content-Length: %d\r\n" % size))
            push(to, bytes(65_536), size - 1)
        assert memory_mb(pid) - before < 30


def test_a_body_behind_a_get_is_dropped(url: str) -> None:
    with running(url) as server:
        body = b"x" * 100_000
        asked = _GET % (b"/livez", b"Content-Length: %d\r\n" % len(body)) + body
        told = talk(server.port, asked + _CLOSE)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200"]


@pytest.mark.parametrize("late", ["unauthenticated", "too slow"])
def test_who_trickles_a_body_after_the_answer_is_cut_off(url: str, late: str) -> None:
    with running(url, Settings(head_s=0.3, body_s=0.1)) as server:
        if late == "unauthenticated":
            key(url, Scope.ADMIN)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
            to.sendall(request(b"x" * 1_000)[:-900])
            told = rest(to)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"401" if late == "unauthenticated" else b"408"]


def test_who_sends_the_whole_body_after_the_answer_may_go_on(url: str) -> None:
    with running(url) as server:
        key(url, Scope.ADMIN)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
            asked = request(b"x" * 1_000)
            to.sendall(asked[:-900])
            assert to.recv(65_536).startswith(b"HTTP/1.1 401")
            to.sendall(asked[-900:] + _CLOSE)
            told = rest(to)
    assert told.startswith(b"HTTP/1.1 200")


# --- bodies that are no JSON --------------------------------------------------------------------

_GARBLED = (
    b'{"a":"\xff"}',
    b'{"\xff":1}',
    b'{"action":"a","inputs":{"a":"\xff"}}',
    b'{"uri":"a","type":"a","args":[],"schema":{"title":"\xff"}}',
)


def test_a_body_that_is_not_utf_8_is_refused_in_the_words_of_each_surface(url: str) -> None:
    words = {"ojs": {"error"}, "v1": {"code", "message"}, "api": {"requestId"}, "engine": {"ok"}}
    with running(url, Settings(test_mode=True)) as server:
        asked = [route for route in server.app.routes if route.method != "GET"]
        assert {route.path.split("/")[1] for route in asked} == set(words)
        place = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=place, headers={"Content-Type": "application/json"}) as client:
            for route in asked:
                path = re.sub(r"\{\w+\}", "x", route.path)
                for body in _GARBLED:
                    told = client.request(route.method, path, content=body)
                    assert told.status_code == 400, (route, body, told.text)
                    assert "body is not UTF-8: see byte" in told.text
                    assert words[path.split("/")[1]] <= set(told.json())


def test_engines_take_json_that_says_so(url: str) -> None:
    with running(url) as server:
        place, body = f"http://127.0.0.1:{server.port}/engine", b'{"jobType":"T","schema":{}}'
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            for method, path in (("POST", "/jobs"), ("PUT", "/types/T")):
                headers = {"Content-Type": kind}
                told = httpx.request(method, place + path, content=body, headers=headers)
                assert told.status_code == 400
                assert told.json()["error"]["code"] == "BAD_MESSAGE"
        headers = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert httpx.put(f"{place}/types/T", content=body, headers=headers).status_code == 200


# --- WebSockets -----------------------------------------------------------------------------------

_SOCKET = b"/socket.io/?EIO=4&transport=websocket"
_UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def frame(data: bytes, first: int = 0x81) -> bytes:
    """A frame of a WebSocket as clients send it, masked with zeros."""
    size = len(data)
    if size < 126:
        return bytes((first, 0x80 | size)) + bytes(4) + data
    length = (
        b"\xfe" + struct.pack("!H", size) if size < 65_536 else b"\xff" + struct.pack("!Q", size)
    )
    return bytes((first,)) + length + bytes(4) + data


def opened(port: int, *headers: bytes, path: bytes = _SOCKET) -> tuple[socket.socket, bytes]:
    """A WebSocket, and the head that the server answered with."""
    to = socket.create_connection(("127.0.0.1", port), timeout=20)
    to.sendall(_GET % (path, _UPGRADE + b"".join(headers)))
    head = b""
    while b"\r\n\r\n" not in head:
        head += to.recv(1)
    return to, head


def test_compression_is_not_negotiated(url: str) -> None:
    offer = b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
    bomb = zlib.compressobj(wbits=-15)
    data = bomb.compress(bytes(10_000_000)) + bomb.flush(zlib.Z_SYNC_FLUSH)
    with running(url) as server:
        to, head = opened(server.port, offer)
        with to:
            assert head.startswith(b"HTTP/1.1 101")
            assert b"extensions" not in head.lower()
            to.sendall(frame(data, first=0xC1))
            # What nobody has agreed upon ends the connection.
            rest(to)


def test_a_socket_without_a_key_is_closed_soon(url: str) -> None:
    with running(url, Settings(head_s=0.3)) as server:
        key(url, Scope.ADMIN)
        idle, _ = opened(server.port)
        refused, _ = opened(server.port)
        refused.sendall(frame(b"40/engine,"))
        with idle, refused:
            assert b"\x03\xf0" in rest(idle)
            assert b"\x03\xf0" in rest(refused)


def test_who_leaves_its_namespace_is_closed_soon(url: str) -> None:
    with running(url, Settings(head_s=0.3)) as server:
        text = key(url, Scope.ADMIN)
        to, _ = opened(server.port)
        with to:
            to.sendall(frame(b'40/engine,{"key":"%b"}' % text.encode()))
            eventually(lambda: b"40/engine,{" in to.recv(65_536))
            # It stays longer than somebody who has shown no key.
            to.settimeout(1)
            with pytest.raises(TimeoutError):
                to.recv(1)
            to.settimeout(20)
            to.sendall(frame(b"41/engine,"))
            assert b"\x03\xf0" in rest(to)


def test_messages_are_small_before_a_key_was_shown(url: str) -> None:
    with running(url) as server:
        key(url, Scope.ADMIN)
        to, _ = opened(server.port)
        with to:
            to.sendall(frame(b"40/engine," + b" " * 20_000))
            assert b"\x03\xf1" in rest(to)


def test_few_messages_of_a_socket_wait() -> None:
    released = threading.Event()
    waiting: list[int] = []

    async def slow(_: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})
        await anyio.to_thread.run_sync(released.wait)
        waiting.append(receive.__self__.queue.qsize())
        for _ in range(5_000):
            assert (await receive())["text"] == "3"
        await send({"type": "websocket.close"})

    with serving(slow) as port:
        to, _ = opened(port)
        with to:
            try:
                to.sendall(frame(b"3") * 5_000)
                # A handshake on another connection: by then what was sent has been seen.
                opened(port)[0].close()
            finally:
                released.set()
            assert rest(to).endswith(b"\x03\xe8")
    assert waiting[0] < 500


@pytest.mark.slow
def test_pings_are_not_answered_while_nobody_reads(url: str) -> None:
    with running(url) as server:
        key(url, Scope.ADMIN)
        to, _ = opened(server.port)
        with to:
            push(to, frame(b"x" * 100, first=0x89) * 5_000, 10_600_000)
            to.settimeout(20)
            assert 1_000 < rest(to).count(b"\x8a\x64") < 100_000


def test_who_aborts_leaves_no_traceback(process: tuple[int, int]) -> None:
    _, port = process
    asked = (
        _GET % (_SOCKET, _UPGRADE),
        _GET % (_SOCKET, _UPGRADE) + frame(b"3") * 500,
        _GET % (b"/ojs/v1/jobs", _UPGRADE),
        _GET % (_SOCKET, _UPGRADE + b"Content-Length: 9999\r\n") + bytes(9_999),
        _GET % (_SOCKET, _UPGRADE.replace(b"websocket", b"h2c")) + _PROBE * 500,
        _PROBE * 500,
        request(b"x" * 1_000)[:-1],
    )
    for said in asked * 10:
        for answered in (0, 1):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as to:
                to.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                to.sendall(said)
                to.recv(answered)
    assert talk(port, _CLOSE).startswith(b"HTTP/1.1 200")


# --- what is logged -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--json-logs",)])
def test_no_key_and_no_query_is_logged(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("DETENT_LOG_LEVEL", "DEBUG")
    log = tmp_path / "log"
    with served(url, log, *options) as (process, port):
        text = key(url, Scope.ADMIN)
        told = text.encode()
        place, query = b"/k/%b" % told, b"?key=%b&word=in-a-query" % told
        bearer = b"Authorization: Bearer %b\r\n" % told
        for path in (b"/ojs/v1/queues", b"/nothing", b"/metrics", b"/engine/jobs/%b" % told):
            for headers in (b"", bearer, b"X-API-Key: %b\r\n" % told):
                for found in (path + query, place + path + query):
                    talk(port, _GET % (found, headers + b"Connection: close\r\n"))
        talk(port, _GET.replace(b"1.1", b"9.9") % (place + query, bearer))
        for path in (_SOCKET, b"/ojs/v1/ws?x=1", b"/nothing?x=1", b"/engine?x=1"):
            for headers in (b"", bearer, b"Origin: https://evil.example\r\n"):
                to, _ = opened(port, headers, path=place + path + b"&word=in-a-query")
                with to, suppress(OSError):
                    to.sendall(frame(b'40/engine,{"key":"%b"}' % told))
                    to.sendall(frame(b'42/engine,["%b",{"a":"%b"}]' % (told, told)))
                    to.sendall(frame(b"41"))
        asyncio.run(_connect(port, text))
        with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
            database.execute("DROP TABLE detent_jobs")
        database.close()
        body = b'{"type":"mail.send","args":["%b"]}' % told
        for header in (bearer[:-2], b"X-Nothing: 1"):
            found = request(body, b"Connection: close", header)
            failed = talk(port, found.replace(b"/ojs", place + b"/ojs", 1))
            assert failed.startswith(b"HTTP/1.1 5")
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    lines = log.read_text()
    assert "DEBUG" in lines
    assert "ERROR" in lines or "WARN" in lines
    for word in (text.split("_", 2)[2], "in-a-query", "EIO="):
        assert word not in lines


async def _connect(port: int, text: str) -> None:
    async with Engine(port, "T", key=text) as engine:
        await engine.refused("BAD_MESSAGE", "nothing", {"key": text})


def test_keys_are_masked_in_whatever_is_logged() -> None:
    text = f"dtk_{'0a' * 9}_{'s-E_c' * 8}rEt"
    try:
        int(f"GET /k/{text}/ojs")
    except ValueError:
        record = logging.LogRecord("a", 40, "b", 1, "%s", (text,), sys.exc_info())
    for formatter in (PlainLines("%(message)s"), JsonLines()):
        line = formatter.format(record)
        assert "s-E_c" not in line
        assert f"/k/dtk_{'0a' * 9}_***/ojs" in line
