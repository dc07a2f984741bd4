"""Pictures of lifecycles: complete, harmless, legible and always the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.errors import BadHistory
from detent.lifecycle.diagram import Layout, Theme, lay_out, table, to_mermaid, to_svg
from detent.lifecycle.diagram.layout import Box, Point
from detent.lifecycle.diagram.marks import number
from detent.lifecycle.diagram.palette import tone_of
from detent.lifecycle.diagram.ranks import START, pairs_of, ranks_of
from detent.lifecycle.diagram.text import clip, duration, escape, width
from detent.lifecycle.event import Event
from detent.lifecycle.job.table import JOB
from detent.lifecycle.machine import Actor, Amendment, Edge, Guard, Machine, Phase, State
from detent.lifecycle.worker import WORKER
from detent.lifecycle.workflow.table import STEP, WORKFLOW

SVG = "{http://www.w3.org/2000/svg}"
SECOND = 1_000_000
ALL = tuple(Actor)
NASTY = "<b a=\"1\">&'x'</b>]]> --> [*]: \n|`{}\x00\ud800\uffff"

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
MACHINES = (JOB, WORKFLOW, STEP, WORKER, LAMP, HOSTILE)
every_machine = pytest.mark.parametrize("machine", MACHINES, ids=lambda one: one.name[:8])


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
    ("make", "off", Actor.USER, "ada", 0),
    ("press", "on", Actor.USER, "ada", 2 * SECOND),
    ("noted", None, Actor.USER, "ada", SECOND),
    ("press", "off", Actor.USER, "", SECOND),
    ("press", "on", Actor.USER, "a-very-long-name-indeed", 90 * SECOND),
)


@cache
def plain(machine: Machine, theme: str) -> str:
    return to_svg(machine, theme=theme)


def parsed(
    machine: Machine, *, theme: str = "auto", lit: Sequence[Event] = ()
) -> ElementTree.Element:
    text = to_svg(machine, theme=theme, lit=lit) if lit else plain(machine, theme)
    return ElementTree.fromstring(text.encode())  # noqa: S314 - our own text


def groups(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [one for one in root.iter(f"{SVG}g") if kind in one.get("class", "").split()]


def words(root: ElementTree.Element) -> set[str]:
    return {one.text or "" for one in root.iter(f"{SVG}text")}


def shown(text: str) -> str:
    """What an XML reader sees of `text`."""
    return re.sub("[\x00\ud800\uffff]", "\ufffd", text)


# --- the SVG ----------------------------------------------------


@every_machine
@pytest.mark.parametrize("theme", [*Theme])
def test_the_picture_is_well_formed_and_says_what_it_is(machine: Machine, theme: Theme) -> None:
    """Title, description and label for those who hear the picture; names for those who see it."""
    root = parsed(machine, theme=theme)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title")
    described = root.findtext(f"{SVG}desc") or ""
    for state in machine.states:
        assert shown(str(state.name)) in described
        assert shown(str(state.name)) in words(root)


@every_machine
def test_every_event_of_the_table_is_in_the_picture(machine: Machine) -> None:
    """Edges on their arrows, amendments and what moves nothing in the state's own note."""
    root = parsed(machine)
    notes = " ".join(one.findtext(f"{SVG}title") or "" for one in groups(root, "state"))
    for edge in machine.edges:
        if set(edge.sources) != {edge.target}:
            assert shown(str(edge.event)) in words(root)
        else:
            assert edge.event in notes
    for one in machine.amendments:
        assert shown(f"{one.event} ({', '.join(one.actors)})") in notes


@every_machine
def test_every_pair_of_joined_states_has_its_arrow(machine: Machine) -> None:
    drawn = [(one.get("data-from"), one.get("data-to")) for one in groups(parsed(machine), "edge")]
    assert sorted(drawn) == sorted((shown(a), shown(b)) for a, b in pairs_of(machine))


@every_machine
def test_actors_are_marked_on_every_label_and_explained_once(machine: Machine) -> None:
    """A shape for each kind of actor; the legend names those that the machine knows."""
    root = parsed(machine)
    for label in groups(root, "label"):
        assert [one for one in label.iter() if one.get("class", "").startswith("by-")]
    named = {actor for edge in machine.edges for actor in edge.actors}
    named |= {actor for one in machine.amendments for actor in one.actors}
    assert {actor for actor in Actor if actor in words(root)} == named
    assert {phase for phase in Phase if phase in words(root)} >= {s.phase for s in machine.states}


def test_an_end_has_a_double_border() -> None:
    for state in groups(parsed(JOB), "state"):
        rims = [one for one in state.iter(f"{SVG}rect") if "inner" in one.get("class", "").split()]
        assert len(rims) == (1 if state.get("data-state") in JOB.terminal else 0)


def test_failed_and_stopping_do_not_look_the_same() -> None:
    """Nor does any end of a worker look like another."""
    tones = {state.name: tone_of(state) for state in WORKER.states}
    assert tones["failed"] != tones["stopping"]
    assert len({tones[name] for name in WORKER.terminal}) == len(WORKER.terminal)


