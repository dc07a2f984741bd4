"""The worker lifecycle: all pairs, all ends, all composite moves, none sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest

from detent.errors import IllegalTransition
from detent.lifecycle import worker as w
from detent.lifecycle.event import By, WorkerFacts
from detent.lifecycle.machine import Actor, Refusal, Transition
from detent.lifecycle.worker import (
    Accepted,
    Cause,
    Ending,
    Exit,
    Governor,
    Health,
    Unchanged,
)
from detent.lifecycle.worker import WorkerState as S
from detent.lifecycle.worker.guards import HOLDS
from tests.lifecycle.worker_making import (
    AMENDMENTS,
    EDGES,
    HELD,
    START,
    SYSTEM,
    TERMINAL,
    USER,
    WORKER,
    at,
    born,
    done,
    order,
    refused,
    told,
    unchanged,
)

# --- the table -----------------------------------------------------------------------------


def test_the_machine_is_the_contract_edge_by_edge() -> None:
    """Section 3: seventeen numbered edges, one birth, and nothing else."""
    assert {key: (pair[0], w.EDGE_EVENTS[pair], pair[1]) for pair, key in w.EDGE_IDS.items()} == {
        key: row[:3] for key, row in EDGES.items()
    }
    assert len(w.WORKER.edges) == 18
    assert w.WORKER.initial == {"created"}
    assert w.WORKER.terminal == {"stopped", "finished", "failed", "killed"}
    assert {state.value for state in S} == {state.name for state in w.WORKER.states}
    assert [state for state in S if state.is_terminal] == list(TERMINAL)


def test_every_state_event_target_and_actor_is_answered_as_the_contract_says() -> None:
    """All combinations, births and amendments included."""
    legal: set[tuple[str | None, str, str | None, str]]
    legal = {(None, "create", S.CREATED, actor) for actor in ("user", "system")}
    legal |= {(s, e, t, a) for s, e, t, who in EDGES.values() for a in who.split()}
    legal |= {(state, event, None, a) for state, event, who in AMENDMENTS for a in who.split()}
    for question in product((None, *S), w.WORKER.events, (None, *S), Actor):
        assert isinstance(w.WORKER.fire(*question), Transition) == (question in legal), question


def test_states_are_shown_capitalised_and_none_is_called_cancelled() -> None:
    """W-01, W-02: the status is the capitalised name; a cancelled worker is a stopped one."""
    assert [state.status for state in S] == [state.name.capitalize() for state in S]
    assert at(S.RUNNING).status == "Running"
    assert "cancelled" not in {str(state) for state in S}


def test_the_words_for_why_are_frozen() -> None:
    """W-17."""
    assert " ".join(w.WORKER.causes) == (
        "natural requested external_signal grace_exceeded oom sigkill_external crash_signal"
        " exit_code exception spawn_error init_timeout init_killed probe_failed"
        " exited_before_ready exit_while_suspended recycled lost"
    )


# --- single moves ----------------------------------------------------------------------------


def test_of_a_hundred_pairs_seventeen_move_ten_stay_and_seventy_three_are_refused() -> None:
    """W-06, W-07, W-10: a refusal leaves the record alone and names where it stands."""
    pairs = {(source, target): key for key, (source, _, target, _) in EDGES.items()}
    count: Counter[str] = Counter()
    for source, target in product(S, S):
        before = at(source, ordered=target is S.KILLED)
        answer = w.move(before, target, order(), HELD if target is S.PENDING else None)
        count[type(answer).__name__] += 1
        match answer:
            case Accepted():
                assert told(answer) == [pairs[source, target]]
                assert answer.instance.state is target
                assert answer.instance.version == before.version + 1
                assert not w.faults(answer.instance)
            case Unchanged():
                assert source is target
                assert answer.instance is before
            case Refusal():
                assert (source, target) not in pairs
                assert (answer.state, answer.target) == (source, target)
                assert answer.code == ("final" if source.is_terminal else "no_edge")
    assert count == {"Accepted": 17, "Unchanged": 10, "Refusal": 73}


def test_a_refusal_can_be_raised_with_its_facts() -> None:
    """W-07: the exception carries the states and the trigger as fields."""
    error = refused(w.move(at(S.CREATED), S.KILLED, order())).error()
    assert isinstance(error, IllegalTransition)
    assert error.fields["state"] == "created"
    assert (error.fields["event"], error.fields["target"]) == ("kill", "killed")


@pytest.mark.parametrize("state", S)
def test_start_works_from_created_and_pending_only(state: S) -> None:
    """W-08: anything else is refused with the current state named."""
    answer = w.start(at(state), order(by=USER))
    if state in (S.CREATED, S.PENDING):
        assert told(answer) == ["E1" if state is S.CREATED else "E3"]
    else:
        assert refused(answer).state == state
        assert (refused(answer).event, refused(answer).target) == ("start", "starting")


@pytest.mark.parametrize("state", [S.CREATED, S.PENDING])
def test_a_start_needs_a_slot_that_is_ready(state: S) -> None:
    """E1, E3: not into a taken slot, not while the supervisor stops."""
    answer = w.start(at(state), order(is_slot_ready=False))
    edge = ("start", "release")[state is S.PENDING]
    assert answer == Refusal(
        code="not_slot_ready",
        machine="worker",
        state=state,
        event=edge,
        target="starting",
        actor="system",
        allowed=w.WORKER.refusal("", state, "", Actor.SYSTEM).allowed,
        detail=("only if the slot is free, wanted and valid, and its supervisor is not stopping"),
    )
    assert f"{edge} -> starting" in refused(answer).allowed


def test_configuration_may_change_until_the_start() -> None:
    """W-09."""
    assert [state for state in S if at(state).is_configurable] == [S.CREATED, S.PENDING]


def test_a_hold_names_its_governor_and_when_it_is_due() -> None:
    """E2: both are on the record while it is pending, and gone afterwards."""
    held = done(w.hold(born(), Governor.RATE, START + 5, order())).instance
    assert (held.governor, held.due_at) == (Governor.RATE, START + 5)
    started = done(w.start(held, order())).instance
    assert (started.governor, started.due_at) == (None, None)
    assert refused(w.move(born(), S.PENDING, order())).code == "not_governed"
    empty = w.Detail(facts=WorkerFacts())
    assert refused(w.move(born(), S.PENDING, order(), empty)).code == "not_governed"
    assert refused(w.move(held, S.PENDING, order(), empty)).code == "not_governed"


def test_a_hold_said_again_is_recorded_when_it_says_something_else() -> None:
    """E2: governor and due time are what is true now, and the state was entered only once."""
    held = done(w.hold(born(), Governor.RATE, START + 5, order())).instance
    assert unchanged(w.hold(held, Governor.RATE, START + 5, order())) is held
    assert unchanged(w.move(held, S.PENDING, order())) is held
    assert unchanged(w.move(held, S.PENDING, order(), w.Detail(run_at=9))) is held
    for governor, due in ((Governor.BREAKER, START + 5), (Governor.RATE, START + 9)):
        answer = w.hold(held, governor, due, order(START + 1))
        assert told(answer) == ["hold_changed"]
        after = done(answer).instance
        assert (after.governor, after.due_at) == (governor, due)
        assert (after.state_at, after.updated_at) == (held.state_at, held.updated_at)
        assert (after.version, after.last_at) == (held.version + 1, START + 1)
        assert not w.faults(after)
    unlimited = done(w.hold(held, Governor.RATE, None, order())).instance
    assert (unlimited.governor, unlimited.due_at) == (Governor.RATE, None)


@pytest.mark.parametrize("state", S)
def test_suspend_and_resume_are_idempotent_and_refused_elsewhere(state: S) -> None:
    """W-10, W-11."""
    suspend, resume = w.suspend(at(state), order()), w.resume(at(state), order())
    match state:
        case S.RUNNING:
            assert told(suspend) == ["E8"]
            assert isinstance(resume, Unchanged)
        case S.SUSPENDED:
            assert isinstance(suspend, Unchanged)
            assert told(resume) == ["E13"]
        case _:
            assert refused(suspend).event == "suspend"
            assert (refused(resume).event, refused(resume).target) == ("resume", "running")


def test_what_cannot_go_quiet_is_not_suspended() -> None:
    """W-12."""
    one = at(S.RUNNING, suspendable=False)
    answer = refused(w.suspend(one, order(by=USER)))
    assert answer.code == "not_suspendable"
    assert answer.message == (
        "worker: user may not suspend from running to suspended: only if the worker can go quiet"
        " and come back. Allowed here for user: suspend -> suspended, stop -> stopping."
    )


def test_every_guard_of_the_table_can_be_asked() -> None:
    """The supervisor's word is the one that no record can give again."""
    assert {guard.name for guard in w.WORKER.guards} == {*HOLDS, "slot_ready"}


