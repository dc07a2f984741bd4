"""Gates and limits that a unit sets: committed with the record of who did it, or not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.stores.api import (
    Committed,
    GateKind,
    GateRow,
    Limit,
    LimitKind,
    LimitRow,
    Own,
    Record,
    Rejected,
    StaleRecord,
    Unit,
)
from tests.contract.making import USER
from tests.contract.world import World

CLOSED = GateRow(GateKind.QUEUE, "default", j.Gate(closed=True))
OPENED = GateRow(GateKind.QUEUE, "default", j.Gate(closed=False, opened_at=5))
ONE = LimitRow(LimitKind.QUEUE, "default", Limit(concurrency=1))
NONE = LimitRow(LimitKind.QUEUE, "default", None)


def switching(world: World, version: int, *rows: GateRow | LimitRow) -> Unit:
    """A unit that sets these and writes it down."""
    gates = tuple(row for row in rows if isinstance(row, GateRow))
    limits = tuple(row for row in rows if isinstance(row, LimitRow))
    put = Record("switch", "default", version, f'"{version}"')
    return Unit(world.make.command_id(), puts=(put,), gates=gates, limits=limits)


async def test_a_gate_is_closed_and_opened_with_its_record(world: World) -> None:
    await world.push()
    await world.must(switching(world, 1, CLOSED))
    assert list(await world.store.gates()) == [CLOSED]
    assert await world.claim() == []
    await world.must(switching(world, 2, OPENED))
    assert list(await world.store.gates()) == [OPENED]
    assert len(await world.claim()) == 1
    [record] = await world.store.record([("switch", "", "default")])
    assert record is not None
    assert record.version == 2


async def test_a_limit_is_set_and_lifted_with_its_record(world: World) -> None:
    for _ in range(3):
        await world.push()
    await world.must(switching(world, 1, ONE))
    assert [one.row for one in await world.store.limits()] == [ONE]
    assert len(await world.claim(3)) == 1
    await world.must(switching(world, 2, NONE))
    assert list(await world.store.limits()) == []
    assert len(await world.claim(3)) == 2


async def test_a_unit_that_is_refused_sets_nothing(world: World) -> None:
    await world.must(switching(world, 1))
    late = switching(world, 1, CLOSED, ONE)
    [outcome] = await world.commit(late)
    assert isinstance(outcome, StaleRecord), outcome
    job = await world.push()
    bad = replace(world.make.doing(job, j.Hold(), USER), gates=(CLOSED,), limits=(ONE,))
    twice = replace(bad, moves=bad.moves * 2)
    [outcome] = await world.commit(twice)
    assert isinstance(outcome, Rejected), outcome
    assert list(await world.store.gates()) == []
    assert list(await world.store.limits()) == []


async def test_what_was_set_before_is_not_set_again(world: World) -> None:
    """Its reply was lost, and somebody else has spoken since."""
    first = switching(world, 1, CLOSED, ONE)
    await world.must(first)
    await world.gate("default", closed=False)
    await world.limit("default")
    assert await world.commit(first) == [Own()]
    assert [row.gate.closed for row in await world.store.gates()] == [False]
    assert list(await world.store.limits()) == []


async def test_the_last_word_of_a_step_counts_and_its_claim_hears_it(world: World) -> None:
    await world.push()
    await world.alive("w1")
    units = [switching(world, 1, OPENED, ONE), switching(world, 2, CLOSED, NONE)]
    stepped = await world.store.step(units, now=world.now, want=world.make.want())
    assert stepped.outcomes == (Committed(), Committed())
    assert stepped.claimed.jobs == ()
    assert list(await world.store.gates()) == [CLOSED]
    assert list(await world.store.limits()) == []


@pytest.mark.parametrize("rows", [(OPENED,), (NONE,)])
async def test_whoever_waits_for_jobs_looks_again(
    world: World, rows: tuple[GateRow | LimitRow, ...]
) -> None:
    await world.must(switching(world, 1, CLOSED, ONE))
    claimed = await world.wish()
    await world.must(switching(world, 2, *rows))
    assert await world.store.wait(10.0, claimed.seen)


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
async def test_names_that_no_store_can_hold_are_rejected(world: World, name: str) -> None:
    neighbour = world.make.pushed()
    for unit in (
        Unit("g", gates=(replace(CLOSED, name=name),)),
        Unit("l", limits=(replace(ONE, name=name),)),
    ):
        [outcome] = await world.commit(unit)
        assert isinstance(outcome, Rejected), outcome
    await world.must(neighbour)


async def test_switches_of_tenants_are_their_own(world: World) -> None:
    await world.must(switching(world, 1, replace(CLOSED, tenant="theirs")))
    await world.push()
    assert len(await world.claim()) == 1
    assert [row.tenant for row in await world.store.gates("theirs")] == ["theirs"]
