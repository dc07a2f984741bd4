"""One request from its beginning to its answer: its name, what its reply says, how that is sent."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

from detent.engine.identity import Identity
from detent.surfaces.http.exchange import Answering, Call, Reply, Send
from detent.surfaces.http.routing import Route

BODILESS: Final = frozenset({204, 304})
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,200}")
_SECURE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))


class Requests:
    """Names requests that bring no name: each is one more of this process."""

    def __init__(self) -> None:
        self._process = Identity(lambda: time.time_ns() // 1_000).id()
        self._count = count(1)

    def name(self, offered: bytes | None) -> str:
        """What the request is called."""
        told = "" if offered is None else offered.decode("latin-1")
        return told if _REQUEST_ID.fullmatch(told) else f"req_{self._process}-{next(self._count)}"


class Turn:
    """One request, from its beginning to its answer."""

    __slots__ = ("answer", "began", "call", "route")

    def __init__(
        self, route: Route | None, call: Call, answer: Answering | None, began: float
    ) -> None:
        self.route = route
        self.call = call
        self.answer = answer
        self.began = began


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def headers_of(
    reply: Reply, call: Call, dress: Iterable[tuple[bytes, bytes]]
) -> list[tuple[bytes, bytes]]:
    """What every reply has, and what is said of this one; not how long it is."""
    own = (b"x-request-id", call.request_id.encode())
    headers = [*dress, own, *_encoded(call.allowance), *_SECURE]
    headers += _encoded(reply.headers)
    return headers


async def send_reply(
    send: Send, reply: Reply, headers: Sequence[tuple[bytes, bytes]], *, is_head: bool
) -> None:
    """The reply; of a stream its head, unless nobody wants more."""
    told = list(headers)
    if reply.stream is None:
        if reply.status not in BODILESS:
            told.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": told})
        await send({"type": "http.response.body", "body": b"" if is_head else reply.body})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": told})
    if is_head:
        await send({"type": "http.response.body", "body": b""})
