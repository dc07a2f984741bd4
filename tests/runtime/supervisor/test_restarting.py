"""What follows an end: policies, backoff, breaker, strategies."""

from __future__ import annotations

import asyncio
import logging

import pytest

from detent.lifecycle.worker import Exit, WorkerState
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.body import PERMANENT
from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.snapshot import BREAKER
from detent.runtime.supervisor.spec import OnKilled, OnSick, Probe, Restart, StartRate
from detent.runtime.supervisor.strategy import Strategy, affected
from detent.runtime.supervisor.supervisor import Supervisor
from tests.runtime.supervisor.stage import CALM, CLEAN, CRASH, EPOCH, Stage

_S = WorkerState
ORDERED = (Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE)


def live(supervisor: Supervisor, name: str) -> Live:
    found = supervisor.slots[name].live
    assert found is not None
    return found


async def die(stage: Stage, name: str, how: Exit = CRASH) -> None:
    stage.last(name).die(how)
    await stage.clock.settle()


@pytest.mark.parametrize(
    ("restart", "how", "made"),
    [
        (Restart.ALWAYS, CLEAN, 2),
        (Restart.ALWAYS, CRASH, 2),
        (Restart.ON_FAILURE, CLEAN, 1),
        (Restart.ON_FAILURE, CRASH, 2),
        (Restart.ON_FAILURE, Exit.of_process(-15), 1),
        (Restart.NEVER, CRASH, 1),
        (Restart.ALWAYS, Exit.of_process(PERMANENT), 1),
    ],
)
async def test_policies(stage: Stage, restart: Restart, how: Exit, made: int) -> None:
    """behaviour 11, W-50; and an exit with 125 is never followed by another start."""
    supervisor = await stage.running(stage.spec("a", restart=restart))
    await die(stage, "a", how)
    await stage.clock.advance(10)
    assert stage.made("a") == made
    shown = supervisor.snapshot().children[0]
    ended = supervisor.slots["a"].last
    assert ended is not None
    assert shown.status == ("Running" if made == 2 else ended.status)
    assert stage.notes() == ([] if made == 2 else ["not_restarted"])


@pytest.mark.parametrize(
    ("restart", "on_killed", "made"),
    [
        (Restart.ALWAYS, OnKilled.POLICY, 2),
        (Restart.ON_FAILURE, OnKilled.POLICY, 1),
        (Restart.ON_FAILURE, OnKilled.RESTART, 2),
        (Restart.ON_FAILURE, OnKilled.ALERT, 1),
        (Restart.ALWAYS, OnKilled.HOLD, 1),
    ],
)
async def test_after_a_kill(stage: Stage, restart: Restart, on_killed: OnKilled, made: int) -> None:
    """W-50: an instance that somebody had killed."""
    spec = stage.spec("a", restart=restart, on_killed=on_killed)
    supervisor = await stage.running(spec)
    await stage.during(supervisor.kill("a"))
    await stage.clock.advance(5)
    last = supervisor.slots["a"].last
    assert last is not None
    assert last.state is _S.KILLED
    assert stage.made("a") == made


async def test_a_slot_that_was_stopped_stays_down(stage: Stage) -> None:
    """W-49: an end that we asked for triggers nothing, whatever the policy."""
    supervisor = await stage.running(stage.spec("a"), strategy=Strategy.ONE_FOR_ALL)
    await stage.during(supervisor.stop_slot("a"))
    await stage.clock.advance(100)
    assert stage.made("a") == 1
    await stage.during(supervisor.start_slot("a"))
    assert stage.made("a") == 2


async def test_only_the_fallen_one_is_restarted(stage: Stage) -> None:
    """W-46, behaviour 7; and it is counted once (behaviour 22)."""
    supervisor = await stage.running(stage.spec("a"), stage.spec("b"))
    await die(stage, "a")
    await stage.clock.advance(5)
    assert (stage.made("a"), stage.made("b")) == (2, 1)
    assert stage.numbers.counts["lifecycle_worker_restarts_total"] == 1
    assert live(supervisor, "a").state is _S.RUNNING


async def test_backoff_shows_pending_until_it_is_due(stage: Stage) -> None:
    """W-56, behaviour 9: not early, not late, and visible with its reason."""
    supervisor = await stage.running(stage.spec("a", {"dies_in": 0.5}))
    fell = []
    for _ in range(5):
        await stage.clock.until(lambda: live_or_none(supervisor, _S.PENDING))
        shown = supervisor.snapshot().children[0]
        assert (shown.status, shown.reason) == ("Pending", "backoff")
        assert shown.next_attempt_at is not None
        fell.append(shown.next_attempt_at - stage.clock.now())
        before = stage.made("a")
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
        assert shown.next_attempt_at == stage.clock.now()
        assert stage.made("a") == before
    assert fell == [1_000_000, 2_000_000, 4_000_000, 8_000_000, 8_000_000]


