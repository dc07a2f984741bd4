"""A transaction that stays open holds up nobody who does not ask for the same."""

from __future__ import annotations

import asyncio

import pytest

from detent.errors import StoreBusy
from detent.lifecycle import job as j
from detent.stores.api import Body, Committed, Counted, Idempotency, Taken, Unique
from tests.contract.making import SECOND, USER
from tests.inside.callers import Caller
from tests.inside.conftest import POSTGRES, SQLITE
from tests.inside.test_together import LIVE, PATIENCE_S, is_waiting
from tests.inside.yard import Yard

on_postgresql = pytest.mark.parametrize("way", POSTGRES)
on_sqlite = pytest.mark.parametrize("way", SQLITE)


async def holding(yard: Yard) -> Caller:
    """A caller whose open transaction has new jobs of old and new lanes, with and without keys."""
    world, caller = yard.world, await yard.caller()
    promise = Idempotency("theirs", "d", world.now + SECOND)
    await caller.begin()
    for unit in (
        world.make.pushed(id="open-1"),
        world.make.pushed(id="open-2", queue="fresh", body=Body("new.type")),
        world.make.pushed(id="open-3", unique=Unique("theirs", LIVE), idempotency=promise),
    ):
        assert await yard.put(caller, unit) == Committed()
    return caller


@on_postgresql
async def test_an_open_transaction_stalls_no_step_no_claim_and_no_feed(yard: Yard) -> None:
    world = yard.world
    before = await world.push()
    caller = await holding(yard)
    async with asyncio.timeout(PATIENCE_S):
        # The very same lanes, known and new; other keys; claims; the feed and its seals.
        same = await world.push()
        fresh = await world.push(queue="fresh", body=Body("new.type"))
        keyed = await world.push(
            unique=Unique("ours", LIVE), idempotency=Idempotency("ours", "d", world.now + SECOND)
        )
        assert await world.claim_ids(queues=("default", "fresh")) == [
            *(before.id, same.id, keyed.id, fresh.id)
        ]
        fed = [one.event.record for one in await world.store.feed()]
        assert fed == [
            before.id,
            same.id,
            fresh.id,
            keyed.id,
            before.id,
            same.id,
            keyed.id,
            fresh.id,
        ]
        assert (await world.store.seal()) is not None
        assert await world.due() == []
        assert sum(one.count for one in await world.store.counts()) == 4
        await world.gate("other", closed=True)
    await caller.commit()
    late = [one.event.record for one in await world.store.feed(len(fed))]
    assert late == ["open-1", "open-2", "open-3"], "what commits late is fed late, and not skipped"
    # One that came into a new lane unseen is looked for when nothing else is left.
    claimed = await world.claim_ids(queues=("default", "fresh"))
    claimed += await world.claim_ids(queues=("default", "fresh"))
    assert claimed == ["open-1", "open-3", "open-2"]


@on_postgresql
async def test_an_open_transaction_that_is_rolled_back_leaves_no_gap(yard: Yard) -> None:
    world = yard.world
    caller = await holding(yard)
    after = await world.push()
    assert [one.pos for one in await world.store.feed()] == [1]
    await caller.rollback()
    await world.push()
    assert [one.pos for one in await world.store.feed()] == [1, 2]
    assert (await world.claim_ids())[0] == after.id


@on_postgresql
async def test_a_step_with_the_same_key_waits_and_then_hears_who_has_it(yard: Yard) -> None:
    world = yard.world
    caller = await holding(yard)
    asked = world.make.pushed(unique=Unique("theirs", LIVE))
    waiting = asyncio.ensure_future(world.commit(asked))
    await is_waiting(yard)
    assert not waiting.done()
    await caller.commit()
    [answer] = await waiting
    assert isinstance(answer, Taken)
    assert answer.by.id == "open-3"