def test_a_theme_is_chosen_or_left_to_the_reader() -> None:
    auto, light, dark = (to_svg(LAMP, theme=theme) for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme: dark" in auto
    assert "prefers-color-scheme" not in light + dark
    assert light != dark
    with pytest.raises(ValueError, match="sepia"):
        to_svg(LAMP, theme="sepia")


@every_machine
def test_the_same_machine_gives_the_same_bytes(machine: Machine) -> None:
    assert to_svg(machine) == to_svg(machine)
    assert to_mermaid(machine) == to_mermaid(machine)


def test_the_picture_of_a_lamp_is_frozen() -> None:
    """Not by the order of a set, not by the version of Python: look at it before changing this."""
    text = to_svg(LAMP) + to_svg(LAMP, theme="dark", lit=LIFE)
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN


GOLDEN = "947989ff306db1817c843c61039a53525c8d85e80e084e55ae1e90b4a0309acf"


def test_nothing_in_a_name_becomes_markup() -> None:
    assert escape(NASTY).startswith("&lt;b a=&quot;1&quot;&gt;&amp;&#x27;x")
    assert "<b" not in to_svg(HOSTILE)
    assert "\x00" not in to_svg(HOSTILE)
    assert escape("tab\tand\nline") == "tab&#9;and&#10;line"


# --- the lit path -----------------------------------------------


def test_exactly_the_walked_arrows_are_lit() -> None:
    root = parsed(LAMP, lit=LIFE)
    lit = {(one.get("data-from"), one.get("data-to")) for one in groups(root, "lit")}
    assert lit - {(None, None)} == {(START, "off"), ("off", "on"), ("on", "off")}
    for edge in groups(root, "edge"):
        classes = edge.get("class", "").split()
        assert ("dim" in classes) != ("lit" in classes)


def test_states_are_dimmed_unless_visited_and_the_current_one_stands_out() -> None:
    root = parsed(LAMP, lit=LIFE)
    look = {one.get("data-state"): one.get("class", "").split() for one in groups(root, "state")}
    assert [name for name, classes in look.items() if "dim" in classes] == ["broken"]
    assert [name for name, classes in look.items() if "current" in classes] == ["on"]
    assert "It is now on." in (root.findtext(f"{SVG}desc") or "")
    assert not groups(parsed(LAMP), "dim")
    assert not groups(parsed(LAMP), "current")


def test_every_step_is_told_with_its_number_who_and_how_long() -> None:
    told = words(parsed(LAMP, lit=LIFE))
    assert {"1", "2", "3", "4"} <= told
    assert {"ada", "ada \u00b7 after 2 s", "user \u00b7 after 2 s"} <= told
    assert "a-very-long-n\u2026 \u00b7 after 1.5 min" in told
    assert "burn" in told


def test_a_path_walked_very_often_is_summed_up() -> None:
    again = [("press", "on", Actor.USER, "", 1), ("press", "off", Actor.USER, "", 1)] * 6
    events = history(("make", "off", Actor.USER, "", 0), *again)
    assert "and 3 more" in words(parsed(LAMP, lit=events))


def test_a_path_that_the_machine_does_not_have_is_refused() -> None:
    skipped = history(("make", "on", Actor.USER, "", 0))
    with pytest.raises(BadHistory, match=r"from \(new\) to on") as caught:
        to_svg(LAMP, lit=skipped)
    assert caught.value.fields == {"step": 1}


# --- the layout -------------------------------------------------


STEPS = 16


def curve(points: Sequence[Point]) -> Iterator[Point]:
    """Points along a route, close enough together that nothing slips between them."""
    for (x1, y1), (x2, y2) in pairwise(points):
        half = (y1 + y2) / 2
        for step in range(STEPS + 1):
            t, u = step / STEPS, 1 - step / STEPS
            yield (
                u**3 * x1 + 3 * u * u * t * x1 + 3 * u * t * t * x2 + t**3 * x2,
                u**3 * y1 + 3 * u * u * t * half + 3 * u * t * t * half + t**3 * y2,
            )


def is_inside(box: Box, point: Point) -> bool:
    x, y = point
    return box.left + 1 < x < box.right - 1 and box.top + 1 < y < box.bottom - 1


def check_geometry(layout: Layout) -> None:
    boxes = [node.box for node in layout.nodes] + [label.box for label in layout.labels]
    for one, two in combinations(boxes, 2):
        assert not one.overlaps(two)
    for box in boxes:
        assert box.left >= -0.1
        assert box.right <= layout.width + 0.1
    for route in layout.routes:
        others = [label.box for label in layout.labels if label.arrow is not route.arrow]
        for point in curve(route.points):
            assert not any(is_inside(node.box, point) for node in layout.nodes)
            assert not any(is_inside(box, point) for box in others)


@every_machine
def test_nothing_lies_on_top_of_anything_else(machine: Machine) -> None:
    """No two boxes overlap; no arrow runs through a state or through another arrow's label."""
    check_geometry(lay_out(machine))


def test_a_lit_layout_is_as_tidy() -> None:
    check_geometry(lay_out(LAMP, LIFE))


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Any machine that passes its own check: a chain of live states, ends, and wild edges."""
    live = [f"live{at}" for at in range(draw(st.integers(1, 7)))]
    ends = [f"end{at}" for at in range(draw(st.integers(1, 4)))]
    pairs: list[tuple[str | None, str]] = [(None, live[0]), *pairwise(live)]
    pairs += [(live[-1], end) for end in ends]
    wild = st.tuples(st.sampled_from([None, *live]), st.sampled_from([*live, *ends]))
    pairs += draw(st.lists(wild, max_size=14))
    who = st.lists(st.sampled_from(ALL), min_size=1, max_size=3, unique=True).map(tuple)
    edges = [
        Edge(
            draw(st.sampled_from(("go", "a_rather_long_event"))) + str(at),
            (one,),
            two,
            draw(who),
            "",
        )
        for at, (one, two) in enumerate(pairs)
    ]
    return Machine(
        "any",
        states=[State(name, Phase.RUNNING, "") for name in live]
        + [State(name, Phase.DONE, "") for name in ends],
        edges=edges,
    )


@settings(max_examples=25, deadline=None)
@given(machines())
def test_any_machine_can_be_drawn_tidily(machine: Machine) -> None:
    layout = lay_out(machine)
    check_geometry(layout)
    assert len(layout.routes) == len(pairs_of(machine))


def test_states_stand_below_what_leads_to_them_and_ends_stand_together() -> None:
    ranks = ranks_of(JOB)
    live = ["", "scheduled", "available", "pending", "active", "retryable"]
    assert sorted(live, key=ranks.__getitem__) == live
    assert len({ranks[name] for name in JOB.terminal}) == 1


def test_arrows_that_say_the_same_flow_together() -> None:
    """Five states can be cancelled; four of them by the same people, so one label serves them."""
    labels = [one.arrow for one in lay_out(JOB).labels if one.arrow.target == "cancelled"]
    assert sorted(len(arrow.sources) for arrow in labels) == [1, 4]


def test_the_job_picture_fits_a_page() -> None:
    layout = lay_out(JOB)
    assert layout.width < 760
    assert layout.height < 900


# --- Mermaid ----------------------------------------------------

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


@every_machine
def test_mermaid_text_follows_the_grammar_and_holds_every_edge(machine: Machine) -> None:
    lines = check_mermaid(to_mermaid(machine))
    arrows = [line for line in lines if " --> " in line and not line.endswith("[*]")]
    assert len(arrows) == len(pairs_of(machine))
    assert len([line for line in lines if line.endswith("--> [*]")]) == len(machine.terminal)


def test_mermaid_merges_events_and_names_actors() -> None:
    lines = to_mermaid(LAMP).splitlines()
    assert "    [*] --> off: make (user)" in lines
    assert "    on --> broken: burn (worker, system), drop (user, worker, system)" in lines


def test_mermaid_gives_hostile_names_an_alias() -> None:
    text = to_mermaid(HOSTILE)
    assert '    state "end" as S0' in text
    assert "    [*] --> S0: #60;b" in text
    assert "<" not in text


def test_a_lit_mermaid_tells_the_steps_and_marks_the_states() -> None:
    lines = check_mermaid(to_mermaid(LAMP, lit=LIFE))
    assert "    [*] --> off: (1) make by user ada" in lines
    assert "    on --> off: (3) press by user after 2 s" in lines
    assert "    class off,on walked" in lines
    assert "    class on current" in lines


# --- Markdown ---------------------------------------------------


@every_machine
def test_the_tables_have_a_row_per_edge_amendment_and_guard(machine: Machine) -> None:
    blocks = table(machine).split("\n\n")
    counts = [len(machine.edges), len(machine.amendments), len(machine.guards)]
    assert [len(block.splitlines()) - 2 for block in blocks] == [one for one in counts if one]
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1


def test_a_row_says_from_event_to_who_guards_and_meaning() -> None:
    lines = table(LAMP).splitlines()
    assert lines[0] == "| from | event | to | who | guards | meaning |"
    assert "| `(new)` | `make` | `off` | user |  | Made. |" in lines
    assert "| `on`, `off` | `burn` | `broken` | worker, system | `hot` | Burnt. |" in lines
    assert "| `hot` | it is too hot |" in lines


def test_markdown_is_not_taken_in_by_names() -> None:
    text = table(HOSTILE)
    assert "a\\|b \\*c\\* \\_d\\_ \\\\ \\[e\\]" in text
    assert "go\\`" in text
    assert "<b" not in text.replace("`", "")


# --- small things -----------------------------------------------


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
    assert duration(length_us) == text


def test_words_are_measured_and_clipped() -> None:
    assert width("ab", 10, mono=True) == pytest.approx(12.2)
    assert width("ab", 10) == pytest.approx(12.0)
    assert width("\u540d", 10) == pytest.approx(10.5)
    assert clip("abc", 3) == "abc"
    assert clip("abcd", 3) == "ab\u2026"


def test_numbers_are_short() -> None:
    assert [number(one) for one in (1.0, 1.26, -0.04, -2.5)] == ["1", "1.3", "0", "-2.5"]
