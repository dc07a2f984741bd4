"""`detent serve`: the web surfaces of a store, for programs in any language."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from detent.cli.bundles import Bundle, expanded
from detent.cli.output import errors_end
from detent.cli.places import Place, asked, need_one_store
from detent.engine.engine import Engine
from detent.extras import needs_extra
from detent.surfaces.http.logs import JSON_LOGS, LOG_LEVEL

_LEASE_S = 1_800.0
_LEASE_S_MAX = 30 * 24 * 3_600


@dataclass(frozen=True)
class Door(Bundle):
    """Where the server listens, and with which certificate."""

    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 is any.")] = 8080
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate file.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None

    def told(self) -> dict[str, Any]:
        """The same as the server takes it."""
        files = {"certfile": self.tls_cert, "keyfile": self.tls_key}
        named = {name: str(file) for name, file in files.items() if file is not None}
        return {"host": self.host, "port": self.port, **named}


@dataclass(frozen=True)
class Logs(Bundle):
    """What is logged, and how; processes that are started below hear it from the environment."""

    json_logs: Annotated[
        bool, typer.Option("--json-logs", envvar=JSON_LOGS, help="Log lines of JSON.")
    ] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(
            case_sensitive=False,
            envvar=LOG_LEVEL,
            help="How much is logged; with info also each job's end, with debug its start.",
        ),
    ] = None

    def hand_down(self) -> None:
        """Let all processes below log like this one."""
        if self.json_logs:
            os.environ[JSON_LOGS] = "1"
        if self.log_level is not None:
            os.environ[LOG_LEVEL] = self.log_level


@dataclass(frozen=True)
class Pushing(Bundle):
    """How jobs are pushed to engines."""

    engine_limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="QUEUE=QUEUED,DISPATCHED,RUNNING",
            help="Seconds that jobs of engines in this queue may be in each state.",
        ),
    ] = None
    legacy_events: Annotated[
        bool,
        typer.Option("--legacy-events", help="Tell engine events under their old names too."),
    ] = False


@dataclass(frozen=True)
class Jobnik(Bundle):
    """How those who speak Jobnik are served."""

    jobnik_lease: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TYPE=]SECONDS",
            help="How long a Jobnik worker may be silent: all stages, or those of a type.",
        ),
    ] = None
    jobnik_pages: Annotated[
        bool,
        typer.Option(
            "--jobnik-pages", help="Jobnik lists come in pages, also when none is asked for."
        ),
    ] = False

    def told(self) -> dict[str, Any]:
        """The same as the server takes it."""
        usual, by_type = leases(self.jobnik_lease or ())
        told = {"jobnik_lease_s": usual, "jobnik_leases_s": by_type}
        return {**told, "jobnik_pages": self.jobnik_pages}

    @property
    def options(self) -> tuple[str, ...]:
        """The same options for a `detent serve` that `detent up` starts, checked."""
        leases(self.jobnik_lease or ())
        pages = ("--jobnik-pages",) if self.jobnik_pages else ()
        return (*(f"--jobnik-lease={one}" for one in self.jobnik_lease or ()), *pages)


@expanded
def serve(
    *,
    place: Place,
    door: Door,
    pushing: Pushing,
    jobnik: Jobnik,
    logs: Logs,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A name that the server may be called by.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web origin whose pages may call it.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option(min=1, help="Requests a second for one caller.")
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="PROGRAM", help="Take the actions of this app alone: app.py or module:name."
        ),
    ] = None,
    test_mode: Annotated[
        bool, typer.Option("--test-mode", help="Add what conformance suites need; never outside.")
    ] = False,
) -> None:
    """Serve jobs over HTTP until a signal comes; then finish what was begun."""
    # Only this command waits for everything that a server is made of.
    from detent.app.loading import load  # noqa: PLC0415

    with errors_end(), needs_extra("server", "An HTTP server"):
        from detent.app.serving import serving  # noqa: PLC0415
        from detent.surfaces.http.exchange import Settings  # noqa: PLC0415
        from detent.surfaces.http.server import Bind  # noqa: PLC0415

    async def has_keys(engine: Engine) -> bool:
        return await engine.access.is_guarded()

    settings = Settings(
        **jobnik.told(),
        engine_deadlines_ms=engine_limits(pushing.engine_limit or ()),
        legacy_events=pushing.legacy_events,
        hosts=tuple(name.lower() for name in allow_host or ()),
        origins=tuple(allow_origin or ()),
        rate=rate,
        test_mode=test_mode,
    )
    bind = Bind(**door.told())
    logs.hand_down()
    with errors_end():
        is_guarded = bind.is_local or asked(place, has_keys)
        known = None if app is None else load(app)
        if known is not None:
            need_one_store(known, place.store)
        is_finished = serving(
            place.store, settings, bind, is_guarded=is_guarded, json_logs=logs.json_logs, app=known
        )
    if not is_finished:
        raise typer.Exit(1)


def leases(told: Sequence[str]) -> tuple[float, dict[str, float]]:
    """The usual length in seconds, and those of stage types; the last word counts."""
    found: dict[str, float] = {}
    for one in told:
        # A type may hold anything, also the sign; a number does not.
        name, _, seconds = one.rpartition("=")
        try:
            found[name] = float(seconds)
        except ValueError:
            found[name] = 0.0
        if not 0 < found[name] <= _LEASE_S_MAX:
            raise typer.BadParameter(f"--jobnik-lease {one}: [TYPE=]SECONDS, up to {_LEASE_S_MAX}")
    return found.pop("", _LEASE_S), found


def engine_limits(told: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """The limits of each state in milliseconds, by queue; the last word counts."""
    found: dict[str, tuple[int, int, int]] = {}
    for one in told:
        queue, _, spans = one.rpartition("=")
        try:
            queued, dispatched, running = (round(float(span) * 1_000) for span in spans.split(","))
        except (ValueError, OverflowError):
            queued = dispatched = running = 0
        if not queue or not all(
            0 < ms <= _LEASE_S_MAX * 1_000 for ms in (queued, dispatched, running)
        ):
            why = f"QUEUE=QUEUED,DISPATCHED,RUNNING in seconds, up to {_LEASE_S_MAX}"
            raise typer.BadParameter(f"--engine-limit {one}: {why}")
        found[queue] = (queued, dispatched, running)
    return found