@on_postgresql
async def test_who_waits_for_a_rollback_gets_the_key(yard: Yard) -> None:
    world, second = yard.world, await yard.caller()
    caller = await holding(yard)
    await second.begin()
    asked = world.make.pushed(unique=Unique("theirs", LIVE))
    waiting = asyncio.ensure_future(yard.put(second, asked))
    await is_waiting(yard)
    await caller.rollback()
    assert await waiting == Committed()
    await second.commit()
    assert yard.rows() == (1, 1)


@on_postgresql
async def test_the_same_id_at_once_is_waited_for_and_then_taken(yard: Yard) -> None:
    world, second = yard.world, await yard.caller()
    caller = await holding(yard)
    await second.begin()
    waiting = asyncio.ensure_future(yard.put(second, world.make.pushed(id="open-1")))
    await is_waiting(yard)
    await caller.commit()
    answer = await waiting
    assert isinstance(answer, Taken)
    assert (answer.what, answer.by.id) == ("id", "open-1")
    assert await yard.put(second, world.make.pushed()) == Committed()
    await second.commit()
    assert yard.rows() == (5, 4)


@on_postgresql
async def test_who_does_not_want_to_wait_hears_that_it_is_busy_and_goes_on(yard: Yard) -> None:
    world, second = yard.world, await yard.caller()
    caller = await holding(yard)
    await second.begin()
    await second.run("SET LOCAL lock_timeout = '20ms'")
    with pytest.raises(StoreBusy) as caught:
        await yard.put(second, world.make.pushed(unique=Unique("theirs", LIVE)))
    assert (caught.value.code, caught.value.retryable) == ("store_busy", True)
    assert await yard.put(second, world.make.pushed()) == Committed()
    await second.commit()
    await caller.rollback()
    assert yard.rows() == (2, 1)


@on_postgresql
async def test_a_refused_unit_keeps_no_lock_on_its_key(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    held = await world.push(unique=Unique("f", LIVE))
    await caller.begin()
    asked = world.make.pushed(unique=Unique("f", LIVE))
    assert await yard.put(caller, asked) == Taken("unique", held)
    async with asyncio.timeout(PATIENCE_S):
        assert await world.commit(asked) == [Taken("unique", held)]
    await caller.rollback()


@on_postgresql
async def test_a_job_without_a_lane_can_be_found_counted_moved_and_ended(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    await caller.begin()
    units = [world.make.pushed(queue="fresh", body=Body("new.type")) for _ in range(3)]
    for unit in units:
        assert await yard.put(caller, unit) == Committed()
    await caller.commit()
    ended, moved, left = (unit.new[0].job for unit in units)
    await world.do(ended, j.Cancel(), USER)
    await world.do(moved, j.Move("other"), USER)
    assert {(one.queue, one.state): one.count for one in await world.store.counts()} == {
        ("fresh", "cancelled"): 1,
        ("fresh", "available"): 1,
        ("other", "available"): 1,
    }
    assert yard.ask("SELECT count(*) FROM detent.unplaced") == [(3,)]
    assert await world.claim_ids(queues=("fresh", "other")) == [left.id, moved.id]
    assert yard.ask("SELECT count(*) FROM detent.unplaced") == [(0,)]
    assert {(one.queue, one.state): one.count for one in await world.store.counts()} == {
        ("fresh", "cancelled"): 1,
        ("fresh", "active"): 1,
        ("other", "active"): 1,
    }


@on_sqlite
async def test_readers_go_on_beside_an_open_transaction_on_sqlite(yard: Yard) -> None:
    world = yard.world
    before = await world.push()
    caller = await holding(yard)
    assert [one.event.record for one in await world.store.feed()] == [before.id]
    assert list(await world.store.counts()) == [Counted("", "default", "available", 1)]
    stepping = asyncio.ensure_future(world.push())
    await caller.commit()
    after = await stepping
    assert await world.claim_ids() == [before.id, "open-1", "open-3", after.id]
