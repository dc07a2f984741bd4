"""The server of a fleet: the web surfaces in a process of their own, up when it says so."""

from __future__ import annotations

import sys
from pathlib import Path

from detent.app.connection import STORE_NAMES
from detent.app.fleet.orders import Orders
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.process.rotation import Files
from detent.runtime.supervisor.spec import Recycle, Spec


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
            *web.options,
        ),
        # Not on the command line, which everybody on this host can read.
        environment={STORE_NAMES[0]: url},
        cwd=orders.home,
        # It says itself when it listens: at its address anybody else may.
        min_uptime_s=None,
        suspendable=False,
    )
    files = Files(logs, "server")
    return [
        Spec(
            name="server",
            make=lambda: ProcessBody(program, files=files),
            role="server",
            stop_grace_s=orders.grace_s,
            recycle=Recycle(replace_first=False),
            revision=revision,
        )
    ]