@pytest.mark.parametrize("state", S)
def test_ready_is_reported_once_and_only_while_starting(state: S) -> None:
    answer = w.ready(at(state), order(by=WORKER))
    if state is S.STARTING:
        assert told(answer) == ["E5"]
    elif state is S.RUNNING:
        assert isinstance(answer, Unchanged)
    else:
        assert (refused(answer).event, refused(answer).target) == ("ready", "running")


def test_a_worker_that_was_asked_to_stop_is_not_ready_any_more() -> None:
    """K4: it complies or is forced; there is no third way."""
    asked = done(w.stop(at(S.STARTING), order())).instance
    assert refused(w.ready(asked, order())).code == "not_wanted"


def test_started_at_is_set_on_entering_running_and_a_resume_does_not_move_it() -> None:
    """W-04."""
    one = done(w.ready(at(S.STARTING), order(START + 1))).instance
    quiet = done(w.suspend(one, order(START + 2))).instance
    again = done(w.resume(quiet, order(START + 3))).instance
    assert (one.started_at, one.resumed_at) == (START + 1, None)
    assert (again.started_at, again.resumed_at) == (START + 1, START + 3)


def test_updated_at_moves_with_the_state_and_with_the_health() -> None:
    """W-04, W-83: health is beside the state, and unknown again in the next one."""
    one = done(w.ready(at(S.STARTING), order(START + 1))).instance
    ill = done(w.change_health(one, Health.UNHEALTHY, order(START + 2))).instance
    assert (ill.state_at, ill.updated_at, ill.health) == (START + 1, START + 2, "unhealthy")
    assert unchanged(w.change_health(ill, Health.UNHEALTHY, order())) is ill
    assert done(w.suspend(ill, order())).instance.health is Health.UNKNOWN
    for state in S:
        if state is not S.RUNNING:
            assert isinstance(w.change_health(at(state), Health.UNKNOWN, order()), Refusal)
            assert isinstance(w.change_health(at(state), Health.HEALTHY, order()), Refusal)