def live_or_none(supervisor: Supervisor, state: WorkerState) -> bool:
    found = supervisor.slots["a"].live
    return found is not None and found.state is state


async def test_uptime_resets_the_backoff(stage: Stage) -> None:
    """W-54."""
    backoff = Backoff(initial_s=1, most_s=64, factor=4, reset_s=100, jitter=0)
    supervisor = await stage.running(stage.spec("a", backoff=backoff))
    for _ in range(2):
        await die(stage, "a")
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
    await stage.clock.advance(101)
    await die(stage, "a")
    due = live(supervisor, "a").record.due_at
    assert due == stage.clock.now() + 1_000_000


async def test_a_failing_restart_goes_back_to_backoff(stage: Stage) -> None:
    """W-35: it counts as a failure, and is never forgotten."""
    how: dict[str, object] = {}
    supervisor = await stage.running(stage.spec("a", how))
    how["spawn_error"] = OSError("gone")
    await die(stage, "a")
    await stage.clock.advance(20)
    assert stage.made("a") >= 4
    assert live(supervisor, "a").state is _S.PENDING
    del how["spawn_error"]
    await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))


async def test_the_breaker_holds_tries_once_and_closes(stage: Stage) -> None:
    """W-57, W-59, behaviour 10: closed, open, half open, open, half open, closed."""
    breaker = Breaker(most=3, window_s=100, cool_down_s=300)
    spec = stage.spec("a", breaker=breaker)
    supervisor = await stage.running(spec)
    for _ in range(4):
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
        await die(stage, "a")
    assert stage.made("a") == 5  # four have fallen, the fifth is held
    shown = supervisor.snapshot().children[0]
    assert (shown.status, shown.reason, shown.told(BREAKER)) == ("Pending", "breaker", "triggered")
    assert stage.numbers.counts["lifecycle_supervisor_circuit_breaker_triggered_total"] == 1
    await stage.clock.advance(299)
    assert live(supervisor, "a").state is _S.PENDING
    await stage.clock.advance(2)
    assert live(supervisor, "a").state is _S.RUNNING
    assert supervisor.snapshot().children[0].told(BREAKER) == "half_open"
    await die(stage, "a")
    assert live(supervisor, "a").record.governor == "breaker"
    await stage.clock.advance(301)
    assert live(supervisor, "a").state is _S.RUNNING
    await stage.clock.advance(101)
    assert supervisor.snapshot().children[0].told(BREAKER) is None
    assert [one for one in stage.notes() if one.startswith("breaker")] == [
        *("breaker_open", "breaker_half_open", "breaker_open", "breaker_half_open"),
        "breaker_closed",
    ]


async def test_a_breaker_is_reset_by_hand(stage: Stage) -> None:
    """W-59: and the start does not wait any longer."""
    supervisor = await stage.running(stage.spec("a", breaker=Breaker(most=1)))
    for _ in range(2):
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
        await die(stage, "a")
    assert live(supervisor, "a").record.governor == "breaker"
    supervisor.reset("a")
    await stage.clock.settle()
    assert live(supervisor, "a").state is _S.RUNNING


async def test_a_start_by_hand_waits_for_no_governor(stage: Stage) -> None:
    """W-56, W-59: the wait can be cut; that is the trial, which fails or closes the breaker."""
    breaker = Breaker(most=1, window_s=60)
    supervisor = await stage.running(stage.spec("a", breaker=breaker))
    for _ in range(2):
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
        await die(stage, "a")
    await supervisor.start_slot("a")
    await stage.clock.settle()
    assert live(supervisor, "a").state is _S.RUNNING
    assert supervisor.snapshot().children[0].told(BREAKER) == "half_open"
    await die(stage, "a")
    assert live(supervisor, "a").record.governor == "breaker"
    await supervisor.start_slot("a")
    await stage.clock.advance(61)
    assert supervisor.snapshot().children[0].told(BREAKER) is None
    await die(stage, "a")
    assert live(supervisor, "a").record.governor == "backoff"


