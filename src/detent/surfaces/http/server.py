"""The server itself: one process, one loop, any number of them on one store."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import math
import socket
import time
from collections.abc import Callable
from types import FrameType

import msgspec
import uvicorn

from detent.errors import OpenToAll
from detent.host import is_echo
from detent.surfaces.http.app import WebApp
from detent.surfaces.http.uvicorn_fit import connections

_log = logging.getLogger("uvicorn.error")
_NOT_BEGUN = 2
_DRAIN_S = 30
_KEEP_ALIVE_S = 65
_GARBAGE = (50_000, 20, 50)


class Bind(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = 8080
    certfile: str | None = None
    keyfile: str | None = None
    backlog: int = 2_048
    connections_max: int = 10_000

    @property
    def is_local(self) -> bool:
        """Whether only this host can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _nothing() -> None:
    """Nobody waits for it."""


class _Server(uvicorn.Server):
    """Tells the application of a signal at once: whoever waits must not hold up the end."""

    def __init__(self, config: uvicorn.Config, app: WebApp, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._begun = begun
        self._work: asyncio.Task[None] | None = None
        self._asked = (0, -math.inf)
        """By which signal, and when."""

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._work = asyncio.current_task()
        try:
            await super()._serve(sockets)
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            if self.force_exit:
                _log.warning("stopped at once: what was begun is not finished")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._begun()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The first signal drains, the second ends; neither is passed on: the end is a good one.

        Who has not begun yet has nothing to finish.
        """
        now, (before, at) = time.monotonic(), self._asked
        if is_echo(sig, before, now - at):
            return
        self._asked = (sig, now)
        self._app.service.begin_stop()
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._work is not None and (self.force_exit or not self.started):
            self._work.get_loop().call_soon_threadsafe(self._work.cancel)


def serve(app: WebApp, bind: Bind, begun: Callable[[], None] = _nothing) -> bool:
    """Serve until a signal comes, then drain; false if a second one has cut that short.

    `begun` is called in the loop of the server, when it listens.
    """
    _look_less_for_garbage()
    _log.addFilter(_is_news)
    server = _Server(config_of(app, bind), app, begun)
    try:
        server.run()
    except SystemExit:
        # It has said why it cannot begin.
        raise SystemExit(_NOT_BEGUN) from None
    return not server.force_exit


def _is_news(record: logging.LogRecord) -> bool:
    """Not that something was cut short: whoever has sent the second signal knows."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def _look_less_for_garbage() -> None:
    """What is there now stays; and requests leave few circles, but many objects to look at.

    With Python's own numbers that look was a sixth of a new job.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GARBAGE)


def config_of(app: WebApp, bind: Bind) -> uvicorn.Config:
    """How uvicorn is to run it."""
    return uvicorn.Config(
        app,
        host=bind.host,
        port=bind.port,
        http=connections(),
        ws="wsproto",
        ws_max_size=app.settings.socket_bytes_max,
        # A few kilobytes could become hundreds of megabytes, before anybody has shown a key.
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        backlog=bind.backlog,
        limit_concurrency=bind.connections_max,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=bind.certfile,
        ssl_keyfile=bind.keyfile,
    )


def need_guard(bind: Bind, *, has_keys: bool, test_mode: bool) -> None:
    """Refuse to be reachable from elsewhere without keys, or in test mode at all."""
    host = bind.host
    if bind.is_local:
        return
    if test_mode:
        why = f"Test mode lets anybody wipe the store, so it does not listen on {host}"
        raise OpenToAll(f"{why}; leave --host out", host=host)
    if not has_keys:
        why = f"Everybody who reaches {host} could do everything: this store has no API keys"
        fix = "Make one with detent keys create, or leave --host out to serve this host alone"
        raise OpenToAll(f"{why}. {fix}", host=host)
