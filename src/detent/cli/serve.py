"""`detent serve`: the web surfaces of a store, for programs in any language."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from detent.app.serving import web_app
from detent.cli.bundles import expanded
from detent.cli.places import Place, asked, errors_end_the_command
from detent.engine.engine import Engine
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.gate import LOOPBACK
from detent.surfaces.http.logs import JsonLines
from detent.surfaces.http.server import Bind, is_loopback, need_guard
from detent.surfaces.http.server import serve as run

__all__ = ["serve"]


@expanded
def serve(  # noqa: PLR0913 - one parameter per option
    *,
    place: Place,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 is any.")] = 8080,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that the server may be called by.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web origin whose pages may call it.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Requests a second for one caller.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate file.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", envvar="DETENT_JSON_LOGS", help="Log lines of JSON.")
    ] = False,
    test_mode: Annotated[
        bool, typer.Option("--test-mode", help="Add what conformance suites need; never outside.")
    ] = False,
) -> None:
    """Serve jobs over HTTP until a signal comes; then finish what was begun."""
    _log_to_stderr(json_logs)

    async def has_keys(engine: Engine) -> bool:
        return await engine.access.is_guarded()

    with errors_end_the_command():
        guarded = is_loopback(host) or asked(place, has_keys)
        need_guard(host, has_keys=guarded, test_mode=test_mode)
        settings = Settings(
            hosts=_hosts(host, allow_host or []),
            origins=tuple(allow_origin or ()),
            rate=rate,
            test_mode=test_mode,
        )
        bind = Bind(
            host=host,
            port=port,
            certfile=None if tls_cert is None else str(tls_cert),
            keyfile=None if tls_key is None else str(tls_key),
        )
        run(web_app(place.store, settings), bind)


def _hosts(host: str, allowed: list[str]) -> tuple[str, ...]:
    """The names that requests may use; a server for everybody is told by whoever starts it."""
    own = LOOPBACK if is_loopback(host) else ()
    if not own and not allowed:
        return ()
    return tuple(name.lower() for name in (*own, *allowed))


def _log_to_stderr(json_logs: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if json_logs else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    level = os.environ.get("DETENT_LOG_LEVEL", "INFO").upper()
    logging.basicConfig(level=level, handlers=[handler], force=True)
