"""Draws SVG pictures: boxes, arrows with rounded corners, and graphs in columns.

Every function is pure and returns text. Pictures hold no script and no inline style: classes and
data attributes say what a part is, and `palette` colours it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise
from math import dist, fsum
from typing import Final

import msgspec

from detent.lifecycle.diagram.palette import ROOT_CLASS, stylesheet

Point = tuple[float, float]

NAME_SIZE: Final = 14.0
DETAIL_SIZE: Final = 11.0
BOX_HEIGHT: Final = 46.0
MARGIN: Final = 16.0
_BOX_WIDTH_MAX: Final = 240.0
_BOX_PADDING: Final = 26.0
_CORNER: Final = 10.0
_TIP_LENGTH: Final = 9.0
_TIP_HALF: Final = 4.0
_COLUMN_GAP: Final = 64.0
_ROW_GAP: Final = 16.0
# The room that an edge takes in a column that it passes through.
_LANE_HEIGHT: Final = 8.0

# DejaVu Sans is the widest common font and needs this much of its size on average, in bold.
_EM: Final = 0.65
_WIDE_EM: Final = 1.05
_FIRST_WIDE: Final = 0x2E80
_INVALID: Final = {
    code: "\ufffd"
    for code in (*range(0x20), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF)
    if chr(code) not in "\t\n\r"
}
# A reader would turn a bare line break inside an attribute into a space.
_BREAKS: Final = {ord(char): f"&#{ord(char)};" for char in "\t\n\r"}


class Node(msgspec.Struct, frozen=True):
    """One box: its name, a line below it, and what is shown on hover."""

    id: str
    name: str
    detail: str
    state: str
    tone: str
    tooltip: str = ""


def escape(text: object) -> str:
    """Return text for XML content or an attribute; what XML cannot hold becomes U+FFFD."""
    return html.escape(str(text).translate(_INVALID)).translate(_BREAKS)


def text_width(text: str, size: float) -> float:
    """Return an upper bound of the width of a text in pixels."""
    return size * fsum(_WIDE_EM if ord(char) >= _FIRST_WIDE else _EM for char in text)


def cut(text: str, size: float, width: float) -> str:
    """Return the text, ending in an ellipsis if it would be wider than `width`."""
    if text_width(text, size) <= width:
        return text
    kept = text[: int(width / size / _EM)]
    while kept and text_width(f"{kept}\u2026", size) > width:
        kept = kept[:-1]
    return f"{kept}\u2026"


def number(value: float) -> str:
    """Return a coordinate with at most one decimal, the same on every platform."""
    # Adding zero turns -0.0 into 0.
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def text_element(style: str, markup: str, at: Point) -> str:
    """Return a text centred on `at`; its markup is escaped already."""
    place = f'x="{number(at[0])}" y="{number(at[1])}" text-anchor="middle"'
    return f'<text class="{style}" {place}>{markup}</text>'


def box(
    node: Node, centre: Point, width: float, *, classes: str = "", is_round: bool = False
) -> str:
    """Return a box with two lines of text, which must fit."""
    x, y = centre
    corner = BOX_HEIGHT / 2 if is_round else _CORNER
    place = f'x="{number(x - width / 2)}" y="{number(y - BOX_HEIGHT / 2)}"'
    size = f'width="{number(width)}" height="{number(BOX_HEIGHT)}" rx="{number(corner)}"'
    style = " ".join(filter(None, ("state", f"state-{node.state}", node.tone, classes)))
    return (
        f'<g class="{escape(style)}" data-node="{escape(node.id)}">'
        f"<title>{escape(node.tooltip)}</title>"
        f'<rect class="paper" {place} {size}/><rect class="box" {place} {size}/>'
        + text_element("name", escape(node.name), (x, y - 1 if node.detail else y + 5))
        + text_element("detail", escape(node.detail), (x, y + 14))
        + "</g>"
    )


def polyline(points: Sequence[Point]) -> str:
    """Return the arrow along these points: a line with rounded corners, and its tip."""
    parts = [f"M{_at(points[0])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _toward(corner, before, _CORNER), _toward(corner, after, _CORNER)
        parts.append(f"L{_at(start)}Q{_at(corner)} {_at(end)}")
    return _arrow("".join(parts) + f"L{_at(_toward(points[-1], points[-2], _TIP_LENGTH))}", points)


def curve(points: Sequence[Point]) -> str:
    """Return the arrow along these points: level at each of them, and its tip."""
    parts = [f"M{_at(points[0])}"]
    last = (points[-1][0] - _TIP_LENGTH, points[-1][1])
    for (x1, y1), (x2, y2) in pairwise((*points[:-1], last)):
        half = (x1 + x2) / 2
        level = f"L{_at((x2, y2))}"
        bend = f"C{_at((half, y1))} {_at((half, y2))} {_at((x2, y2))}"
        parts.append(level if y1 == y2 else bend)
    return _arrow("".join(parts), (last, points[-1]))


def _arrow(path: str, points: Sequence[Point]) -> str:
    """Return the line, and a tip at the last point that looks away from the one before."""
    (x1, y1), (x, y) = points[-2:]
    length = dist((x1, y1), (x, y))
    dx, dy = (x - x1) / length, (y - y1) / length
    back = (x - dx * _TIP_LENGTH, y - dy * _TIP_LENGTH)
    one = (back[0] - dy * _TIP_HALF, back[1] + dx * _TIP_HALF)
    two = (back[0] + dy * _TIP_HALF, back[1] - dx * _TIP_HALF)
    tip = f"M{_at((x, y))}L{_at(one)}L{_at(two)}Z"
    return f'<path class="line" d="{path}"/><path class="tip" d="{tip}"/>'


def _at(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def _toward(start: Point, goal: Point, length: float) -> Point:
    """Return the point `length` away from `start`, but at most half of the way to `goal`."""
    share = min(0.5, length / dist(start, goal))
    return start[0] + (goal[0] - start[0]) * share, start[1] + (goal[1] - start[1]) * share


def document(
    title: str,
    description: str,
    size: Point,
    parts: Iterable[str],
    *,
    classes: str = "",
    is_embedded: bool = False,
) -> str:
    """Return the whole picture.

    An embedded one brings no colours and no background: its page has them, and its page's policy
    may forbid a stylesheet inside the picture.
    """
    width, height = map(number, size)
    look = [
        f"<style>\n{stylesheet()}</style>",
        f'<rect class="paper" width="{width}" height="{height}" rx="12"/>',
    ]
    named = f'class="{f"{ROOT_CLASS} {classes}".strip()}" role="img" aria-label="{escape(title)}"'
    measured = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {measured} {named}>',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description)}</desc>",
        *([] if is_embedded else look),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# --- graphs in columns ----------------------------------------------------------------------------

# A node by its id, or the lane that an edge takes through a column: source, target, column.
_Slot = str | tuple[str, str, int]


def graph_svg(
    title: str,
    nodes: Sequence[Node],
    edges: Iterable[tuple[str, str]],
    *,
    is_embedded: bool = False,
) -> str:
    """Return the picture of a graph without cycles, from left to right.

    A node stands one column behind the last of those that lead to it. Long names are cut, the whole
    name is shown on hover. Edges to or from nodes that are not there are left out.
    """
    known = {node.id: _fitted(node) for node in nodes}
    found = [edge for edge in dict.fromkeys(edges) if edge[0] in known and edge[1] in known]
    columns, chains = _columns(known, found)
    heights = _heights(columns, [link for chain in chains for link in pairwise(chain)])
    widths = [
        max((_width(known[slot]) for slot in column if isinstance(slot, str)), default=0.0)
        for column in columns
    ]
    lefts = [MARGIN + fsum(widths[:at]) + at * _COLUMN_GAP for at in range(len(columns))]
    sides = {
        slot: (left, left + width)
        for column, left, width in zip(columns, lefts, widths, strict=True)
        for slot in column
    }
    parts = []
    for chain in chains:
        source, target = chain[0], chain[-1]
        points = [(sides[slot][side], heights[slot]) for slot in chain for side in (0, 1)][1:-1]
        ends = f'data-source="{escape(source)}" data-target="{escape(target)}"'
        parts.append(f'<g class="edge" {ends}>{curve(points)}</g>')
    for node in known.values():
        left, right = sides[node.id]
        parts.append(box(node, ((left + right) / 2, heights[node.id]), right - left))
    width = fsum(widths) + _COLUMN_GAP * max(len(columns) - 1, 0) + 2 * MARGIN
    height = max(heights.values(), default=0.0) + BOX_HEIGHT / 2 + MARGIN
    described = ", ".join(f"{node.name} ({node.state})" for node in nodes)
    return document(title, described, (width, height), parts, is_embedded=is_embedded)


def _fitted(node: Node) -> Node:
    room = _BOX_WIDTH_MAX - _BOX_PADDING / 2
    return msgspec.structs.replace(
        node,
        name=cut(node.name, NAME_SIZE, room),
        detail=cut(node.detail, DETAIL_SIZE, room),
        tooltip=node.tooltip or f"{node.name}\n{node.detail}".rstrip(),
    )


def _width(node: Node) -> float:
    wanted = max(text_width(node.name, NAME_SIZE), text_width(node.detail, DETAIL_SIZE))
    return min(wanted + _BOX_PADDING, _BOX_WIDTH_MAX)


def _columns(
    known: Mapping[str, Node], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[_Slot]], list[list[_Slot]]]:
    """Return what stands in each column from top to bottom, and the slots of each edge."""
    sources: dict[str, list[str]] = {name: [] for name in known}
    for source, target in edges:
        sources[target].append(source)
    depth: dict[str, int] = {}
    for name in TopologicalSorter(sources).static_order():
        depth[name] = max((depth[source] + 1 for source in sources[name]), default=0)
    columns: list[list[_Slot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in known:
        columns[depth[name]].append(name)
    chains: list[list[_Slot]] = []
    for source, target in edges:
        lanes = [(source, target, at) for at in range(depth[source] + 1, depth[target])]
        for lane in lanes:
            columns[lane[2]].append(lane)
        chains.append([source, *lanes, target])
    before: dict[_Slot, list[_Slot]] = {}
    for one, two in (link for chain in chains for link in pairwise(chain)):
        before.setdefault(two, []).append(one)
    for above, column in pairwise(columns):
        order = {slot: at for at, slot in enumerate(above)}
        # Below those that lead to them, so that few edges cross; equals keep their order.
        column.sort(key=lambda slot: _mean([order[one] for one in before[slot] if one in order]))
    return columns, chains


def _heights(
    columns: Sequence[Sequence[_Slot]], links: Sequence[tuple[_Slot, _Slot]]
) -> dict[_Slot, float]:
    """Return the middle of each slot: the fullest column is stacked, the rest line up with it."""
    linked: dict[_Slot, list[_Slot]] = {}
    for one, two in links:
        linked.setdefault(one, []).append(two)
        linked.setdefault(two, []).append(one)
    heights: dict[_Slot, float] = {}
    fullest = max(range(len(columns)), key=lambda at: len(columns[at]), default=0)
    for at in (*range(fullest, len(columns)), *range(fullest - 1, -1, -1)):
        wishes = [
            _mean([heights[one] for one in linked.get(slot, ()) if one in heights])
            for slot in columns[at]
        ]
        middles: list[float] = []
        room = 0.0
        for slot, wish in zip(columns[at], wishes, strict=True):
            half = (BOX_HEIGHT if isinstance(slot, str) else _LANE_HEIGHT) / 2
            least = middles[-1] + room + _ROW_GAP + half if middles else wish
            middles.append(max(wish, least))
            room = half
        # Pushing apart has moved them down only: half of it is taken back.
        shift = _mean([wish - middle for wish, middle in zip(wishes, middles, strict=True)])
        heights.update(
            {slot: middle + shift for slot, middle in zip(columns[at], middles, strict=True)}
        )
    top = min(heights.values(), default=0.0) - BOX_HEIGHT / 2 - MARGIN
    return {slot: middle - top for slot, middle in heights.items()}


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
