"""The application that all commands belong to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from detent.cli.output import give_up, say

_COMMANDS = {
    "up": "running",
    "worker": "running",
    "serve": "serve",
    "demo": "demo",
    "lifecycle": "lifecycle",
    "migrate": "migrate",
    "verify": "verify",
    "doctor": "doctor",
    "prune": "prune",
    "replay": "replay",
    "events": "events",
}
"""The module of each command, which has its name."""
_GROUPS = {
    "jobs": ("Look at jobs and act on them.", ("jobs:READING", "steering:ACTING")),
    "queues": ("Look at queues, pause and limit them.", ("queues:QUEUES",)),
    "schedules": ("Jobs that the clock makes.", ("schedules:SCHEDULES",)),
    "workflow": ("Look at workflows and steer them.", ("workflow:WORKFLOWS",)),
    "workers": ("Look at workers and steer them.", ("workers:WORKERS",)),
    "keys": ("Who may call the server, and for what.", ("keys:KEYS",)),
    "config": ("What is set, and who says so.", ("config:CONFIG",)),
}
"""What each group is for, and where the tables of its commands are."""


def command_line() -> Callable[[], None]:
    """What runs the command line of this process."""
    command = typer.main.get_command(application_of(sys.argv[1:], pretty=sys.stdout.isatty()))

    def run() -> None:
        try:
            command(prog_name="detent")
        except OSError as fault:
            # Typer writes help pages itself. Commands deal with their own files.
            give_up(fault)

    return run


def application_of(words: Sequence[str] = (), *, pretty: bool) -> typer.Typer:
    """The commands that such a command line can mean, with help for a person or for a pipe.

    A command waits for its own module only; what names none is about all of them.
    """
    application = _group("Background jobs that are always in exactly one named state.", pretty)
    application.callback(invoke_without_command=True)(_options)
    for name in _meant(words, _COMMANDS):
        application.command(name)(_found(f"{_COMMANDS[name]}:{name}"))
    for name in _meant(words, _GROUPS):
        meaning, tables = _GROUPS[name]
        group = _group(meaning, pretty)
        for table in tables:
            for word, command in _found(table).items():
                group.command(word)(command)
        application.add_typer(group, name=name, no_args_is_help=True)
    return application


def _meant(words: Sequence[str], names: Mapping[str, object]) -> list[str]:
    if list(words) == ["--version"]:
        return []
    named = [word for word in words[:1] if word in _COMMANDS or word in _GROUPS]
    return [name for name in names if not named or name in named]


def _found(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(f"detent.cli.{module}"), name)


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
        from detent import __version__  # noqa: PLC0415 (reading it takes a while)

        say(f"detent {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        say(context.get_help() + "\n")
