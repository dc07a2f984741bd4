"""`detent config show`: what is set, and who says so."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from detent.app.connection import told_url
from detent.cli.output import render, say, say_json, stdout_is_terminal
from detent.cli.places import os_user, shown_url
from detent.cli.showing import cell, table

_DEFAULT = "default"


class Setting(msgspec.Struct, frozen=True):
    """A setting, its value, and where that comes from."""

    name: str
    value: str
    origin: str
    meaning: str


def show(
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="As given to other commands.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="As given to other commands.")
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Say where each value comes from.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Show what commands and programs go by here. Passwords are not shown."""
    found = settings(os.environ, store, actor)
    if as_json:
        say_json({one.name: {"value": one.value, "origin": one.origin} for one in found})
        return
    head = ("setting", "value", *(["origin"] if origin else []), "meaning")
    rows = [
        tuple(map(cell, (one.name, one.value, *([one.origin] if origin else []), one.meaning)))
        for one in found
    ]
    say(render(table(head, rows, ""), plain=not stdout_is_terminal()))


CONFIG = {"show": show}


def settings(
    environ: Mapping[str, str], store: str | None = None, actor: str | None = None
) -> list[Setting]:
    """Everything that can be set from outside, in the order of what people look for."""
    app, app_from = told_url(environ)
    url, url_from = named_store(environ, store)
    by, by_from = (actor, "--as") if actor else (os_user(), "user of the system")
    return [
        Setting("store", shown_url(url), url_from or _DEFAULT, "where commands look"),
        Setting("app", shown_url(app), app_from or _DEFAULT, "where Detent() in a program looks"),
        Setting("actor", by, by_from, "whom the history names"),
        _colour(environ),
    ]


def named_store(environ: Mapping[str, str], store: str | None) -> tuple[str, str | None]:
    """Where commands look, and who says so, if anybody does."""
    return (store, "--store") if store else told_url(environ)


def _colour(environ: Mapping[str, str]) -> Setting:
    meaning = "whether answers are coloured"
    for name, value in (("NO_COLOR", "off"), ("FORCE_COLOR", "on")):
        if environ.get(name):
            return Setting("colour", value, name, meaning)
    value = "on" if sys.stdout.isatty() else "off"
    return Setting("colour", value, "terminal" if value == "on" else "no terminal", meaning)
