"""Schedules on every store: fired once, caught up with, and changed while they run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from detent.engine.asks import Ask, OnConflict, Uniqueness
from detent.engine.commands import Change
from detent.engine.engine import Engine
from detent.engine.enqueueing import Clash, Enqueued
from detent.engine.schedule import CHANGES_MAX, CatchUp, Overlap, Plan, Schedule
from detent.errors import BadSchedule, DetentError, ScheduleExists, UnknownSchedule
from detent.lifecycle import job as j
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Idempotency, Record, Stored, Unit, key_of
from detent.stores.select import Filter, Page
from tests.contract.backends import SHARED, Backend
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
REPORT = Ask(type="report.send")
KEY = ("", "report")


def plan(expression: str = "* * * * *", **more: Any) -> Plan:
    return Plan(**{"name": "report", "expression": expression, "job": REPORT, **more})


async def jobs(world: World) -> list[Stored]:
    """All jobs, oldest slot first."""
    return list(await world.store.find(Filter(), Page(10_000)))[::-1]


async def slots(world: World) -> list[str]:
    """The slots that were fired for, as the jobs tell."""
    metas = [msgspec.json.decode(one.body.meta) for one in await jobs(world)]
    return [meta["schedule"]["at"] for meta in metas]


async def got(engine: Engine, key: tuple[str, str] = KEY) -> Schedule:
    schedule = await engine.schedules.get(key)
    assert schedule is not None
    return schedule


async def pass_time(world: World, engine: Engine, us: int, step: int = 10 * SECOND) -> None:
    """Let time pass with upkeep running."""
    end = world.now + us
    while world.now < end:
        world.clock.move(min(step, end - world.now))
        await engine.upkeep.turn()


# --- firing ---------------------------------------------------------------------------------------


async def test_a_slot_makes_a_job_that_says_where_it_comes_from(
    world: World, engine: Engine
) -> None:
    template = Ask(type="report.send", payload="[7]", meta='{"a":1.50}', queue="q", tags=("t",))
    made = await engine.schedules.add(plan(job=template, zone="Europe/Berlin"), USER)
    assert made.next_at is not None
    await pass_time(world, engine, made.next_at - world.now - SECOND)
    assert await jobs(world) == []
    await pass_time(world, engine, SECOND)
    [stored] = await jobs(world)
    assert (stored.body.payload, stored.job.queue, stored.body.tags) == ("[7]", "q", ("t",))
    assert stored.body.meta == (
        '{"a":1.50,"schedule":{"name":"report","at":"2023-11-14T22:14:00Z","by_hand":false}}'
    )
    [born] = await world.store.history(key_of(stored.job))
    assert (born.actor, born.actor_id) == ("system", "schedule report")
    after = await got(engine)
    assert (after.fired, after.slot_at, after.latest) == (1, made.next_at, (stored.job.id,))
    assert after.next_at == made.next_at + MINUTE


async def test_time_fires_every_slot_once(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan(overlap=Overlap.ALLOW), USER)
    await engine.schedules.add(plan("@every 90s", name="other", overlap=Overlap.ALLOW), USER)
    await pass_time(world, engine, 15 * MINUTE, 7 * SECOND)
    assert (await got(engine)).fired == 15
    assert (await got(engine, ("", "other"))).fired == 10
    assert len(await jobs(world)) == 25


async def test_engines_that_race_never_fire_a_slot_twice(world: World) -> None:
    engines = [Engine(world.store) for _ in range(4)]
    for number in range(5):
        await engines[0].schedules.add(plan(name=f"s{number}", overlap=Overlap.ALLOW), USER)
    for _ in range(6):
        world.clock.move(MINUTE)
        await asyncio.gather(*(engine.upkeep.turn() for engine in engines))
        due = await world.store.records("schedule")
        # The soft lock ran out, or somebody was slow: all of them believe that it is due.
        world.clock.move(SECOND)
        await asyncio.gather(*(engine.schedules.answer(due) for engine in engines))
    fired = await slots(world)
    assert len(fired) == 30
    assert all(fired.count(slot) == 5 for slot in fired)


@pytest.mark.parametrize("backend", SHARED, indirect=True)
async def test_servers_with_connections_of_their_own_never_fire_a_slot_twice(
    world: World, engine: Engine, backend: Backend, tmp_path: Path
) -> None:
    await engine.schedules.add(plan("*/10 * * * * *", overlap=Overlap.ALLOW), USER)
    async with backend(tmp_path, world.clock) as second, backend(tmp_path, world.clock) as third:
        engines = [engine, Engine(second), Engine(third)]
        for _ in range(30):
            world.clock.move(10 * SECOND)
            due = await world.store.records("schedule")
            asked = [one.schedules.answer(due) for one in engines]
            await asyncio.gather(*asked, *(one.upkeep.turn() for one in engines))
    fired = await slots(world)
    assert fired == sorted(set(fired))
    assert (await got(engine)).fired == len(fired) == 30


async def test_a_slot_is_answered_once_even_by_who_saw_it_long_ago(
    world: World, engine: Engine
) -> None:
    await engine.schedules.add(plan(), USER)
    [seen] = await world.store.records("schedule")
    await pass_time(world, engine, MINUTE)
    await engine.schedules.answer([seen])
    assert len(await jobs(world)) == 1


async def test_a_record_that_was_put_back_fires_no_slot_again(world: World, engine: Engine) -> None:
    """Somebody restores an old record: the id of the slot's job is taken, and it goes on."""
    await engine.schedules.add(plan(overlap=Overlap.ALLOW), USER)
    [old] = await world.store.records("schedule")
    await pass_time(world, engine, 2 * MINUTE)
    [new] = await world.store.records("schedule")
    await world.must(Unit("restore", puts=(replace(old, version=new.version + 1),)))
    await engine.schedules.edit(plan(overlap=Overlap.ALLOW, catch_up=CatchUp.ALL), USER)
    await pass_time(world, engine, MINUTE)
    assert await slots(world) == sorted(set(await slots(world)))
    assert len(await jobs(world)) == 3


