"""The finished geometry of a picture: boxes for states and labels, routes for arrows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from detent.lifecycle.diagram.arrows import Arrow, arrows_of, visits_of
from detent.lifecycle.diagram.graph import Graph, Item, Kind, Thread, build
from detent.lifecycle.diagram.order import ordered
from detent.lifecycle.diagram.place import across, down, packed
from detent.lifecycle.diagram.ports import Ports, even_ports, fitted_ports
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Machine

_TIP: Final = 3.0
_FITTINGS: Final = 3

Point = tuple[float, float]


class Box(msgspec.Struct, frozen=True):
    """A rectangle in pixels, y pointing down."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    @property
    def middle(self) -> Point:
        return (self.left + self.width / 2, self.top + self.height / 2)

    def overlaps(self, other: Box) -> bool:
        """Whether they share any area."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


class NodeBox(msgspec.Struct, frozen=True):
    """Where a state stands; the start has no name."""

    name: str
    box: Box


class LabelBox(msgspec.Struct, frozen=True):
    """Where the label of an arrow stands."""

    arrow: Arrow
    box: Box


class Route(msgspec.Struct, frozen=True):
    """The way of an arrow from one source: upright where x stays, an S where it changes."""

    arrow: Arrow
    source: str
    points: tuple[Point, ...]


class Layout(msgspec.Struct, frozen=True):
    """Everything a picture needs to be drawn."""

    width: float
    height: float
    nodes: tuple[NodeBox, ...]
    labels: tuple[LabelBox, ...]
    routes: tuple[Route, ...]


def lay_out(machine: Machine, lit: Sequence[Event] = ()) -> Layout:
    """Place a machine on a page, a history's path included if one is given."""
    arrows = arrows_of(machine, visits_of(lit))
    graph = build(machine, arrows)
    layers = ordered(graph)
    ports = even_ports(graph, layers)
    middle = across(graph, layers, ports, packed(graph, layers))
    for _ in range(_FITTINGS):
        ports = fitted_ports(graph, layers, middle)
        middle = across(graph, layers, ports, middle)
    ports = fitted_ports(graph, layers, middle)
    bands = down(graph, layers, middle)
    boxes = [_box(item, middle[item.id], bands[item.layer]) for item in graph.items]
    rooms = [_room(item, boxes[item.id], bands[item.layer]) for item in graph.items]
    return Layout(
        width=max(box.right for box in boxes),
        height=max(box.bottom for box in boxes),
        nodes=tuple(
            NodeBox(item.name, boxes[item.id]) for item in graph.items if item.kind is Kind.NODE
        ),
        labels=tuple(
            LabelBox(arrows[item.arrow], boxes[item.id])
            for item in graph.items
            if item.kind is Kind.LABEL
        ),
        routes=tuple(
            Route(arrows[thread.arrow], thread.source, _points(graph, thread, rooms, ports))
            for thread in graph.threads
        ),
    )


def _box(item: Item, middle: float, band: Point) -> Box:
    """A state or a label stands in the middle of its layer."""
    top, room = band
    return Box(middle - item.width / 2, top + (room - item.height) / 2, item.width, item.height)


def _room(item: Item, box: Box, band: Point) -> Box:
    """Where arrows touch an item: a state at its border, anything else at the edge of its layer.

    Inside a layer arrows run upright, for a taller label may stand right beside them.
    """
    return box if item.kind is Kind.NODE else Box(box.left, band[0], box.width, band[1])


def _points(graph: Graph, thread: Thread, rooms: Sequence[Box], ports: Ports) -> tuple[Point, ...]:
    points: list[Point] = []
    for one, two in pairwise(thread.items):
        points.append(_touch(graph, one, two, rooms, ports))
        points.append(_touch(graph, two, one, rooms, ports))
    (x, y), (_, before) = points[-1], points[-2]
    # The tip of the arrow stays a little off the border that it points at.
    points[-1] = (x, y - _TIP if y > before else y + _TIP)
    return tuple((round(x, 1), round(y, 1)) for x, y in points)


def _touch(graph: Graph, item: int, other: int, rooms: Sequence[Box], ports: Ports) -> Point:
    """Where the arrow between two items touches the first of them."""
    box = rooms[item]
    downwards = graph.items[item].layer < graph.items[other].layer
    return (box.middle[0] + ports[item, other], box.bottom if downwards else box.top)
