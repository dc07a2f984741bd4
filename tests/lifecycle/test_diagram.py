"""Pictures: complete, harmless, legible and always the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.errors import BadHistory
from detent.lifecycle import JOB, MACHINES, WORKER
from detent.lifecycle.diagram import (
    Node,
    embedded_rules,
    graph_svg,
    lifecycle_mermaid,
    lifecycle_svg,
    tone_of,
)
from detent.lifecycle.diagram.history import format_duration, pairs_of
from detent.lifecycle.diagram.lifecycles import BOX_WIDTH, LAYOUTS, WIDTH, events_between
from detent.lifecycle.diagram.palette import PALETTE, stylesheet
from detent.lifecycle.diagram.svg import BOX_HEIGHT, Point, cut, escape, number
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor, Amendment, Edge, Guard, Machine, Phase, State

SVG = "{http://www.w3.org/2000/svg}"
SECOND = 1_000_000
ALL = tuple(Actor)
NASTY = "<b a=\"1\">&'x'</b>]]> --> [*]: \n|`{}\x00\ud800\uffff"
every_lifecycle = pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda one: one.name)


class Box(NamedTuple):
    """A rectangle, y pointing down."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)

    def holds(self, point: Point) -> bool:
        x, y = point
        return self.left + 1 < x < self.right - 1 and self.top + 1 < y < self.bottom - 1


def history(*moves: tuple[str, str | None, Actor, str, int]) -> list[Event]:
    """Events from (name, target, actor, actor id, time since the last one)."""
    events: list[Event] = []
    state, at = None, 0
    for name, target, actor, who, passed in moves:
        at += passed
        version = len(events) + 1
        events.append(Event("", "r", version, at, name, state, target, actor, who, "c"))
        state = target or state
    return events


LIFE = history(
    ("enqueue", "available", Actor.USER, "web <1>", 0),
    ("claim", "active", Actor.WORKER, "mail-1", 2 * SECOND),
    ("held", None, Actor.USER, "ada", SECOND),
    ("fail", "retryable", Actor.WORKER, "mail-1", 29 * SECOND),
    ("due", "available", Actor.SYSTEM, "", SECOND),
    ("claim", "active", Actor.WORKER, "mail-2", SECOND),
    ("lose", "retryable", Actor.SYSTEM, "", 60 * SECOND),
)
TAKEN = {
    ("", "available"),
    ("available", "active"),
    ("active", "retryable"),
    ("retryable", "available"),
}


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text.encode())  # noqa: S314 - our own text


@cache
def drawn(machine: Machine) -> ET.Element:
    return parsed(lifecycle_svg(machine))


def groups(root: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in root.iter(f"{SVG}g") if kind in one.get("class", "").split()]


def words(root: ET.Element) -> list[str]:
    return ["".join(one.itertext()) for one in root.iter(f"{SVG}text")]


def rectangle(group: ET.Element) -> Box:
    [rect, *_] = group.iter(f"{SVG}rect")
    x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
    return Box(x, y, x + width, y + height)


def shown(text: str) -> str:
    """What an XML reader sees of a text."""
    return re.sub("[\x00\ud800\uffff]", "\ufffd", text)


# --- the places of the lifecycles -----------------------------------------------------------------


@every_lifecycle
def test_every_state_and_every_pair_has_its_place_and_nothing_else(machine: Machine) -> None:
    """Whoever changes a table learns here that the picture is to be changed as well."""
    layout = LAYOUTS[machine.name]
    assert set(layout.places) == {None, *(state.name for state in machine.states)}
    assert set(layout.lines) == set(pairs_of(machine))
    labelled = Counter((source, one.target) for one in layout.labels for source in one.sources)
    assert labelled == Counter(pairs_of(machine))


@every_lifecycle
def test_lines_share_a_label_only_if_it_is_true_of_all_of_them(machine: Machine) -> None:
    for label in LAYOUTS[machine.name].labels:
        first, *others = (events_between(machine, one, label.target) for one in label.sources)
        assert all(other == first for other in others)


