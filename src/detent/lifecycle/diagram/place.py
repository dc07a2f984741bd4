"""Where every item stands: straight arrows, nothing on top of anything else.

Across: each item is drawn to its neighbours on other layers, and bends most of all, because a bend
out of line shows as a kink. The best places for a layer with its order kept are a weighted isotonic
regression, solved exactly; going over all layers again and again settles the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import fsum
from typing import Final

from detent.lifecycle.diagram.graph import Graph, Item, Kind
from detent.lifecycle.diagram.isotonic import isotonic
from detent.lifecycle.diagram.ports import Ports

_ROUNDS: Final = 50
_STILL: Final = 0.01
_NEAR: Final = 0.5
_SPINE_WEIGHT: Final = 30.0
_GAP: Final = {Kind.NODE: 32.0, Kind.LABEL: 14.0, Kind.BEND: 14.0}
_LAYER_GAP: Final = 17.0
_SLOPE: Final = 0.085
_LAYER_GAP_MAX: Final = 46.0

Pulls = list[list[tuple[int, float, float]]]
"""Per item: the neighbour that draws it, to how far from that one's middle, and how strongly."""


def packed(graph: Graph, layers: Sequence[Sequence[int]]) -> list[float]:
    """A first guess: every layer as tight as it can be, all of them centred."""
    middle = [0.0] * len(graph.items)
    for layer in layers:
        offsets = _offsets(graph, layer)
        for item, at in zip(layer, offsets, strict=True):
            middle[item] = at - offsets[-1] / 2
    return middle


def across(
    graph: Graph, layers: Sequence[Sequence[int]], ports: Ports, guess: Sequence[float]
) -> list[float]:
    """The middle of every item, from the left edge of the picture."""
    pulls = _pulls(graph, ports)
    middle = list(guess)
    for _ in range(_ROUNDS):
        before = list(middle)
        for layer in (*layers, *reversed(layers)):
            _settle(graph, layer, pulls, middle)
        if all(abs(one - two) < _STILL for one, two in zip(before, middle, strict=True)):
            break
    left = min(middle[item.id] - item.width / 2 for item in graph.items)
    return [round(one - left, 1) for one in middle]


def down(
    graph: Graph, layers: Sequence[Sequence[int]], middle: Sequence[float]
) -> list[tuple[float, float]]:
    """Top and height of every layer; where arrows run far to the side, layers stand apart."""
    spread = [0.0] * len(layers)
    for upper, lower in graph.links:
        at = graph.items[upper].layer
        spread[at] = max(spread[at], abs(middle[upper] - middle[lower]))
    bands: list[tuple[float, float]] = []
    top = 0.0
    for layer, far in zip(layers, spread, strict=True):
        height = max((graph.items[item].height for item in layer), default=0.0)
        bands.append((round(top, 1), height))
        top += height + min(_LAYER_GAP_MAX, _LAYER_GAP + _SLOPE * far)
    return bands


def _pulls(graph: Graph, ports: Ports) -> Pulls:
    pulls: Pulls = [[] for _ in graph.items]
    for upper, lower in graph.links:
        weight = _weight(graph.items[upper], graph.items[lower])
        shift = ports[upper, lower] - ports[lower, upper]
        pulls[upper].append((lower, -shift, weight))
        pulls[lower].append((upper, shift, weight))
    for upper, lower in pairwise(_spine(graph)):
        pulls[upper].append((lower, 0.0, _SPINE_WEIGHT))
        pulls[lower].append((upper, 0.0, _SPINE_WEIGHT))
    return pulls


def _spine(graph: Graph) -> list[int]:
    """The states that have a layer to themselves: they stand best in one line."""
    nodes = ([one for one in layer if graph.items[one].kind is Kind.NODE] for layer in graph.layers)
    return [layer[0] for layer in nodes if len(layer) == 1]


def _weight(one: Item, two: Item) -> float:
    """Bends hold together most, so that an arrow has one long upright and not many short ones."""
    kinds = {one.kind, two.kind}
    if Kind.NODE in kinds:
        return 2.0
    return 5.0 if Kind.LABEL in kinds else 9.0


def _offsets(graph: Graph, layer: Sequence[int]) -> list[float]:
    """How far each item of a layer must at least stand from the first one."""
    offsets = [0.0]
    for one, two in pairwise(layer):
        left, right = graph.items[one], graph.items[two]
        gap = max(_GAP[left.kind], _GAP[right.kind])
        offsets.append(offsets[-1] + (left.width + right.width) / 2 + gap)
    return offsets


def _settle(graph: Graph, layer: Sequence[int], pulls: Pulls, middle: list[float]) -> None:
    offsets = _offsets(graph, layer)
    wishes: list[float] = []
    weights: list[float] = []
    for item, offset in zip(layer, offsets, strict=True):
        # Dividing by the distance makes the sum of distances small instead of that of squares: a
        # few arrows bend, and all the others run dead straight. `fsum`, because `sum` rounds
        # differently from one Python to the next and the picture may not.
        near = [
            (middle[other] + shift, pull / max(_NEAR, abs(middle[other] + shift - middle[item])))
            for other, shift, pull in pulls[item]
        ]
        weights.append(fsum(weight for _, weight in near))
        wishes.append(fsum(at * weight for at, weight in near) / weights[-1] - offset)
    for item, offset, fit in zip(layer, offsets, isotonic(wishes, weights), strict=True):
        middle[item] = fit + offset
