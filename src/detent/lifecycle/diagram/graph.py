"""From arrows to layers: everything that needs room, and where arrows pass between states.

States stand on even layers, labels on odd ones. An arrow that spans several layers has an item on
each of them (its label on one, bends on the others), so that no arrow can run through a state or a
label: they all have a place of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Final

import msgspec

from detent.lifecycle.diagram.arrows import Arrow, Row
from detent.lifecycle.diagram.ranks import START, ranks_of
from detent.lifecycle.diagram.text import width
from detent.lifecycle.machine import Machine

ROW_HEIGHT: Final = 15.0
MARK_WIDTH: Final = 11.0
_STEP_WIDTH: Final = 20.0
_EVENT_SIZE: Final = 11.5
_DETAIL_SIZE: Final = 10.0
_NAME_SIZE: Final = 14.0
LABEL_PADDING: Final = (14.0, 7.0)
_NODE_HEIGHT: Final = 46.0
_NODE_WIDTH: Final = 122.0
_NODE_PADDING: Final = 36.0
_START_SIZE: Final = 14.0
_BEND_WIDTH: Final = 2.0
_WIDTH_USUAL: Final = 560.0


class Kind(StrEnum):
    """What an item of a layer is."""

    NODE = "node"
    LABEL = "label"
    BEND = "bend"


class Item(msgspec.Struct, frozen=True):
    """Something that needs room on a layer: a state, the label of an arrow, or a bend in it."""

    id: int
    kind: Kind
    layer: int
    width: float
    height: float
    name: str = ""
    arrow: int = -1


class Thread(msgspec.Struct, frozen=True):
    """The items that one arrow visits from one of its sources, source first, target last."""

    arrow: int
    source: str
    items: tuple[int, ...]


class Graph(msgspec.Struct, frozen=True):
    """Items by number, the layers from top to bottom, and the threads through them."""

    items: tuple[Item, ...]
    layers: tuple[tuple[int, ...], ...]
    threads: tuple[Thread, ...]

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """Every (upper, lower) pair of items that some thread joins, once."""
        found = [
            (one, two) if self.items[one].layer < self.items[two].layer else (two, one)
            for thread in self.threads
            for one, two in pairwise(thread.items)
        ]
        return tuple(dict.fromkeys(found))


def row_indent(row: Row, arrow: Arrow) -> float:
    """Where the words of a line begin: after the number and a column for each actor on the label.

    Each actor has a column of its own, so that the words stand below each other.
    """
    if row.is_detail:
        return 0.0
    step = 0.0 if row.step is None else _STEP_WIDTH
    return step + MARK_WIDTH * len(arrow.actors)


def _row_width(row: Row, arrow: Arrow) -> float:
    size = _DETAIL_SIZE if row.is_detail else _EVENT_SIZE
    return row_indent(row, arrow) + width(row.text, size, mono=not row.is_detail)


def build(machine: Machine, arrows: Sequence[Arrow]) -> Graph:
    """The layered graph of a machine and its arrows."""
    builder = _Builder(ranks_of(machine))
    # Arrows that have little choice where to put their label go first.
    by_freedom = sorted(range(len(arrows)), key=lambda i: (len(builder.places(arrows[i])), i))
    for index in by_freedom:
        builder.thread(index, arrows[index])
    return builder.graph()


class _Builder:
    def __init__(self, ranks: dict[str, int]) -> None:
        self._ranks = ranks
        self._items: list[Item] = []
        self._threads: list[Thread] = []
        self._filled: dict[int, tuple[float, float]] = {}
        self._nodes = {name: self._node(name) for name in ranks}

    def graph(self) -> Graph:
        layers: list[list[int]] = [[] for _ in range(2 * max(self._ranks.values()) + 1)]
        for item in self._items:
            layers[item.layer].append(item.id)
        return Graph(
            tuple(self._items), tuple(tuple(layer) for layer in layers), tuple(self._threads)
        )

    def places(self, arrow: Arrow) -> list[int]:
        """The layers where the label may stand: between the states, after all have flowed in."""
        ends = [self._ranks[name] for name in (*arrow.sources, arrow.target)]
        top, bottom = sorted(ends)[-2:]
        return list(range(2 * top + 1, 2 * bottom, 2))

    def thread(self, index: int, arrow: Arrow) -> None:
        """Lay one arrow through the layers, with its label where there is most room."""
        ends = [self._ranks[name] for name in (*arrow.sources, arrow.target)]
        label_at = min(self.places(arrow), key=lambda layer: self._cost(arrow, layer))
        trunk = [
            self._label(index, arrow, layer) if layer == label_at else self._bend(index, layer)
            for layer in range(2 * min(ends) + 1, 2 * max(ends))
        ]
        for source in arrow.sources:
            joined = [one for one in trunk if self._items[one].layer > 2 * self._ranks[source]]
            if not joined:
                joined = trunk[::-1]
            path = (self._nodes[source], *joined, self._nodes[arrow.target])
            self._threads.append(Thread(index, source, path))

    def _add(self, kind: Kind, layer: int, size: tuple[float, float], **more: object) -> int:
        item = Item(len(self._items), kind, layer, *size)
        self._items.append(msgspec.structs.replace(item, **more))
        return item.id

    def _node(self, name: str) -> int:
        size = (max(_NODE_WIDTH, width(name, _NAME_SIZE) + _NODE_PADDING), _NODE_HEIGHT)
        if name == START:
            size = (_START_SIZE, _START_SIZE)
        return self._add(Kind.NODE, 2 * self._ranks[name], size, name=name)

    def _bend(self, arrow: int, layer: int) -> int:
        return self._add(Kind.BEND, layer, (_BEND_WIDTH, 0.0), arrow=arrow)

    def _label(self, index: int, arrow: Arrow, layer: int) -> int:
        wide, high = _label_size(arrow)
        width_so_far, height_so_far = self._filled.get(layer, (0.0, 0.0))
        self._filled[layer] = (width_so_far + wide, max(height_so_far, high))
        return self._add(Kind.LABEL, layer, (wide, high), arrow=index)

    def _cost(self, arrow: Arrow, layer: int) -> float:
        """What a label on this layer adds to the height, and to a width beyond the usual."""
        wide, high = _label_size(arrow)
        width_so_far, height_so_far = self._filled.get(layer, (0.0, 0.0))
        return max(0.0, high - height_so_far) + max(0.0, width_so_far + wide - _WIDTH_USUAL)


def _label_size(arrow: Arrow) -> tuple[float, float]:
    wide = max(_row_width(row, arrow) for row in arrow.rows) + LABEL_PADDING[0]
    return wide, ROW_HEIGHT * len(arrow.rows) + LABEL_PADDING[1]
