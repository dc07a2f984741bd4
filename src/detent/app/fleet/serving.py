"""The server of a fleet: the web surfaces in a process of their own, up when it can be reached."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from detent.app.connection import STORE_NAMES
from detent.app.fleet.orders import Orders, Web
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.process.rotation import Files
from detent.runtime.supervisor.spec import Recycle, Spec

_LOOK_S: Final = 0.1
_CONNECT_S: Final = 1.0


class ServerBody(ProcessBody):
    """One server. Whoever is told where it listens finds it there."""

    def __init__(self, program: Program, files: Files, web: Web) -> None:
        super().__init__(program, files=files)
        self._web = web

    async def ready(self) -> None:
        """Return when somebody listens at its address."""
        while not await _listens(self._web):  # noqa: ASYNC110 (nobody says so)
            await asyncio.sleep(_LOOK_S)


async def _listens(web: Web) -> bool:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(web.host, web.port)
        writer.close()
        return True
    return False


def server_of(orders: Orders, url: str, logs: Path, revision: str) -> list[Spec]:
    """The slot of the server, if one is wanted."""
    web = orders.web
    if web is None:
        return []
    where = ("--host", web.host, "--port", str(web.port))
    program = Program(
        command=(
            *(sys.executable, "-m", "detent", "serve"),
            *(*where, "--app", orders.told.reference),
        ),
        # Not on the command line, which everybody on this host can read.
        environment={STORE_NAMES[0]: url},
        cwd=orders.home,
        suspendable=False,
    )
    files = Files(logs, "server")
    return [
        Spec(
            name="server",
            make=lambda: ServerBody(program, files, web),
            role="server",
            stop_grace_s=orders.grace_s,
            recycle=Recycle(replace_first=False),
            revision=revision,
        )
    ]