def test_time_never_runs_backwards() -> None:
    moved = done(w.start(born(), order(START - 50)))
    assert moved.events[0].at == START


def test_a_process_is_its_pid_and_its_birth() -> None:
    """W-117."""
    one = done(w.spawned(at(S.STARTING), 4711, START - 3, order())).instance
    assert (one.pid, one.process_at) == (4711, START - 3)
    assert refused(w.spawned(at(S.RUNNING), 1, 1, order())).event == "spawned"
    assert done(w.spawned(at(S.STARTING), 1, 1, order())).instance.pid == 1


@pytest.mark.parametrize("pid", [0, -1, -4711])
def test_a_pid_is_positive(pid: int) -> None:
    """To signal 0 or a negative number is to signal a whole group, perhaps our own."""
    assert refused(w.spawned(at(S.STARTING), pid, START, order())).code == "not_identified"


@pytest.mark.parametrize("pid", [4711, 4712])
def test_an_instance_has_one_process(pid: int) -> None:
    """An instance is one attempt: a second process would be a second attempt."""
    one = done(w.spawned(at(S.STARTING), 4711, START, order())).instance
    assert refused(w.spawned(one, pid, START, order())).code == "not_first_process"


def test_a_composite_move_is_refused_from_where_the_record_stands() -> None:
    """What lies between never happened: the refusal names suspended, not the running after it."""
    answer = refused(w.end(at(S.SUSPENDED), Exit(Ending.UNSPAWNED), order()))
    assert (answer.code, answer.state, answer.event) == ("bad_cause", "suspended", "fail")
    assert answer.target == "failed"
    assert answer.allowed == ("resume -> running", "stop -> stopping")
    assert "it does not happen for spawn_error" in answer.message


# What can be asked, by whom (written out by hand), and with which words it is refused.
REQUESTS: dict[str, tuple[Callable[[w.Instance, w.Order], w.Answer], str, str | None]] = {
    "start": (w.start, "user system", "starting"),
    "hold": (lambda one, by: w.hold(one, Governor.RATE, None, by), "system", "pending"),
    "spawned": (lambda one, by: w.spawned(one, 7, START, by), "system", None),
    "ready": (w.ready, "worker system", "running"),
    "suspend": (w.suspend, "user system", "suspended"),
    "resume": (w.resume, "user system", "running"),
    "health_changed": (
        lambda one, by: w.change_health(one, one.health, by),
        "worker system",
        None,
    ),
    "stop": (w.stop, "user system", None),
    "kill_ordered": (w.order_kill, "user system", None),
    "kill": (w.kill, "user system", None),
    "end": (lambda one, by: w.end(one, Exit(Ending.RETURNED), by), "worker system", None),
    "lose": (w.lose, "system", None),
}


