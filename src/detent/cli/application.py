"""The application that all commands belong to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from detent import __version__
from detent.cli.config import CONFIG
from detent.cli.demo import demo
from detent.cli.events import events
from detent.cli.jobs import READING
from detent.cli.keys import KEYS
from detent.cli.lifecycle import lifecycle
from detent.cli.migrate import migrate
from detent.cli.output import give_up, say
from detent.cli.prune import prune
from detent.cli.queues import QUEUES
from detent.cli.replay import replay
from detent.cli.running import up, worker
from detent.cli.schedules import SCHEDULES
from detent.cli.serve import serve
from detent.cli.steering import ACTING
from detent.cli.verify import verify
from detent.cli.workers import WORKERS
from detent.cli.workflow import WORKFLOWS

__all__ = ["application_of", "main"]

_Commands = Mapping[str, Callable[..., None]]
_GROUPS: dict[str, tuple[str, _Commands]] = {
    "jobs": ("Look at jobs and act on them.", {**READING, **ACTING}),
    "queues": ("Look at queues, pause and limit them.", QUEUES),
    "schedules": ("Jobs that the clock makes.", SCHEDULES),
    "workflow": ("Look at workflows and steer them.", WORKFLOWS),
    "workers": ("Look at workers and steer them.", WORKERS),
    "keys": ("Who may call the server, and for what.", KEYS),
    "config": ("What is set, and who says so.", CONFIG),
}


def main() -> None:
    """Run the command line of this process."""
    try:
        application_of(pretty=sys.stdout.isatty())(prog_name="detent")
    except OSError as fault:
        # Typer writes help pages itself. Commands deal with their own files.
        give_up(fault)


def application_of(*, pretty: bool) -> typer.Typer:
    """All commands, with help pages for a person or for a pipe."""
    application = _group("Background jobs that are always in exactly one named state.", pretty)
    application.callback(invoke_without_command=True)(_options)
    for command in (up, worker, serve, demo, lifecycle, migrate, verify, prune, replay, events):
        application.command()(command)
    for name, (meaning, commands) in _GROUPS.items():
        group = _group(meaning, pretty)
        for word, command in commands.items():
            group.command(word)(command)
        application.add_typer(group, name=name, no_args_is_help=True)
    return application


def _group(meaning: str, pretty: bool) -> typer.Typer:
    return typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=meaning,
        rich_markup_mode="rich" if pretty else None,
    )


def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        say(f"detent {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help() + "\n")