async def test_a_clock_that_goes_back_repeats_nothing(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan(overlap=Overlap.ALLOW), USER)
    await pass_time(world, engine, 5 * MINUTE)
    world.clock.move(-3 * MINUTE)
    edited = await engine.schedules.edit(plan("*/1 * * * *", overlap=Overlap.ALLOW), USER)
    assert edited.slot_at is not None
    assert edited.next_at == edited.slot_at + MINUTE
    await engine.schedules.remove(KEY, USER)
    await engine.schedules.add(plan(overlap=Overlap.ALLOW), USER)
    await pass_time(world, engine, 5 * MINUTE)
    fired = await slots(world)
    assert fired == sorted(set(fired))
    assert len(fired) == 7


async def test_what_cannot_be_read_is_left_alone_and_hurts_nobody(
    world: World, engine: Engine
) -> None:
    await engine.schedules.add(plan(), USER)
    strange = Record("schedule", "strange", 1, '{"plan":7}', world.now)
    unknown = Record("nobody", "knows", 1, "{}", world.now)
    await world.must(Unit("c", puts=(strange, unknown)))
    await pass_time(world, engine, MINUTE)
    assert len(await jobs(world)) == 1


# --- overlap and catching up ----------------------------------------------------------------------


async def test_skip_waits_for_whatever_is_not_over(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan(), USER)
    await pass_time(world, engine, 3 * MINUTE)
    [first] = await jobs(world)
    assert ((await got(engine)).fired, (await got(engine)).skipped) == (1, 2)
    await engine.carry_out([Change(key_of(first.job), j.Cancel(), USER)])
    await pass_time(world, engine, MINUTE)
    assert (await got(engine)).fired == 2