@every_lifecycle
def test_lines_run_upright_or_level_from_one_border_to_the_other(machine: Machine) -> None:
    layout = LAYOUTS[machine.name]
    for (source, target), points in layout.lines.items():
        for (x1, y1), (x2, y2) in pairwise(points):
            assert (x1 == x2) != (y1 == y2)
        for name, (x, y) in ((source, points[0]), (target, points[-1])):
            left, top = (x - layout.places[name][0], y - layout.places[name][1])
            is_at_side = abs(left) == BOX_WIDTH / 2 and abs(top) < BOX_HEIGHT / 2
            is_above = abs(top) == BOX_HEIGHT / 2 and abs(left) < BOX_WIDTH / 2
            assert (left, top) == (0, 0) if name is None else is_at_side or is_above, (name, x, y)


@every_lifecycle
def test_nothing_lies_on_top_of_anything_else(machine: Machine) -> None:
    """No two boxes or labels overlap; no line runs through a state or the label of another."""
    layout, root = LAYOUTS[machine.name], drawn(machine)
    states = [rectangle(one) for one in groups(root, "state")]
    labels = [rectangle(one) for one in groups(root, "label")]
    assert (len(states), len(labels)) == (len(machine.states), len(layout.labels))
    page = Box(0, 0, WIDTH, layout.height)
    for one, two in combinations([*states, *labels], 2):
        assert not one.overlaps(two), (one, two)
    for box in [*states, *labels]:
        assert page.left < box.left < box.right < page.right
        assert page.top < box.top < box.bottom < page.bottom
    for (source, target), points in layout.lines.items():
        foreign = [
            box
            for box, label in zip(labels, layout.labels, strict=True)
            if target != label.target or source not in label.sources
        ]
        for (x1, y1), (x2, y2) in pairwise(points):
            for step in range(101):
                point = (x1 + (x2 - x1) * step / 100, y1 + (y2 - y1) * step / 100)
                assert not any(box.holds(point) for box in (*states, *foreign)), (source, target)


# --- the SVG of a lifecycle -----------------------------------------------------------------------


@every_lifecycle
def test_a_picture_says_what_it_is(machine: Machine) -> None:
    """Title, description and label for those who hear the picture; names for those who see it."""
    root = drawn(machine)
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title") == f"{machine.name} lifecycle"
    for state in machine.states:
        assert state.name in (root.findtext(f"{SVG}desc") or "")
        assert state.name in words(root)
        assert groups(root, f"state-{state.name}")


@every_lifecycle
def test_every_move_can_be_found_by_source_event_and_target(machine: Machine) -> None:
    found = {
        (edge.get("data-source") or None, event, edge.get("data-target"))
        for edge in groups(drawn(machine), "edge")
        for event in edge.get("data-events", "").split()
    }
    assert found == {move for move in machine.triples if move[2] not in (None, move[0])}


@every_lifecycle
def test_every_event_is_written_with_who_may_cause_it(machine: Machine) -> None:
    text = "  ".join(words(drawn(machine)))
    signs = {"user": "\u25cf", "worker": "\u25a0", "system": "\u25c6"}
    for edge in machine.edges:
        marks = "".join(sign for actor, sign in signs.items() if actor in edge.actors)
        assert f"{marks} {edge.event}" in text
    notes = " ".join(one.findtext(f"{SVG}title") or "" for one in groups(drawn(machine), "state"))
    for one in machine.amendments:
        assert f"{one.event} ({', '.join(one.actors)})" in notes


@every_lifecycle
def test_a_final_state_is_round(machine: Machine) -> None:
    for state in groups(drawn(machine), "state"):
        is_final = state.get("data-node") in machine.terminal
        [rect, *_] = state.iter(f"{SVG}rect")
        assert (rect.get("rx") == number(BOX_HEIGHT / 2)) is is_final


