"""The caller's rows and the jobs appear together or not at all, through every driver."""

from __future__ import annotations

import asyncio
import threading

from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Committed, Counted, Own, Rejected, Taken, Unique
from detent.stores.select import Filter
from tests.contract.making import SECOND, forged
from tests.inside.yard import Yard

PATIENCE_S = 10.0
LIVE = ("scheduled", "available", "active")


async def test_a_commit_makes_the_job_claimable_and_writes_its_history(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    body = Body("mail.send", '{"to":  "ä"}', '{"x": 1}', ("a", "b"), RetryPolicy(5), "s1", "k")
    unit = world.make.pushed(body=body)
    await caller.begin()
    assert await yard.put(caller, unit) == Committed()
    assert yard.rows() == (0, 0), "nobody sees it before"
    await caller.commit()
    assert yard.rows() == (1, 1)
    [new] = unit.new
    assert [one.event for one in await world.store.feed()] == list(new.events)
    assert list(await world.store.history(("", new.job.id))) == list(new.events)
    assert list(await world.store.counts()) == [Counted("", "default", "available", 1)]
    for chosen in (Filter(tag="a"), Filter(type="mail.send"), Filter(key="k")):
        assert [one.body for one in await world.store.find(chosen)] == [body]
    [taken] = await world.claim()
    assert (taken.job.id, taken.body) == (new.job.id, new.body)
    assert list(await world.store.counts()) == [Counted("", "default", "active", 1)]


async def test_a_job_may_be_the_first_thing_in_a_transaction(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    for end, jobs in ((caller.rollback, 0), (caller.commit, 1)):
        await caller.begin()
        assert await caller.enqueue(world.make.pushed(), world.now) == Committed()
        await end()
        assert yard.rows() == (0, jobs)


async def test_a_rollback_leaves_nothing_and_the_same_unit_can_be_sent_again(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    unit = world.make.pushed(unique=Unique("f", LIVE))
    await caller.begin()
    assert await yard.put(caller, unit) == Committed()
    await caller.rollback()
    assert yard.rows() == (0, 0)
    assert list(await world.store.feed()) == []
    assert list(await world.store.counts()) == []
    await caller.begin()
    assert await yard.put(caller, unit) == Committed()
    await caller.commit()
    assert await world.claim_ids() == [unit.new[0].job.id]


async def test_the_same_command_again_is_answered_with_own(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    unit = world.make.pushed()
    for answer in (Committed(), Own()):
        await caller.begin()
        assert await yard.put(caller, unit) == answer
        await caller.commit()
    assert yard.rows() == (2, 1)


async def test_a_key_that_is_in_use_names_its_job_and_the_caller_goes_on(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    held = await world.push(unique=Unique("f", LIVE))
    await caller.begin()
    assert await yard.put(caller, world.make.pushed(unique=Unique("f", LIVE))) == Taken(
        "unique", held
    )
    assert await yard.put(caller, world.make.pushed(id=held.id)) == Taken("id", held)
    assert await yard.put(caller, world.make.pushed()) == Committed()
    await caller.commit()
    assert yard.rows() == (3, 2)


async def test_what_the_database_refuses_leaves_nothing_and_the_caller_goes_on(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    await caller.begin()
    bad = [
        world.make.inserting(forged(world.make.new(), name="fail")),
        world.make.inserting(forged(world.make.new(), priority=2**70)),
        world.make.pushed(body=Body("a\0b")),
        world.make.pushed(body=Body("\ud800")),
        world.make.pushed(body=Body("mail.send", key="")),
    ]
    for unit in bad:
        assert isinstance(await yard.put(caller, unit), Rejected), unit
    assert await yard.put(caller, world.make.pushed()) == Committed()
    await caller.commit()
    assert yard.rows() == (len(bad) + 1, 1)


async def test_a_scheduled_job_comes_when_it_is_due(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    unit = world.make.pushed(run_at=world.now + SECOND, queue="later")
    await caller.begin()
    assert await yard.put(caller, unit) == Committed()
    await caller.commit()
    assert await world.claim_ids(queues=("later",)) == []
    world.clock.move(SECOND)
    await world.must(*[world.make.ticking(due) for due in await world.due()])
    assert await world.claim_ids(queues=("later",)) == [unit.new[0].job.id]


async def test_whoever_waits_for_work_is_woken_by_the_commit(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    waiting = asyncio.ensure_future(world.store.wait(30.0))
    await caller.begin()
    await yard.put(caller, world.make.pushed())
    await caller.commit()
    assert await waiting


async def test_a_reader_sees_both_or_neither(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    seen: list[tuple[int, int]] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            seen.append(yard.rows())

    looking = asyncio.ensure_future(asyncio.to_thread(look))
    try:
        for number in range(12):
            await caller.begin()
            await yard.put(caller, world.make.pushed())
            await (caller.rollback() if number % 3 == 0 else caller.commit())
    finally:
        is_over.set()
        await looking
    assert {orders - jobs for orders, jobs in seen} == {0}
    assert yard.rows() == (8, 8)


async def test_two_of_one_key_at_once_make_one_job(yard: Yard) -> None:
    world, first, second = yard.world, await yard.caller(), await yard.caller()
    ours, theirs = (world.make.pushed(unique=Unique("f", LIVE)) for _ in range(2))
    await first.begin()
    assert await yard.put(first, ours) == Committed()

    async def rival() -> object:
        await second.begin()
        return await yard.put(second, theirs)

    waiting = asyncio.ensure_future(rival())
    if yard.database == "postgresql":
        await is_waiting(yard)
        assert not waiting.done()
    await first.commit()
    assert await waiting == Taken("unique", ours.new[0].job)
    await second.commit()
    assert yard.rows() == (2, 1)


async def is_waiting(yard: Yard) -> None:
    """Until somebody in this database waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(yard.ask, waiting) == [(0,)]:
            pass
