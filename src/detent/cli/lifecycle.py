"""`detent lifecycle`: show what may happen to a job, a workflow, a step or a worker."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from detent.cli.output import render, say, stdout_is_terminal, terminal_width, write_file
from detent.cli.tables import rows_for
from detent.lifecycle import MACHINES, Machine
from detent.lifecycle.diagram import lifecycle_mermaid, lifecycle_svg, tone_of


class Format(StrEnum):
    """The ways to show a lifecycle."""

    TABLE = "table"
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


# By the tones of the pictures, so that a state has the same colour on a page and in a terminal.
STYLES = {
    "waiting": "yellow",
    "ready": "cyan",
    "assigned": "magenta",
    "running": "blue",
    "good": "green",
    "bad": "red",
    "off": "dim",
    "forced": "bold red",
}
_HINT = (
    "detent lifecycle job    every move of one lifecycle; --format mermaid, svg or json draws it"
)


def lifecycle(
    machine: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(MACHINES)}; without it, an overview of all."),
    ] = None,
    style: Annotated[
        Format | None, typer.Option("--format", "-f", help="How to show it; a table by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead.")
    ] = None,
) -> None:
    """Show what may happen to jobs, workflows, steps and workers."""
    shown = [_known(machine)] if machine is not None else list(MACHINES.values())
    chosen = _chosen(style, as_json)
    if machine is None and chosen in (Format.MERMAID, Format.SVG):
        raise typer.BadParameter(
            f"{chosen.value} draws one lifecycle: name it ({', '.join(MACHINES)}).",
            param_hint="'--format'",
        )
    _deliver(shown, chosen, output, is_overview=machine is None)


def _deliver(
    shown: Sequence[Machine], chosen: Format, output: Path | None, *, is_overview: bool
) -> None:
    if chosen is Format.TABLE:
        plain = output is not None or not stdout_is_terminal()
        width = None if plain else terminal_width()
        parts = _overview(shown, width) if is_overview else _whole(shown[0], width)
        text, encoding = render(*parts, plain=plain), None
    else:
        # Programs read these, and the formats are defined in UTF-8 whatever the terminal speaks.
        text, encoding = _drawn(shown, chosen, is_overview), "utf-8"
    if output is None:
        say(text, encoding=encoding)
    else:
        write_file(output, text)


def _drawn(shown: Sequence[Machine], chosen: Format, is_overview: bool) -> str:
    if chosen is Format.MERMAID:
        return lifecycle_mermaid(shown[0])
    if chosen is Format.SVG:
        return lifecycle_svg(shown[0])
    data = {one.name: _data(one) for one in shown} if is_overview else _data(shown[0])
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"


def _known(name: str) -> Machine:
    found = MACHINES.get(name)
    if found is not None:
        return found
    near = get_close_matches(name.lower(), MACHINES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise typer.BadParameter(
        f"there is no lifecycle {name!r}.{hint} Known are: {', '.join(MACHINES)}.",
        param_hint="'MACHINE'",
    )


def _chosen(style: Format | None, as_json: bool) -> Format:
    if not as_json:
        return style or Format.TABLE
    if style not in (None, Format.JSON):
        raise typer.BadParameter(f"--json contradicts --format {style.value}.")
    return Format.JSON


def _data(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "initial": sorted(machine.initial),
        "terminal": sorted(machine.terminal),
        "states": machine.states,
        "edges": machine.edges,
        "amendments": machine.amendments,
        "guards": machine.guards,
        "causes": machine.causes,
        "fingerprint": machine.fingerprint(),
    }


def _overview(shown: Sequence[Machine], width: int | None) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for machine in shown:
        rows = [
            (*_state_cells(machine, state.name), Text(_ways_out(machine, state.name)))
            for state in machine.states
        ]
        table = rows_for(width, ("state", "phase", "meaning", "next"), rows)
        parts += [_heading(machine), table, ""]
    return [*parts, Text(_HINT)]


def _whole(machine: Machine, width: int | None) -> list[RenderableType]:
    states = [_state_cells(machine, state.name) for state in machine.states]
    edges = [
        (*_texts(source or "(new)", edge.event, edge.target), *_words(edge.actors, edge.meaning))
        for edge in machine.edges
        for source in edge.sources
    ]
    amendments = [
        (*_texts(one.event), *_words(one.actors, one.meaning), *_texts(_listed(one.states)))
        for one in machine.amendments
    ]
    parts: list[RenderableType] = [_heading(machine)]
    parts += [rows_for(width, ("state", "phase", "meaning"), states), ""]
    parts += [rows_for(width, ("from", "event", "to", "who", "meaning"), edges)]
    if amendments:
        parts += ["", rows_for(width, ("amendment", "who", "meaning", "in"), amendments)]
    return parts


def _heading(machine: Machine) -> Text:
    moves = len({triple for triple in machine.triples if triple[2] is not None})
    return Text(f"{machine.name}: {len(machine.states)} states, {moves} moves", style="bold")


def _state_cells(machine: Machine, name: str) -> tuple[Text, Text, Text]:
    state = machine.state(name)
    return Text(name, style=STYLES[tone_of(state)]), Text(state.phase), Text(state.meaning)


def _ways_out(machine: Machine, name: str) -> str:
    targets = dict.fromkeys(edge.target for edge in machine.edges if name in edge.sources)
    return ", ".join(targets) or "(final)"


def _listed(names: Sequence[str | None]) -> str:
    return ", ".join(name or "(new)" for name in names)


def _texts(*cells: str) -> tuple[Text, ...]:
    return tuple(Text(str(cell)) for cell in cells)


def _words(actors: Sequence[str], meaning: str) -> tuple[Text, Text]:
    return Text(_listed(actors)), Text(meaning)
