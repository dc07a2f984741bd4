"""A machine as a standalone SVG picture, with no tool and no font but the reader's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from detent.lifecycle.diagram.arrows import Arrow, Row
from detent.lifecycle.diagram.graph import LABEL_PADDING, MARK_WIDTH, ROW_HEIGHT, row_indent
from detent.lifecycle.diagram.layout import Box, LabelBox, Layout, NodeBox, Point, Route, lay_out
from detent.lifecycle.diagram.legend import legend, legend_size
from detent.lifecycle.diagram.marks import mark, number
from detent.lifecycle.diagram.palette import Theme, stylesheet, tone_of
from detent.lifecycle.diagram.ranks import START
from detent.lifecycle.diagram.text import escape
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Machine, State

_MARGIN: Final = 24.0
_LEGEND_GAP: Final = 26.0
_CORNER: Final = 10.0
_INSET: Final = 3.5
_HALO: Final = 5.0
_TIP_LENGTH: Final = 8.0
_TIP_HALF: Final = 4.0
_CAP: Final = 4.0

# Shapes and sizes, the same on every page; colours come from the palette.
_SHAPES: Final = """\
.detent-diagram text { font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", \
Helvetica, Arial, sans-serif; }
.detent-diagram .name { font-size: 14px; font-weight: 600; text-anchor: middle; }
.detent-diagram .phase { font-size: 10px; text-anchor: middle; opacity: 0.75; }
.detent-diagram .event { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, \
"Liberation Mono", "DejaVu Sans Mono", monospace; font-size: 11.5px; }
.detent-diagram .detail { font-size: 10px; }
.detent-diagram .key { font-size: 11px; }
.detent-diagram .badge-text { font-size: 9.5px; font-weight: 700; text-anchor: middle; }
.detent-diagram .box { stroke-width: 1.5px; }
.detent-diagram .inner { fill: none; stroke-width: 1px; opacity: 0.7; }
.detent-diagram .halo { fill: none; stroke-width: 3px; opacity: 0.45; }
.detent-diagram .line { fill: none; stroke-width: 1.5px; stroke-linecap: round; opacity: 0.85; }
.detent-diagram .plate { stroke-width: 1px; stroke-opacity: 0.28; }
.detent-diagram .lit .line { stroke-width: 2.75px; opacity: 1; }
.detent-diagram .lit .plate { stroke-width: 1.5px; stroke-opacity: 0.9; }
.detent-diagram .current .box { stroke-width: 3px; }
.detent-diagram .dim { opacity: 0.34; }
"""


def to_svg(machine: Machine, *, theme: Theme | str = Theme.AUTO, lit: Sequence[Event] = ()) -> str:
    """The picture of `machine`; `lit` is a history whose path is to stand out.

    Same machine, same history, same bytes. Raises `BadHistory` when the history takes a way that
    the machine does not have.
    """
    return _Picture(machine, lay_out(machine, lit), lit).draw(Theme(theme))


class _Picture:
    def __init__(self, machine: Machine, layout: Layout, lit: Sequence[Event]) -> None:
        moves = [event for event in lit if event.target is not None]
        self._machine = machine
        self._layout = layout
        self._visited = {START if one.source is None else str(one.source) for one in moves}
        self._visited |= {str(one.target) for one in moves}
        self._current = str(moves[-1].target) if moves else None

    def draw(self, theme: Theme) -> str:
        key = legend_size(self._machine)
        width = max(self._layout.width, key[0]) + 2 * _MARGIN
        height = self._layout.height + key[1] + _LEGEND_GAP + 2 * _MARGIN
        left = (width - self._layout.width) / 2
        below = self._layout.height + _MARGIN + _LEGEND_GAP
        parts = [
            self._head(width, height),
            f"<style>\n{_SHAPES}{stylesheet(theme)}</style>",
            f'<rect class="paper" width="{number(width)}" height="{number(height)}" rx="12"/>',
            *_moved(self._body(), (left, _MARGIN)),
            *_moved(legend(self._machine), ((width - key[0]) / 2, below)),
            "</svg>",
        ]
        return "\n".join(parts) + "\n"

    def _head(self, width: float, height: float) -> str:
        title = f"{self._machine.name} lifecycle"
        states = ", ".join(str(state.name) for state in self._machine.states)
        story = f" It is now {self._current}." if self._current else ""
        told = f"State diagram with the states {states}.{story}"
        size = f'width="{number(width)}" height="{number(height)}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="detent-diagram" {size} '
            f'viewBox="0 0 {number(width)} {number(height)}" role="img" '
            f'aria-label="{escape(title)}">\n'
            f"<title>{escape(title)}</title>\n<desc>{escape(told)}</desc>"
        )

    def _body(self) -> Iterator[str]:
        # What is lit lies on top of what is dimmed, labels on top of all lines.
        for wanted in (False, True):
            for route in self._layout.routes:
                if route.arrow.is_lit is wanted:
                    yield self._route(route)
        for node in self._layout.nodes:
            yield self._node(node)
        for label in self._layout.labels:
            yield self._label(label)

    def _classes(self, arrow: Arrow) -> str:
        tone = tone_of(self._machine.state(arrow.target))
        if arrow.is_lit:
            return f"to-{tone} lit"
        return f"to-{tone} dim" if self._current else f"to-{tone}"

    def _route(self, route: Route) -> str:
        arrow = route.arrow
        events = ", ".join(row.text for row in arrow.rows if not row.is_detail)
        told = escape(f"{route.source or '(new)'} \u2192 {arrow.target}: {events}")
        ends = f'data-from="{escape(route.source)}" data-to="{escape(arrow.target)}"'
        return (
            f'<g class="edge {self._classes(arrow)}" {ends}><title>{told}</title>'
            f'<path class="line" d="{_path(route.points)}"/>'
            f'<path class="tip" d="{_tip(route.points)}"/></g>'
        )

    def _label(self, label: LabelBox) -> str:
        box = label.box
        left, top = box.left + LABEL_PADDING[0] / 2, box.top + LABEL_PADDING[1] / 2
        rows = "".join(
            _row(row, label.arrow, (left, top + ROW_HEIGHT * at))
            for at, row in enumerate(label.arrow.rows)
        )
        # The paper below stays opaque when the label is dimmed: no line shows through the words.
        paper = f'<rect class="paper" {_frame(box)} rx="6"/>'
        plate = f'<rect class="plate" {_frame(box)} rx="6"/>'
        return f'{paper}<g class="label {self._classes(label.arrow)}">{plate}{rows}</g>'

    def _node(self, node: NodeBox) -> str:
        dim = " dim" if self._current and node.name not in self._visited else ""
        x, y = node.box.middle
        if node.name == START:
            dot = f'<circle class="start" cx="{number(x)}" cy="{number(y)}" r="7"/>'
            return f'<g class="birth{dim}"><title>(new)</title>{dot}</g>'
        state = self._machine.state(node.name)
        now = " current" if node.name == self._current else ""
        return (
            f'<g class="state {tone_of(state)}{dim}{now}" data-state="{escape(node.name)}">'
            f"<title>{escape(_tooltip(self._machine, state))}</title>"
            f"{_frames(node.box, state.is_terminal, bool(now))}"
            f"{_words('name', node.name, (x, y - 1))}"
            f"{_words('phase', state.phase, (x, y + 13))}</g>"
        )


def _moved(parts: Iterable[str], to: Point) -> Iterator[str]:
    yield f'<g transform="translate({number(to[0])} {number(to[1])})">'
    yield from parts
    yield "</g>"


def _frame(box: Box) -> str:
    return (
        f'x="{number(box.left)}" y="{number(box.top)}" '
        f'width="{number(box.width)}" height="{number(box.height)}"'
    )


def _words(style: str, words: str, at: Point) -> str:
    where = f'x="{number(at[0])}" y="{number(at[1])}"'
    return f'<text class="words {style}" {where}>{escape(words)}</text>'


def _grown(box: Box, by: float) -> Box:
    return Box(box.left - by, box.top - by, box.width + 2 * by, box.height + 2 * by)


def _frames(box: Box, is_terminal: bool, is_current: bool) -> str:
    """The border of a state: round and doubled for an end, with a halo where the record stands."""
    corner = box.height / 2 if is_terminal else _CORNER
    parts = [f'<rect class="box" {_frame(box)} rx="{number(corner)}"/>']
    if is_terminal:
        inner = _grown(box, -_INSET)
        parts.append(f'<rect class="rim inner" {_frame(inner)} rx="{number(corner - _INSET)}"/>')
    if is_current:
        halo = _grown(box, _HALO)
        parts.append(f'<rect class="rim halo" {_frame(halo)} rx="{number(corner + _HALO)}"/>')
    return "".join(parts)


def _tooltip(machine: Machine, state: State) -> str:
    also = [
        f"{one.event} ({', '.join(one.actors)})"
        for one in machine.amendments
        if state.name in one.states
    ]
    also += [
        f"{edge.event} ({', '.join(edge.actors)})"
        for edge in machine.edges
        if state.name == edge.target and state.name in edge.sources
    ]
    told = f"{state.name} ({state.phase}): {state.meaning}"
    return f"{told}\nWithout leaving it: {', '.join(also)}" if also else told


def _row(row: Row, arrow: Arrow, corner: Point) -> str:
    left, base = corner[0], corner[1] + ROW_HEIGHT - _CAP
    words = left + row_indent(row, arrow)
    parts = [] if row.step is None else [_badge(row.step, left + 7, base - 4)]
    for column, actor in enumerate(reversed(arrow.actors)):
        if actor in row.actors:
            parts.append(mark(actor, words - MARK_WIDTH * (column + 1) + 4, base - 4))
    style = "detail faint" if row.is_detail else "event ink"
    at = f'x="{number(words)}" y="{number(base)}"'
    return "".join((*parts, f'<text class="{style}" {at}>{escape(row.text)}</text>'))


def _badge(step: int, x: float, y: float) -> str:
    dot = f'<circle class="badge" cx="{number(x)}" cy="{number(y)}" r="7"/>'
    at = f'x="{number(x)}" y="{number(y + 3.5)}"'
    return f'{dot}<text class="badge-text" {at}>{step}</text>'


def _path(points: Sequence[Point]) -> str:
    (x, y), *_ = points
    parts = [f"M{number(x)} {number(y)}"]
    for (x1, y1), (x2, y2) in pairwise(points):
        half = number((y1 + y2) / 2)
        end = f"{number(x2)} {number(y2)}"
        bend = f"C{number(x1)} {half} {number(x2)} {half} {end}"
        parts.append(f"L{end}" if x1 == x2 else bend)
    return "".join(parts)


def _tip(points: Sequence[Point]) -> str:
    x, y = points[-1]
    back = -_TIP_LENGTH if y > points[-2][1] else _TIP_LENGTH
    sides = (
        f"L{number(x - _TIP_HALF)} {number(y + back)}L{number(x + _TIP_HALF)} {number(y + back)}"
    )
    return f"M{number(x)} {number(y)}{sides}Z"
