"""Replies in one piece, on connections of all kinds; and a server that ends when it is told to."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from detent import stores
from detent.engine.engine import Engine
from detent.surfaces.http.connection import Protocol
from detent.surfaces.http.exchange import ANSWER
from detent.surfaces.http.service import Service
from tests.surfaces.server import eventually, running


def request(body: bytes, *headers: bytes, method: bytes = b"POST") -> bytes:
    told = (b"Host: localhost", b"Content-Length: %d" % len(body), *headers)
    return b"%b /ojs/v1/jobs HTTP/1.1\r\n%b\r\n\r\n%b" % (method, b"\r\n".join(told), body)


def talk(port: int, said: bytes) -> bytes:
    """All that is answered until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as to:
        to.sendall(said)
        return b"".join(iter(lambda: to.recv(65_536), b""))


def test_replies_come_in_order_on_one_connection(tmp_path: Path) -> None:
    bodies = [b'{"type":"mail.send","args":[%d]}' % number for number in range(5)]
    said = b"".join(map(request, bodies)) + request(b"{}", b"Connection: close")
    with running(f"sqlite:///{tmp_path}/detent.db") as found:
        told = talk(found.port, said)
        head = talk(found.port, request(b"", b"Connection: close", method=b"HEAD"))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"201"] * 5 + [b"400"]
    assert re.findall(rb'"args":\[(\d)\]', told) == [b"0", b"1", b"2", b"3", b"4"]
    first = told[: told.index(b"\r\n\r\n")].split(b"\r\n")[1:]
    names = sorted(line.split(b": ")[0].decode() for line in first)
    assert names == [
        "cache-control",
        "content-length",
        "content-type",
        "date",
        "location",
        "ojs-version",
        "x-content-type-options",
        "x-request-id",
    ]
    assert head.startswith(b"HTTP/1.1 405")
    assert head.endswith(b"\r\n\r\n")


async def odd(scope: Any, _: Any, send: Any) -> None:
    """An application that tries to say more than one header in one."""
    answer = scope["state"][ANSWER]
    if scope["path"] == "/twice":
        assert answer(200, [(b"content-length", b"2")], b"ok")
        assert not answer(200, [], b"again")
        return
    for value in (b"1\r\nb: 2", b"1\nb: 2", b"\0"):
        assert not answer(200, [(b"a", value)], b"")
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"fine"})


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """Any application, on a connection of ours."""
    config = uvicorn.Config(app, port=0, http=Protocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def test_what_is_odd_is_left_to_the_server() -> None:
    with serving(odd) as port:
        close = b"Host: x\r\nConnection: close\r\n\r\n"
        said = b"GET /twice HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n" + close
        told = talk(port, said)
    assert re.findall(rb"\r\n\r\n(\w{2,4}?)(?:HTTP|$)", told) == [b"ok", b"fine"]


async def test_a_stop_ends_what_waits_for_it(tmp_path: Path) -> None:
    async def opening(stack: AsyncExitStack) -> Engine:
        store = await stack.enter_async_context(stores.open(f"sqlite:///{tmp_path}/detent.db"))
        service.opened(await stack.enter_async_context(Engine(store)))
        service.keep("waiting", waiting)
        return service.engine

    async def waiting() -> None:
        while await service.pause(60):
            pass

    service = Service(opening)
    await service.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await service.stop()
    with pytest.raises(AssertionError):
        _ = service.engine
