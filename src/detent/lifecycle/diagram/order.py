"""The order of items on each layer, chosen so that few arrows cross.

Layered drawing after Sugiyama: every layer is sorted by where its neighbours stand, up and down
again, then neighbours are swapped as long as that helps; the best order seen wins. Nothing is left
to chance, so the same machine always gives the same picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from detent.lifecycle.diagram.graph import Graph

_SWEEPS: Final = 16

Layers = list[list[int]]
Neighbours = dict[int, list[int]]


def ordered(graph: Graph) -> tuple[tuple[int, ...], ...]:
    """The layers of `graph`, each in its best order."""
    above, below = _neighbours(graph)
    best: Layers = [list(layer) for layer in graph.layers]
    fewest = _total(best, below)
    for start in (best, [layer[::-1] for layer in best], _from_the_end(best)):
        layers = [list(layer) for layer in start]
        for sweep in range(_SWEEPS):
            _sweep(layers, above if sweep % 2 == 0 else below, downwards=sweep % 2 == 0)
            _swap(layers, above, below)
            count = _total(layers, below)
            if count < fewest:
                fewest, best = count, [list(layer) for layer in layers]
    return tuple(tuple(layer) for layer in best)


def _crossings(upper: Sequence[int], lower: Sequence[int], below: Neighbours) -> int:
    """How many links between two neighbouring layers cross."""
    place = {item: at for at, item in enumerate(lower)}
    ends = [sorted(place[one] for one in below[item]) for item in upper]
    return sum(
        _pair(ends[left], ends[right])
        for left in range(len(ends))
        for right in range(left + 1, len(ends))
    )


def _pair(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(1 for one in left for two in right if one > two)


def _neighbours(graph: Graph) -> tuple[Neighbours, Neighbours]:
    above: Neighbours = {item.id: [] for item in graph.items}
    below: Neighbours = {item.id: [] for item in graph.items}
    for upper, lower in graph.links:
        below[upper].append(lower)
        above[lower].append(upper)
    return above, below


def _from_the_end(layers: Layers) -> Layers:
    """Another start: every other layer turned round."""
    return [layer[::-1] if at % 2 else list(layer) for at, layer in enumerate(layers)]


def _total(layers: Layers, below: Neighbours) -> int:
    return sum(_crossings(upper, lower, below) for upper, lower in pairwise(layers))


def _sweep(layers: Layers, towards: Neighbours, *, downwards: bool) -> None:
    numbers = range(1, len(layers)) if downwards else range(len(layers) - 2, -1, -1)
    for number in numbers:
        fixed = layers[number - 1 if downwards else number + 1]
        place = {item: at for at, item in enumerate(fixed)}
        middle = {
            item: _mean([place[one] for one in towards[item]], at)
            for at, item in enumerate(layers[number])
        }
        layers[number].sort(key=middle.__getitem__)


def _mean(places: Sequence[int], otherwise: float) -> float:
    return sum(places) / len(places) if places else otherwise


def _swap(layers: Layers, above: Neighbours, below: Neighbours) -> None:
    """Swap neighbours on a layer as long as fewer links cross for it."""
    for number, layer in enumerate(layers):
        up = {item: at for at, item in enumerate(layers[number - 1])} if number else {}
        last = number == len(layers) - 1
        down = {} if last else {item: at for at, item in enumerate(layers[number + 1])}
        helped = True
        while helped:
            helped = False
            for at in range(len(layer) - 1):
                one, two = layer[at], layer[at + 1]
                now = _between(one, two, above, up) + _between(one, two, below, down)
                then = _between(two, one, above, up) + _between(two, one, below, down)
                if then < now:
                    layer[at], layer[at + 1] = two, one
                    helped = True


def _between(left: int, right: int, towards: Neighbours, place: dict[int, int]) -> int:
    if not place:
        return 0
    return _pair([place[one] for one in towards[left]], [place[one] for one in towards[right]])
