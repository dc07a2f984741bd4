"""`detent doctor`: what is wrong here, why that matters, and how to mend it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from detent.app.connection import keyring_of
from detent.cli.config import named_store
from detent.cli.output import counted, render, say, say_json, stdout_is_terminal
from detent.cli.places import shown_url
from detent.cli.showing import cell, table
from detent.engine.doctor.examination import Patient, examined
from detent.stores.checks import Check, Grade

_STYLES = {Grade.OK: "green", Grade.WARN: "yellow", Grade.BAD: "bold red"}


def doctor(
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="As given to other commands.")
    ] = None,
    production: Annotated[
        bool,
        typer.Option("--production", help="Warn also of what is good enough for one person only."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Look for what is wrong with the store, its database, its keys and its fleet.

    Ends with 0 when all is well or only worth a warning, with 1 when something is bad. A database
    that is silent is not waited for. Nothing is changed.
    """
    url, origin = named_store(os.environ, store)
    found = asyncio.run(examined(Patient(url, shown_url(url), origin, keyring_of)))
    graded = [(one, one.graded(production=production)) for one in found]
    if as_json:
        say_json({"ok": not _is_bad(graded), "checks": [_data(*one) for one in graded]})
    else:
        say(render(*_told(graded), plain=not stdout_is_terminal()))
    if _is_bad(graded):
        raise typer.Exit(1)


def _is_bad(graded: Sequence[tuple[Check, Grade]]) -> bool:
    return any(grade is Grade.BAD for _, grade in graded)


def _data(check: Check, grade: Grade) -> dict[str, Any]:
    told: dict[str, Any] = {"check": check.name, "grade": grade, "found": check.found}
    return told if grade is Grade.OK else {**told, "why": check.why, "mend": check.mend}


def _told(graded: Sequence[tuple[Check, Grade]]) -> list[RenderableType]:
    rows = [
        (Text(grade, style=_STYLES[grade]), cell(one.name), cell(one.found))
        for one, grade in graded
    ]
    return [table(("", "check", "what was found"), rows, ""), *_advice(graded), _summary(graded)]


def _advice(graded: Sequence[tuple[Check, Grade]]) -> list[RenderableType]:
    """Why it matters and what to do, the worst first."""
    wrong = [(one, grade) for one, grade in graded if grade is not Grade.OK]
    parts: list[RenderableType] = []
    for one, grade in sorted(wrong, key=lambda told: told[1] is not Grade.BAD):
        parts += [Text(), Text(f"{grade}  ", style=_STYLES[grade]).append(cell(one.name))]
        parts += [cell(f"  why:  {one.why}."), cell(f"  mend: {one.mend}.")]
    return parts


def _summary(graded: Sequence[tuple[Check, Grade]]) -> RenderableType:
    grades = [grade for _, grade in graded]
    bad, warn = grades.count(Grade.BAD), grades.count(Grade.WARN)
    if not bad and not warn:
        return Text(f"\n{counted(len(grades), 'check')}: all is well.")
    return Text(f"\n{counted(len(grades), 'check')}: {bad} bad, {counted(warn, 'warning')}.")
