"""The job table says exactly what the design says, written out here a second time on purpose."""

from __future__ import annotations

import pytest

from detent.lifecycle.job import GUARDS, JOB, Cause, JobEvent, JobState
from detent.lifecycle.machine import Actor, Phase

U, W, S = Actor.USER, Actor.WORKER, Actor.SYSTEM
LIVE = ("scheduled", "available", "pending", "active", "retryable")
ENDED = ("completed", "discarded", "cancelled")

EDGES: dict[tuple[str | None, str, str], set[Actor]] = {
    (None, "enqueue", "scheduled"): {U, S},
    (None, "enqueue", "available"): {U, S},
    ("scheduled", "due", "available"): {S},
    ("retryable", "due", "available"): {S},
    ("available", "claim", "active"): {W},
    ("available", "dispatch", "pending"): {S},
    ("pending", "acknowledge", "active"): {W},
    ("active", "complete", "completed"): {W},
    ("active", "fail", "retryable"): {W},
    ("active", "fail", "discarded"): {W, S},
    ("active", "snooze", "retryable"): {W},
    ("active", "time_out", "retryable"): {S},
    ("active", "time_out", "discarded"): {S},
    ("active", "lose", "retryable"): {W, S},
    ("active", "lose", "discarded"): {W, S},
    ("active", "hand_back", "retryable"): {W, S},
    ("pending", "refuse", "retryable"): {W},
    ("pending", "refuse", "discarded"): {W},
    ("pending", "time_out", "retryable"): {S},
    ("pending", "time_out", "discarded"): {S},
    ("pending", "lose", "retryable"): {S},
    ("pending", "lose", "discarded"): {S},
    ("pending", "hand_back", "retryable"): {S},
    **{(state, "expire", "discarded"): {S} for state in ("scheduled", "available", "retryable")},
    **{(state, "drop", "discarded"): {S} for state in ("scheduled", "available", "retryable")},
    **{(state, "cancel", "cancelled"): {U, S} for state in LIVE if state != "active"},
    ("active", "cancel", "cancelled"): {U, S, W},
}
AMENDMENTS: dict[str, tuple[tuple[str, ...], set[Actor]]] = {
    "cancel_requested": (("active",), {U, S}),
    "cancel_seen": (("active",), {W, S}),
    "interrupted": (("active",), {W, S}),
    "held": (LIVE, {U, S}),
    "activated": (LIVE, {U, S}),
    "reprioritised": (LIVE, {U}),
    "rescheduled": (("scheduled", "retryable"), {U, S}),
    "moved": (("scheduled", "available", "retryable"), {U, S}),
    "checkpointed": (LIVE, {W, U}),
    "received": (("pending",), {W}),
    "annotated": ((*LIVE, *ENDED), {U, W}),
    "erased": (ENDED, {U, S}),
}


def test_the_edges_are_those_of_the_design_with_their_actors() -> None:
    found: dict[tuple[str | None, str, str], set[Actor]] = {}
    for edge in JOB.edges:
        for source in edge.sources:
            found[(source, edge.event, edge.target)] = set(edge.actors)
    assert found == EDGES


def test_the_amendments_are_those_of_the_design_with_their_actors() -> None:
    found = {one.event: (set(one.states), set(one.actors)) for one in JOB.amendments}
    assert found == {event: (set(states), who) for event, (states, who) in AMENDMENTS.items()}


def test_there_are_eight_states_and_three_of_them_are_final() -> None:
    assert [state.name for state in JOB.states] == [state.value for state in JobState]
    assert JOB.terminal == set(ENDED)
    assert JOB.initial == {"scheduled", "available"}


def test_every_state_has_its_phase() -> None:
    phases = {state.name: state.phase for state in JOB.states}
    assert phases == {
        "scheduled": Phase.WAITING,
        "available": Phase.READY,
        "pending": Phase.ASSIGNED,
        "active": Phase.RUNNING,
        "retryable": Phase.WAITING,
        **dict.fromkeys(ENDED, Phase.DONE),
    }


def test_every_event_and_cause_word_is_in_the_table() -> None:
    assert set(JOB.events) == {event.value for event in JobEvent}
    assert JOB.causes == tuple(cause.value for cause in Cause)


def test_every_guard_of_the_table_is_a_function_and_no_function_is_left_over() -> None:
    assert {guard.name for guard in JOB.guards} == set(GUARDS)


@pytest.mark.parametrize("move", [*JOB.edges, *JOB.amendments, *JOB.states, *JOB.guards])
def test_every_row_says_what_it_means(move: object) -> None:
    meaning = str(getattr(move, "meaning"))  # noqa: B009
    assert meaning.strip() == meaning != ""
