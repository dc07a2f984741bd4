"""Colours by meaning, for a light and a dark page, as a stylesheet inside the picture.

A tone says what a state means: live states are coloured by their phase, ends by what the word says.
Nothing is told by colour alone: phases are written out, actors have shapes, ends a double border.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from detent.lifecycle.machine import Actor, Phase, State


class Theme(StrEnum):
    """Which page the picture is made for; `auto` follows the reader's own setting."""

    LIGHT = "light"
    DARK = "dark"
    AUTO = "auto"


class _Tone(msgspec.Struct, frozen=True):
    fill: str
    stroke: str
    text: str


class _Page(msgspec.Struct, frozen=True):
    paper: str
    ink: str
    faint: str
    actors: dict[Actor, str]
    tones: dict[str, _Tone]


_END_TONES: Final = {
    "completed": "good",
    "finished": "good",
    "succeeded": "good",
    "discarded": "bad",
    "failed": "bad",
    "killed": "forced",
}

_LIGHT: Final = _Page(
    paper="#ffffff",
    ink="#1f2328",
    faint="#59636e",
    actors={Actor.USER: "#bf3989", Actor.WORKER: "#0550ae", Actor.SYSTEM: "#6e7781"},
    tones={
        "waiting": _Tone("#fff3d1", "#bf8700", "#633c01"),
        "ready": _Tone("#d3f5ee", "#0d9488", "#134e4a"),
        "assigned": _Tone("#ece7fe", "#7c3aed", "#4c1d95"),
        "running": _Tone("#dbe8ff", "#2563eb", "#1e3a8a"),
        "good": _Tone("#dafbe1", "#1a7f37", "#044f1e"),
        "bad": _Tone("#ffe5e3", "#cf222e", "#82071e"),
        "off": _Tone("#eceff2", "#6e7781", "#32383f"),
        "forced": _Tone("#424a53", "#1f2328", "#ffffff"),
    },
)

_DARK: Final = _Page(
    paper="#0d1117",
    ink="#e6edf3",
    faint="#9198a1",
    actors={Actor.USER: "#f778ba", Actor.WORKER: "#79c0ff", Actor.SYSTEM: "#9ea7b3"},
    tones={
        "waiting": _Tone("#2e230a", "#d29922", "#f8e3a1"),
        "ready": _Tone("#082f2b", "#2dd4bf", "#b2f5ea"),
        "assigned": _Tone("#251a44", "#a78bfa", "#e2d9ff"),
        "running": _Tone("#0f2347", "#58a6ff", "#cae2ff"),
        "good": _Tone("#0b2e17", "#3fb950", "#aff5b4"),
        "bad": _Tone("#3a1114", "#f85149", "#ffd7d5"),
        "off": _Tone("#21262d", "#8b949e", "#d0d7de"),
        "forced": _Tone("#d0d7de", "#f0f6fc", "#0d1117"),
    },
)


def tone_of(state: State) -> str:
    """The tone that a state is drawn in."""
    if state.phase is Phase.DONE:
        return _END_TONES.get(str(state.name), "off")
    return str(state.phase)


def colours(tone: str) -> tuple[str, str, str]:
    """Fill, stroke and text of a tone, for renderers that know one page only."""
    one = _LIGHT.tones[tone]
    return one.fill, one.stroke, one.text


def stylesheet(theme: Theme) -> str:
    """The rules of one theme; `auto` is light, and dark where the reader prefers that."""
    if theme is Theme.AUTO:
        return f"{_rules(_LIGHT)}@media (prefers-color-scheme: dark) {{\n{_rules(_DARK)}}}\n"
    return _rules(_DARK if theme is Theme.DARK else _LIGHT)


def _rules(page: _Page) -> str:
    rules = [
        f".paper {{ fill: {page.paper}; }}",
        f".ink {{ fill: {page.ink}; }}",
        f".faint {{ fill: {page.faint}; }}",
        f".start {{ fill: {page.ink}; }}",
        f".badge {{ fill: {page.ink}; }}",
        f".badge-text {{ fill: {page.paper}; }}",
    ]
    rules += [f".by-{actor} {{ fill: {colour}; }}" for actor, colour in page.actors.items()]
    for name, tone in page.tones.items():
        rules += [
            f".{name} .box {{ fill: {tone.fill}; stroke: {tone.stroke}; }}",
            f".{name} .rim {{ stroke: {tone.stroke}; }}",
            f".{name} .words {{ fill: {tone.text}; }}",
            f".to-{name} .line {{ stroke: {tone.stroke}; }}",
            f".to-{name} .tip {{ fill: {tone.stroke}; }}",
            f".to-{name} .plate {{ fill: {page.paper}; stroke: {tone.stroke}; }}",
        ]
    # Inside a web page the rules must not reach beyond the picture.
    return "".join(f".detent-diagram {rule}\n" for rule in rules)
