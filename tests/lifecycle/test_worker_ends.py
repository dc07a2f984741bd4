"""How workers end: every row of the outcome table, and every composite move that leads there."""

from __future__ import annotations

import pytest

from detent.lifecycle import worker as w
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.worker import Cause, Ending, Exit
from detent.lifecycle.worker import WorkerState as S
from tests.lifecycle.worker_making import (
    START,
    TERMINAL,
    WORKER,
    at,
    born,
    done,
    order,
    told,
    unchanged,
)

EXITED_ZERO, EXITED_THREE = Exit.of_process(0), Exit.of_process(3)
OUTCOMES: list[tuple[Exit, tuple[S, Cause] | None, tuple[S, Cause] | None]] = [
    (EXITED_ZERO, (S.FINISHED, Cause.NATURAL), (S.STOPPED, Cause.REQUESTED)),
    (Exit(Ending.RETURNED), (S.FINISHED, Cause.NATURAL), (S.STOPPED, Cause.REQUESTED)),
    (EXITED_THREE, (S.FAILED, Cause.EXIT_CODE), (S.FAILED, Cause.EXIT_CODE)),
    (Exit(Ending.RAISED), (S.FAILED, Cause.EXCEPTION), (S.FAILED, Cause.EXCEPTION)),
    (Exit.of_process(-15), (S.STOPPED, Cause.EXTERNAL_SIGNAL), (S.STOPPED, Cause.REQUESTED)),
    (Exit.of_process(-2), (S.STOPPED, Cause.EXTERNAL_SIGNAL), (S.STOPPED, Cause.REQUESTED)),
    (Exit.of_process(143), (S.FAILED, Cause.EXIT_CODE), (S.STOPPED, Cause.REQUESTED)),
    (Exit.of_process(130), (S.FAILED, Cause.EXIT_CODE), (S.STOPPED, Cause.REQUESTED)),
    (Exit.of_process(137), (S.FAILED, Cause.EXIT_CODE), (S.FAILED, Cause.EXIT_CODE)),
    (Exit(Ending.CANCELLED), (S.STOPPED, Cause.REQUESTED), (S.STOPPED, Cause.REQUESTED)),
    (Exit(Ending.INTERRUPTED), (S.STOPPED, Cause.EXTERNAL_SIGNAL), (S.STOPPED, Cause.REQUESTED)),
    (Exit(Ending.TIMED_OUT), (S.FAILED, Cause.EXCEPTION), (S.FAILED, Cause.EXCEPTION)),
    (Exit(Ending.INPUT_ENDED), (S.FAILED, Cause.EXCEPTION), (S.FAILED, Cause.EXCEPTION)),
    (
        Exit(Ending.INPUT_ENDED, is_interactive=True),
        (S.STOPPED, Cause.REQUESTED),
        (S.STOPPED, Cause.REQUESTED),
    ),
    (
        Exit.of_process(-9),
        (S.FAILED, Cause.SIGKILL_EXTERNAL),
        (S.FAILED, Cause.SIGKILL_EXTERNAL),
    ),
    (Exit.of_process(-9, is_oom=True), (S.FAILED, Cause.OOM), (S.FAILED, Cause.OOM)),
    (
        Exit.of_process(-9, is_forced=True),
        (S.FAILED, Cause.SIGKILL_EXTERNAL),
        (S.FAILED, Cause.SIGKILL_EXTERNAL),
    ),
    (Exit.of_process(-11), (S.FAILED, Cause.CRASH_SIGNAL), (S.FAILED, Cause.CRASH_SIGNAL)),
    (Exit.of_process(-6), (S.FAILED, Cause.CRASH_SIGNAL), (S.FAILED, Cause.CRASH_SIGNAL)),
    (Exit(Ending.UNSPAWNED), (S.FAILED, Cause.SPAWN_ERROR), (S.FAILED, Cause.SPAWN_ERROR)),
    (Exit(Ending.INIT_TIMED_OUT), (S.FAILED, Cause.INIT_TIMEOUT), (S.FAILED, Cause.INIT_TIMEOUT)),
    (Exit(Ending.CALLED_OFF), (S.STOPPED, Cause.REQUESTED), (S.STOPPED, Cause.REQUESTED)),
]


@pytest.mark.parametrize(("seen", "unasked", "asked"), OUTCOMES)
def test_the_outcome_table(
    seen: Exit, unasked: tuple[S, Cause] | None, asked: tuple[S, Cause] | None
) -> None:
    """W-13, W-14, W-15 and every row and column of section 5; the Killed flag beats them all."""
    assert w.derive_final_status(seen, stop_requested=False, killed=False) == unasked
    assert w.derive_final_status(seen, stop_requested=True, killed=False) == asked
    killed = w.derive_final_status(seen, stop_requested=True, killed=True)
    assert killed == (S.KILLED, Cause.GRACE_EXCEEDED)


