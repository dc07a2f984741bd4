"""Pictures of the four lifecycles, every state, line and label at a place chosen by hand.

A table that changes needs its place here; a test names what is missing or left over. The numbers
are pixels of a picture that is 850 wide: boxes are 104 by 46, states are given by their middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from detent.lifecycle.diagram.history import Move, format_duration, moves_of, pairs_of
from detent.lifecycle.diagram.palette import tone_of
from detent.lifecycle.diagram.svg import (
    DETAIL_SIZE,
    MARGIN,
    Node,
    Point,
    box,
    cut,
    document,
    escape,
    number,
    polyline,
    text_element,
    text_width,
)
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor, Machine, State

BOX_WIDTH: Final = 104.0
ROW_HEIGHT: Final = 15.0
EVENT_SIZE: Final = 12.5
_MARKS: Final = {Actor.USER: "\u25cf", Actor.WORKER: "\u25a0", Actor.SYSTEM: "\u25c6"}
_WHO: Final = {
    Actor.USER: "a caller",
    Actor.WORKER: "the worker",
    Actor.SYSTEM: "Detent",
}
# The usual width of a letter, and of the sign of an actor.
_EM: Final = 0.58
_MARK_WIDTH: Final = 9.0
_LEGEND_HEIGHT: Final = 34.0
_STORY_WIDTH: Final = 150.0


class Label(msgspec.Struct, frozen=True):
    """Where the events of some lines into one state are written, below each other or in a row.

    Lines that share a label have the same events, caused by the same actors.
    """

    sources: tuple[str | None, ...]
    target: str
    at: Point
    is_row: bool = False


class Layout(msgspec.Struct, frozen=True):
    """The places of one lifecycle; the start is the state `None`, lines lead over corners."""

    height: float
    places: Mapping[str | None, Point]
    lines: Mapping[tuple[str | None, str], tuple[Point, ...]]
    labels: tuple[Label, ...]


WIDTH: Final = 850.0


def _line(text: str, *rest: tuple[Point, ...]) -> tuple[Point, ...]:
    """Return the points of "x,y x,y", and of what the line shares with others."""
    own = []
    for pair in text.split():
        x, y = pair.split(",")
        own.append((float(x), float(y)))
    return (*own, *(point for shared in rest for point in shared))


# Above everything and down the right edge, so that cancelling crosses nothing.
_CANCEL = _line("840,20 840,350 820,350")
_EXPIRE = _line("692,410 692,280 716,280")
_JOB: Final = Layout(
    height=430,
    places={
        None: (92, 84),
        "scheduled": (62, 190),
        "available": (232, 190),
        "pending": (392, 84),
        "active": (542, 190),
        "retryable": (405, 342),
        "completed": (768, 190),
        "discarded": (768, 280),
        "cancelled": (768, 350),
    },
    lines={
        (None, "scheduled"): _line("92,84 92,167"),
        (None, "available"): _line("92,84 200,84 200,167"),
        ("scheduled", "available"): _line("114,190 180,190"),
        ("available", "active"): _line("284,190 490,190"),
        ("available", "pending"): _line("272,167 272,84 340,84"),
        ("pending", "active"): _line("444,84 520,84 520,167"),
        ("active", "completed"): _line("594,190 716,190"),
        ("active", "discarded"): _line("584,213 584,280 716,280"),
        ("active", "cancelled"): _line("560,213 560,352 716,352"),
        ("active", "retryable"): _line("504,213 504,332 457,332"),
        ("pending", "retryable"): _line("392,107 392,319"),
        ("pending", "discarded"): _line("420,61 420,44 692,44 692,280 716,280"),
        ("retryable", "available"): _line("353,342 256,342 256,213"),
        ("scheduled", "discarded"): _line("62,213 62,410", _EXPIRE),
        ("available", "discarded"): _line("208,213 208,410", _EXPIRE),
        ("retryable", "discarded"): _line("405,365 405,410", _EXPIRE),
        ("scheduled", "cancelled"): _line("32,167 32,20", _CANCEL),
        ("available", "cancelled"): _line("232,167 232,20", _CANCEL),
        ("pending", "cancelled"): _line("364,61 364,20", _CANCEL),
        ("retryable", "cancelled"): _line("457,352 716,352"),
    },
    labels=(
        Label((None,), "scheduled", (92, 128)),
        Label((None,), "available", (144, 84)),
        Label(("scheduled",), "available", (144, 190)),
        Label(("available",), "active", (344, 190)),
        Label(("available",), "pending", (272, 128)),
        Label(("pending",), "active", (520, 128)),
        Label(("active",), "completed", (642, 190)),
        Label(("active",), "discarded", (638, 280)),
        Label(("active",), "cancelled", (560, 318)),
        Label(("active",), "retryable", (504, 262)),
        Label(("pending",), "retryable", (392, 255)),
        Label(("pending",), "discarded", (556, 44), is_row=True),
        Label(("retryable",), "available", (256, 280)),
        Label(("scheduled", "available", "retryable"), "discarded", (556, 410), is_row=True),
        Label(("scheduled", "available", "pending"), "cancelled", (556, 20)),
        Label(("retryable",), "cancelled", (508, 352)),
    ),
)

_ABORT = _line("840,20 840,270 820,270")


def _workflow_layout(held: str) -> Layout:
    """Return the picture of workflows and steps, which differ in what they call being held."""
    return Layout(
        height=300,
        places={
            None: (92, 66),
            "created": (62, 150),
            "pending": (262, 150),
            "in_progress": (482, 150),
            held: (262, 265),
            "completed": (768, 150),
            "failed": (768, 210),
            "aborted": (768, 270),
        },
        lines={
            (None, "created"): _line("92,66 92,127"),
            ("created", "pending"): _line("114,150 210,150"),
            ("pending", "in_progress"): _line("314,150 430,150"),
            ("created", held): _line("62,173 62,265 210,265"),
            ("pending", held): _line("226,173 226,242"),
            ("in_progress", held): _line("462,173 462,258 314,258"),
            (held, "pending"): _line("298,242 298,173"),
            ("in_progress", "completed"): _line("534,150 716,150"),
            ("in_progress", "failed"): _line("502,173 502,210 716,210"),
            ("created", "aborted"): _line("32,127 32,20", _ABORT),
            ("pending", "aborted"): _line("262,127 262,20", _ABORT),
            ("in_progress", "aborted"): _line("482,127 482,20", _ABORT),
            (held, "aborted"): _line("314,275 716,275"),
        },
        labels=(
            Label((None,), "created", (92, 98)),
            Label(("created",), "pending", (158, 150)),
            Label(("pending",), "in_progress", (366, 150)),
            Label(("created",), held, (130, 265)),
            Label(("pending",), held, (226, 204)),
            Label(("in_progress",), held, (462, 218)),
            Label((held,), "pending", (298, 204)),
            Label(("in_progress",), "completed", (618, 150)),
            Label(("in_progress",), "failed", (618, 210)),
            Label(("created", "pending", "in_progress"), "aborted", (618, 20)),
            Label((held,), "aborted", (618, 275)),
        ),
    )


_STOPPED = _line("768,400 768,333")
_FAILED = _line("716,112")
_WORKER: Final = Layout(
    height=420,
    places={
        None: (62, 112),
        "created": (62, 200),
        "starting": (240, 200),
        "running": (418, 200),
        "stopping": (600, 200),
        "pending": (152, 310),
        "suspended": (514, 310),
        "finished": (768, 40),
        "failed": (768, 112),
        "killed": (768, 200),
        "stopped": (768, 310),
    },
    lines={
        (None, "created"): _line("62,112 62,177"),
        ("created", "starting"): _line("114,200 188,200"),
        ("created", "pending"): _line("62,223 62,310 100,310"),
        ("pending", "starting"): _line("204,310 222,310 222,223"),
        ("pending", "stopped"): _line("152,333 152,400", _STOPPED),
        ("starting", "running"): _line("292,200 366,200"),
        ("starting", "failed"): _line("240,177 240,112", _FAILED),
        ("starting", "stopped"): _line("268,223 268,400", _STOPPED),
        ("running", "suspended"): _line("430,223 430,310 462,310"),
        ("running", "stopping"): _line("470,192 548,192"),
        ("running", "finished"): _line("440,177 440,40 716,40"),
        ("running", "failed"): _line("400,177 400,112", _FAILED),
        ("running", "stopped"): _line("390,223 390,400", _STOPPED),
        ("suspended", "running"): _line("508,287 508,214 470,214"),
        ("suspended", "stopping"): _line("566,310 580,310 580,223"),
        ("stopping", "stopped"): _line("630,223 630,310 716,310"),
        ("stopping", "failed"): _line("600,177 600,112", _FAILED),
        ("stopping", "killed"): _line("652,200 716,200"),
    },
    labels=(
        Label((None,), "created", (62, 144)),
        Label(("created",), "starting", (148, 200)),
        Label(("created",), "pending", (62, 262)),
        Label(("pending",), "starting", (218, 262)),
        Label(("pending",), "stopped", (210, 400)),
        Label(("starting",), "running", (326, 200)),
        Label(("starting", "running", "stopping"), "failed", (658, 112)),
        Label(("starting",), "stopped", (268, 340)),
        Label(("running",), "suspended", (430, 262)),
        Label(("running",), "stopping", (506, 192)),
        Label(("running",), "finished", (578, 40)),
        Label(("running",), "stopped", (390, 360)),
        Label(("suspended",), "running", (508, 256)),
        Label(("suspended",), "stopping", (580, 262)),
        Label(("stopping",), "stopped", (630, 284)),
        Label(("stopping",), "killed", (682, 200)),
    ),
)

LAYOUTS: Final[Mapping[str, Layout]] = {
    "job": _JOB,
    "workflow": _workflow_layout("paused"),
    "step": _workflow_layout("waiting"),
    "worker": _WORKER,
}


def lifecycle_svg(
    machine: Machine,
    *,
    history: Sequence[Event] = (),
    details: Mapping[str, str] | None = None,
    is_embedded: bool = False,
) -> str:
    """Return the picture of a lifecycle.

    `history` are the events of one record, whose path then stands out: its lines have the class
    `taken`, its states `visited`, the last one `current`. `details` are texts below the names of
    states, such as counts; without one a state shows its phase.

    Lines carry `data-source`, `data-target` and `data-events`, states `data-node` and the class
    `state-<name>`. Raises `BadHistory` when the history takes a way that the machine does not have.
    """
    layout = LAYOUTS[machine.name]
    moves = moves_of(machine, history)
    taken: dict[tuple[str | None, str], list[Move]] = {}
    for move in moves:
        taken.setdefault((move.source, move.target), []).append(move)
    # What was taken comes last: it lies above what is only possible.
    pairs = sorted(pairs_of(machine), key=taken.__contains__)
    parts = [_edge(machine, layout, pair, taken.get(pair, ())) for pair in pairs]
    parts += [_label(machine, label, taken) for label in layout.labels]
    visited = {move.target for move in moves}
    current = moves[-1].target if moves else None
    for state in machine.states:
        classes = [("visited", state.name in visited), ("current", state.name == current)]
        shown = " ".join(name for name, applies in classes if applies)
        parts.append(_state(machine, state, layout.places[state.name], shown, details or {}))
    x, y = layout.places[None]
    parts.append(f'<circle class="start" cx="{number(x)}" cy="{number(y)}" r="6"/>')
    parts.append(_legend(machine, layout.height + MARGIN))
    title = f"{machine.name} lifecycle"
    told = f"States: {', '.join(state.name for state in machine.states)}."
    if moves:
        told += f" Moves: {'; '.join(move.text for move in moves)}. It is now {current}."
    size = (WIDTH, layout.height + _LEGEND_HEIGHT)
    has_path = "has-path" if moves else ""
    return document(title, told, size, parts, classes=has_path, is_embedded=is_embedded)


def events_between(
    machine: Machine, source: str | None, target: str
) -> dict[str, frozenset[Actor]]:
    """Return the events that lead from one state to another, and who may cause each."""
    return {
        str(edge.event): frozenset(Actor(actor) for actor in edge.actors)
        for edge in machine.edges
        if source in edge.sources and edge.target == target
    }


def _edge(
    machine: Machine, layout: Layout, pair: tuple[str | None, str], moves: Sequence[Move]
) -> str:
    source, target = pair
    events = list(events_between(machine, source, target))
    ends = f'data-source="{escape(source or "")}" data-target="{escape(target)}"'
    tooltip = [f"{source or '(new)'} \u2192 {target}: {', '.join(events)}"]
    tooltip += [f"{move.number}. {move.text}" for move in moves]
    style = f"edge to-{tone_of(machine.state(target))}{' taken' if moves else ''}"
    return (
        f'<g class="{style}" {ends} data-events="{escape(" ".join(events))}">'
        f"<title>{escape(chr(10).join(tooltip))}</title>{polyline(layout.lines[pair])}</g>"
    )


def _state(
    machine: Machine, state: State, at: Point, classes: str, details: Mapping[str, str]
) -> str:
    amendments = [one for one in machine.amendments if state.name in one.states]
    tooltip = f"{state.name} ({state.phase}): {state.meaning}"
    if amendments:
        told = ", ".join(f"{one.event} ({', '.join(one.actors)})" for one in amendments)
        tooltip += f"\nWithout leaving it: {told}"
    name = str(state.name)
    detail = cut(details.get(name, str(state.phase)), DETAIL_SIZE, BOX_WIDTH)
    node = Node(name, name, detail, name, tone_of(state), tooltip)
    return box(node, at, BOX_WIDTH, classes=classes, is_round=state.is_terminal)


class _Row(msgspec.Struct, frozen=True):
    """A line of a label: events with those who may cause them, or a remark."""

    terms: tuple[tuple[str, frozenset[Actor]], ...]
    style: str = "event"

    @property
    def width(self) -> float:
        size = EVENT_SIZE if self.style == "event" else DETAIL_SIZE
        marks = sum(len(actors) for _, actors in self.terms)
        return _EM * size * len("   ".join(text for text, _ in self.terms)) + _MARK_WIDTH * marks

    @property
    def markup(self) -> str:
        terms = (f"{_marks(actors)} {escape(text)}".strip() for text, actors in self.terms)
        return "\u2003".join(terms)


def _rows(machine: Machine, label: Label, moves: Sequence[Move]) -> list[_Row]:
    """Return what may happen on some lines, or what did happen there."""
    if moves:
        counts = Counter(move.event for move in moves)
        told = [f"{count}\u00d7 {name}" if count > 1 else name for name, count in counts.items()]
        return [
            _Row(((", ".join(told), frozenset()),)),
            _Row(((_story(moves), frozenset()),), "detail"),
        ]
    terms = list(events_between(machine, label.sources[0], label.target).items())
    return [_Row(tuple(terms))] if label.is_row else [_Row((term,)) for term in terms]


def _label(
    machine: Machine, label: Label, taken: Mapping[tuple[str | None, str], Sequence[Move]]
) -> str:
    """Return a label on a plate that hides the line below it."""
    moves = [move for source in label.sources for move in taken.get((source, label.target), ())]
    rows = _rows(machine, label, moves)
    width = max(row.width for row in rows) + 4
    height = ROW_HEIGHT * len(rows)
    x, y = label.at
    place = f'x="{number(x - width / 2)}" y="{number(y - height / 2)}"'
    plate = f'<rect class="paper" {place} width="{number(width)}" height="{number(height)}"/>'
    base = y - height / 2 + 12
    texts = [
        text_element(row.style, row.markup, (x, base + ROW_HEIGHT * at))
        for at, row in enumerate(rows)
    ]
    sources = escape(" ".join(source or "" for source in label.sources))
    ends = f'data-sources="{sources}" data-target="{escape(label.target)}"'
    return f'<g class="label{" taken" if moves else ""}" {ends}>{plate}{"".join(texts)}</g>'


def _story(moves: Sequence[Move]) -> str:
    """Return who made some moves, and how long the record had waited for them."""
    who = list(dict.fromkeys(move.actor_id or str(move.actor) for move in moves))
    spent = [move.spent_us for move in moves if move.spent_us is not None]
    after = f" \u00b7 {format_duration(sum(spent))}" if spent else ""
    room = _STORY_WIDTH - text_width(after, DETAIL_SIZE)
    named = ", ".join(who)
    if len(who) > 1 and text_width(named, DETAIL_SIZE) > room:
        more = f" +{len(who) - 1}"
        named = cut(who[0], DETAIL_SIZE, room - text_width(more, DETAIL_SIZE)) + more
    return cut(named, DETAIL_SIZE, room) + after


def _marks(actors: Collection[Actor]) -> str:
    return "".join(
        f'<tspan class="mark by-{actor}">{sign}</tspan>'
        for actor, sign in _MARKS.items()
        if actor in actors
    )


def _legend(machine: Machine, y: float) -> str:
    named = {Actor(actor) for edge in machine.edges for actor in edge.actors}
    keys = [f"{_marks((one,))} {_WHO[one]}" for one in Actor if one in named]
    return text_element("detail", "\u2003".join(keys), (WIDTH / 2, y))
