"""Tries whether our connections work with this uvicorn; if not, its own are used.

Our connections (`connection.py`) reach into uvicorn, and a version to come may have other insides.
So they are tried once, before anybody is served, with requests whose answers are known. Uvicorn's
own connections need more time, cannot cut off readers that stall, and do not bound what clients
hold in memory; they say the same.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import uvicorn
from uvicorn.server import ServerState

from detent.surfaces.http.exchange import ANSWER, Answering, Receive, Scope, Send

_log = logging.getLogger(__name__)
_PATIENCE_S: Final = 20
# More requests in one packet than a connection parses ahead.
_MANY: Final = 100
_ASKED: Final = (
    b"POST /prompt HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na"
    b"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb"
    + b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n" * _MANY
    + b"GET /parted HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
)
_HEAD: Final = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 1\r\n"
_TOLD: Final = (
    _HEAD
    + b"\r\na"
    + _HEAD
    + b"\r\nb"
    + (_HEAD + b"\r\nc") * _MANY
    + _HEAD
    + b"connection: close\r\n\r\nc"
)


@cache
def connections() -> Any:
    """What uvicorn is to use for its connections: ours if they fit, otherwise its own."""
    try:
        found = import_module("detent.surfaces.http.connection").Protocol
        need_fit(found)
    except Exception as why:
        told = "uvicorn %s is not as we know it (%s: %s): it serves with slower connections,"
        told += " and clients without a key can fill its memory: install another uvicorn"
        _log.warning(told, uvicorn.__version__, type(why).__name__, why)
        return "auto"
    return found


def need_fit(protocol: Any) -> None:
    """Refuse connections that do not answer each request in its way, and in these words."""
    told: list[bytes | Exception] = []
    # Somebody's loop may be running here already.
    trying = threading.Thread(target=lambda: told.append(_told_by(protocol)))
    trying.start()
    trying.join()
    if told != [_TOLD]:
        raise TypeError(f"requests were answered with {told}")


def _told_by(protocol: Any) -> bytes | Exception:
    try:
        return asyncio.run(_talk(protocol))
    except Exception as why:
        return why


async def _talk(protocol: Any) -> bytes:
    """All that is answered until the connection is closed."""
    config = uvicorn.Config(
        _Tried(), http=protocol, log_config=None, access_log=False, proxy_headers=False
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"today")]
    made = partial(protocol, config=config, server_state=state, app_state={})
    ours, theirs = socket.socketpair()
    to, _ = await asyncio.get_running_loop().connect_accepted_socket(made, ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            writer.write(_ASKED)
            return await reader.read()
    finally:
        for one in (to, writer.transport):
            one.abort()


class _Tried:
    """An application that answers in all the ways there are."""

    def __init__(self) -> None:
        self.prompts = {("POST", b"/prompt"): _take, ("POST", b"/late"): _take_late}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Answering = scope["state"][ANSWER]
        if not answer.is_gone and not answer(200, [_LENGTH], b"c"):
            await _tell(b"c", scope, receive, send)


_LENGTH: Final = (b"content-length", b"1")


def _take(_: Scope, body: bytes, answer: Answering) -> bool:
    return answer(200, [_LENGTH], body)


def _take_late(_: Scope, body: bytes, answer: Answering) -> bool:
    answer.leave_to(partial(_tell, body))
    return True


async def _tell(body: bytes, _scope: Scope, _receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [_LENGTH]})
    await send({"type": "http.response.body", "body": body})