def test_no_two_ends_of_a_worker_look_alike() -> None:
    tones = {state.name: tone_of(state) for state in WORKER.states}
    assert tones["failed"] != tones["stopping"]
    assert len({tones[name] for name in WORKER.terminal}) == len(WORKER.terminal)


def test_details_stand_below_the_names_of_states() -> None:
    picture = parsed(
        lifecycle_svg(JOB, details={"completed": "12,096 <today>", "active": "9" * 99})
    )
    [completed] = groups(picture, "state-completed")
    assert words(completed) == ["completed", "12,096 <today>"]
    [active] = groups(picture, "state-active")
    assert words(active)[1].endswith("9\u2026")
    [pending] = groups(picture, "state-pending")
    assert words(pending) == ["pending", "assigned"]


def test_a_path_stands_out() -> None:
    root = parsed(lifecycle_svg(JOB, history=LIFE))
    assert "has-path" in root.get("class", "")
    taken = groups(root, "taken")
    edges = [one for one in taken if one in groups(root, "edge")]
    assert {(one.get("data-source"), one.get("data-target")) for one in edges} == TAKEN
    assert groups(root, "edge")[-len(edges) :] == edges, "they lie above the others"
    visited = {one.get("data-node") for one in groups(root, "visited")}
    assert visited == {"available", "active", "retryable"}
    assert [one.get("data-node") for one in groups(root, "current")] == ["retryable"]
    assert (root.findtext(f"{SVG}desc") or "").endswith("It is now retryable.")
    assert "taken" not in lifecycle_svg(JOB, is_embedded=True)


def test_a_taken_line_says_what_happened_who_did_it_and_how_long_it_took() -> None:
    root = parsed(lifecycle_svg(JOB, history=LIFE))
    by_ends = {
        (one.get("data-sources"), one.get("data-target")): words(one)
        for one in groups(root, "label")
    }
    assert by_ends["", "available"] == ["enqueue", "web <1>"]
    assert by_ends["available", "active"] == ["2\u00d7 claim", "mail-1, mail-2 \u00b7 3 s"]
    assert by_ends["active", "retryable"] == ["fail, lose", "mail-1 +1 \u00b7 1.5 min"]
    assert by_ends["retryable", "available"] == ["due", "system \u00b7 1 s"]
    [edge] = [one for one in groups(root, "taken") if one.get("data-source") == "active"]
    assert (edge.findtext(f"{SVG}title") or "").splitlines()[1:] == [
        "3. fail by worker mail-1 after 30 s",
        "6. lose by system after 1 min",
    ]


def test_a_label_of_many_lines_tells_of_the_one_that_was_taken() -> None:
    events = history(
        ("enqueue", "scheduled", Actor.USER, "", 0), ("cancel", "cancelled", Actor.USER, "ada", 1)
    )
    root = parsed(lifecycle_svg(JOB, history=events))
    [label] = [
        one
        for one in groups(root, "label")
        if "scheduled available" in one.get("data-sources", "")
        and one.get("data-target") == "cancelled"
    ]
    assert words(label) == ["cancel", "ada \u00b7 0 ms"]


def test_a_path_that_the_machine_does_not_have_is_refused() -> None:
    skipped = history(("enqueue", "active", Actor.USER, "", 0))
    for draw in (lifecycle_svg, lifecycle_mermaid):
        with pytest.raises(BadHistory, match=r"from \(new\) to active") as caught:
            draw(JOB, history=skipped)
        assert caught.value.fields == {"step": 1}


# --- what every picture keeps to ------------------------------------------------------------------


