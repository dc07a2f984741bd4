"""Whole lives of workers: random ones keep every rule, and broken ones are found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import BadHistory
from detent.lifecycle import worker as w
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.replay import audit
from detent.lifecycle.worker import Accepted, Cause, Ending, Exit, Governor, Health, Unchanged
from detent.lifecycle.worker import WorkerState as S

Seen = Counter[tuple[str | None, str, str | None]]
Act = Callable[[w.Instance, w.Order, int], w.Answer]

EXITS = (
    *(Exit(how) for how in Ending if how not in (Ending.EXITED, Ending.SIGNALLED)),
    *(Exit.of_process(code) for code in (0, 0, 0, 1, 143, -2, -9, -11, -15)),
    Exit.of_process(-9, is_forced=True),
)
STOPS = (Cause.REQUESTED, Cause.RECYCLED, Cause.PROBE_FAILED)
ACTS: tuple[Act, ...] = (
    lambda one, order, _n: w.start(one, order),
    lambda one, order, n: w.hold(one, tuple(Governor)[n % 5], order.now + n, order),
    lambda one, order, n: w.spawned(one, n + 1, order.now, order),
    lambda one, order, _n: w.ready(one, order),
    lambda one, order, _n: w.ready(one, order),
    lambda one, order, _n: w.suspend(one, order),
    lambda one, order, _n: w.resume(one, order),
    lambda one, order, n: w.change_health(one, tuple(Health)[n % 3], order),
    lambda one, order, n: w.stop(one, order, force_at=order.now + n, cause=STOPS[n % 3]),
    lambda one, order, n: w.stop(one, order, force_at=order.now - n),
    lambda one, order, _n: w.order_kill(one, order),
    lambda one, order, _n: w.kill(one, order),
    lambda one, order, _n: w.lose(one, order),
    lambda one, order, n: w.move(one, tuple(S)[n % 10], order),
    lambda one, order, n: w.end(one, EXITS[n % len(EXITS)], order, needs_ready_signal=n % 2 == 0),
    lambda one, order, n: w.end(one, EXITS[n % len(EXITS)], order, needs_ready_signal=n % 3 == 0),
)
# Rare for a reason: most lives would be over before anything else had happened.
WEIGHTS = (9, 5, 4, 9, 9, 9, 9, 6, 4, 4, 2, 1, 1, 2, 2, 2)
BYS = tuple(By(kind, f"{kind}-1") for kind in Actor)


class Life:
    """One instance and its whole history, judged again after every step."""

    def __init__(self) -> None:
        made = w.create(w.Birth("i-1", "mail", suspendable=True), w.Order(0, BYS[2], "c-0"))
        assert isinstance(made, Accepted)
        self.instance = made.instance
        self.events = list(made.events)

    def step(self, act: int, by: int, now: int, number: int) -> None:
        order = w.Order(now, BYS[by], f"c-{len(self.events)}", is_slot_ready=number % 7 != 0)
        answer = ACTS[act](self.instance, order, number)
        if isinstance(answer, Accepted):
            assert answer.events
            assert len({event.command_id for event in answer.events}) == 1
            self.instance = answer.instance
            self.events += answer.events
            self.check()
        elif isinstance(answer, Unchanged):
            assert answer.instance is self.instance
        else:
            assert (answer.machine, answer.state) == ("worker", self.instance.state)
            assert answer.message.startswith(f"worker: {answer.actor} may not {answer.event}")

    def check(self) -> None:
        assert audit(self.events, self.instance) is None
        assert w.faults(self.instance) == ()
        assert w.fold(self.events) == self.instance
        assert self.instance.version == len(self.events)
        ends = [one for one in self.events if one.target and S(one.target).is_terminal]
        assert len(ends) == (1 if self.instance.state.is_terminal else 0)
        starts = [one.at for one in self.events if (one.name, one.target) == ("ready", "running")]
        assert self.instance.started_at == (starts[0] if starts else None)
        if self.instance.state is S.KILLED:
            assert self.events[-1].source == S.STOPPING

    def count(self, seen: Seen) -> None:
        seen.update((event.source, event.name, event.target) for event in self.events)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(ACTS) - 1),
            st.integers(0, 2),
            st.integers(0, 1000),
            st.integers(0, 200),
        ),
        max_size=25,
    )
)
def test_any_sequence_of_requests_keeps_every_rule(
    steps: Sequence[tuple[int, int, int, int]],
) -> None:
    life = Life()
    for step in steps:
        life.step(*step)


def test_a_seeded_driver_takes_every_move_of_the_table() -> None:
    """Green means little unless every (source, event, target) was seen."""
    seen: Seen = Counter()
    for seed in range(400):
        rng, life, now = Random(seed), Life(), 0
        for act in rng.choices(range(len(ACTS)), WEIGHTS, k=20):
            now += rng.randrange(-5, 50)
            life.step(act, rng.choice((0, 1, 2, 2)), now, rng.randrange(200))
        life.count(seen)
    assert set(seen) == w.WORKER.triples


def a_life() -> list[Event]:
    life = Life()
    for act, number in ((1, 1), (0, 1), (2, 5), (3, 1), (7, 1), (5, 1), (6, 1), (8, 3)):
        life.step(act, 2, len(life.events), number)
    life.step(14, 2, 50, EXITS.index(Exit.of_process(0)))
    assert " ".join(event.name for event in life.events) == (
        "create hold release spawned ready health_changed suspend resume stop comply"
    )
    return life.events


def test_a_history_survives_the_wire() -> None:
    """Events are data: encoded and decoded they tell the same life."""
    events = a_life()
    wire = msgspec.json.encode(events)
    assert w.fold(msgspec.json.decode(wire, type=list[Event])) == w.fold(events)


def test_no_history_is_no_instance() -> None:
    assert w.fold(()) is None
    assert audit(()) is None


def test_an_unknown_amendment_is_not_folded_away() -> None:
    events = a_life()
    strange = msgspec.structs.replace(events[-1], name="blessed", target=None)
    with pytest.raises(BadHistory, match="blessed") as caught:
        w.fold([*events, strange])
    assert caught.value.fields == {"event": "blessed", "version": 10}


def test_an_amendment_without_its_facts_still_folds() -> None:
    """Older events may know less: the record then says so."""
    events = [msgspec.structs.replace(one, worker=None) for one in a_life()]
    one = w.fold(events)
    assert one is not None
    assert (one.slot, one.pid, one.health) == ("", None, Health.UNKNOWN)
    asked = msgspec.structs.replace(events[3], name="stop_requested", cause=None)
    again = w.fold([*events[:3], asked])
    assert again is not None
    assert again.cause is Cause.REQUESTED


@pytest.mark.parametrize(
    ("place", "changes", "fault"),
    [
        (3, {"version": 9}, "version 4 is missing"),
        (3, {"at": 0}, "event times never decrease"),
        (4, {"actor": Actor.USER}, "not for this actor"),
        (4, {"source": "running"}, "it starts from running, but the record stood at starting"),
        (4, {"target": "killed"}, "the lifecycle declares no such move"),
        (3, {"record": "i-2"}, "an event of another record"),
        (1, {"worker": None}, "a governor holds exactly what is pending"),
        (9, {"cause": None}, "ended_at and cause are set exactly in a terminal state"),
    ],
)
def test_a_broken_history_is_found_out(place: int, changes: dict[str, Any], fault: str) -> None:
    events = a_life()[: place + 1]
    events[place] = msgspec.structs.replace(events[place], **changes)
    found = audit(events)
    assert found is not None
    assert fault in found.why


def instance(state: S, **more: Any) -> w.Instance:
    """A sound record in `state`, before it is spoiled."""
    sound: dict[str, Any] = {"started_at": 3} if state not in (S.CREATED, S.PENDING) else {}
    if state.is_terminal:
        sound |= {"ended_at": 5, "cause": Cause.NATURAL}
    if state in (S.STOPPING, S.KILLED):
        sound |= {"stop_requested": True, "killed": state is S.KILLED}
    if state is S.PENDING:
        sound |= {"governor": Governor.RATE}
    if state is S.STARTING:
        sound.pop("started_at")
    return w.Instance("", "i", "s", 4, state, 1, 5, 6, 7, **{**sound, **more})


@pytest.mark.parametrize("state", S)
def test_a_sound_record_has_no_faults(state: S) -> None:
    assert w.faults(instance(state)) == ()


@pytest.mark.parametrize(
    ("state", "spoiled", "fault"),
    [
        (S.CREATED, {"started_at": 3}, "started_at is set by entering running, and only by that"),
        (
            S.RUNNING,
            {"started_at": None},
            "started_at is set by entering running, and only by that",
        ),
        (S.RUNNING, {"resumed_at": 2}, "resumed_at never precedes started_at"),
        (S.STOPPED, {"started_at": None, "resumed_at": 2}, "resumed_at never precedes started_at"),
        (S.FAILED, {"ended_at": None}, "ended_at and cause are set exactly in a terminal state"),
        (S.FAILED, {"ended_at": 4}, "ended_at and cause are set exactly in a terminal state"),
        (S.FAILED, {"cause": None}, "ended_at and cause are set exactly in a terminal state"),
        (S.RUNNING, {"ended_at": 5}, "ended_at and cause are set exactly in a terminal state"),
        (S.RUNNING, {"exit_code": 0}, "ended_at and cause are set exactly in a terminal state"),
        (S.PENDING, {"governor": None}, "a governor holds exactly what is pending"),
        (S.RUNNING, {"governor": Governor.RATE}, "a governor holds exactly what is pending"),
        (S.RUNNING, {"due_at": 9}, "only what is pending is due"),
        (S.STOPPING, {"stop_requested": False}, "a stop was asked for where the state says so"),
        (S.FINISHED, {"stop_requested": True}, "a stop was asked for where the state says so"),
        (S.KILLED, {"killed": False}, "the killed flag is raised only while stopping"),
        (S.FAILED, {"killed": True}, "the killed flag is raised only while stopping"),
        (S.RUNNING, {"pid": 7}, "a process is a pid and its birth"),
        (S.STOPPING, {"health": Health.HEALTHY}, "health is known only while running"),
    ],
)
def test_every_rule_catches_what_breaks_it(state: S, spoiled: dict[str, Any], fault: str) -> None:
    assert w.faults(instance(state, **spoiled)) == (fault,)


@pytest.mark.parametrize(
    "spoiled",
    [{"created_at": 6}, {"state_at": 7}, {"updated_at": 8}],
)
def test_the_times_of_a_record_are_in_order(spoiled: dict[str, int]) -> None:
    one = msgspec.structs.replace(instance(S.RUNNING), **spoiled)
    assert w.faults(one) == ("created <= state <= updated <= last",)


def test_versions_count_from_one() -> None:
    one = msgspec.structs.replace(instance(S.RUNNING), version=0)
    assert w.faults(one) == ("version counts events from 1",)
