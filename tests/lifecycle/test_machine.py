"""A machine is data that checks itself, and `fire` answers every question that can be put to it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from detent.errors import BadMachine, IllegalTransition
from detent.lifecycle import MACHINES
from detent.lifecycle.machine import (
    Actor,
    Amendment,
    Edge,
    Guard,
    Machine,
    Phase,
    Refusal,
    State,
    Transition,
)

ON = State("on", Phase.RUNNING, "It is on.")
OFF = State("off", Phase.DONE, "It is off.")
BORN = Edge("make", (None,), "on", (Actor.USER,), "Made.")
STOP = Edge("stop", ("on",), "off", (Actor.USER, Actor.SYSTEM), "Stopped.")
NOTE = Amendment("note", ("on", "off"), (Actor.USER,), "Noted.")

# Each table is frozen: a change here needs an ADR that says why, and a migration where the
# database's constraints are generated from it.
GOLDEN: dict[str, str] = {
    "job": "bd6f13a3c0b8118baf76e128cf5d3cae78e0c8684fc8ea03866c475c370968ab",
    "workflow": "3b5a392d8304db64ef16ec067d781dab8e881d5d3aae5764f57a14a33e2ba0de",
    "step": "bfc7174a0dad7a6f3c2f330dd403b6fc652a0b7c48f97670221d4907d48ea8c0",
    "worker": "ef3f3df24190b9c872a76e325bad771522ab4a1df513053406d82418455fa4cf",
}


def lamp(**changed: Any) -> Machine:
    parts: dict[str, Any] = {
        "states": (ON, OFF),
        "edges": (BORN, STOP),
        "amendments": (NOTE,),
        "guards": (),
    }
    return Machine("lamp", **{**parts, **changed})


def questions(machine: Machine) -> list[tuple[str | None, str, str | None, Actor]]:
    states: list[str | None] = [None, *(state.name for state in machine.states)]
    return list(product(states, machine.events, states, Actor))


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_every_state_event_target_and_actor_is_either_declared_or_refused(machine: Machine) -> None:
    """All combinations, none sampled, compared with the table read row by row."""
    declared = {
        (source, edge.event, edge.target, actor)
        for edge in machine.edges
        for source in edge.sources
        for actor in edge.actors
    } | {
        (state, one.event, None, actor)
        for one in machine.amendments
        for state in one.states
        for actor in one.actors
    }
    asked: dict[tuple[str | None, str, str | None], tuple[str, ...]] = {
        (source, edge.event, edge.target): edge.guards
        for edge in machine.edges
        for source in edge.sources
    }
    asked |= {
        (state, one.event, None): one.guards for one in machine.amendments for state in one.states
    }
    for question in questions(machine):
        answer = machine.fire(*question)
        if question in declared:
            assert isinstance(answer, Transition)
            assert (answer.source, answer.event, answer.target, answer.actor) == question
            assert answer.guards == asked[question[:3]]
        else:
            assert isinstance(answer, Refusal)
            assert (answer.state, answer.event, answer.target, answer.actor) == question
            assert answer.code in ("final", "no_edge", "wrong_actor")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_a_terminal_state_refuses_every_edge_as_final(machine: Machine) -> None:
    for state, event, target, actor in questions(machine):
        if state in machine.terminal and target is not None:
            answer = machine.fire(state, event, target, actor)
            assert isinstance(answer, Refusal)
            assert answer.code == "final"


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_the_table_is_frozen(machine: Machine) -> None:
    """Changing what a lifecycle means is a decision: write the ADR, then change the hash."""
    assert machine.fingerprint() == GOLDEN[machine.name]


def test_every_machine_has_a_golden_hash() -> None:
    assert set(GOLDEN) == set(MACHINES)


def test_a_refusal_names_the_state_the_event_the_actor_and_what_is_allowed() -> None:
    answer = lamp().fire("on", "stop", "off", Actor.WORKER)
    assert isinstance(answer, Refusal)
    assert answer.code == "wrong_actor"
    assert answer.allowed == ()
    assert "worker may not stop from on to off" in answer.message
    assert "Allowed here for worker: nothing." in answer.message
    by_user = lamp().fire("on", "make", "on", Actor.USER)
    assert isinstance(by_user, Refusal)
    assert by_user.allowed == ("stop -> off", "note")
    assert "the lifecycle declares no such move" in by_user.message


def test_words_that_no_machine_knows_are_refused_and_not_remembered() -> None:
    """A caller's own words must not fill the memory of a server that runs for years."""
    machine = lamp()
    for number in range(3):
        assert isinstance(machine.fire("on", f"dim-{number}", "off", Actor.USER), Refusal)
        assert isinstance(machine.fire(f"dim-{number}", "stop", "off", Actor.USER), Refusal)
        assert isinstance(machine.fire("on", "stop", f"dim-{number}", Actor.USER), Refusal)
    assert machine.remembered == 0
    for _ in range(3):
        assert isinstance(machine.fire("off", "stop", "on", Actor.USER), Refusal)
    assert machine.remembered == 1


def test_a_refusal_of_a_birth_and_of_an_amendment_read_well() -> None:
    born = lamp().refusal("odd", None, "make", Actor.USER, detail="it is odd")
    assert "user may not make from (new): it is odd." in born.message
    assert lamp().refusal("odd", "on", "note", Actor.USER).message.count("odd") == 1