def test_a_standalone_picture_brings_its_colours_and_an_embedded_one_brings_none() -> None:
    """A page's policy may forbid both stylesheets inside of it and style attributes."""
    alone, inside = lifecycle_svg(JOB), lifecycle_svg(JOB, is_embedded=True)
    assert alone.count("<style>") == 1
    assert "var(" not in alone, "some viewers of images do not know them"
    for text in (inside, graph_svg("g", [Node("a", "a", "", "", "")], [], is_embedded=True)):
        assert "style" not in text
        assert "<script" not in text
        assert "#" not in text.replace("&#", "")


def test_colours_are_there_for_light_and_dark_and_reach_no_further_than_the_picture() -> None:
    assert set(re.findall(r"var\(--(\w+)\)", embedded_rules())) == set(PALETTE)
    light, dark = stylesheet().split("@media (prefers-color-scheme: dark)")
    for one, two in PALETTE.values():
        assert one in light
        assert two in dark
    for selectors in re.findall(r"^([^{}@\n]+)\{", stylesheet(), re.M):
        assert all(one.strip().startswith(".detent-diagram") for one in selectors.split(","))


@every_lifecycle
def test_the_same_machine_gives_the_same_bytes(machine: Machine) -> None:
    assert lifecycle_svg(machine) == lifecycle_svg(machine)


def test_nothing_in_a_name_becomes_markup() -> None:
    assert escape(NASTY).startswith("&lt;b a=&quot;1&quot;&gt;&amp;&#x27;x")
    assert escape("tab\tand\nline") == "tab&#9;and&#10;line"
    nodes = [Node(NASTY, NASTY, NASTY, NASTY, NASTY), Node("b", "b", "", "", "")]
    text = graph_svg(NASTY, nodes, [(NASTY, "b")])
    root = parsed(text)
    assert "<b" not in text
    assert "\x00" not in text
    assert root.get("aria-label") == shown(NASTY)
    [edge] = groups(root, "edge")
    assert edge.get("data-source") == shown(NASTY)
    path = lifecycle_svg(JOB, history=history(("enqueue", "available", Actor.USER, NASTY, 0)))
    assert "&lt;b a=" in path
    assert "<b" not in path
    assert parsed(path) is not None


def test_long_names_are_cut_and_whole_on_hover() -> None:
    name = "a step whose name goes on and on and on and on and on and on"
    root = parsed(graph_svg("g", [Node("a", name, "waits", "created", "waiting")], []))
    [node] = groups(root, "state")
    [written, detail] = words(node)
    assert (written[:10], written[-1], detail) == (name[:10], "\u2026", "waits")
    assert node.findtext(f"{SVG}title") == f"{name}\nwaits"
    assert cut("abc", 10, 30) == "abc"
    assert cut("\u540d" * 9, 10, 30) == "\u540d\u540d\u2026"


# --- graphs in columns ----------------------------------------------------------------------------


def boxes_of(root: ET.Element) -> dict[str, Box]:
    return {one.get("data-node", ""): rectangle(one) for one in groups(root, "state")}


def points_of(path: str) -> Iterator[Point]:
    """Points along a line, close enough together that nothing slips between them."""
    here = (0.0, 0.0)
    for command, text in re.findall(r"([MLC])([^MLC]+)", path):
        numbers = [float(one) for one in text.split()]
        ends = list(zip(numbers[::2], numbers[1::2], strict=True))
        one, two, end = ends if command == "C" else (here, ends[0], ends[0])
        for step in range(0 if command == "M" else 33):
            t, u = step / 32, 1 - step / 32
            yield (
                u**3 * here[0] + 3 * u * u * t * one[0] + 3 * u * t * t * two[0] + t**3 * end[0],
                u**3 * here[1] + 3 * u * u * t * one[1] + 3 * u * t * t * two[1] + t**3 * end[1],
            )
        here = end


