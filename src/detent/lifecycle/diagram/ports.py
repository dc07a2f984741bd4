"""Where on the edge of a state each arrow leaves or arrives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from detent.lifecycle.diagram.graph import Graph, Kind
from detent.lifecycle.diagram.isotonic import isotonic

_STEP: Final = 18.0
_MARGIN: Final = 15.0

Ports = dict[tuple[int, int], float]
"""(item, neighbouring item) -> how far from the item's middle the arrow touches it."""


def even_ports(graph: Graph, layers: Sequence[Sequence[int]]) -> Ports:
    """A first guess: arrows share the side of a state evenly, in the order in which they come."""
    ports: Ports = {}
    for item, others in _sides(graph, layers):
        step = _step(graph, item, len(others))
        for at, other in enumerate(others):
            ports[item, other] = step * (at - (len(others) - 1) / 2)
    return ports


def fitted_ports(graph: Graph, layers: Sequence[Sequence[int]], middle: Sequence[float]) -> Ports:
    """Arrows touch a state right above or below where they come from, if that is on its side."""
    ports: Ports = {}
    for item, others in _sides(graph, layers):
        step = _step(graph, item, len(others))
        reach = _reach(graph, item)
        offsets = [step * at for at in range(len(others))]
        wishes = [
            min(reach, max(-reach, middle[other] - middle[item])) - offset
            for other, offset in zip(others, offsets, strict=True)
        ]
        highest = reach - offsets[-1]
        for other, offset, fit in zip(
            others, offsets, isotonic(wishes, [1.0] * len(wishes)), strict=True
        ):
            ports[item, other] = min(highest, max(-reach, fit)) + offset
    return ports


def _sides(graph: Graph, layers: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
    """Each item with its neighbours above, then with those below, from left to right."""
    place = {item: at for layer in layers for at, item in enumerate(layer)}
    sides: dict[tuple[int, bool], list[int]] = {}
    for upper, lower in graph.links:
        sides.setdefault((upper, True), []).append(lower)
        sides.setdefault((lower, False), []).append(upper)
    for (item, _), others in sides.items():
        yield item, sorted(others, key=place.__getitem__)


def _reach(graph: Graph, item: int) -> float:
    """How far from the middle an arrow may touch; all of them share the middle of a label."""
    one = graph.items[item]
    return max(0.0, one.width / 2 - _MARGIN) if one.kind is Kind.NODE else 0.0


def _step(graph: Graph, item: int, count: int) -> float:
    return min(_STEP, 2 * _reach(graph, item) / (count - 1)) if count > 1 else 0.0
