"""How long a job and its result last, whoever runs it: here a worker of our own."""

from __future__ import annotations

from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.engine.lasting import KEEP
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Stored, key_of
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import claim, completed, failed

TIMED = Ask(type="a", profile="ojs", secret=(), retry=RetryPolicy(total_us=10 * SECOND))


async def taken(world: World, engine: Engine, ask: Ask) -> Stored:
    """A job of that kind in the hands of a worker of our own; upkeep has seen all there is."""
    await engine.upkeep.turn()
    await engine.enqueue([ask], USER)
    [stored] = await claim(world, engine)
    assert not stored.job.wire
    return stored


async def pass_time(world: World, engine: Engine, us: int) -> None:
    """Let it pass without a gap, the worker beating."""
    for _ in range(us // SECOND):
        world.clock.move(SECOND)
        await world.alive("w1")
        await engine.upkeep.turn()


async def test_a_job_that_runs_ends_with_its_total_time(world: World, engine: Engine) -> None:
    stored = await taken(world, engine, TIMED)
    await pass_time(world, engine, 9 * SECOND)
    assert (await world.got(stored.job)).job.state == "active"
    await pass_time(world, engine, SECOND)
    over = await world.got(stored.job)
    assert (over.job.state, [one.code for one in over.failures]) == ("discarded", ["total_timeout"])
    [answer] = await engine.carry_out([completed(stored)])
    assert isinstance(answer, Refusal)
    assert answer.code == "lease_ended"


async def test_what_happens_to_a_running_job_does_not_stop_its_clock(
    world: World, engine: Engine
) -> None:
    stored = await taken(world, engine, TIMED)
    for priority in range(1, 5):
        await engine.operators.apply(j.Reprioritise(priority), [key_of(stored.job)], USER)
    await pass_time(world, engine, 10 * SECOND)
    assert (await world.got(stored.job)).job.state == "discarded"


async def test_a_retry_begins_in_time_or_not_at_all(world: World, engine: Engine) -> None:
    late = RetryPolicy(total_us=10 * SECOND, initial_us=10 * SECOND, jitter=False)
    in_time = replace(late, initial_us=9 * SECOND)
    for policy, state in ((late, "discarded"), (in_time, "retryable")):
        stored = await taken(world, engine, replace(TIMED, retry=policy))
        [answer] = await engine.carry_out([failed(stored)])
        assert isinstance(answer, j.Accepted)
        assert answer.job.state == state


async def test_a_job_that_waits_expires_with_whichever_is_first(
    world: World, engine: Engine
) -> None:
    asks = [replace(TIMED, ttl_us=ttl) for ttl in (None, 3 * SECOND, 30 * SECOND)]
    answers = await engine.enqueue(asks, USER)
    ends = [one.job.expires_at for one in answers if isinstance(one, Enqueued)]
    assert ends == [world.now + length * SECOND for length in (10, 3, 10)]


async def test_a_result_is_kept_as_long_as_its_job_says(world: World, engine: Engine) -> None:
    metas = (f'{{"{KEEP}": {2 * SECOND}}}', f'{{"{KEEP}": -1}}', f'{{"{KEEP}": 0}}', "{}")
    found = [await taken(world, engine, replace(TIMED, meta=meta)) for meta in metas]
    python = await taken(world, engine, Ask(type="a", secret=()))
    await engine.carry_out([completed(one, "7") for one in (*found, python)])
    for days, left in ((0, ["7", "7", None, "7", "7"]), (8, [None, "7", None, None, "7"])):
        world.clock.move(days * 86_400 * SECOND)
        await engine.upkeep.turn()
        assert [(await world.got(one.job)).result for one in (*found, python)] == left