async def test_cancel_previous_ends_what_waits_and_asks_what_runs(
    world: World, engine: Engine
) -> None:
    await engine.schedules.add(plan(overlap=Overlap.CANCEL_PREVIOUS), USER)
    await pass_time(world, engine, 2 * MINUTE)
    first, second = await jobs(world)
    assert (first.job.state, first.job.cause) == ("cancelled", "replaced")
    await world.alive("w1")
    [taken] = (await engine.claim(world.make.want(1))).jobs
    assert taken.job.id == second.job.id
    await pass_time(world, engine, MINUTE)
    _, second, third = await jobs(world)
    assert second.job.cancel_at is not None
    assert (second.job.state, third.job.state) == ("active", "available")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"catch_up": CatchUp.NONE}, 1),
        ({"catch_up": CatchUp.LAST}, 2),
        ({"catch_up": CatchUp.ALL, "catch_up_max": 5}, 6),
        ({"catch_up": CatchUp.ALL, "catch_up_max": 100}, 73),
        ({"catch_up": CatchUp.ALL, "catch_up_max": 5, "overlap": Overlap.SKIP}, 1),
    ],
)
async def test_after_three_days_the_policy_says_what_is_made_up_for(
    world: World, engine: Engine, choice: dict[str, Any], expected: int
) -> None:
    await engine.schedules.add(plan("@every 1h", **{"overlap": Overlap.ALLOW, **choice}), USER)
    await pass_time(world, engine, HOUR)
    world.clock.move(3 * DAY + HOUR // 2)
    await engine.upkeep.turn()
    await engine.upkeep.turn()
    assert len(await jobs(world)) == expected
    schedule = await got(engine)
    assert schedule.next_at == world.now + HOUR // 2
    fired = await slots(world)
    assert fired == sorted(set(fired))


async def test_three_days_of_seconds_are_passed_over_at_once(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan("* * * * * *", overlap=Overlap.ALLOW), USER)
    world.clock.move(3 * DAY)
    await engine.upkeep.turn()
    assert len(await jobs(world)) == 1
    assert (await got(engine)).slot_at == world.now


async def test_a_unique_job_in_the_way_lets_the_slot_pass(world: World, engine: Engine) -> None:
    unique = Ask(type="report.send", unique=Uniqueness("f", ("available",)))
    await engine.schedules.add(plan(job=unique, overlap=Overlap.ALLOW), USER)
    await pass_time(world, engine, 3 * MINUTE)
    assert len(await jobs(world)) == 1
    assert isinstance(await engine.schedules.fire(KEY, USER), Clash)
    assert (await got(engine)).next_at == (world.now // MINUTE + 1) * MINUTE


# --- changes --------------------------------------------------------------------------------------


async def test_a_paused_schedule_fires_nothing_and_makes_up_for_nothing(
    world: World, engine: Engine
) -> None:
    await engine.schedules.add(plan(catch_up=CatchUp.ALL, overlap=Overlap.ALLOW), USER)
    world.clock.move(2 * MINUTE)
    # It is due, but the pause comes before upkeep.
    paused = await engine.schedules.pause(KEY, USER, "holidays")
    assert (paused.is_paused, paused.next_at) == (True, None)
    await pass_time(world, engine, 10 * MINUTE)
    assert await jobs(world) == []
    assert await engine.schedules.pause(KEY, USER) == paused
    resumed = await engine.schedules.resume(KEY, USER)
    assert await engine.schedules.resume(KEY, USER) == resumed
    assert resumed.next_at == (world.now // MINUTE + 1) * MINUTE
    await pass_time(world, engine, MINUTE)
    assert len(await jobs(world)) == 1


async def test_an_edit_keeps_the_slots_unless_it_changes_the_times(
    world: World, engine: Engine
) -> None:
    first = await engine.schedules.add(plan("@every 1h"), USER)
    world.clock.move(10 * MINUTE)
    other = await engine.schedules.edit(
        plan("@every 1h", job=Ask(type="b", retry=RetryPolicy(max_attempts=7))), USER
    )
    assert other.next_at == first.next_at
    world.clock.move(50 * MINUTE)
    # It is due; a change of the job must not make it miss the slot.
    await engine.schedules.edit(plan("@every 1h"), USER)
    await engine.upkeep.turn()
    assert (await got(engine)).fired == 1
    moved = await engine.schedules.edit(plan("@every 2h"), USER, "too often")
    assert moved.next_at == world.now + 2 * HOUR
    assert (await got(engine)).plan == plan("@every 2h")


async def test_who_changed_what_and_why_is_remembered(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan(), USER, "new report")
    await engine.schedules.pause(KEY, USER, "broken")
    await engine.schedules.resume(KEY, USER, "mended")
    await engine.schedules.fire(KEY, USER, "at once")
    removed = await engine.schedules.remove(KEY, USER, "old")
    told = [(one.what, one.actor_id, one.reason) for one in removed.changes]
    assert told == [
        ("added", "ada", "new report"),
        ("paused", "ada", "broken"),
        ("resumed", "ada", "mended"),
        ("fired", "ada", "at once"),
        ("removed", "ada", "old"),
    ]
    assert await engine.schedules.get(KEY) is None
    assert await engine.schedules.list() == []
    await pass_time(world, engine, 3 * MINUTE)
    assert len(await jobs(world)) == 1
    again = await engine.schedules.add(plan(), USER)
    assert [one.what for one in again.changes] == [*(one[0] for one in told), "added"]


async def test_the_memory_of_changes_is_bounded(engine: Engine) -> None:
    await engine.schedules.add(plan(), USER)
    for _ in range(CHANGES_MAX):
        await engine.schedules.pause(KEY, USER)
        await engine.schedules.resume(KEY, USER)
    changes = (await got(engine)).changes
    assert len(changes) == CHANGES_MAX
    assert changes[-1].what == "resumed"


async def test_firing_by_hand_needs_no_slot(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan("@yearly"), USER)
    await engine.schedules.pause(KEY, USER)
    fired = await engine.schedules.fire(KEY, USER, "show me")
    assert isinstance(fired, Enqueued)
    [stored] = await jobs(world)
    assert msgspec.json.decode(stored.body.meta)["schedule"]["by_hand"] is True
    [event] = await world.store.history(key_of(fired.job))
    assert (event.actor_id, event.reason) == ("ada", "show me")
    assert (await got(engine)).latest == (fired.job.id,)


async def test_changes_at_the_same_moment_all_happen(world: World, engine: Engine) -> None:
    other = Engine(world.store)
    await engine.schedules.add(plan(), USER)
    world.clock.move(MINUTE)
    asked = [one.schedules.fire(KEY, USER) for one in (engine, other) for _ in range(5)]
    await asyncio.gather(*asked, engine.upkeep.turn(), other.upkeep.turn())
    # Whoever was outrun leaves the slot to the next turn.
    await engine.upkeep.turn()
    schedule = await got(engine)
    counted = schedule.fired + schedule.skipped
    assert (counted, len(await jobs(world))) == (11, schedule.fired)


async def test_schedules_are_listed_by_name_and_tenant(engine: Engine) -> None:
    for number in range(7):
        await engine.schedules.add(plan(name=f"s{number}"), USER)
    theirs = plan(tenant="t", job=Ask(type="x", tenant="t"))
    await engine.schedules.add(theirs, USER)
    for number in (0, 1, 4):
        await engine.schedules.remove(("", f"s{number}"), USER)
    names = [one.plan.name for one in await engine.schedules.list(limit=2)]
    assert names == ["s2", "s3"]
    assert [one.plan.name for one in await engine.schedules.list(after="s3")] == ["s5", "s6"]
    assert [one.plan for one in await engine.schedules.list("t")] == [theirs]


async def test_what_is_not_there_or_there_already_is_said(engine: Engine) -> None:
    for verb in (engine.schedules.pause, engine.schedules.remove, engine.schedules.fire):
        with pytest.raises(UnknownSchedule):
            await verb(KEY, USER)
    await engine.schedules.add(plan(), USER)
    with pytest.raises(ScheduleExists):
        await engine.schedules.add(plan(), USER)
    assert await engine.schedules.get(("t", "report")) is None


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 256}, "name"),
        ({"expression": "61 * * * *"}, "minute"),
        ({"zone": "EST"}, "zone"),
        ({"catch_up_max": 0}, "catch_up_max"),
        ({"catch_up_max": 101}, "catch_up_max"),
        ({"job": Ask(type="x", tenant="t")}, "job"),
        ({"job": Ask(type="x", id="i")}, "job"),
        ({"job": Ask(type="x", run_at=1)}, "job"),
        ({"job": Ask(type="x", idempotency=Idempotency("k", "d", 1))}, "job"),
        ({"job": Ask(type="x", meta="[]")}, "job"),
        ({"job": Ask(type="x", profile="rest", retry=RetryPolicy(max_attempts=5))}, "job"),
        (
            {"job": Ask(type="x", unique=Uniqueness("f", on_conflict=OnConflict.REPLACE))},
            "job",
        ),
    ],
)
async def test_a_plan_that_cannot_work_is_refused(
    engine: Engine, more: dict[str, Any], field: str
) -> None:
    for verb in (engine.schedules.add, engine.schedules.edit):
        with pytest.raises(BadSchedule) as refused:
            await verb(plan(**more), USER)
        assert refused.value.fields["field"] == field