@pytest.mark.parametrize(
    ("request_name", "state", "by"), [*product(REQUESTS, S, (USER, WORKER, SYSTEM))]
)
def test_who_may_not_ask_is_refused_wherever_it_stands(request_name: str, state: S, by: By) -> None:
    """W-10: "already so" is an answer for those who may ask, and no bridge hides who asked."""
    ask, askers, target = REQUESTS[request_name]
    one = at(state, ordered=False)
    answer = ask(one, order(by=by))
    if by.kind in askers.split():
        assert not isinstance(answer, Refusal) or answer.code != "wrong_actor"
        return
    assert isinstance(answer, Refusal)
    assert (answer.state, answer.event, answer.actor) == (state, request_name, by.kind)
    if target is not None:
        assert answer.target == target
    if answer.detail:
        assert answer.detail == f"that is for {' or '.join(askers.split())} to ask"


def test_a_worker_is_told_who_may_kill() -> None:
    answer = refused(w.kill(at(S.STARTING), order(by=WORKER)))
    assert answer.message == (
        "worker: worker may not kill from starting: that is for user or system to ask."
        " Allowed here for worker: ready -> running, fail -> failed, comply -> stopped."
    )


@pytest.mark.parametrize(("state", "by"), [*product(S, (USER, WORKER, SYSTEM))])
def test_only_who_could_lead_there_is_told_that_it_is_there_already(state: S, by: By) -> None:
    """W-10, for moves by state: the same actors as of the edges that enter it."""
    entering = " ".join(who for _, _, target, who in EDGES.values() if target is state)
    who = entering or "user system"
    one = at(state)
    answer = w.move(one, state, order(by=by))
    if by.kind in who.split():
        assert unchanged(answer) is one
    else:
        assert (refused(answer).code, refused(answer).target) == ("wrong_actor", state)


def test_only_a_caller_or_the_system_creates() -> None:
    birth = w.Birth("i-1", "mail")
    assert refused(w.create(birth, order(by=WORKER))).code == "wrong_actor"
    one = done(w.create(birth, order(by=USER)))
    assert (one.instance.slot, one.instance.suspendable) == ("mail", False)
    assert one.instance.state_at == one.instance.updated_at == START
    assert one.events[0].kind == "worker"


# --- stopping ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (S.CREATED, ["E2", "E4"]),
        (S.PENDING, ["E4"]),
        (S.STARTING, ["stop_requested"]),
        (S.RUNNING, ["E9"]),
        (S.SUSPENDED, ["E14"]),
    ],
)
def test_stop_is_possible_from_every_live_state(state: S, expected: list[str]) -> None:
    """K1, E4, E9, E14: the wish is on the record and in the name of whoever asked."""
    answer = w.stop(at(state), order(by=USER), force_at=START + 9)
    assert told(answer) == expected
    assert done(answer).instance.stop_requested
    assert done(answer).instance.cause is Cause.REQUESTED
    assert done(answer).events[-1].actor is Actor.USER
    assert not w.faults(done(answer).instance)


def test_k1_passes_through_pending_on_the_supervisors_account() -> None:
    """K1: both edges in one append; what never started has no exit code."""
    one = done(w.stop(born(), order(by=USER)))
    assert [(event.name, event.actor) for event in one.events] == [
        ("hold", "system"),
        ("cancel", "user"),
    ]
    assert {event.command_id for event in one.events} == {"c-1"}
    assert [event.version for event in one.events] == [2, 3]
    assert one.events[0].worker == WorkerFacts(governor=Governor.STOP)
    assert {event.actor_id for event in one.events} == {"ops"}
    assert (one.instance.state, one.instance.exit_code) == (S.STOPPED, None)


@pytest.mark.parametrize("state", TERMINAL)
def test_stop_and_kill_of_an_ended_instance_change_nothing(state: S) -> None:
    """W-10."""
    one = at(state)
    assert unchanged(w.stop(one, order())) is one
    assert unchanged(w.kill(one, order())) is one


