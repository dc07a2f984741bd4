"""A lifecycle as Mermaid `stateDiagram-v2` text, for pages that draw it themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detent.lifecycle.diagram.history import Move, moves_of, pairs_of
from detent.lifecycle.diagram.palette import tone_of
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Edge, Machine

_PLAIN_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9 _.,()/-]")
# Words of the language itself, which it would not take for the name of a state.
_RESERVED: Final = frozenset(
    ("class", "classdef", "click", "default", "direction", "end", "note", "state", "style")
)
_CURRENT: Final = "stroke-width:4px,font-weight:bold"
_WALKED: Final = "stroke-width:2px"


# Fill, border and text of each tone: Mermaid knows one page only, a light one.
_COLOURS: Final = {
    "waiting": ("#fff3d1", "#bf8700", "#633c01"),
    "ready": ("#d3f5ee", "#0d9488", "#134e4a"),
    "assigned": ("#ece7fe", "#7c3aed", "#4c1d95"),
    "running": ("#dbe8ff", "#2563eb", "#1e3a8a"),
    "good": ("#dafbe1", "#1a7f37", "#044f1e"),
    "bad": ("#ffe5e3", "#cf222e", "#82071e"),
    "off": ("#eceff2", "#6e7781", "#32383f"),
    "forced": ("#424a53", "#1f2328", "#ffffff"),
}


def lifecycle_mermaid(machine: Machine, *, history: Sequence[Event] = ()) -> str:
    """Return the diagram; the moves of `history` are numbered on their arrows."""
    ids = _ids(machine)
    moves = moves_of(machine, history)
    lines = [
        "stateDiagram-v2",
        f"    accTitle: {_safe(machine.name)} lifecycle",
        f"    accDescr: {_safe(', '.join(str(state.name) for state in machine.states))}",
        *(
            f'    state "{_safe(str(state.name))}" as {ids[str(state.name)]}'
            for state in machine.states
            if ids[str(state.name)] != state.name
        ),
        *_arrows(machine, ids, moves),
        *(f"    {ids[state.name]} --> [*]" for state in machine.states if state.is_terminal),
        *_classes(machine, ids),
        *_path_classes(ids, moves),
    ]
    return "\n".join(lines) + "\n"


def _ids(machine: Machine) -> dict[str | None, str]:
    ids: dict[str | None, str] = {None: "[*]"}
    for at, state in enumerate(machine.states):
        name = str(state.name)
        plain = _PLAIN_NAME.fullmatch(name) and name not in _RESERVED
        ids[name] = name if plain else f"S{at}"
    return ids


def _safe(text: str) -> str:
    """Return the text with character codes for what the language could take for its own."""
    return "".join(char if _PLAIN_TEXT.match(char) else f"#{ord(char)};" for char in text)


def _arrows(machine: Machine, ids: dict[str | None, str], moves: Sequence[Move]) -> list[str]:
    lines = []
    for source, target in pairs_of(machine):
        taken = [one for one in moves if (one.source, one.target) == (source, target)]
        edges = [edge for edge in machine.edges if edge.target == target and source in edge.sources]
        words = [_safe(f"({one.number}) {one.text}") for one in taken] or map(_declared, edges)
        lines.append(f"    {ids[source]} --> {ids[target]}: {', '.join(words)}")
    return lines


def _declared(edge: Edge) -> str:
    return _safe(f"{edge.event} ({', '.join(edge.actors)})")


def _classes(machine: Machine, ids: dict[str | None, str]) -> list[str]:
    members: dict[str, list[str]] = {}
    for state in machine.states:
        members.setdefault(tone_of(state), []).append(ids[state.name])
    lines = []
    for tone, names in members.items():
        fill, stroke, text = _COLOURS[tone]
        lines.append(f"    classDef {tone} fill:{fill},stroke:{stroke},color:{text}")
        lines.append(f"    class {','.join(names)} {tone}")
    return lines


def _path_classes(ids: dict[str | None, str], moves: Sequence[Move]) -> list[str]:
    if not moves:
        return []
    walked = dict.fromkeys(ids[move.target] for move in moves)
    return [
        f"    classDef walked {_WALKED}",
        f"    class {','.join(walked)} walked",
        f"    classDef current {_CURRENT}",
        f"    class {ids[moves[-1].target]} current",
    ]
