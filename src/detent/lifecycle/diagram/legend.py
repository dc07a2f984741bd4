"""What the signs of a picture mean, for those that the machine uses."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum
from typing import Final

from detent.lifecycle.diagram.marks import mark, number
from detent.lifecycle.diagram.text import width
from detent.lifecycle.machine import Actor, Machine, Phase

_SIZE: Final = 11.0
_SIGN: Final = 16.0
_GAP: Final = 14.0
_ROW: Final = 20.0


def legend_size(machine: Machine) -> tuple[float, float]:
    """The room that the legend needs: a row for who, a row for what."""
    return max(_length(_actors_of(machine)), _length(_phases_of(machine))), 2 * _ROW


def _actors_of(machine: Machine) -> list[str]:
    """Everybody who may cause something, in the order of the language."""
    named = {actor for edge in machine.edges for actor in edge.actors}
    named |= {actor for one in machine.amendments for actor in one.actors}
    return [str(actor) for actor in Actor if actor in named]


def _phases_of(machine: Machine) -> list[str]:
    """The phases of the machine's states, in the order of the language."""
    return [str(one) for one in Phase if any(state.phase is one for state in machine.states)]


def legend(machine: Machine) -> Iterator[str]:
    """The two rows, centred on each other."""
    wide, _ = legend_size(machine)
    actors, phases = _actors_of(machine), _phases_of(machine)
    for word, x in _spread(actors, (wide - _length(actors)) / 2):
        yield mark(Actor(word), x + 5, 6.0) + _word(word, x, 10.0)
    for word, x in _spread(phases, (wide - _length(phases)) / 2):
        yield _swatch(word, x, 20.5) + _word(word, x, 30.0)


def _length(words: list[str]) -> float:
    return fsum(_SIGN + width(word, _SIZE) for word in words) + _GAP * (len(words) - 1)


def _spread(words: list[str], left: float) -> Iterator[tuple[str, float]]:
    for word in words:
        yield word, left
        left += _SIGN + width(word, _SIZE) + _GAP


def _word(word: str, x: float, base: float) -> str:
    return f'<text class="key faint" x="{number(x + _SIGN)}" y="{number(base)}">{word}</text>'


def _swatch(phase: str, x: float, top: float) -> str:
    """A state in small: square if one can leave it, round with a double border if not."""
    tone, corner = ("off", 5.5) if phase == Phase.DONE else (phase, 3.0)
    at = f'x="{number(x)}" y="{number(top)}"'
    box = f'<rect class="box" {at} width="11" height="11" rx="{number(corner)}"/>'
    if phase == Phase.DONE:
        inside = f'x="{number(x + 2.5)}" y="{number(top + 2.5)}"'
        box += f'<rect class="rim inner" {inside} width="6" height="6" rx="3"/>'
    return f'<g class="{tone}">{box}</g>'
