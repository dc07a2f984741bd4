"""The clock of the machine is set while everything runs: nothing is lost or doubled."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from detent.engine.access import Scope
from detent.engine.engine import Engine
from detent.errors import ClockAhead
from detent.lifecycle import job as j
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Stored, WorkerRow
from tests.contract.making import BODY, SECOND, USER
from tests.contract.world import World
from tests.engine.working import claim, failed

HOUR = 3_600 * SECOND


async def settled(world: World, engine: Engine) -> None:
    """Upkeep has watched for so long that nobody is trusted for nothing."""
    for _ in range(20):
        await engine.upkeep.turn()
        world.clock.move(SECOND)


async def running(world: World, engine: Engine, **made: Any) -> Stored:
    """A job in the hands of w1, which has just been heard of."""
    await settled(world, engine)
    await world.push(**made)
    await world.store.beat([WorkerRow("w1", world.now + 15 * SECOND)], now=world.now)
    [stored] = (await engine.claim(world.make.want(1))).jobs
    return stored


async def names(world: World, job: j.Job) -> list[str]:
    return [event.name for event in await world.store.history((job.tenant, job.id))]


# --- forward --------------------------------------------------------------------------------------


async def test_whoever_claims_is_not_lost_because_the_clock_says_so(
    world: World, engine: Engine
) -> None:
    await running(world, engine)
    await world.push(id="next")
    world.clock.move(HOUR)
    told = await engine.claim(world.make.want(1))
    assert (told.lost, told.jobs) == (False, ())
    again = (await world.store.step([], now=world.now, want=world.make.want(1))).claimed
    assert (again.lost, again.seen) == (True, told.seen), "or it would be woken at once, for ever"
    assert told.retry_at is not None
    assert world.now < told.retry_at <= world.now + SECOND
    await world.alive("w1")
    assert len((await engine.claim(world.make.want(1))).jobs) == 1
    await world.lose("w1")
    assert (await engine.claim(world.make.want(1))).lost
    assert (await engine.claim(world.make.want(1, holder="nobody"))).lost


async def test_time_that_nobody_has_seen_is_not_taken_from_a_run(
    world: World, engine: Engine
) -> None:
    """Twice, the second time while everybody is still trusted for the first."""
    stored = await running(world, engine, deadlines=Deadlines(active_us=60 * SECOND))
    for _ in range(2):
        world.clock.move(HOUR)
        await engine.upkeep.turn()
        world.clock.move(2 * SECOND)
        await world.alive("w1")
    for _ in range(16):
        await engine.upkeep.turn()
        world.clock.move(SECOND)
        await world.alive("w1")
    assert await names(world, stored.job) == ["enqueue", "claim"]
    for _ in range(90):
        await engine.upkeep.turn()
        world.clock.move(SECOND)
        await world.alive("w1")
    assert (await names(world, stored.job))[2] == "time_out", "its own time counts"


async def test_nor_from_all_its_attempts_together(world: World, engine: Engine) -> None:
    body = replace(BODY, retry=RetryPolicy(total_us=60 * SECOND))
    stored = await running(world, engine, body=body)
    world.clock.move(HOUR)
    await engine.upkeep.turn()
    world.clock.move(2 * SECOND)
    await world.alive("w1")
    await engine.upkeep.turn()
    assert await names(world, stored.job) == ["enqueue", "claim"]


# --- backward -------------------------------------------------------------------------------------


async def test_a_retry_waits_as_long_as_it_was_to(world: World, engine: Engine) -> None:
    stored = await running(world, engine)
    await world.push(id="later", run_at=world.now + 10 * SECOND)
    await engine.carry_out([failed(stored)])
    waits = ((await world.got(stored.job)).job.run_at or 0) - world.now
    world.clock.move(-HOUR)
    await engine.upkeep.turn()
    after = await world.got(stored.job)
    assert (after.job.run_at, after.wake_at) == (world.now + waits, world.now + waits)
    [event] = [x for x in await world.store.history(("", stored.job.id)) if x.name == "rescheduled"]
    assert (event.reason, str(event.actor)) == ("the clock was set back", "system")
    world.clock.move(waits)
    await engine.upkeep.turn()
    assert (await world.got(stored.job)).job.state == "available"
    told = await world.store.history(("", "later"))
    assert [one.name for one in told] == ["enqueue"], "a time of day is waited for"


async def test_what_somebody_has_told_another_time_keeps_it(world: World, engine: Engine) -> None:
    stored = await running(world, engine)
    await engine.carry_out([failed(stored)])
    world.clock.move(SECOND // 2)
    at = world.now + 9 * SECOND
    job = (await world.got(stored.job)).job
    await world.do(job, j.Reschedule(at), USER)
    world.clock.move(-HOUR)
    await engine.upkeep.turn()
    assert (await world.got(stored.job)).job.run_at == at


async def test_who_was_last_heard_of_in_the_future_is_not_believed_until_then(
    world: World, engine: Engine
) -> None:
    stored = await running(world, engine)
    world.clock.move(-HOUR)
    for _ in range(18):
        await engine.upkeep.turn()
        world.clock.move(SECOND)
    assert (await names(world, stored.job))[2:] == ["lose", "due"]


@pytest.mark.parametrize("limit", [{"rate": 1, "period_us": SECOND}, {"spacing_us": SECOND}])
async def test_a_rate_keeps_nobody_back_until_the_old_time(
    world: World, engine: Engine, limit: dict[str, Any]
) -> None:
    await world.limit("default", **limit)
    for name in "abc":
        await world.push(id=name)
    assert len(await claim(world, engine)) == 1
    assert await claim(world, engine) == []
    world.clock.move(-HOUR)
    assert len(await claim(world, engine)) == 1
    assert await claim(world, engine) == [], "and holds by the new one"


async def test_a_key_that_is_revoked_opens_nothing_whatever_the_clock_does(
    world: World, engine: Engine
) -> None:
    key, text = await engine.access.create([Scope.READ])
    here, there = Engine(world.store).access, engine.access
    assert await here.principal(text)
    await there.revoke(key.id)
    world.clock.move(-HOUR)
    assert here.known(text) is None
    assert await here.principal(text) is None


async def test_whoever_read_the_clock_before_may_ask_again(world: World) -> None:
    before = world.now
    world.clock.move(-HOUR)
    with pytest.raises(ClockAhead) as caught:
        await world.store.take_due(now=before, limit=1)
    assert caught.value.retryable