def test_a_refusal_can_be_raised_with_its_facts() -> None:
    answer = lamp().fire("off", "stop", "off", Actor.USER)
    assert isinstance(answer, Refusal)
    error = answer.error()
    assert isinstance(error, IllegalTransition)
    assert error.code == "illegal_transition"
    assert error.retryable is False
    assert error.fields["state"] == "off"
    assert error.fields["code"] == "final"
    assert str(error) == error.message == answer.message


def test_a_machine_knows_its_initial_and_terminal_states_events_and_triples() -> None:
    machine = lamp()
    assert machine.initial == {"on"}
    assert machine.terminal == {"off"}
    assert machine.events == ("make", "stop", "note")
    assert machine.triples == {
        (None, "make", "on"),
        ("on", "stop", "off"),
        ("on", "note", None),
        ("off", "note", None),
    }
    assert machine.state("on") is ON
    assert lamp(causes=("why", "how")).causes == ("why", "how")


def test_the_fingerprint_covers_every_part_of_the_table() -> None:
    asking = Edge("stop", ("on",), "off", (Actor.USER,), "Stopped.", ("careful",))
    prints = {
        lamp().fingerprint(),
        lamp(amendments=()).fingerprint(),
        lamp(causes=("why",)).fingerprint(),
        lamp(states=(ON, State("off", Phase.DONE, "Dark."))).fingerprint(),
        lamp(edges=(BORN, asking), guards=(Guard("careful", "be"),)).fingerprint(),
        lamp(edges=(BORN, asking), guards=(Guard("careful", "so"),)).fingerprint(),
    }
    assert len(prints) == 6
    assert lamp().fingerprint() == lamp().fingerprint()


@pytest.mark.parametrize(
    ("fault", "changed"),
    [
        ("a state is declared twice", {"states": (ON, OFF, OFF)}),
        ("nothing can be born: no edge starts from (new)", {"edges": (STOP,)}),
        (
            "unknown states ['dim']",
            {"edges": (BORN, STOP, Edge("d", ("on",), "dim", (Actor.USER,), ""))},
        ),
        (
            "unknown states ['dim']",
            {"edges": (BORN, STOP, Edge("d", ("dim",), "on", (Actor.USER,), ""))},
        ),
        ("unknown states ['dim']", {"amendments": (Amendment("n", ("dim",), (Actor.USER,), ""),)}),
        ("guards do not match: ['x']", {"guards": (Guard("x", ""),)}),
        ("a move for nobody", {"amendments": (Amendment("n", ("on",), (), ""),)}),
        ("a (source, event, target) is declared twice", {"edges": (BORN, STOP, STOP)}),
        ("a (source, event, target) is declared twice", {"amendments": (NOTE, NOTE)}),
        (
            "an edge leaves a terminal state",
            {"edges": (BORN, STOP, Edge("r", ("off",), "on", (Actor.USER,), ""))},
        ),
        ("a state cannot be reached", {"states": (ON, OFF, State("lost", Phase.DONE, ""))}),
        (
            "a state that is not terminal has no way out",
            {"states": (ON, State("off", Phase.WAITING, ""))},
        ),
        ("a state or an event has no name", {"states": (ON, OFF, State("", Phase.DONE, ""))}),
        (
            "a state or an event has no name",
            {"edges": (BORN, STOP, Edge("", ("on",), "off", (Actor.USER,), ""))},
        ),
        (
            "a state or an event has no name",
            {"amendments": (Amendment("", ("on",), (Actor.USER,), ""),)},
        ),
        (
            "no end can be reached from ['dim', 'dull']",
            {
                "states": (ON, OFF, State("dull", Phase.READY, ""), State("dim", Phase.READY, "")),
                "edges": (
                    BORN,
                    STOP,
                    Edge("d", ("on", "dull"), "dim", (Actor.USER,), ""),
                    Edge("u", ("dim",), "dull", (Actor.USER,), ""),
                ),
            },
        ),
        (
            "no end can be reached from ['on']",
            {
                "states": (ON,),
                "edges": (BORN, Edge("k", ("on",), "on", (Actor.USER,), "")),
                "amendments": (),
            },
        ),
    ],
)
def test_a_table_that_contradicts_itself_cannot_be_built(fault: str, changed: Any) -> None:
    with pytest.raises(BadMachine) as caught:
        lamp(**changed)
    assert caught.value.message == f"machine lamp: {fault}"
    assert caught.value.fields == {"machine": "lamp"}


@pytest.mark.parametrize("name", Machine.__slots__)
def test_a_table_that_was_built_cannot_be_changed(name: str) -> None:
    """All of a process share it: one careless line must not make every move illegal, or legal."""
    machine = lamp()
    before = getattr(machine, name)
    with pytest.raises(AttributeError, match=f"a machine cannot be changed: {name}"):
        setattr(machine, name, ())
    with pytest.raises(AttributeError, match=f"a machine cannot be changed: {name}"):
        delattr(machine, name)
    assert getattr(machine, name) is before
    assert isinstance(machine.fire("on", "stop", "off", Actor.USER), Transition)


def test_a_table_can_be_built_only_once() -> None:
    machine = lamp()
    with pytest.raises(AttributeError, match="cannot be changed"):
        machine.__init__("lamp", states=(ON, OFF), edges=(BORN, STOP))  # type: ignore[misc]
    assert machine.amendments == (NOTE,)


def test_a_new_attribute_is_refused_too() -> None:
    with pytest.raises(AttributeError, match="a machine cannot be changed: colour"):
        setattr(lamp(), "colour", "red")  # noqa: B010 - the type checker knows better
