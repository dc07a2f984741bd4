"""Clients that attack the server before they show a key: memory stays bounded and is given back."""

from __future__ import annotations

import gc
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from detent.engine.access import Scope
from detent.surfaces.http.connection import MAX_WAITING_REQUESTS
from detent.surfaces.http.exchange import Settings
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
            told = b"".join(iter(lambda: to.recv(65_536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"401" if late == "unauthenticated" else b"408"]


def test_who_sends_the_whole_body_after_the_answer_may_go_on(url: str) -> None:
    with running(url) as server:
        key(url, Scope.ADMIN)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
            asked = request(b"x" * 1_000)
            to.sendall(asked[:-900])
            assert to.recv(65_536).startswith(b"HTTP/1.1 401")
            to.sendall(asked[-900:] + _CLOSE)
            told = b"".join(iter(lambda: to.recv(65_536), b""))
    assert told.startswith(b"HTTP/1.1 200")
