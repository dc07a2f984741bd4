"""A tree as a standalone SVG picture: one row for each slot, below and to the right of its keeper.

So a tree of a few hundred workers is a long picture, and not one that nobody can unfold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from detent.lifecycle.diagram.text import clip, escape, width
from detent.lifecycle.worker import Health
from detent.runtime.supervisor.diagrams import KINDS, STATUSES
from detent.runtime.supervisor.snapshot import ADDRESS, BREAKER, IMAGE, PORTS, RESTARTS, Snapshot

_MARGIN: Final = 20.0
_INDENT: Final = 34.0
_ROW: Final = 54.0
_HEIGHT: Final = 42.0
_PADDING: Final = 28.0
_NAME: Final = 14.0
_FACTS: Final = 11.0
_CHARS_MAX: Final = 120
_STYLE: Final = (
    'text { font-family: system-ui, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; }'
    f" .name {{ font-size: {_NAME:g}px; font-weight: 600; }}"
    f" .facts {{ font-size: {_FACTS:g}px; opacity: 0.85; }}"
    " .paper { fill: #ffffff; } .link { fill: none; stroke: #6c757d; stroke-width: 1.5px; }"
)


class _Row(msgspec.Struct, frozen=True):
    """One slot, how deep it lies, and in which row its keeper is."""

    shown: Snapshot
    depth: int
    keeper: int | None


def tree_svg(tree: Snapshot, statuses: Mapping[str, tuple[str, str, str]] | None = None) -> str:
    """The picture of a tree; `statuses` are other colours, for as many states as one likes."""
    rows: list[_Row] = []
    _lay(tree, 0, None, rows)
    colours = {**STATUSES, **(statuses or {})}
    wide = max(_left(row) + _width(row) for row in rows) + _MARGIN
    high = _ROW * len(rows) - (_ROW - _HEIGHT) + 2 * _MARGIN
    size = f'width="{wide:.0f}" height="{high:.0f}" viewBox="0 0 {wide:.0f} {high:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="supervision tree">',
        f"<title>{escape(tree.name)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{wide:.0f}" height="{high:.0f}" rx="12"/>',
        *(_link(row, at) for at, row in enumerate(rows) if row.keeper is not None),
        *(line for at, row in enumerate(rows) for line in _node(row, at, colours)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _lay(shown: Snapshot, depth: int, keeper: int | None, rows: list[_Row]) -> None:
    rows.append(_Row(shown, depth, keeper))
    own = len(rows) - 1
    for child in shown.children:
        _lay(child, depth + 1, own, rows)


def _left(row: _Row) -> float:
    return _MARGIN + _INDENT * row.depth


def _top(at: int) -> float:
    return _MARGIN + _ROW * at


def _width(row: _Row) -> float:
    facts = " · ".join(_facts(row.shown))
    return max(width(_name(row.shown), _NAME), width(facts, _FACTS)) + _PADDING


def _link(row: _Row, at: int) -> str:
    """From below the keeper down to this row, and over to it."""
    x = _left(row) - _INDENT / 2
    start = _top(row.keeper or 0) + _HEIGHT
    return f'<path class="link" d="M{x:g} {start:g}V{_top(at) + _HEIGHT / 2:g}H{_left(row):g}"/>'


def _node(row: _Row, at: int, colours: Mapping[str, tuple[str, str, str]]) -> Iterator[str]:
    shown, left, top = row.shown, _left(row), _top(at)
    status = shown.status.lower()
    fill, stroke, ink = colours.get(status, colours["created"])
    kind = shown.kind if shown.kind in KINDS else "other"
    corner = _HEIGHT / 2 if kind == "supervisor" else 6
    style = f"fill:{fill};stroke:{stroke};{KINDS[kind].border}"
    box = f'x="{left:g}" y="{top:g}" width="{_width(row):g}" height="{_HEIGHT:g}" rx="{corner:g}"'
    x = left + _PADDING / 2
    yield f'<g class="{kind} {escape(status)}"><rect {box} style="{style}"/>'
    for word, y, text in (("name", 18, _name(shown)), ("facts", 33, " · ".join(_facts(shown)))):
        place = f'x="{x:g}" y="{top + y:g}"'
        yield f'<text class="{word}" {place} style="fill:{ink}">{escape(text)}</text>'
    yield "</g>"


def _name(shown: Snapshot) -> str:
    return clip(shown.name, _CHARS_MAX)


def _facts(shown: Snapshot) -> Iterator[str]:
    yield shown.status
    if shown.health != Health.UNKNOWN:
        yield str(shown.health)
    if shown.pid is not None:
        yield f"PID {shown.pid}"
    if shown.reason is not None:
        yield shown.reason
    for key in (ADDRESS, PORTS, IMAGE):
        if told := shown.told(key):
            yield clip(told, _CHARS_MAX)
    if shown.told(RESTARTS) not in (None, "0"):
        yield f"restarts {shown.told(RESTARTS)}"
    if shown.told(BREAKER) is not None:
        yield "circuit breaker"
