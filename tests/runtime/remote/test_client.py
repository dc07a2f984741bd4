"""The client against servers that answer well, badly, late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from detent.errors import BadOption, ServerAway, ServerRefused, StoreError
from detent.runtime.remote.address import Server
from detent.runtime.remote.client import Client

GOOD = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"n": 123}'


class Far:
    """A server that answers by a script; `None` closes instead."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                answer = self.answers.pop(0) if self.answers else GOOD
                if answer is None:
                    return
                writer.write(answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(far: Far) -> AsyncIterator[str]:
    """Where it listens."""
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


def asked(far: Far, work: Callable[[Client], Awaitable[Any]], **told: Any) -> Any:
    """What comes of some work with a client of that server."""

    async def run() -> Any:
        async with serving(far) as url:
            client = Client(Server(urls=(url,), **told))
            try:
                return await work(client)
            finally:
                client.close()

    return asyncio.run(run())


async def post(client: Client, **more: Any) -> Any:
    return await client.post("/jobs", {"a": 1}, dict[str, int], **more)


def test_a_request_says_who_and_whose() -> None:
    far = Far()
    assert asked(far, lambda one: post(one, tenant="acme"), key="dtk_1") == {"n": 123}
    [request] = far.requests
    assert request.startswith(b"POST /ojs/v1/jobs HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer dtk_1\r\n" in request
    assert b"\r\nX-OJS-Tenant: acme\r\n" in request
    assert request.endswith(b'\r\n\r\n{"a":1}')


def test_a_connection_is_used_again_and_one_that_was_closed_meanwhile_is_not_missed() -> None:
    far = Far(GOOD, GOOD, None)

    async def thrice(client: Client) -> list[Any]:
        return [await post(client) for _ in range(3)]

    assert asked(far, thrice) == [{"n": 123}] * 3
    assert far.connections == 2
    assert len(far.requests) == 4, "what went into the closed one is said again"


def test_an_answer_in_pieces_is_one_answer() -> None:
    pieces = (
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"n\r\n5\r\n": 1}\r\n0\r\n\r\n'
    )
    assert asked(Far(b"HTTP/1.1 100 Continue\r\n\r\n" + pieces), post) == {"n": 1}


@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", ServerAway, "503"),
        (b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n", ServerAway, "429"),
        (
            b'HTTP/1.1 403 No\r\nContent-Length: 30\r\n\r\n{"error":{"code":"forbidden"}}',
            ServerRefused,
            "forbidden",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", ServerRefused, "answer"),
        (b"SSH-2.0-OpenSSH\r\n", ServerAway, "connect"),
        (None, ServerAway, "connect"),
    ],
)
def test_what_goes_wrong_is_told_apart(
    answer: bytes | None, error: type[StoreError], why: str
) -> None:
    with pytest.raises(error) as caught:
        asked(Far(answer), post)
    assert caught.value.fields["why"] == why


def test_a_server_that_says_nothing_is_given_up() -> None:
    with pytest.raises(ServerAway) as caught:
        asked(Far(b""), lambda one: post(one, timeout_s=0.05))
    assert caught.value.fields["why"] == "timeout"


def test_of_several_addresses_the_next_is_tried() -> None:
    far = Far()

    async def run() -> Any:
        async with serving(Far()) as gone:
            pass
        async with serving(far) as url:
            client = Client(Server(urls=(gone, url)))
            with pytest.raises(ServerAway):
                await post(client)
            found = [await post(client), await post(client)]
            client.close()
            return found

    assert asyncio.run(run()) == [{"n": 123}] * 2
    assert far.connections == 1


@pytest.mark.parametrize("url", ["", "jobs.example.com", "ftp://a", "http://", "http://a:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadOption):
        Server(urls=(url,))


def test_nobody_is_shown_a_key() -> None:
    server = Server(urls=("https://user:secret@jobs.example.com/k/secret",), key="secret")
    assert "secret" not in repr(server)