def test_forced_during_initialisation_is_told_apart_from_forced_later() -> None:
    """K4: the word is for initialising only; later, a kill without an order is nobody's."""
    for seen, cause in (
        (Exit.of_process(-9, is_forced=True), Cause.INIT_KILLED),
        (Exit.of_process(-9), Cause.SIGKILL_EXTERNAL),
        (Exit.of_process(-9, is_oom=True), Cause.OOM),
    ):
        found = w.derive_final_status(seen, stop_requested=False, killed=False, initialising=True)
        assert found == (S.FAILED, cause)
    forced = Exit.of_process(-9, is_forced=True)
    assert done(w.end(at(S.RUNNING), forced, order())).instance.cause == "sigkill_external"
    quiet = done(w.end(at(S.SUSPENDED), forced, order()))
    assert quiet.events[-1].reason == "sigkill_external"


@pytest.mark.parametrize("how", [Ending.UNSPAWNED, Ending.INIT_TIMED_OUT])
@pytest.mark.parametrize("state", [S.RUNNING, S.SUSPENDED, S.STOPPING])
def test_what_is_past_initialising_does_not_end_for_its_reasons(state: S, how: Ending) -> None:
    """A late report of a start that failed must not end a worker that runs."""
    answer = w.end(at(state, ordered=False), Exit(how), order())
    assert isinstance(answer, Refusal)
    assert (answer.code, answer.state) == ("bad_cause", state)


def test_every_ending_is_in_the_outcome_table() -> None:
    assert {row[0].how for row in OUTCOMES} == set(Ending)


def test_the_recorded_exit_code_follows_python() -> None:
    """Signals are negative, what could not be spawned is -1, an exception has no number."""
    ends = (
        EXITED_THREE,
        Exit.of_process(-15),
        Exit(Ending.SIGNALLED),
        Exit(Ending.UNSPAWNED),
        Exit(Ending.RAISED),
    )
    assert [one.exit_code for one in ends] == [3, -15, None, -1, None]


@pytest.mark.parametrize(
    ("state", "seen", "expected", "cause"),
    [
        (S.STARTING, Exit(Ending.UNSPAWNED), "E6", Cause.SPAWN_ERROR),
        (S.STARTING, Exit(Ending.INIT_TIMED_OUT), "E6", Cause.INIT_TIMEOUT),
        (S.STARTING, Exit.of_process(-9, is_forced=True), "E6", Cause.INIT_KILLED),
        (S.STARTING, Exit.of_process(-15), "E7", Cause.EXTERNAL_SIGNAL),
        (S.RUNNING, EXITED_ZERO, "E10", Cause.NATURAL),
        (S.RUNNING, Exit(Ending.RAISED), "E11", Cause.EXCEPTION),
        (S.RUNNING, Exit.of_process(-15), "E12", Cause.EXTERNAL_SIGNAL),
        (S.STOPPING, EXITED_ZERO, "E15", Cause.REQUESTED),
        (S.STOPPING, EXITED_THREE, "E16", Cause.EXIT_CODE),
    ],
)
def test_an_end_takes_the_edge_of_its_state(
    state: S, seen: Exit, expected: str, cause: Cause
) -> None:
    """W-16: in stopping an end that was seen before the kill order is classified as it looked."""
    answer = w.end(at(state, ordered=False), seen, order(by=WORKER))
    assert told(answer) == [expected]
    assert (done(answer).instance.cause, done(answer).instance.exit_code) == (
        cause,
        seen.exit_code,
    )


def test_after_the_kill_order_the_end_is_killed() -> None:
    """W-03, W-13: and only there."""
    answer = w.end(at(S.STOPPING), Exit.of_process(-9, is_forced=True), order())
    assert told(answer) == ["E17"]
    assert done(answer).instance.cause is Cause.GRACE_EXCEEDED


@pytest.mark.parametrize("state", TERMINAL)
def test_an_end_is_recorded_once(state: S) -> None:
    """W-19."""
    one = at(state)
    assert unchanged(w.end(one, EXITED_ZERO, order())) is one


@pytest.mark.parametrize("state", [S.CREATED, S.PENDING])
def test_what_never_started_cannot_end_by_itself(state: S) -> None:
    """E4: it can be called off, and no process was there to obey a signal."""
    assert isinstance(w.end(at(state), EXITED_THREE, order()), Refusal)
    assert isinstance(w.end(at(state), Exit.of_process(-15), order()), Refusal)


def test_what_is_pending_can_be_called_off() -> None:
    assert told(w.end(at(S.PENDING), Exit(Ending.CALLED_OFF), order())) == ["E4"]


