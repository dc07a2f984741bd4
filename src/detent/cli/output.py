"""How every command writes: whole texts, to a terminal, a pipe or a file, without surprises."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from detent.errors import DetentError

# What moves the cursor, ends a line, turns the direction of what stands beside it, or is not seen.
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\U000e0000-\U000e007f]"
)
PLAIN_WIDTH = 10_000
"""Wide enough that no row is ever folded: in a pipe one row is one line."""


def counted(number: int, what: str) -> str:
    """So many of them: one job, two jobs."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def stdout_is_terminal() -> bool:
    """Whether a person is looking; `FORCE_COLOR` says so too."""
    return Console().is_terminal


def terminal_width() -> int:
    """How many columns the terminal has."""
    return Console().width


def render(*parts: RenderableType, plain: bool) -> str:
    """The parts as text: coloured and fitted to the terminal, or plain with one row per line."""
    if plain:
        console = Console(width=PLAIN_WIDTH, force_terminal=False, no_color=True, highlight=False)
    else:
        console = Console(highlight=False)
    with console.capture() as captured:
        for part in parts:
            # A word that is longer than a line is the terminal's to fold, not ours to cut.
            console.print(part, crop=False)
    lines = captured.get().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def harmless(text: str) -> str:
    """Text that does nothing to a terminal: what jobs say may come from strangers."""
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def say(text: str, *, encoding: str | None = None) -> None:
    """Write to standard output; what its encoding cannot say becomes `?`.

    A reader that has gone away (`| head`) has read enough: that is no error. A device that takes
    nothing more is one.
    """
    data = text.encode(encoding or sys.stdout.encoding or "utf-8", errors="replace")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _forget_stdout()
        raise typer.Exit(0) from None
    except OSError as fault:
        give_up(fault)


def say_json(data: Any) -> None:
    """Write it as JSON for programs, which read UTF-8 whatever the terminal speaks."""
    text = msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    say(f"{text}\n", encoding="utf-8")


@contextmanager
def spinner(words: str) -> Iterator[Progress]:
    """How far it is and for how long, for somebody who watches a terminal."""
    console = Console(stderr=True)
    with Progress(
        *(SpinnerColumn(), TextColumn(words), TimeElapsedColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        yield bar


@contextmanager
def errors_end(code_of: Callable[[DetentError], int] = lambda _: 2) -> Iterator[None]:
    """End the command with one line; with 2 where nothing else is said: it could not begin."""
    try:
        yield
    except DetentError as error:
        said = harmless(error.message.rstrip("."))
        typer.echo(f"Error: {said} [{error.code}].", err=True)
        raise typer.Exit(code_of(error)) from None
    except OSError as fault:
        where = harmless(f" {fault.filename}") if fault.filename else ""
        typer.echo(f"Error: cannot use{where}: {fault.strerror} [os_error].", err=True)
        raise typer.Exit(2) from None


def give_up(fault: OSError) -> NoReturn:
    """End the command with 1 because standard output cannot be written to."""
    _forget_stdout()
    typer.echo(f"Error: cannot write to standard output: {fault.strerror}.", err=True)
    raise SystemExit(1) from None


def _forget_stdout() -> None:
    # Python flushes once more when it exits, into what has just refused to take it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_file(path: Path, text: str) -> None:
    """Write the file, always in UTF-8; one that cannot be written ends the command with 1."""
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as fault:
        typer.echo(f"Error: cannot write {path}: {fault.strerror}.", err=True)
        raise typer.Exit(1) from None
