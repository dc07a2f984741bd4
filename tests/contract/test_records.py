"""Small records: kept beside the jobs, under a version of their own, and woken like them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.stores.api import (
    Committed,
    Own,
    Record,
    Rejected,
    Stale,
    StaleRecord,
    Taken,
    Unit,
    key_of,
    name_of,
)
from tests.contract.making import SECOND, USER
from tests.contract.world import World


def cron(name: str = "nightly", version: int = 1, **more: Any) -> Record:
    """A schedule."""
    more.setdefault("data", f'{{"v": {version}}}')
    return Record("schedule", name, version, **more)


def put(world: World, *records: Record, command_id: str | None = None) -> Unit:
    """A unit that only puts records."""
    return Unit(command_id or world.make.command_id(), puts=records)


async def stored(world: World, record: Record) -> Record | None:
    """The record as it is kept."""
    [found] = await world.store.record([name_of(record)])
    return found


# --- the version ----------------------------------------------------------------------------------


async def test_a_record_is_kept_whole_and_goes_on_version_by_version(world: World) -> None:
    for version in (1, 2, 3):
        record = cron(version=version, wake_at=world.now + version * SECOND, tenant="t")
        await world.must(put(world, record))
        assert await stored(world, record) == record
    assert await world.feed() == []


async def test_records_are_answered_in_the_order_of_the_names(world: World) -> None:
    one, two = cron("one"), cron("two")
    await world.must(put(world, one), put(world, two))
    names = [name_of(two), ("schedule", "", "none"), name_of(one), name_of(two)]
    assert list(await world.store.record(names)) == [two, None, one, two]
    assert list(await world.store.record([])) == []


@pytest.mark.parametrize("version", [1, 2, 4, 0, -1])
async def test_only_the_next_version_is_taken(world: World, version: int) -> None:
    await world.must(put(world, cron()), put(world, cron(version=2)))
    late = cron(version=version, data="late")
    assert await world.commit(put(world, late)) == [StaleRecord(late, cron(version=2))]
    assert await stored(world, late) == cron(version=2)


@pytest.mark.parametrize("version", [2, 0])
async def test_a_record_begins_with_version_one(world: World, version: int) -> None:
    early = cron(version=version)
    assert await world.commit(put(world, early)) == [StaleRecord(early, None)]
    assert await stored(world, early) is None


async def test_of_many_that_race_for_a_version_one_gets_it(world: World) -> None:
    await world.must(put(world, cron()))
    units = [put(world, cron(version=2, data=str(number))) for number in range(12)]
    outcomes = [one for some in await asyncio.gather(*map(world.commit, units)) for one in some]
    [winner] = [u.puts[0] for u, o in zip(units, outcomes, strict=True) if o == Committed()]
    assert await stored(world, winner) == winner
    stale = [one for one in outcomes if isinstance(one, StaleRecord)]
    assert [one.now for one in stale] == [winner] * 11


async def test_a_unit_sees_what_the_units_before_it_in_the_batch_put(world: World) -> None:
    await world.must(*(put(world, cron(version=version)) for version in (1, 2, 3)))
    again = cron(version=3, data="other")
    assert await world.commit(put(world, again)) == [StaleRecord(again, cron(version=3))]


async def test_a_deleted_record_is_gone_and_may_begin_anew(world: World) -> None:
    await world.must(put(world, cron(wake_at=world.now)))
    await world.must(put(world, cron(version=2, data=None, wake_at=world.now)))
    assert await stored(world, cron()) is None
    assert list(await world.store.records("schedule")) == []
    assert list(await world.store.take_due_records(now=world.now, limit=9)) == []
    late = cron(version=3)
    assert await world.commit(put(world, late)) == [StaleRecord(late, None)]
    await world.must(put(world, cron(data="anew")))
    assert await stored(world, cron()) == cron(data="anew")


async def test_deleting_is_fenced_like_everything_else(world: World) -> None:
    await world.must(put(world, cron()), put(world, cron(version=2)))
    late = cron(version=2, data=None)
    assert await world.commit(put(world, late)) == [StaleRecord(late, cron(version=2))]
    assert await stored(world, late) == cron(version=2)


async def test_kinds_and_tenants_are_apart(world: World) -> None:
    records = [
        Record(kind, "x", 1, kind + tenant, tenant=tenant)
        for kind in ("queue", "webhook")
        for tenant in ("", "t")
    ]
    await world.must(put(world, *records))
    assert list(await world.store.record([name_of(one) for one in records])) == records
    for one in records:
        assert list(await world.store.records(one.kind, one.tenant)) == [one]


# --- one's own command ----------------------------------------------------------------------------


async def test_a_put_that_was_committed_before_is_recognised_as_own(world: World) -> None:
    unit = put(world, cron())
    await world.must(unit)
    assert await world.commit(unit) == [Own()]
    after = put(world, cron(version=2))
    assert await world.commit(after, after) == [Committed(), Own()]


async def test_own_needs_the_same_command_and_the_same_version(world: World) -> None:
    await world.must(put(world, cron(), command_id="mine"))
    assert await world.commit(put(world, cron())) == [StaleRecord(cron(), cron())]
    await world.must(put(world, cron(version=2), command_id="mine"))
    assert await world.commit(put(world, cron(), command_id="mine")) == [
        StaleRecord(cron(), cron(version=2))
    ]


async def test_a_unit_is_own_though_its_record_went_on_if_its_jobs_tell(world: World) -> None:
    new = world.make.new()
    unit = replace(world.make.inserting(new), puts=(cron(),))
    await world.must(unit)
    assert await world.commit(unit) == [Own()]
    await world.must(put(world, cron(version=2)))
    assert await world.commit(unit) == [Own()]


async def test_a_unit_with_a_move_and_a_record_is_own_when_it_was_committed(world: World) -> None:
    job = await world.push()
    unit = replace(world.make.doing(job, j.Hold(), USER), puts=(cron(),))
    await world.must(unit)
    await world.must(put(world, cron(version=2)))
    assert await world.commit(unit) == [Own()]


# --- all or nothing -------------------------------------------------------------------------------


async def test_jobs_and_records_of_one_unit_are_committed_together(world: World) -> None:
    job = await world.push()
    command = world.make.command_id()
    move = world.make.move(job, j.Hold(), USER, command_id=command)
    new = world.make.new(command_id=command)
    records = (cron("a"), cron("b"))
    await world.must(replace(world.make.inserting(new, moves=[move]), puts=records))
    assert (await world.got(job)).job.held
    assert (await world.got(new.job)).job == new.job
    assert list(await world.store.records("schedule")) == list(records)


@pytest.mark.parametrize("where", [0, 1])
async def test_a_stale_record_keeps_everything_else_of_its_unit_out(
    world: World, where: int
) -> None:
    job = await world.push()
    await world.must(put(world, cron("stale")))
    command = world.make.command_id()
    move = world.make.move(job, j.Hold(), USER, command_id=command)
    new = world.make.new(command_id=command)
    records = [cron("fresh")]
    records.insert(where, cron("stale", data="other"))
    unit = replace(world.make.inserting(new, moves=[move]), puts=tuple(records))
    assert await world.commit(unit) == [StaleRecord(records[where], cron("stale"))]
    assert await world.everything() == {key_of(job): await world.got(job)}
    assert (await world.got(job)).job == job
    assert list(await world.store.records("schedule")) == [cron("stale")]


async def test_a_refused_unit_leaves_none_of_its_records_behind(world: World) -> None:
    job = await world.push()
    late = replace(world.make.doing(job, j.Cancel(), USER), puts=(cron("a"),))
    held = await world.do(job, j.Hold(), USER)
    taken = replace(world.make.pushed(id=job.id), puts=(cron("b"),))
    new = world.make.new()
    broken = replace(new, events=(replace(new.events[0], target="completed"),))
    illegal = replace(world.make.inserting(broken), puts=(cron("c"),))
    stale, in_use, rejected = await world.commit(late, taken, illegal)
    assert (stale, in_use) == (Stale(key_of(job), held), Taken("id", held))
    assert isinstance(rejected, Rejected)
    assert list(await world.store.records("schedule")) == []


async def test_a_record_stands_in_a_unit_once(world: World) -> None:
    twice = put(world, cron(), cron(data="other"))
    [first, second] = await world.commit(twice, put(world, cron("neighbour")))
    assert isinstance(first, Rejected)
    assert second == Committed()
    assert await stored(world, cron()) is None


# --- what they say --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{}", '{ "a":1.0,"ä":"\\u0000€" }', "x" * 300_000])
async def test_data_comes_out_as_it_went_in(world: World, text: str) -> None:
    await world.must(put(world, cron(data=text)))
    assert await stored(world, cron()) == cron(data=text)


@pytest.mark.parametrize(
    "record",
    [
        cron(data="a\0b"),
        cron(data="\ud800"),
        cron("a\0b"),
        cron(tenant="a\0b"),
        cron(wake_at=2**63),
    ],
    ids=range(5),
)
async def test_what_cannot_be_kept_is_rejected(world: World, record: Record) -> None:
    [rejected, fine] = await world.commit(put(world, record), put(world, cron("fine")))
    assert isinstance(rejected, Rejected)
    assert fine == Committed()


async def test_records_of_a_kind_are_listed_by_id_page_by_page(world: World) -> None:
    names = ["b", "a", "B", "10", "9", "ä", "aa", "Z", "_", "€", "\U0001f600", "\uffff"]
    for name in names:
        await world.must(put(world, cron(name)))
    await world.must(put(world, Record("webhook", "c", 1, "")))
    seen: list[str] = []
    for _ in range(4):
        page = await world.store.records("schedule", "", seen[-1] if seen else None, 5)
        seen += [one.id for one in page]
    assert seen == sorted(names)
    assert list(await world.store.records("schedule", "", None, 0)) == []
    assert list(await world.store.records("schedule", "t")) == []
    assert list(await world.store.records("nothing")) == []


# --- time -----------------------------------------------------------------------------------------


async def due(world: World, limit: int = 9, **more: Any) -> list[str]:
    """The ids of what is handed out."""
    found = await world.store.take_due_records(now=world.now, limit=limit, **more)
    return [one.id for one in found]


async def test_due_records_are_handed_out_oldest_first_at_their_microsecond(world: World) -> None:
    for name, wait in [("a", 3), ("c", 1), ("later", 9), ("b", 2)]:
        await world.must(put(world, cron(name, wake_at=world.now + wait * SECOND)))
    await world.must(put(world, cron("never")))
    world.clock.move(SECOND - 1)
    assert await due(world) == []
    world.clock.move(1)
    assert await due(world, hold_us=60 * SECOND) == ["c"]
    world.clock.move(2 * SECOND)
    assert await due(world) == ["b", "a"]


async def test_time_comes_to_records_of_all_kinds_and_tenants(world: World) -> None:
    for number, (kind, tenant) in enumerate([("x", "t"), ("y", ""), ("x", "")]):
        record = Record(kind, f"r{number}", 1, "", world.now + number, tenant)
        await world.must(put(world, record))
    world.clock.move(SECOND)
    assert await due(world, 2) == ["r0", "r1"]
    assert await due(world, 2) == ["r2"]
    assert await due(world, 0) == []


async def test_each_due_record_goes_to_exactly_one_of_many_callers(world: World) -> None:
    records = [cron(f"r{number:02}", wake_at=world.now) for number in range(30)]
    await world.must(put(world, *records))
    handed = await asyncio.gather(*(due(world, 4) for _ in range(12)))
    assert sorted(one for some in handed for one in some) == [one.id for one in records]


async def test_the_hold_moves_wake_at_and_no_version(world: World) -> None:
    await world.must(put(world, cron(wake_at=world.now)))
    [handed] = await world.store.take_due_records(now=world.now, limit=1, hold_us=SECOND)
    assert handed == cron(wake_at=world.now + SECOND) == await stored(world, handed)
    world.clock.move(SECOND - 1)
    assert await due(world) == []
    world.clock.move(1)
    assert await due(world) == ["nightly"]
    following = cron(version=2, wake_at=world.now + 5)
    await world.must(put(world, following))
    assert await stored(world, following) == following
    world.clock.move(5)
    assert await due(world) == ["nightly"]


async def test_the_hold_does_not_hide_that_a_put_was_ones_own(world: World) -> None:
    unit = put(world, cron(wake_at=world.now))
    await world.must(unit)
    assert await due(world) == ["nightly"]
    assert await world.commit(unit) == [Own()]


async def test_a_schedule_fires_once_though_two_answer_for_it(world: World) -> None:
    """The usual use: the new job and the schedule's next moment are one unit."""
    await world.must(put(world, cron(wake_at=world.now)))
    await due(world)
    fired = [
        replace(world.make.pushed(), puts=(cron(version=2, wake_at=world.now + SECOND),))
        for _ in range(2)
    ]
    first, second = await world.commit(*fired)
    assert first == Committed()
    assert isinstance(second, StaleRecord)
    assert len(await world.everything()) == 1