def check_graph(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> ET.Element:
    root = parsed(graph_svg("g", [Node(one, one, "", "", "off") for one in names], edges))
    boxes = boxes_of(root)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for one, two in combinations(boxes.values(), 2):
        assert not one.overlaps(two)
    for box in boxes.values():
        assert 0 < box.left < box.right < width
        assert 0 < box.top < box.bottom < height
    drawn_edges = groups(root, "edge")
    assert len(drawn_edges) == len(set(edges))
    for edge in drawn_edges:
        source, target = (boxes[edge.get(f"data-{end}", "")] for end in ("source", "target"))
        assert source.right < target.left
        line, tip = edge.iter(f"{SVG}path")
        points = list(points_of(line.get("d", "")))
        assert points[0][0] == pytest.approx(source.right)
        assert (tip.get("d") or "").startswith(f"M{number(target.left)} ")
        for point in points:
            assert 0 < point[1] < height
            assert not any(box.holds(point) for box in boxes.values())
    return root


def test_a_node_stands_behind_all_that_lead_to_it() -> None:
    boxes = boxes_of(check_graph("abcd", [("a", "b"), ("b", "c"), ("a", "c"), ("a", "d")]))
    assert boxes["a"].right < boxes["b"].left < boxes["b"].right < boxes["c"].left
    assert boxes["b"].left == boxes["d"].left


def test_a_tree_keeps_its_order_and_its_root_is_in_the_middle() -> None:
    names = ["root", *(f"worker-{at}" for at in range(5))]
    boxes = boxes_of(check_graph(names, [("root", one) for one in names[1:]]))
    assert sorted(names[1:], key=lambda one: boxes[one].top) == names[1:]
    assert boxes["root"].top == boxes["worker-2"].top


def test_a_graph_may_be_empty_deep_or_refer_to_what_is_gone() -> None:
    assert boxes_of(parsed(graph_svg("g", [], []))) == {}
    names = [str(at) for at in range(1_500)]
    deep = graph_svg("g", [Node(one, one, "", "", "") for one in names], list(pairwise(names)))
    assert len(boxes_of(parsed(deep))) == len(names)
    gone = parsed(graph_svg("g", [Node("a", "a", "", "", "")], [("b", "a"), ("a", "c")]))
    assert groups(gone, "edge") == []


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    names = [f"step {at}" for at in range(draw(st.integers(1, 14)))]
    every = list(combinations(names, 2))
    edges = draw(st.lists(st.sampled_from(every), max_size=30)) if every else []
    return draw(st.permutations(names)), edges


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_any_graph_is_drawn_tidily(graph: tuple[list[str], list[tuple[str, str]]]) -> None:
    """No boxes overlap, and no line runs through one."""
    check_graph(*graph)


# --- Mermaid --------------------------------------------------------------------------------------

LAMP = Machine(
    "lamp",
    states=(
        State("off", Phase.WAITING, "Dark."),
        State("on", Phase.RUNNING, "Bright."),
        State("broken", Phase.DONE, "Dark for ever."),
    ),
    edges=(
        Edge("make", (None,), "off", (Actor.USER,), "Made."),
        Edge("press", ("off",), "on", (Actor.USER,), "Pressed."),
        Edge("press", ("on",), "off", (Actor.USER,), "Pressed again."),
        Edge("dim", ("on",), "on", (Actor.USER,), "Stays on, less bright."),
        Edge("burn", ("on", "off"), "broken", (Actor.WORKER, Actor.SYSTEM), "Burnt.", ("hot",)),
        Edge("drop", ("on", "off"), "broken", ALL, "Dropped."),
    ),
    guards=(Guard("hot", "it is too hot"),),
)
HOSTILE = Machine(
    f"evil {NASTY}",
    states=(
        State("end", Phase.READY, "A word of Mermaid."),
        State(NASTY, Phase.RUNNING, NASTY),
        State("\u540d\u524d", Phase.DONE, "A wide name."),
    ),
    edges=(
        Edge(NASTY, (None,), "end", (Actor.USER,), NASTY),
        Edge("go`", ("end",), NASTY, (Actor.USER,), "a|b *c* _d_ \\ [e]"),
        Edge("\u4e8b\u4ef6", (NASTY,), "\u540d\u524d", (Actor.USER,), ""),
    ),
    amendments=(Amendment("note & sign", (NASTY,), (Actor.USER,), NASTY),),
)
LAMP_LIFE = history(
    ("make", "off", Actor.USER, "ada", 0),
    ("press", "on", Actor.USER, "ada", 2 * SECOND),
    ("noted", None, Actor.USER, "ada", SECOND),
    ("press", "off", Actor.USER, "", SECOND),
    ("press", "on", Actor.USER, "a-very-long-name-indeed", 90 * SECOND),
)

NAME = r"(?:[a-z][a-z0-9_]*|S\d+)"
TEXT = r"(?:[A-Za-z0-9 _.,()/-]|#\d+;)+"
HEX = r"#[0-9a-f]{6}"
GRAMMAR = [
    rf"    accTitle: {TEXT}",
    rf"    accDescr: {TEXT}",
    rf'    state "{TEXT}" as S\d+',
    rf"    (?:\[\*\]|{NAME}) --> {NAME}: {TEXT}",
    rf"    {NAME} --> \[\*\]",
    rf"    classDef [a-z]+ fill:{HEX},stroke:{HEX},color:{HEX}",
    r"    classDef [a-z]+ stroke-width:\dpx(?:,font-weight:bold)?",
    rf"    class {NAME}(?:,{NAME})* [a-z]+",
]


def check_mermaid(text: str) -> list[str]:
    head, *lines = text.splitlines()
    assert head == "stateDiagram-v2"
    for line in lines:
        assert any(re.fullmatch(rule, line) for rule in GRAMMAR), line
    return lines


@pytest.mark.parametrize(
    "machine", [*MACHINES.values(), LAMP, HOSTILE], ids=lambda one: one.name[:8]
)
def test_mermaid_text_follows_the_grammar_and_holds_every_edge(machine: Machine) -> None:
    lines = check_mermaid(lifecycle_mermaid(machine))
    arrows = [line for line in lines if " --> " in line and not line.endswith("[*]")]
    assert len(arrows) == len(pairs_of(machine))
    assert len([line for line in lines if line.endswith("--> [*]")]) == len(machine.terminal)


def test_mermaid_merges_events_and_names_actors() -> None:
    lines = lifecycle_mermaid(LAMP).splitlines()
    assert "    [*] --> off: make (user)" in lines
    assert "    on --> broken: burn (worker, system), drop (user, worker, system)" in lines


def test_mermaid_gives_hostile_names_an_alias() -> None:
    text = lifecycle_mermaid(HOSTILE)
    assert '    state "end" as S0' in text
    assert "    [*] --> S0: #60;b" in text
    assert "<" not in text


def test_a_lit_mermaid_tells_the_steps_and_marks_the_states() -> None:
    lines = check_mermaid(lifecycle_mermaid(LAMP, history=LAMP_LIFE))
    assert "    [*] --> off: (1) make by user ada" in lines
    assert "    on --> off: (3) press by user after 2 s" in lines
    assert "    class off,on walked" in lines
    assert "    class on current" in lines


# --- small things ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length_us", "text"),
    [
        (0, "0 ms"),
        (1_500, "1.5 ms"),
        (350_000, "350 ms"),
        (999_499, "999 ms"),
        (999_500, "1 s"),
        (2_140_000, "2.1 s"),
        (9_949_999, "9.9 s"),
        (9_950_000, "10 s"),
        (90 * SECOND, "1.5 min"),
        (3_600 * SECOND, "1 h"),
        (36 * 3_600 * SECOND, "1.5 d"),
    ],
)
def test_lengths_of_time_read_as_people_say_them(length_us: int, text: str) -> None:
    assert format_duration(length_us) == text


def test_numbers_are_short() -> None:
    assert [number(one) for one in (1.0, 1.26, -0.04, -2.5)] == ["1", "1.3", "0", "-2.5"]
