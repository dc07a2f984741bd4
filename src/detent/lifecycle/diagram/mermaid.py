"""A machine as Mermaid `stateDiagram-v2` text, for pages that render it themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from detent.lifecycle.diagram.arrows import Visit, visits_of
from detent.lifecycle.diagram.palette import colours, tone_of
from detent.lifecycle.diagram.ranks import START, pairs_of
from detent.lifecycle.diagram.text import duration
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


def to_mermaid(machine: Machine, *, lit: Sequence[Event] = ()) -> str:
    """The text of the diagram; `lit` is a history whose moves are numbered on their arrows."""
    ids = _ids(machine)
    visits = visits_of(lit)
    lines = [
        "stateDiagram-v2",
        f"    accTitle: {_safe(machine.name)} lifecycle",
        f"    accDescr: {_safe(', '.join(str(state.name) for state in machine.states))}",
        *(
            f'    state "{_safe(str(state.name))}" as {ids[str(state.name)]}'
            for state in machine.states
            if ids[str(state.name)] != state.name
        ),
        *_arrows(machine, ids, visits),
        *(f"    {ids[state]} --> [*]" for state in _ends(machine)),
        *_classes(machine, ids),
        *_lit_classes(ids, visits),
    ]
    return "\n".join(lines) + "\n"


def _ids(machine: Machine) -> dict[str, str]:
    ids = {START: "[*]"}
    for at, state in enumerate(machine.states):
        name = str(state.name)
        plain = _PLAIN_NAME.fullmatch(name) and name not in _RESERVED
        ids[name] = name if plain else f"S{at}"
    return ids


def _safe(text: str) -> str:
    """What the language could take for its own is written as a character code."""
    return "".join(char if _PLAIN_TEXT.match(char) else f"#{ord(char)};" for char in text)


def _ends(machine: Machine) -> list[str]:
    return [str(state.name) for state in machine.states if state.is_terminal]


def _arrows(machine: Machine, ids: dict[str, str], visits: Sequence[Visit]) -> list[str]:
    lines = []
    for source, target in pairs_of(machine):
        walked = [one for one in visits if (one.source, one.target) == (source, target)]
        edges = [
            edge
            for edge in machine.edges
            if edge.target == target and (source or None) in edge.sources
        ]
        words = [_told(one) for one in walked] or [_declared(edge) for edge in edges]
        lines.append(f"    {ids[source]} --> {ids[target]}: {', '.join(words)}")
    return lines


def _declared(edge: Edge) -> str:
    return _safe(f"{edge.event} ({', '.join(edge.actors)})")


def _told(visit: Visit) -> str:
    after = "" if visit.spent_us is None else f" after {duration(visit.spent_us)}"
    who = f"{visit.actor} {visit.actor_id}".rstrip()
    return _safe(f"({visit.step}) {visit.event} by {who}{after}")


def _classes(machine: Machine, ids: dict[str, str]) -> list[str]:
    members: dict[str, list[str]] = {}
    for state in machine.states:
        members.setdefault(tone_of(state), []).append(ids[str(state.name)])
    lines = []
    for tone, names in members.items():
        fill, stroke, text = colours(tone)
        lines.append(f"    classDef {tone} fill:{fill},stroke:{stroke},color:{text}")
        lines.append(f"    class {','.join(names)} {tone}")
    return lines


def _lit_classes(ids: dict[str, str], visits: Sequence[Visit]) -> list[str]:
    if not visits:
        return []
    walked = dict.fromkeys(ids[visit.target] for visit in visits)
    return [
        f"    classDef walked {_WALKED}",
        f"    class {','.join(walked)} walked",
        f"    classDef current {_CURRENT}",
        f"    class {ids[visits[-1].target]} current",
    ]
