"""A job ends with its handler's own rows or not at all, through every driver."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.errors import UnfitUnit
from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.stores.api import Committed, Counted, Own, Rejected, Stale, Unique, Unit
from tests.contract.making import USER, WORKER
from tests.inside.yard import Yard

only_two = pytest.mark.parametrize("way", ["sqlite3", "psycopg"])


def ending(yard: Yard, job: Job, followers: int = 0) -> Unit:
    """The end of a job that is in somebody's hands, and new ones with it."""
    make, command = yard.world.make, j.Complete(lease=job.lease)
    told = {"lease": job.lease, "result": '{"a":  1.50}'}
    unit = make.doing(job, command, WORKER, command_id="the-end", store=told)
    new = tuple(make.new(command_id="the-end") for _ in range(followers))
    return replace(unit, new=new)


async def test_it_ends_with_the_commit_and_a_rollback_leaves_it_running(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    job = await world.claimed()
    unit = ending(yard, job, followers=2)
    for end, state in ((caller.rollback, "active"), (caller.commit, "completed")):
        await caller.begin()
        await caller.run("INSERT INTO orders (what) VALUES ('a')")
        assert await caller.complete(unit, world.now) == Committed()
        assert (await world.got(job)).job.state == "active", "nobody sees it before"
        await end()
        assert (await world.got(job)).job.state == state
    assert yard.rows() == (1, 3)
    found = await world.got(job)
    assert (found.job, found.result) == (unit.moves[0].job, '{"a":  1.50}')
    assert list(await world.store.counts()) == [
        Counted("", "default", "available", 2),
        Counted("", "default", "completed", 1),
    ]
    await caller.begin()
    assert await caller.complete(unit, world.now) == Own()
    await caller.commit()
    assert len(await world.claim(10)) == 2


@only_two
async def test_its_result_lasts_as_long_as_it_says(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    unit = ending(yard, await world.claimed())
    move = replace(unit.moves[0], result_until=world.now + 1)
    await caller.begin()
    assert await caller.complete(replace(unit, moves=(move,)), world.now) == Committed()
    await caller.commit()
    assert await world.store.forget_results(now=world.now) == 0
    assert await world.store.forget_results(now=world.now + 1) == 1
    assert (await world.got(move.job)).result is None


async def test_whoever_was_outrun_hears_how_it_is_and_goes_on(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    job = await world.claimed()
    unit = ending(yard, job)
    amended = await world.do(job, j.Cancel(), USER)
    assert amended.state == "active"
    await caller.begin()
    await caller.run("INSERT INTO orders (what) VALUES ('a')")
    assert await caller.complete(unit, world.now) == Stale(("", job.id), amended)
    assert await caller.complete(ending(yard, amended), world.now) == Committed()
    await caller.commit()
    assert (await world.got(job)).job.state == "completed"
    assert yard.rows() == (1, 1)


@only_two
async def test_a_lease_that_was_given_up_ends_nothing(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    job = await world.claimed()
    unit = ending(yard, job)
    failed = await world.do(
        job, j.Fail(lease=job.lease, code="x"), WORKER, store={"lease": job.lease}
    )
    forged = replace(unit, moves=(replace(unit.moves[0], version=failed.version),))
    await caller.begin()
    assert await caller.complete(forged, world.now) == Stale(("", job.id), failed)
    lost = replace(unit.moves[0], job=replace(unit.moves[0].job, id="nobody"))
    outcome = await caller.complete(replace(unit, moves=(lost,)), world.now)
    assert outcome == Stale(("", "nobody"), None)
    await caller.commit()
    assert (await world.got(job)).job == failed


@only_two
async def test_what_the_database_refuses_leaves_nothing(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    job = await world.claimed()
    unit = ending(yard, job, followers=1)
    skipped = replace(unit.moves[0].events[0], version=9)
    forged = replace(unit, moves=(replace(unit.moves[0], events=(skipped,)),))
    await caller.begin()
    assert isinstance(await caller.complete(forged, world.now), Rejected)
    assert await caller.complete(unit, world.now) == Committed()
    await caller.commit()
    assert yard.rows() == (0, 2)


@pytest.mark.parametrize("way", ["sqlite3"])
async def test_nothing_but_an_end_is_taken(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    job = await world.claimed()
    unit = ending(yard, job)
    [move] = unit.moves
    keyed = world.make.new(unique=Unique("f", ("available",)))
    for unfit in (
        replace(unit, moves=()),
        replace(unit, moves=(move, move)),
        replace(unit, moves=(replace(move, job=replace(move.job, workflow="w", step="s")),)),
        replace(unit, moves=(replace(move, job=replace(move.job, ended_at=None)),)),
        replace(unit, moves=(replace(move, lease=None),)),
        replace(unit, moves=(replace(move, checkpoint="1"),)),
        replace(unit, new=(keyed,)),
    ):
        with pytest.raises(UnfitUnit, match="only the end"):
            await caller.complete(unfit, world.now)
