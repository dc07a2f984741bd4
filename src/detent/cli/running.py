"""`detent worker` and `detent up`: a supervised tree of workers, until somebody ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from detent.app.connection import STORE_NAMES
from detent.app.detent import Detent
from detent.app.fleet.fleet import Fleet
from detent.app.fleet.orders import STATE_DIR, Orders, Told, Web
from detent.app.fleet.reloading import Reloading
from detent.cli.bundles import Bundle, expanded
from detent.cli.caring import Care, metered
from detent.cli.durations import span_option, span_us
from detent.cli.fleetview import FleetView
from detent.cli.importing import imported
from detent.cli.output import counted, errors_end, stdout_is_terminal
from detent.cli.places import need_one_store, shown_url
from detent.cli.serve import Jobnik, Logs
from detent.errors import UnsupportedStore
from detent.extras import has_extra, needs_extra
from detent.runtime.remote.address import Server
from detent.runtime.supervisor.signals import STACKS_S, Signals
from detent.runtime.supervisor.spec import Recycle
from detent.runtime.worker.settings import Settings
from detent.stores.api import Fair
from detent.surfaces.http.listening import need_place
from detent.surfaces.http.logs import log_to_stderr

_log = logging.getLogger("detent.fleet")
_MB = 1_048_576
_US = 1_000_000
Program = Annotated[
    str,
    typer.Argument(metavar="PROGRAM", help="Where the app is: app.py, app.py:name or module:name."),
]


@dataclass(frozen=True)
class Crew(Bundle):
    """How many workers there are, and what they work on."""

    workers: Annotated[
        int, typer.Option("--workers", "-w", metavar="N", help="How many worker processes.")
    ] = 1
    slots: Annotated[
        int, typer.Option(metavar="N", help="How many jobs one worker runs at once.")
    ] = Settings().slots
    sync_slots: Annotated[
        int, typer.Option(metavar="N", help="How many of them in threads and processes.")
    ] = Settings().sync_slots
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="A queue to serve, the first goes first. Usually all that jobs name, in turn.",
        ),
    ] = None
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", metavar="NAME", help="Whose jobs; served in turn."),
    ] = None
    fair: Annotated[
        Literal["queues", "keys"] | None, typer.Option(help="Serve queues or keys in turn.")
    ] = None
    grace: Annotated[
        str, span_option(meaning="How long jobs may take to finish when it is stopped.")
    ] = "30s"
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            envvar=STORE_NAMES[0],
            help="Where jobs are kept, for a program that names no store.",
        ),
    ] = None
    state_dir: Annotated[
        Path | None,
        typer.Option(
            "--state-dir",
            metavar="DIR",
            envvar=STATE_DIR,
            help="Where the supervisor keeps its journal and the logs of workers (.detent).",
        ),
    ] = None
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Tells fleets apart that share a state folder.")
    ] = "workers"
    upkeep: Annotated[
        bool, typer.Option("--upkeep/--no-upkeep", help="Also retries, schedules and deadlines.")
    ] = True

    def orders(
        self, program: str, life: Life, web: Web | None = None, server: Server | None = None
    ) -> Orders:
        """The orders for the fleet."""
        with errors_end():
            settings = Settings(
                queues=tuple(self.queue) if self.queue else None,
                slots=self.slots,
                sync_slots=min(self.sync_slots, self.slots),
                tenants=tuple(self.tenant or ("",)),
                fair=None if self.fair is None else Fair(self.fair),
            )
            return Orders(
                told=Told(reference=program, url=self.store, settings=settings, server=server),
                workers=self.workers,
                name=self.name,
                state_dir=self.state_dir,
                grace_s=span_us(self.grace) / _US,
                recycle=life.recycle,
                upkeep=self.upkeep,
                web=web,
            )


@dataclass(frozen=True)
class Life(Bundle):
    """When a worker that does nothing wrong is replaced by a fresh one."""

    max_jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Replace a worker after so many jobs.")
    ] = None
    max_age: Annotated[str | None, span_option(meaning="Replace a worker at that age.")] = None
    max_memory: Annotated[
        int | None, typer.Option(metavar="MB", help="Replace a worker that uses more memory.")
    ] = None

    @property
    def recycle(self) -> Recycle | None:
        """The rule, if there is one."""
        if self.max_jobs is None and self.max_age is None and self.max_memory is None:
            return None
        return Recycle(
            soft_rss_bytes=None if self.max_memory is None else self.max_memory * _MB,
            hard_rss_bytes=None if self.max_memory is None else self.max_memory * _MB * 2,
            age_s=None if self.max_age is None else span_us(self.max_age) / _US,
            done=self.max_jobs,
        )


@dataclass(frozen=True)
class Site(Bundle):
    """What there is beside the workers: a server."""

    host: Annotated[str, typer.Option(help="The address that the server listens on.")] = Web().host
    port: Annotated[
        int, typer.Option(min=1, max=65_535, envvar="DETENT_PORT", help="Its port.")
    ] = Web().port
    server: Annotated[bool, typer.Option("--server/--no-server", help="Serve HTTP too.")] = True

    def web(self, *options: str) -> Web | None:
        """Where the server of the fleet is to listen, if there is one."""
        if not self.server:
            return None
        if not has_extra("server"):
            _log.warning("no HTTP server: its packages are missing: pip install 'detent[server]'")
            return None
        return Web(host=self.host, port=self.port, options=options)


@dataclass(frozen=True)
class Eyes(Bundle):
    """While somebody writes the program, its files are watched."""

    reload: Annotated[
        bool,
        typer.Option("--reload", help="Start workers anew when a file of the program changes."),
    ] = False


@dataclass(frozen=True)
class Far(Bundle):
    """The server that keeps the jobs, for workers without a database."""

    server: Annotated[
        list[str] | None,
        typer.Option(
            "--server",
            metavar="URL",
            envvar="DETENT_SERVER",
            help="Work for this server, without a database; given again, for any of them.",
        ),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="DETENT_KEY", help="The key it lets workers in by."),
    ] = None

    @property
    def told(self) -> Server | None:
        """The server that keeps the jobs, as the fleet takes it."""
        return Server(urls=tuple(self.server), key=self.key) if self.server else None


@expanded
def worker(
    program: Program, *, crew: Crew, life: Life, care: Care, far: Far, logs: Logs, eyes: Eyes
) -> None:
    """Run jobs of a program in worker processes under a supervisor, until it is stopped."""
    _log_on(logs, view=False)

    def told() -> Orders:
        return care.given(crew.orders(program, life, server=far.told))

    _run(program, told, view=False, reload=eyes.reload)


@expanded
def up(
    program: Program,
    *,
    crew: Crew,
    life: Life,
    care: Care,
    site: Site,
    jobnik: Jobnik,
    logs: Logs,
    eyes: Eyes,
) -> None:
    """Run everything that a program needs, in one supervised tree, with a live table."""
    is_shown = stdout_is_terminal()
    _log_on(logs, view=is_shown)

    def told() -> Orders:
        return care.given(crew.orders(program, life, site.web(*jobnik.options)))

    _run(program, told, view=is_shown, reload=eyes.reload)


def _log_on(logs: Logs, *, view: bool) -> None:
    """Log to stderr; below a live table only what went wrong, unless a level was asked for."""
    logs.hand_down()
    level = logging.WARNING if view else logging.INFO
    log_to_stderr(as_json=logs.json_logs, component="supervisor", level=level)


def _run(program: str, told: Callable[[], Orders], *, view: bool, reload: bool = False) -> None:
    with errors_end():
        orders = told()
        app = imported(program)
        need_one_store(app, orders.told.url)
        app.move_to(orders.told.url)
        _need_shared(app, orders)
        if orders.web is not None:
            need_place(orders.web.host, orders.web.port)
    with errors_end(lambda _: 1):
        code = asyncio.run(serve(app, orders, FleetView if view else None, reload=reload))
        app.close()
    raise typer.Exit(code)


def _need_shared(app: Detent, orders: Orders) -> None:
    """Workers are processes of their own, as are those who enqueue."""
    if orders.told.server is None and app.connection.is_memory:
        why = "A store in memory is there for one process only, and workers are others"
        raise UnsupportedStore(f"{why}; name a file, such as sqlite:detent.db")


async def serve(
    app: Detent,
    orders: Orders,
    show: Callable[[Fleet], AbstractContextManager[object]] | None = None,
    *,
    reload: bool = False,
) -> int:
    """Until a signal ends it: the first asks, the second forces, HUP reads the program anew."""
    server = orders.told.server
    fleet = Fleet(app, orders) if server is None else _distant_fleet(app, orders, server)
    reloading = Reloading(fleet, is_on=reload)
    hearing = Signals(force=fleet.force, reload=fleet.reload, metrics=fleet.numbers)
    with metered(fleet), hearing as signals:
        async with AsyncExitStack() as stack:
            if not await started(fleet, stack, signals):
                return int(fleet.was_forced)
            _log.info(
                "%s for the jobs of %s, which are kept in %s",
                counted(orders.workers, "worker"),
                orders.told.reference,
                shown_url(app.connection.url) if server is None else server.shown,
            )
            if server is not None and server.is_open:
                _log.warning("everybody on the way to the server can read along: use https")
            if orders.web is not None:
                _log.info("the server listens at %s", orders.web.url)
            with nullcontext() if show is None else show(fleet), reloading:
                await signals.unless_cancelled(fleet.wait())
                # Jobs that still run are no reason to worry, until it is nearly time to kill them.
                late_s = max(orders.grace_s - STACKS_S, 0.9 * orders.grace_s, STACKS_S)
                await signals.shut_down(fleet.stop(), late_s)
    return int(signals.is_forced or fleet.was_forced)


def _distant_fleet(app: Detent, orders: Orders, server: Server) -> Fleet:
    with errors_end(), needs_extra("remote", "A worker of a server"):
        from detent.app.fleet.distant import DistantFleet  # noqa: PLC0415 - loads an HTTP client
    return DistantFleet(app, orders, server)


async def started(fleet: Fleet, stack: AsyncExitStack, signals: Signals) -> bool:
    """Whether it is up, or was called off; one that cannot be started ends the command with 2."""
    with errors_end():
        return await signals.unless_cancelled(stack.enter_async_context(fleet))
