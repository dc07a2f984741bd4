"""Where a command works, for whom, and in whose name: the options of all commands on a store."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit, urlunsplit

import typer

from detent import stores
from detent.app.connection import DEFAULT_URL, STORE_NAMES, keyring_of
from detent.cli.bundles import Bundle
from detent.cli.output import errors_end
from detent.engine.engine import Engine
from detent.engine.secrets import Secrets
from detent.errors import (
    AmbiguousId,
    BadOption,
    BadPolicy,
    BadSchedule,
    LimitError,
    SchemaBehind,
    StoreError,
    UnknownType,
)
from detent.lifecycle.event import By
from detent.lifecycle.job.values import REASON_MAX
from detent.lifecycle.machine import Actor

if TYPE_CHECKING:
    from detent.app.detent import Detent

R = TypeVar("R")
StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="URL",
        envvar=list(STORE_NAMES),
        show_envvar=True,
        help="The address of the store, such as sqlite:///var/lib/detent.db.",
    ),
]
"""Which store, in every command."""
_WRONG = (AmbiguousId, StoreError, BadOption, BadPolicy, BadSchedule, LimitError, UnknownType)
"""What says that the question itself was wrong, or could not be asked."""


@dataclass(frozen=True)
class Place(Bundle):
    """Which store, whose records in it, and how to answer."""

    store: StoreUrl = DEFAULT_URL
    tenant: Annotated[
        str,
        typer.Option(
            "--tenant", metavar="NAME", help="Whose records; the nameless one's by default."
        ),
    ] = ""
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False


def _short(text: str | None) -> str | None:
    """Histories are kept for long, and shown whole."""
    if len(text or "") > REASON_MAX:
        raise typer.BadParameter(f"it has at most {REASON_MAX} characters.")
    return text


@dataclass(frozen=True)
class Author(Bundle):
    """Who does it and why: the history keeps both."""

    actor: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", callback=_short, help="Who does it; the user by default."
        ),
    ] = None
    reason: Annotated[
        str | None,
        typer.Option("--reason", "-r", metavar="TEXT", callback=_short, help="Why it is done."),
    ] = None

    @property
    def by(self) -> By:
        """Whom the history names."""
        return By(Actor.USER, self.actor or os_user())


def os_user() -> str:
    """Who is logged in here, if the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run under a number that has no name.
        return "cli"


def asked(place: Place, work: Callable[[Engine], Awaitable[R]]) -> R:
    """What comes of the work on an engine at that place; what goes wrong ends the command."""
    with errors_end_the_command():
        need_tables(place.store)
        return asyncio.run(_done(place.store, work))


def errors_end_the_command() -> AbstractContextManager[None]:
    """End with 1 what cannot be done, with 2 what could not be asked; both in one line."""
    return errors_end(lambda error: 2 if isinstance(error, _WRONG) else 1)


def shown_url(url: str) -> str:
    """The address as anybody may see it: without its password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        # Nobody can tell where a password in it would end.
        return f"{url.partition(':')[0]}:***"
    if not parts.password:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def need_one_store(app: Detent, url: str | None) -> None:
    """Refuse a program that names another store: it would enqueue there and nobody would know."""
    own = app.connection.own_url
    if url is None or own is None or own == url:
        return
    file = stores.file_of(own)
    if file is not None and stores.file_of(url) == file:
        return
    why = f"The program keeps its jobs in {shown_url(own)}, and this command is to use"
    fix = "leave the address out of the program, or --store and DETENT_STORE away"
    raise BadOption(f"{why} {shown_url(url)}: {fix}", option="store")


async def _done(url: str, work: Callable[[Engine], Awaitable[R]]) -> R:
    secrets = Secrets(keyring_of(url))
    async with stores.open(url) as store, Engine(store, secrets=secrets) as engine:
        return await work(engine)


def need_tables(url: str, what: str = "There is no store") -> None:
    """Opening a file would make one where there is none, and show that it is empty."""
    pending = stores.pending_migrations(url)
    if not pending:
        return
    if pending[0].version == 1:
        makes = "a program makes one when it first enqueues, and so does detent migrate"
        why = f"{what} yet at {shown_url(url)}: {makes}. Check the folder and the address"
    else:
        names = ", ".join(one.file for one in pending)
        why = f"The tables at {shown_url(url)} are older than this code ({names}): detent migrate"
    raise SchemaBehind(why, pending=[one.version for one in pending])
