"""The application that all commands belong to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from detent import __version__
from detent.cli.lifecycle import lifecycle
from detent.cli.migrate import migrate
from detent.cli.output import give_up, say
from detent.cli.verify import verify

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process."""
    try:
        _application(pretty=sys.stdout.isatty())(prog_name="detent")
    except OSError as fault:
        # Typer writes help pages itself. Commands deal with their own files.
        give_up(fault)


def _application(*, pretty: bool) -> typer.Typer:
    application = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Background jobs that are always in exactly one named state.",
        rich_markup_mode="rich" if pretty else None,
    )
    application.callback(invoke_without_command=True)(_options)
    for command in (lifecycle, migrate, verify):
        application.command()(command)
    return application


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
