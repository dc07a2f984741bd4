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
from detent.lifecycle.event import By, Event, WorkerFacts
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
        assert doubts(self.events) == []
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


def doubts(events: Sequence[Event]) -> list[str]:
    """What is doubted of a history, event by event."""
    found, one = [], None
    for event in events:
        found.append(w.doubted(one, event))
        one = w.apply(one, event)
    return [doubt for doubt in found if doubt is not None]


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


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "start", "source": "created", "target": "starting"},
        {"name": "start"},
        {"source": "created"},
        {"target": "running"},
        {"target": None},
        {"kind": "job"},
        {"worker": None},
        {"worker": WorkerFacts(suspendable=True)},
    ],
)
def test_a_history_begins_with_the_birth_into_a_slot(changes: dict[str, Any]) -> None:
    first = msgspec.structs.replace(a_life()[0], **changes)
    with pytest.raises(BadHistory, match=f"its first event is {first.name}, which creates nothing"):
        w.fold([first])


@pytest.mark.parametrize(
    ("place", "changes", "word"),
    [
        (1, {"worker": WorkerFacts(governor="whim")}, "'whim' is no Governor"),
        (5, {"worker": WorkerFacts(health="fine")}, "'fine' is no Health"),
        (8, {"cause": "spite"}, "'spite' is no Cause"),
        (9, {"target": "gone"}, "'gone' is no WorkerState"),
        (5, {"name": "stop_requested", "cause": "spite"}, "'spite' is no Cause"),
        (5, {"name": "hold_changed", "worker": WorkerFacts(governor="")}, "'' is no Governor"),
    ],
)
def test_a_word_that_no_worker_knows_is_not_folded(
    place: int, changes: dict[str, Any], word: str
) -> None:
    events = a_life()[: place + 1]
    events[place] = msgspec.structs.replace(events[place], **changes)
    with pytest.raises(BadHistory, match=word) as caught:
        w.fold(events)
    assert caught.value.message.startswith(f"worker i-1 version {place + 1} (")
    assert caught.value.fields == {
        "record": "i-1",
        "version": place + 1,
        "word": word.split("'")[1],
    }


def test_an_amendment_without_its_facts_still_folds() -> None:
    """Older events may know less: the record then says so."""
    birth, *later = a_life()
    events = [birth, *(msgspec.structs.replace(one, worker=None) for one in later)]
    one = w.fold(events)
    assert one is not None
    assert (one.pid, one.health) == (None, Health.UNKNOWN)
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
        (1, {"worker": WorkerFacts(governor="whim")}, "'whim' is no Governor"),
    ],
)
def test_a_broken_history_is_found_out(place: int, changes: dict[str, Any], fault: str) -> None:
    events = a_life()[: place + 1]
    events[place] = msgspec.structs.replace(events[place], **changes)
    found = audit(events)
    assert found is not None
    assert fault in found.why


@pytest.mark.parametrize(
    ("place", "changes", "doubt"),
    [
        (0, {"worker": None}, "it does not carry slot"),
        (0, {"worker": WorkerFacts(slot="mail")}, None),
        (0, {"cause": "natural"}, "create from (new) does not happen for natural"),
        (1, {"worker": None}, "it does not carry governor"),
        (1, {"cause": "lost"}, "hold from created does not happen for lost"),
        (3, {"worker": None}, "it does not carry pid, process_at"),
        (3, {"worker": WorkerFacts(pid=5)}, "it does not carry process_at"),
        (
            3,
            {"worker": WorkerFacts(pid=0, process_at=1)},
            "only if the process is named by a positive pid and by its birth",
        ),
        (5, {"worker": WorkerFacts()}, "it does not carry health"),
        (8, {"cause": "oom"}, "stop from running does not happen for oom"),
        (8, {"cause": None}, "stop from running does not happen for no cause"),
        (9, {"cause": None}, "comply from stopping does not happen for no cause"),
        (9, {"cause": "natural"}, "comply from stopping does not happen for natural"),
        (9, {"name": "bless"}, "bless from stopping does not happen for requested"),
        (9, {"name": "bless", "cause": None}, None),
    ],
)
def test_an_event_that_was_not_decided_so_is_doubted(
    place: int, changes: dict[str, Any], doubt: str | None
) -> None:
    """A history can be edited: what the decision wrote, and only that, is believed."""
    events = a_life()
    before = w.fold(events[:place])
    assert w.doubted(before, events[place]) is None
    assert w.doubted(before, msgspec.structs.replace(events[place], **changes)) == doubt