def test_the_error_code_is_kept() -> None:
    one = done(w.end(at(S.RUNNING), Exit(Ending.RAISED, code="db_down"), order())).instance
    assert one.code == "db_down"


@pytest.mark.parametrize("cause", [Cause.RECYCLED, Cause.PROBE_FAILED])
def test_an_end_keeps_the_word_of_the_stop_that_asked_for_it(cause: Cause) -> None:
    """W-85: a probe's stop is told apart from an operator's."""
    stopping = done(w.stop(at(S.RUNNING), order(), cause=cause)).instance
    assert done(w.end(stopping, EXITED_ZERO, order())).instance.cause is cause
    assert done(w.stop(born(), order(), cause=cause)).instance.cause is cause
    starting = done(w.stop(at(S.STARTING), order(), cause=cause)).instance
    assert done(w.end(starting, EXITED_ZERO, order())).instance.cause is cause


@pytest.mark.parametrize(
    ("seen", "edge", "reason"),
    [
        (EXITED_ZERO, "E10", Cause.NATURAL),
        (Exit.of_process(-9, is_oom=True), "E11", Cause.OOM),
        (Exit.of_process(-15), "E12", Cause.EXTERNAL_SIGNAL),
    ],
)
def test_k2_ends_while_suspended_by_way_of_running(seen: Exit, edge: str, reason: Cause) -> None:
    """K2: one append, its own cause, the start untouched; the bridge is the supervisor's."""
    before = at(S.SUSPENDED)
    answer = w.end(before, seen, order(START + 5, by=WORKER))
    assert told(answer) == ["E13", edge]
    first, last = done(answer).events
    assert (first.actor, last.actor) == (Actor.SYSTEM, Actor.WORKER)
    assert first.cause == Cause.EXIT_WHILE_SUSPENDED
    assert (last.cause, last.reason) == (Cause.EXIT_WHILE_SUSPENDED, reason)
    assert done(answer).instance.exit_code == seen.exit_code
    assert done(answer).instance.started_at == before.started_at


def test_k6_a_clean_end_before_ready_depends_on_what_ready_means() -> None:
    """K6: with a signal due it failed, by uptime it finished, after a stop it complied."""
    one = at(S.STARTING)
    early = w.end(one, EXITED_ZERO, order(by=WORKER))
    assert told(early) == ["E6"]
    assert done(early).instance.cause is Cause.EXITED_BEFORE_READY
    brief = w.end(one, EXITED_ZERO, order(by=WORKER), needs_ready_signal=False)
    assert told(brief) == ["E5", "E10"]
    assert (done(brief).instance.cause, done(brief).instance.exit_code) == (Cause.NATURAL, 0)
    asked = done(w.stop(one, order())).instance
    for needs in (True, False):
        assert told(w.end(asked, EXITED_ZERO, order(), needs_ready_signal=needs)) == ["E7"]


def test_k4_a_stop_that_is_ignored_during_init_ends_in_failure() -> None:
    """K4: forced, cause init_killed, the Killed flag not set."""
    asked = done(w.stop(at(S.STARTING), order())).instance
    answer = w.end(asked, Exit.of_process(-9, is_forced=True), order())
    assert told(answer) == ["E6"]
    assert (done(answer).instance.cause, done(answer).instance.killed) == ("init_killed", False)


@pytest.mark.parametrize(
    ("state", "ordered", "expected"),
    [
        (S.CREATED, False, ["E2", "E4"]),
        (S.PENDING, False, ["E4"]),
        (S.STARTING, False, ["E6"]),
        (S.RUNNING, False, ["E11"]),
        (S.SUSPENDED, False, ["E13", "E11"]),
        (S.STOPPING, True, ["E17"]),
        (S.STOPPING, False, ["E16"]),
    ],
)
def test_k5_what_has_no_process_any_more_is_lost(
    state: S, ordered: bool, expected: list[str]
) -> None:
    """K5."""
    answer = w.lose(at(state, ordered=ordered), order())
    assert told(answer) == expected
    assert done(answer).instance.cause is Cause.LOST
    assert not w.faults(done(answer).instance)


def test_k5_what_was_lost_while_quiet_keeps_the_trace_of_that() -> None:
    """K2, K5: lost is the cause, and that it was suspended is on both events."""
    waking, failing = done(w.lose(at(S.SUSPENDED), order())).events
    assert (waking.name, waking.cause) == ("resume", Cause.EXIT_WHILE_SUSPENDED)
    assert (failing.cause, failing.reason) == (Cause.LOST, Cause.EXIT_WHILE_SUSPENDED)


@pytest.mark.parametrize("state", TERMINAL)
def test_k5_leaves_ended_instances_alone(state: S) -> None:
    one = at(state)
    assert unchanged(w.lose(one, order())) is one