async def test_everything_a_template_says_comes_back(engine: Engine) -> None:
    template = Ask(
        type="x",
        deadlines=Deadlines(active_us=SECOND),
        retry=RetryPolicy(max_attempts=4),
        unique=Uniqueness("f", period_us=SECOND, on_conflict=OnConflict.IGNORE),
        key="k",
        priority=-3,
    )
    whole = plan(job=template, overlap=Overlap.ALLOW, catch_up=CatchUp.NONE, description="d")
    await engine.schedules.add(whole, USER)
    assert (await got(engine)).plan == whole


async def test_what_goes_wrong_with_one_kind_is_told_after_the_others(
    world: World, engine: Engine
) -> None:
    async def broken(_: object) -> None:
        raise DetentError("broken")

    engine.answers["broken"] = broken
    await world.must(Unit("c", puts=(Record("broken", "b", 1, "{}", world.now),)))
    await engine.schedules.add(plan(), USER)
    world.clock.move(MINUTE)
    with pytest.raises(DetentError, match="broken"):
        await engine.upkeep.turn()
    assert len(await jobs(world)) == 1


async def test_a_running_job_is_found_by_its_slot(world: World, engine: Engine) -> None:
    await engine.schedules.add(plan(), USER)
    await pass_time(world, engine, MINUTE)
    await world.alive("w1")
    [taken] = (await engine.claim(world.make.want(1))).jobs
    done = Change(key_of(taken.job), j.Complete(lease=taken.job.lease), WORKER, known=taken)
    await engine.carry_out([done])
    await pass_time(world, engine, MINUTE)
    assert (await got(engine)).fired == 2