def amended(before: w.Instance, name: str, target: S | None = None, **more: Any) -> Event:
    """An event on top of that record, as a forger would write it."""
    birth = a_life()[0]
    return msgspec.structs.replace(
        birth,
        version=before.version + 1,
        at=before.last_at,
        name=name,
        source=before.state,
        target=target,
        **{"worker": None, **more},
    )


@pytest.mark.parametrize(
    ("state", "record", "event", "doubt"),
    [
        (
            S.RUNNING,
            {"suspendable": False},
            ("suspend", S.SUSPENDED, None),
            "the worker can go quiet and come back",
        ),
        (
            S.STARTING,
            {"stop_requested": True},
            ("ready", S.RUNNING, None),
            "no stop has been requested",
        ),
        (
            S.STOPPING,
            {"killed": True},
            ("comply", S.STOPPED, "requested"),
            "no order to kill was recorded; after one, only killed is left",
        ),
        (
            S.STOPPING,
            {"killed": False},
            ("kill", S.KILLED, "grace_exceeded"),
            "the order to kill was recorded before it was carried out",
        ),
    ],
)
def test_what_the_record_forbade_is_doubted(
    state: S, record: dict[str, Any], event: tuple[str, S, str | None], doubt: str
) -> None:
    before = instance(state, **record)
    name, target, cause = event
    forged = amended(before, name, target, cause=cause)
    assert w.doubted(before, forged) == f"only if {doubt}"
    field, value = next(iter(record.items()))
    allowing = msgspec.structs.replace(before, **{field: not value})
    assert w.doubted(allowing, forged) is None


def test_a_second_process_is_doubted_and_breaks_the_life() -> None:
    before = instance(S.STARTING, pid=7, process_at=3)
    for facts in (WorkerFacts(pid=8, process_at=3), WorkerFacts(pid=7, process_at=4)):
        event = amended(before, "spawned", worker=facts)
        assert w.doubted(before, event) == (
            "only if no process has been recorded for this instance before"
        )
        after = w.apply(before, event)
        assert w.broken(before, event, after) == "an instance is one process for life"


@pytest.mark.parametrize(
    ("known", "force_at", "doubt"),
    [
        (50, 49, None),
        (50, 50, "it moves the end of the grace from 50 to 50"),
        (50, 51, "it moves the end of the grace from 50 to 51"),
        (50, None, "it does not carry force_at"),
        (None, 50, None),
        (0, 1, "it moves the end of the grace from 0 to 1"),
    ],
)
def test_a_grace_that_grows_is_doubted(
    known: int | None, force_at: int | None, doubt: str | None
) -> None:
    """W-10."""
    before = instance(S.STOPPING, force_at=known)
    event = amended(before, "hastened", force_at=force_at)
    assert w.doubted(before, event) == doubt
    broken = w.broken(before, event, w.apply(before, event))
    has_grown = known is not None and (force_at is None or force_at > known)
    assert broken == ("the grace never grows" if has_grown else None)


def test_there_is_no_grace_to_cut_before_a_stop() -> None:
    event = amended(instance(S.STARTING), "hastened", force_at=9)
    doubt = w.doubted(instance(S.STARTING), event)
    assert doubt == "no stop was asked for whose grace could be cut"
    asked = instance(S.STARTING, stop_requested=True)
    assert w.doubted(asked, event) is None
    assert w.doubted(None, event) is None


@pytest.mark.parametrize(
    ("place", "changes", "fault"),
    [
        (1, {"worker": None}, "a governor holds exactly what is pending"),
        (9, {"cause": None}, "ended_at and cause are set exactly in a terminal state"),
    ],
)
def test_a_step_that_leaves_a_broken_record_is_found(
    place: int, changes: dict[str, Any], fault: str
) -> None:
    events = a_life()
    before = w.fold(events[:place])
    event = msgspec.structs.replace(events[place], **changes)
    assert w.broken(before, event, w.apply(before, event)) == fault


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
