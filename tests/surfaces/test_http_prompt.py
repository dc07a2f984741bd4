"""Requests that are answered without a task: in the same words, in the same order, on all turns."""

from __future__ import annotations

import gc
import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from detent.engine.access import Scope
from detent.stores.sqlite.turns import Turns
from detent.surfaces.http.exchange import Answering, Settings
from detent.surfaces.http.exchange import Scope as Asked
from tests.surfaces.server import Client, Running, eventually, running
from tests.surfaces.test_http_connection import request, talk
from tests.surfaces.test_http_gate import key

_OWN = re.compile(rb"01[0-9a-f]{6}-[0-9a-f-]{27}(-\d+)?|20\d\d-\d\d-\d\dT[\d:.]+Z|date: [^\r]+")
_BODY = b'{"type":"mail.send","args":[%d]}'
_LONG = b" " * 65_536
"""With so much more nothing is prompt."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/detent.db"


@pytest.fixture
def server(url: str) -> Iterator[Running]:
    with running(url, Settings()) as found:
        yield found


def watched(server: Running) -> list[bool]:
    """Whether each request from now on was taken: a list that grows."""
    seen: list[bool] = []
    [(where, take)] = server.app.prompts.items()

    def watching(scope: Asked, body: bytes, answer: Answering) -> bool:
        seen.append(take(scope, body, answer))
        return seen[-1]

    server.app.prompts = {where: watching}
    return seen


def parting(*bodies: bytes, headers: tuple[bytes, ...] = ()) -> bytes:
    """Requests with these bodies on one connection, which is closed by one with nothing in it."""
    said = b"".join(request(body, *headers) for body in bodies)
    return said + request(b"", b"Connection: close", *headers)


def replies(port: int, said: bytes) -> list[bytes]:
    """What is answered to each, without what each job, request and moment has for itself."""
    told = re.split(rb"(?=HTTP/1\.1 \d)", talk(port, said))
    return [_OWN.sub(b"*", one) for one in told[1:-1]]


def test_prompt_replies_are_the_same_to_the_letter(server: Running) -> None:
    seen = watched(server)
    bodies = [_BODY % 7] * 4
    long, _, *prompt = replies(server.port, parting(*bodies))
    assert prompt == [long] * 2
    assert seen == [False, False, True, True, False]
    [padded] = replies(server.port, parting(_BODY % 7 + _LONG))
    assert padded == long
    assert seen[5:] == [False, False]
    assert long.startswith(b"HTTP/1.1 201 Created\r\n")
    with closing(Client(server.port)) as client:
        counted = client.get("/metrics").text
    told = b'detent_http_requests_total{method="POST",route="/ojs/v1/jobs",status="%d"} %d.0'
    assert told % (201, 5) in counted
    assert told % (400, 2) in counted


def test_whatever_is_odd_is_left_to_the_long_way(server: Running) -> None:
    replies(server.port, parting(*[_BODY % 1] * 3))
    seen = watched(server)
    said = request(_BODY % 1, b"Expect: 100-continue", b"Connection: close")
    told = talk(server.port, said)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"100", b"201"]
    [strange] = replies(server.port, parting(_BODY % 1, headers=(b"Content-Type: text/plain",)))
    assert strange.startswith(b"HTTP/1.1 400")
    [spoken] = replies(server.port, parting(_BODY % 1, headers=(b"OJS-Version: 7",)))
    assert b'"code":"unsupported"' in spoken
    [large] = replies(server.port, parting(b'{"type":"mail.send","args":[1e999]}'))
    assert large.startswith(b"HTTP/1.1 400")
    [garbled] = replies(server.port, parting(b'{"type":"mail.send","args":["\xff"]}'))
    assert garbled.startswith(b"HTTP/1.1 400")
    assert not any(seen)


def test_a_name_that_is_brought_is_kept(server: Running) -> None:
    seen = watched(server)
    said = parting(*[_BODY % 1] * 3, headers=(b"X-Request-Id: mine",))
    told = talk(server.port, said)
    assert told.count(b"x-request-id: mine\r\n") == 4
    assert seen[2]


def test_a_body_that_comes_in_pieces_is_waited_for(server: Running) -> None:
    replies(server.port, parting(*[_BODY % 1] * 3))
    seen = watched(server)
    said = parting(_BODY % 5)
    cut = said.index(b"mail.send")
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
        to.sendall(said[:cut])
        # An answer on another connection: by then the first piece has come.
        with closing(Client(server.port)) as other:
            other.get("/livez").ok()
        to.sendall(said[cut:])
        told = b"".join(iter(lambda: to.recv(65_536), b""))
    assert re.findall(rb'"args":\[(\d)\]', told) == [b"5"]
    assert not any(seen)


def test_keys_are_asked_for_each_time(url: str) -> None:
    with running(url, Settings()) as server:
        good = key(url, Scope.PRODUCE).encode()
        other = key(url, Scope.READ).encode()
        bearer = b"Authorization: Bearer %b"
        with closing(Client(server.port)) as stranger:
            eventually(lambda: stranger.get("/queues").status == 401)
        seen = watched(server)
        told = replies(server.port, parting(*[_BODY % 1] * 4, headers=(bearer % good,)))
        assert [one[9:12] for one in told] == [b"201"] * 4
        assert seen[2:4] == [True, True]
        del seen[:]
        for wrong, status in ((bearer % other, b"403"), (bearer % (good + b"x"), b"401")):
            told = replies(server.port, parting(_BODY % 1, headers=(wrong,)))
            assert [one[9:12] for one in told] == [status]
        assert [one[9:12] for one in replies(server.port, parting(_BODY % 1))] == [b"401"]
        assert not any(seen)


def test_who_has_gone_has_made_a_job_all_the_same(server: Running) -> None:
    replies(server.port, parting(*[_BODY % 1] * 3))
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
            to.sendall(request(_BODY % 1))
    with closing(Client(server.port)) as client:
        eventually(lambda: client.get("/queues/default/stats").ok()["stats"]["available"] == 8)


def test_a_stop_waits_for_who_was_taken(server: Running, url: str) -> None:
    replies(server.port, parting(*[_BODY % 1] * 3))
    seen = watched(server)
    turns = Turns(Path(url.removeprefix("sqlite:///")))
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as to:
        with turns:
            # Nothing can be written as long as we have the turn.
            to.sendall(request(_BODY % 1))
            eventually(lambda: seen == [True])
            server.begin_stop()
            eventually(lambda: is_closed(server))
        told = b"".join(iter(lambda: to.recv(65_536), b""))
    turns.close()
    assert told.startswith(b"HTTP/1.1 201")
    assert b"\r\nconnection: close\r\n" in told


def is_closed(server: Running) -> bool:
    """Whether nobody more gets in."""
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=20).close()
    except (ConnectionError, IndexError):
        return True
    return False


def test_who_reads_slowly_gets_all_of_it_in_order(server: Running) -> None:
    wide = b'{"type":"mail.send","args":[%d,"' + b"x" * 60_000 + b'"]}'
    replies(server.port, parting(*[wide % 0] * 2))
    seen = watched(server)
    with socket.socket() as to:
        to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        to.settimeout(20)
        to.connect(("127.0.0.1", server.port))
        to.sendall(request(wide % 1))
        eventually(lambda: seen)
        for number in range(2, 100):
            to.sendall(request(wide % number))
        to.sendall(parting())
        told = b"".join(iter(lambda: to.recv(1 << 20), b""))
    assert [int(one) for one in re.findall(rb'"args":\[(\d+),', told)] == list(range(1, 100))
    assert any(seen)


def test_a_store_that_fails_is_told_to_each(server: Running, url: str) -> None:
    replies(server.port, parting(*[_BODY % 1] * 3))
    seen = watched(server)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        database.execute("DROP TABLE detent_bodies")
    database.close()
    told = replies(server.port, parting(*[_BODY % 1] * 2, headers=(b"X-Request-Id: mine",)))
    for one in told:
        assert one.startswith(b"HTTP/1.1 5")
        assert b"\r\nx-request-id: mine\r\n" in one
        assert b'"request_id":"mine"' in one
    assert seen == [True, True, False]


def test_answered_requests_leave_no_garbage(server: Running) -> None:
    number = 100
    gc.collect()
    gc.disable()
    try:
        with closing(Client(server.port)) as client:
            for _ in range(number):
                client.get("/livez").ok()
                client.post("/jobs", _BODY % 1).ok(201)
            assert gc.collect() < number
    finally:
        gc.enable()