async def test_an_escalating_breaker_ends_the_supervisor(stage: Stage) -> None:
    """W-59: the one above is told."""
    spec = stage.spec("a", breaker=Breaker(most=1, escalate=True))
    supervisor = await stage.running(spec, stage.spec("b"))
    for _ in range(2):
        await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
        await die(stage, "a")
    seen = await stage.during(supervisor.wait())
    assert (seen.how, seen.code) == ("raised", "breaker_open")
    assert supervisor.phase is _S.STOPPED
    assert not supervisor.lives


async def test_a_start_waits_for_its_schedule(stage: Stage) -> None:
    """Section 22: held in pending by the schedule; the supervisor's own start does not wait."""
    at = EPOCH + 200_000_000
    supervisor = await stage.running(stage.spec("a", start_at=at))
    shown = supervisor.snapshot().children[0]
    assert (shown.status, shown.reason, shown.next_attempt_at) == ("Pending", "schedule", at)
    await stage.clock.until(lambda: live_or_none(supervisor, _S.RUNNING))
    assert stage.clock.now() >= at


async def test_starts_wait_for_the_rate(stage: Stage) -> None:
    """Section 22: the third start of two per window is held."""
    supervisor = stage.supervisor(
        *(stage.spec(name) for name in "bca"), rate=StartRate(most=2, window_s=10)
    )
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.settle()
    assert live(supervisor, "a").record.governor == "rate"
    await stage.during(starting)
    assert stage.clock.monotonic() == 110


async def test_no_restart_after_the_stop_came_during_the_backoff(stage: Stage) -> None:
    """W-51, E4: stopping while pending."""
    supervisor = await stage.running(stage.spec("a"))
    await die(stage, "a")
    pending = live(supervisor, "a")
    assert pending.state is _S.PENDING
    await stage.during(supervisor.stop())
    assert stage.states(pending.id) == ["created", "pending", "stopped"]
    assert pending.record.exit_code is None
    await stage.clock.advance(100)
    assert stage.made("a") == 2
    assert stage.last("a").told == []


async def test_a_stopped_slot_leaves_the_backoff(stage: Stage) -> None:
    """W-51."""
    supervisor = await stage.running(stage.spec("a"))
    await die(stage, "a")
    await stage.during(supervisor.stop_slot("a"))
    await stage.clock.advance(100)
    assert stage.made("a") == 2
    assert supervisor.slots["a"].live is None


def test_who_is_affected() -> None:
    """W-46, W-47."""
    assert affected(Strategy.ONE_FOR_ONE, "abc", "b") == ("b",)
    assert affected(Strategy.ONE_FOR_ALL, "abc", "b") == ("a", "b", "c")
    assert affected(Strategy.REST_FOR_ONE, "abc", "b") == ("b", "c")


@pytest.mark.parametrize(
    ("strategy", "made", "asked"),
    [(Strategy.ONE_FOR_ALL, [2, 2, 2], ["c", "a"]), (Strategy.REST_FOR_ONE, [1, 2, 2], ["c"])],
)
async def test_groups(stage: Stage, strategy: Strategy, made: list[int], asked: list[str]) -> None:
    """W-46, W-47, behaviour 7: others stop in reverse, all start in order, after group backoff."""
    specs = [stage.spec(name) for name in "abc"]
    backoff = Backoff(initial_s=5, jitter=0)
    await stage.running(*specs, strategy=strategy, backoff=backoff)
    del stage.log[:]
    await die(stage, "b")
    await stage.clock.advance(4)
    assert [line for line in stage.log if "spawn" in line] == []
    await stage.clock.advance(2)
    assert [stage.made(name) for name in "abc"] == made
    assert [line for line in stage.log if "ask" in line] == [f"{name} ask 10" for name in asked]
    spawned = [line[0] for line in stage.log if "spawn" in line]
    assert spawned == sorted(spawned)


@pytest.mark.parametrize("strategy", ORDERED)
async def test_a_group_asks_the_policy_first(stage: Stage, strategy: Strategy) -> None:
    """W-48: a clean end under on_failure restarts nobody."""
    specs = [stage.spec(name, restart=Restart.ON_FAILURE) for name in "ab"]
    await stage.running(*specs, strategy=strategy)
    await die(stage, "a", CLEAN)
    await stage.clock.advance(100)
    assert (stage.made("a"), stage.made("b")) == (1, 1)


@pytest.mark.parametrize("strategy", ORDERED)
async def test_a_group_has_a_breaker(stage: Stage, strategy: Strategy) -> None:
    """W-48: without limit it would go on for ever."""
    breaker = Breaker(most=2, window_s=1_000, cool_down_s=5_000)
    specs = [stage.spec("a", {"dies_in": 1.0}), stage.spec("b")]
    await stage.running(*specs, strategy=strategy, breaker=breaker)
    await stage.clock.advance(1_000)
    assert stage.made("a") == 4
    assert stage.notes().count("breaker_open") == 1