@pytest.mark.parametrize("state", [S.STARTING, S.RUNNING])
def test_a_second_stop_may_shorten_the_grace_and_never_extend_it(state: S) -> None:
    """W-10."""
    first = done(w.stop(at(state), order(), force_at=START + 50)).instance
    assert isinstance(w.stop(first, order()), Unchanged)
    assert isinstance(w.stop(first, order(), force_at=START + 50), Unchanged)
    assert isinstance(w.stop(first, order(), force_at=START + 60), Unchanged)
    hastened = w.stop(first, order(), force_at=START + 20)
    assert told(hastened) == ["hastened"]
    assert done(hastened).instance.force_at == START + 20
    unlimited = done(w.stop(at(state), order())).instance
    assert told(w.stop(unlimited, order(), force_at=START + 20)) == ["hastened"]


@pytest.mark.parametrize(("state", "cause"), [*product(S, Cause)])
def test_a_stop_is_asked_for_with_words_for_wishes_only(state: S, cause: Cause) -> None:
    """W-17: nobody asks for a crash; joining a stop that is under way is no way around that."""
    answer = w.stop(at(state), order(by=USER), cause=cause)
    if cause in (Cause.REQUESTED, Cause.RECYCLED, Cause.PROBE_FAILED):
        assert not isinstance(answer, Refusal)
    else:
        assert (refused(answer).code, refused(answer).event) == ("bad_cause", "stop")
        assert refused(answer).detail == f"a stop is not asked for because of {cause}"


def test_a_move_tells_a_cause_that_its_edge_may_have() -> None:
    """The general door is no wider than the others."""
    crash = w.Detail(cause=Cause.CRASH_SIGNAL)
    assert refused(w.move(at(S.RUNNING), S.FINISHED, order(), crash)).code == "bad_cause"
    assert refused(w.move(at(S.RUNNING), S.STOPPING, order(), crash)).code == "bad_cause"
    assert told(w.move(at(S.RUNNING), S.FAILED, order(), crash)) == ["E11"]


def test_a_worker_process_cannot_stop_itself() -> None:
    assert refused(w.stop(at(S.RUNNING), order(by=WORKER))).code == "wrong_actor"


@pytest.mark.parametrize("state", S)
def test_the_killed_flag_is_raised_only_while_stopping(state: S) -> None:
    """W-05."""
    answer = w.order_kill(at(state, ordered=False), order())
    if state is S.STOPPING:
        assert told(answer) == ["kill_ordered"]
        ordered = done(answer).instance
        assert unchanged(w.order_kill(ordered, order())) is ordered
    else:
        assert isinstance(answer, Refusal)


def test_nothing_is_killed_without_a_recorded_order() -> None:
    """E17, and W-13: once the order is given, killed is all that is left."""
    one = at(S.STOPPING, ordered=False)
    assert refused(w.move(one, S.KILLED, order())).code == "not_kill_ordered"
    for target in (S.STOPPED, S.FAILED):
        assert refused(w.move(at(S.STOPPING), target, order())).code == "not_spared"


@pytest.mark.parametrize(
    ("state", "ordered", "expected", "end"),
    [
        (S.CREATED, False, ["E2", "E4"], S.STOPPED),
        (S.PENDING, False, ["E4"], S.STOPPED),
        (S.STARTING, False, ["E6"], S.FAILED),
        (S.RUNNING, False, ["E9", "kill_ordered", "E17"], S.KILLED),
        (S.SUSPENDED, False, ["E14", "kill_ordered", "E17"], S.KILLED),
        (S.STOPPING, False, ["kill_ordered", "E17"], S.KILLED),
        (S.STOPPING, True, ["E17"], S.KILLED),
    ],
)
def test_k3_kills_at_once_wherever_it_stands(
    state: S, ordered: bool, expected: list[str], end: S
) -> None:
    """K3, and K4 for what is still initialising: forced, but without the Killed flag."""
    answer = w.kill(at(state, ordered=ordered), order(by=USER))
    one = done(answer).instance
    assert told(answer) == expected
    assert (one.state, one.killed) == (end, end is S.KILLED)
    assert not w.faults(one)
    if state is S.STARTING:
        assert one.cause is Cause.INIT_KILLED
    if end is S.STOPPED:
        assert one.cause is Cause.REQUESTED
    if state is S.RUNNING:
        assert done(answer).events[0].force_at == START
