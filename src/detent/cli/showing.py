"""What commands show: tables and facts for people, the same as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detent.cli.lifecycle import STYLES
from detent.cli.output import harmless, render, say, say_json, stdout_is_terminal, terminal_width
from detent.cli.places import Place
from detent.cli.tables import rows_for
from detent.engine.telling import told_at
from detent.lifecycle import JOB, Machine
from detent.lifecycle.diagram import tone_of


def answer(place: Place, data: Any, *parts: RenderableType) -> None:
    """Say it: the data to a program, the parts to a person."""
    if place.as_json:
        say_json(data)
    else:
        say(render(*parts, plain=not stdout_is_terminal()))


def table(head: Sequence[str], rows: Iterable[Sequence[Text]], empty: str) -> RenderableType:
    """Rows under a head, fitted to whoever looks; a sentence if there are none."""
    found = list(rows)
    if not found:
        return Text(empty)
    return rows_for(terminal_width() if stdout_is_terminal() else None, head, found)


def facts(*pairs: tuple[str, object]) -> RenderableType:
    """Names and values below each other; what is not there is left out."""
    told = [(name, value) for name, value in pairs if value not in (None, "", ())]
    width = max((len(name) for name, _ in told), default=0)
    return Text("\n").join(Text(f"{name:<{width}}  ") + cell(value) for name, value in told)


def cell(value: object) -> Text:
    """Anything as text on one line."""
    return Text("" if value is None else one_line(str(value)))


def one_line(text: str) -> str:
    """The text without anything that would end its line, or do something to a terminal."""
    return harmless(text.replace("\n", "\\n").replace("\t", " "))


def state_cell(state: str, machine: Machine = JOB) -> Text:
    """A state in the colour it has in every picture."""
    return Text(state, style=STYLES[tone_of(machine.state(state))])


def at(instant: int | None) -> str | None:
    """An instant for people and programs alike."""
    return None if instant is None else told_at(instant)