async def test_a_group_whose_restart_fails_tries_again(stage: Stage) -> None:
    """W-35 with W-48: the one that does not come up counts, and the rest waits for it."""
    how: dict[str, object] = {}
    specs = [stage.spec("a", how), stage.spec("b")]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL, breaker=None)
    how["spawn_error"] = OSError("gone")
    await die(stage, "a")
    await stage.clock.advance(3)
    assert supervisor.snapshot().children[1].status == "Pending"
    assert stage.made("b") == 1
    del how["spawn_error"]
    await stage.clock.until(lambda: stage.made("b") == 2)
    await stage.clock.settle()
    assert [one.status for one in supervisor.snapshot().children] == ["Running", "Running"]


async def test_two_that_fall_together_are_one_round(stage: Stage) -> None:
    """W-64, W-48: the second one to fall is part of the round that the first has begun."""
    specs = [stage.spec(name) for name in "ab"]
    await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL)
    stage.last("a").die(CRASH)
    stage.last("b").die(CRASH)
    await stage.clock.advance(50)
    assert (stage.made("a"), stage.made("b")) == (2, 2)


async def test_siblings_that_build_on_each_other_start_one_after_the_other(stage: Stage) -> None:
    """W-30: in a group each waits until the one before it is ready."""
    specs = [stage.spec(name, {"ready_in": 5.0}) for name in "ab"]
    supervisor = stage.supervisor(*specs, strategy=Strategy.REST_FOR_ONE)
    starting = asyncio.ensure_future(supervisor.start())
    await stage.clock.advance(4)
    assert stage.made("b") == 0
    await stage.during(starting)
    assert stage.clock.monotonic() == 110


async def test_who_falls_while_the_round_stops_others_belongs_to_it(stage: Stage) -> None:
    """W-48: it is started with the others, once, and counted once."""
    specs = [stage.spec("a"), stage.spec("b"), stage.spec("c", {"obeys_in": 5.0})]
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL)
    await die(stage, "a")
    await stage.clock.advance(2)
    await die(stage, "b")
    await stage.clock.advance(60)
    assert [stage.made(name) for name in "abc"] == [2, 2, 2]
    assert supervisor.slots["a"].pacing.total == 1


async def test_only_an_end_that_nobody_asked_for_is_a_warning(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """W-70."""
    caplog.set_level(logging.DEBUG, "detent.supervisor")
    supervisor = await stage.running(stage.spec("a"), stage.spec("b"))
    stage.last("a").die(CRASH)
    await stage.clock.settle()
    await stage.during(supervisor.stop_slot("b"))
    said = [
        (one.levelno, one.getMessage().split()[2]) for one in caplog.records if " of " in one.msg
    ]
    assert (logging.WARNING, "a") in said
    assert (logging.DEBUG, "b") in said


async def test_a_start_that_waits_for_the_time_of_day_hears_of_a_new_one(stage: Stage) -> None:
    """Section 22: a schedule is a time of day; while that is as it was, nothing is written."""
    at = stage.clock.now() + 3_600_000_000
    supervisor = await stage.running(stage.spec("a", start_at=at))
    one = live(supervisor, "a")
    await stage.clock.advance(300)
    assert [event.name for event in stage.journal.history(one.id)] == ["create", "hold"]
    stage.clock.set(3_300)
    await stage.clock.advance(60)
    assert one.state is _S.RUNNING


async def test_a_kill_is_no_fall(stage: Stage) -> None:
    """W-50: the next one comes at once, and it does not count."""
    supervisor = await stage.running(stage.spec("a"))
    await stage.during(supervisor.kill("a"))
    await stage.clock.settle()
    assert live(supervisor, "a").state is _S.RUNNING
    assert supervisor.slots["a"].pacing.total == 0


async def test_who_is_stopped_for_its_health_takes_no_siblings_with_it(stage: Stage) -> None:
    """W-49: an end that we asked for."""
    probe = Probe(on_sick=OnSick.RESTART)
    specs = stage.spec("a"), stage.spec("b", probe=probe)
    supervisor = await stage.running(*specs, strategy=Strategy.ONE_FOR_ALL, backoff=CALM)
    stage.last("b").well = False
    await stage.clock.until(lambda: stage.made("b") == 2)
    await stage.clock.advance(5)
    assert live(supervisor, "b").state is _S.RUNNING
    assert stage.made("a") == 1
