"""What goes on beside a running instance: probes and recycling."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from detent.lifecycle.worker import WorkerState
from detent.runtime.supervisor.body import Usage
from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.recycling import too_much
from detent.runtime.supervisor.spec import OnSick, Probe, Recycle
from tests.runtime.supervisor.stage import CRASH, Stage
from tests.runtime.supervisor.test_restarting import die, live

_S = WorkerState
RESTARTS = Probe(on_sick=OnSick.RESTART)


async def test_health_changes_at_its_thresholds(stage: Stage) -> None:
    """W-83, W-84: unknown, healthy after one, unhealthy after three; the state stays."""
    supervisor = await stage.running(stage.spec("a", probe=Probe(on_sick=OnSick.NONE)))
    one = live(supervisor, "a")
    assert supervisor.snapshot().children[0].health == "unknown"
    await stage.clock.advance(9.9)
    assert one.record.health == "unknown"
    await stage.clock.advance(0.2)
    assert one.record.health == "healthy"
    stage.last("a").well = False
    await stage.clock.advance(20)
    assert one.record.health == "healthy"
    await stage.clock.advance(10)
    assert one.record.health == "unhealthy"
    assert one.state is _S.RUNNING
    stage.last("a").well = True
    await stage.clock.advance(10)
    names = [event.name for event in stage.journal.history(one.id)]
    assert names.count("health_changed") == 3
    assert one.record.updated_at > one.record.state_at


async def test_no_answer_in_time_is_a_no(stage: Stage) -> None:
    """W-84."""
    supervisor = await stage.running(stage.spec("a", probe=Probe()))

    async def never() -> bool:
        await asyncio.get_running_loop().create_future()
        return True

    stage.last("a").probe = never  # type: ignore[method-assign]
    await stage.clock.advance(40)
    assert live(supervisor, "a").record.health == "unhealthy"


async def test_probes_pause_while_a_worker_is_suspended(stage: Stage) -> None:
    """W-84."""
    supervisor = await stage.running(stage.spec("a", probe=Probe()))
    await stage.clock.advance(11)
    await supervisor.suspend("a")
    asked = stage.last("a").told.count("probe")
    await stage.clock.advance(50)
    assert stage.last("a").told.count("probe") == asked
    assert live(supervisor, "a").record.health == "unknown"
    await supervisor.resume("a")
    await stage.clock.advance(11)
    assert live(supervisor, "a").record.health == "healthy"


async def test_plain_inspection_asks_nobody(stage: Stage) -> None:
    """W-84, W-87, behaviour 19; section 22: `fresh` asks now."""
    supervisor = await stage.running(stage.spec("a", probe=Probe()))
    before = stage.journal.bounds()
    for _ in range(3):
        await supervisor.inspect("a")
        supervisor.snapshot()
    assert stage.last("a").told == ["spawn"]
    assert stage.journal.bounds() == before
    assert (await supervisor.inspect("a", fresh=True)).health == "healthy"


async def test_a_sick_one_is_dumped_stopped_and_restarted_after_backoff(stage: Stage) -> None:
    """W-85: cause probe_failed; it counts like a failure."""
    supervisor = await stage.running(stage.spec("a", probe=RESTARTS))
    one = live(supervisor, "a")
    stage.last("a").well = False
    await stage.clock.until(one.done.done)
    assert (one.state, one.record.cause) == (_S.STOPPED, "probe_failed")
    assert stage.puppets["a"][0].told[-3:] == ["dump", "ask 10", "died"]
    assert stage.journal.dump_of(one.id) == "the stacks"
    await stage.clock.settle()
    assert live(supervisor, "a").record.governor == "backoff"
    await stage.clock.advance(2)
    assert live(supervisor, "a").state is _S.RUNNING
    assert supervisor.slots["a"].pacing.total == 1


async def test_a_sick_one_may_be_given_longer_before_it_is_restarted(stage: Stage) -> None:
    """W-85: shown as unhealthy at the threshold, restarted when there is no hope left."""
    patient = Probe(on_sick=OnSick.RESTART, hopeless=6)
    supervisor = await stage.running(stage.spec("a", probe=patient))
    one = live(supervisor, "a")
    stage.last("a").well = False
    await stage.clock.advance(45)
    assert (one.state, one.record.health) == (_S.RUNNING, "unhealthy")
    await stage.clock.until(one.done.done)
    assert one.record.cause == "probe_failed"


async def test_only_so_many_are_restarted_at_once(stage: Stage) -> None:
    """W-85: a starved host must not lose all its workers."""
    how = {"obeys_in": 9.0}
    supervisor = await stage.running(*(stage.spec(name, how, probe=RESTARTS) for name in "abc"))
    for name in "abc":
        stage.last(name).well = False
    await stage.clock.advance(31)
    states = [live(supervisor, name).state for name in "abc"]
    assert states == [_S.STOPPING, _S.RUNNING, _S.RUNNING]
    assert stage.numbers.counts["lifecycle_probe_restarts_held_total"] == 2


@pytest.mark.parametrize(
    ("usage", "uptime_s", "why"),
    [
        (None, 0, ""),
        (Usage(rss_bytes=100), 0, ""),
        (Usage(rss_bytes=101), 0, "soft_rss"),
        (Usage(rss_bytes=201), 0, "hard_rss"),
        (Usage(done=9), 0, ""),
        (Usage(done=10), 0, "done"),
        (Usage(), 60, "age"),
    ],
)
def test_which_limit_is_passed(usage: Usage | None, uptime_s: float, why: str) -> None:
    """W-114."""
    rules = Recycle(soft_rss_bytes=100, hard_rss_bytes=200, age_s=60, done=10)
    assert too_much(rules, usage, uptime_s, 60) == why


@pytest.mark.parametrize(
    ("rules", "usage"),
    [
        (Recycle(soft_rss_bytes=100), Usage(rss_bytes=101)),
        (Recycle(done=10), Usage(done=10)),
        (Recycle(age_s=5, variance=0), Usage()),
    ],
)
async def test_the_replacement_comes_first(stage: Stage, rules: Recycle, usage: Usage) -> None:
    """Issue: the old one works until the new one is ready; neither backoff nor breaker count it."""
    supervisor = await stage.running(stage.spec("a", {"ready_in": 2.0}, recycle=rules))
    old = live(supervisor, "a")
    stage.last("a").used = usage
    await stage.clock.until(lambda: stage.made("a") == 2)
    assert old.state is _S.RUNNING
    await stage.clock.until(old.done.done)
    assert (old.state, old.record.cause) == (_S.STOPPED, "recycled")
    assert live(supervisor, "a").state is _S.RUNNING
    assert supervisor.slots["a"].pacing.total == 0
    assert "recycled" in stage.notes()


async def test_who_was_replaced_finishes_what_it_runs(stage: Stage) -> None:
    """What takes longer than a stop may take was begun again by each that followed.

    Meanwhile nobody else leaves, or those that finish would become more and more.
    """
    how: dict[str, object] = {"obeys_in": 5_000.0}
    supervisor = await stage.running(stage.spec("a", how, recycle=Recycle(done=1)))
    old = live(supervisor, "a")
    stage.last("a").used = Usage(done=1)
    await stage.clock.until(lambda: old.state is _S.STOPPING)
    how.clear()
    stage.last("a").used = Usage(done=1)
    await stage.clock.advance(4_000)
    assert (old.state, stage.made("a")) == (_S.STOPPING, 2)
    await stage.clock.until(lambda: stage.made("a") == 3)
    assert (old.state, old.record.cause) == (_S.STOPPED, "recycled")


@pytest.mark.parametrize(
    ("what", "end"),
    [
        ({"used": Usage(rss_bytes=201)}, _S.KILLED),
        ({"well": False}, _S.KILLED),
        ({"obeys_in": None}, _S.STOPPING),
    ],
)
async def test_who_was_replaced_is_still_looked_after(
    stage: Stage, what: dict[str, object], end: WorkerState
) -> None:
    """W-85: it may take its time, but neither all memory nor an endless silence."""
    rules = Recycle(done=1, hard_rss_bytes=200)
    spec = stage.spec("a", {"obeys_in": None}, recycle=rules, probe=RESTARTS)
    supervisor = await stage.running(spec)
    old, body = live(supervisor, "a"), stage.last("a")
    body.used = Usage(done=1)
    await stage.clock.until(lambda: old.state is _S.STOPPING)
    for name, value in what.items():
        setattr(body, name, value)
    await stage.clock.advance(60)
    assert old.state is end
    assert live(supervisor, "a").state is _S.RUNNING


async def test_a_stop_hurries_who_was_replaced(stage: Stage) -> None:
    supervisor = await stage.running(
        stage.spec("a", {"obeys_in": None}, recycle=Recycle(done=1), stop_grace_s=3)
    )
    old = live(supervisor, "a")
    stage.last("a").used = Usage(done=1)
    await stage.clock.until(lambda: old.state is _S.STOPPING)
    await stage.during(supervisor.stop())
    assert old.state is _S.KILLED
    assert "hasten 3" in stage.puppets["a"][0].told


async def test_the_hard_limit_leaves_no_time(stage: Stage) -> None:
    """Issue: killed, cause on its stop, and started again at once if it was of any use."""
    rules = Recycle(hard_rss_bytes=100)
    supervisor = await stage.running(stage.spec("a", recycle=rules))
    old = live(supervisor, "a")
    stage.last("a").used = Usage(rss_bytes=101, done=1)
    await stage.clock.until(old.done.done)
    causes = [event.cause for event in stage.journal.history(old.id) if event.name == "stop"]
    assert (old.state, causes) == (_S.KILLED, ["recycled"])
    await stage.clock.settle()
    assert live(supervisor, "a").state is _S.RUNNING
    assert stage.made("a") == 2
    assert supervisor.slots["a"].pacing.total == 0


async def test_a_limit_below_what_it_needs_does_not_kill_for_ever(stage: Stage) -> None:
    """W-57: one that is too big before it has done anything has fallen, and the breaker opens."""
    rules, breaker = Recycle(hard_rss_bytes=100), Breaker(most=3, window_s=600)
    supervisor = await stage.running(stage.spec("a", recycle=rules, breaker=breaker))
    for number in range(1, 5):
        await stage.clock.until(lambda: live(supervisor, "a").state is _S.RUNNING)
        stage.last("a").used = Usage(rss_bytes=101)
        await stage.clock.until(lambda: stage.made("a") == number + 1)  # noqa: B023 - at once
    assert live(supervisor, "a").record.governor == "breaker"


async def test_who_is_too_big_from_the_start_is_replaced_less_and_less(stage: Stage) -> None:
    """W-85: a fleet that only replaced its workers would get nothing else done."""
    supervisor = await stage.running(stage.spec("a", recycle=Recycle(soft_rss_bytes=100)))
    born: list[float] = []
    while stage.clock.monotonic() < 3_000:
        if stage.made("a") > len(born):
            born.append(stage.clock.monotonic())
            stage.last("a").used = Usage(rss_bytes=101)
        await stage.clock.advance(1)
    lives = [after - before for before, after in pairwise(born)]
    assert 5 <= lives[0] <= 6
    assert all(after >= 1.8 * before for before, after in pairwise(lives)), "it began again"
    assert max(lives) > 1_200
    await stage.during(supervisor.stop())


async def test_who_is_spared_for_its_memory_still_leaves_for_anything_else(stage: Stage) -> None:
    rules = Recycle(soft_rss_bytes=100, done=3)
    supervisor = await stage.running(stage.spec("a", recycle=rules))
    supervisor.slots["a"].spared_s = 1_000.0
    stage.last("a").used = Usage(rss_bytes=101, done=3)
    await stage.clock.until(lambda: stage.made("a") == 2, limit_s=100)


async def test_where_two_cannot_live_the_old_one_goes_first(stage: Stage) -> None:
    rules = Recycle(done=1, replace_first=False)
    supervisor = await stage.running(stage.spec("a", {"ready_in": 2.0}, recycle=rules))
    old = live(supervisor, "a")
    stage.last("a").used = Usage(done=1)
    await stage.clock.until(lambda: stage.made("a") == 2)
    assert old.done.done()
    await stage.clock.advance(3)
    assert live(supervisor, "a").state is _S.RUNNING


async def test_a_replacement_that_fails_waits_longer_and_longer(stage: Stage) -> None:
    """The old one stays, and failing replacements are paced like failing restarts."""
    how: dict[str, object] = {}
    supervisor = await stage.running(stage.spec("a", how, recycle=Recycle(done=1, check_s=1)))
    old = live(supervisor, "a")
    stage.last("a").used = Usage(done=1)
    how["spawn_error"] = OSError()
    await stage.clock.advance(30)
    assert old.state is _S.RUNNING
    assert 3 <= stage.made("a") <= 8
    await stage.clock.until(lambda: len(supervisor.lives) == 2)
    stage.puppets["a"][0].die(CRASH)
    del how["spawn_error"]
    await stage.clock.advance(60)
    assert live(supervisor, "a").state is _S.RUNNING
    assert len(supervisor.lives) == 1


async def test_ages_are_spread(stage: Stage) -> None:
    """Issue: workers of one birth do not all leave at once."""
    rules = Recycle(age_s=100, variance=0.5, check_s=1)
    supervisor = await stage.running(*(stage.spec(name, recycle=rules) for name in "abcdef"))
    left: dict[str, float] = {}
    for _ in range(160):
        await stage.clock.advance(1)
        for name in "abcdef":
            if stage.made(name) > 1:
                left.setdefault(name, stage.clock.monotonic())
    assert len(left) == 6
    assert len(set(left.values())) > 3
    assert supervisor.snapshot().status == "Running"


async def test_metadata(stage: Stage) -> None:
    """W-87, W-60."""
    supervisor = await stage.running(stage.spec("a"))
    await die(stage, "a")
    await stage.clock.advance(5)
    shown = supervisor.snapshot().children[0]
    assert (shown.told("type"), shown.told("restarts")) == ("process", "1")
    assert shown.told("nothing") is None
    assert shown.resume_id
