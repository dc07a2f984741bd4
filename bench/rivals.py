"""The job machine rebuilt with two other libraries, edge by edge from our table.

A rival knows no actors and chooses the target by itself, so each of its triggers is named after
the event *and* the target: then all three libraries answer the same question. Creation is left out,
because a rival's object is born with a state. `moves` of each proves that nothing else is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import statemachine
import transitions

from detent.lifecycle.job import JOB

__all__ = ["moves", "statemachine_job", "transitions_job"]

START = "available"


def moves() -> set[tuple[str, str, str]]:
    """Every (source, trigger, target) that a rival must have."""
    return set(_moves())


def transitions_job() -> tuple[transitions.Machine, Any]:
    """The machine and its model, without the `to_<state>` shortcuts that would allow anything."""
    model = type("Model", (), {})()
    machine = transitions.Machine(
        model,
        states=[str(state.name) for state in JOB.states],
        transitions=[
            {"trigger": trigger, "source": source, "dest": target}
            for source, trigger, target in _moves()
        ],
        initial=START,
        auto_transitions=False,
    )
    built = {
        (one.source, name, one.dest)
        for name, event in machine.events.items()
        for found in event.transitions.values()
        for one in found
    }
    assert built == moves(), "transitions has another machine"
    return machine, model


def statemachine_job() -> Any:
    """An instance in the same state; its class is made from the table as if it were written out."""
    states = {
        str(state.name): statemachine.State(
            str(state.name), initial=state.name == "scheduled", final=state.is_terminal
        )
        for state in JOB.states
    }
    body: dict[str, Any] = dict(states)
    for source, trigger, target in _moves():
        edge = states[source].to(states[target])
        body[trigger] = body[trigger] | edge if trigger in body else edge
    kind: Any = type("StatemachineJob", (statemachine.StateMachine,), body)
    built = {
        (one.source.id, event.id, target.id)
        for state in kind.states
        for one in state.transitions
        for event in one.events
        for target in one.targets
    }
    assert built == moves(), "python-statemachine has another machine"
    return kind(start_value=START)


def _moves() -> Iterator[tuple[str, str, str]]:
    for edge in JOB.edges:
        for source in edge.sources:
            if source is not None:
                yield str(source), f"{edge.event}_{edge.target}", str(edge.target)
