"""A worker takes what can start now: as much as it has slots for, and whose turn it is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from detent import Context, Detent, Limit
from detent.engine.identity import Identity
from detent.errors import BadOption, InstanceLost
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.runtime.executors.means import Kind
from detent.runtime.worker.settings import Settings
from detent.runtime.worker.wishing import Wishes
from tests.runtime.worker.place import Place, ended, events
from tests.waiting import until


async def test_every_job_is_run_once_and_its_end_is_stored(app: Detent, place: Place) -> None:
    ran: Counter[int] = Counter()

    @app.job
    async def double(number: int) -> int:
        ran[number] += 1
        return number * 2

    handles = await app.aenqueue_many([double.bind(number) for number in range(300)])
    async with place.worker(slots=50) as worker:
        await until(lambda: worker.status().done == 300)
    assert ran == Counter(range(300))
    assert [await handle.aresult() for handle in handles[:5]] == [0, 2, 4, 6, 8]
    assert await events(handles[-1]) == ["enqueue", "claim", "complete"]
    status = worker.status()
    assert (status.state, status.free, status.running) == ("stopped", 50, ())
    assert status.step_at > 0
    assert status.loop_at > 0


async def test_no_more_jobs_are_claimed_than_there_are_slots(app: Detent, place: Place) -> None:
    go = asyncio.Event()

    @app.job
    async def wait() -> None:
        await go.wait()

    handles = await app.aenqueue_many([wait.bind() for _ in range(7)])
    async with place.worker(slots=3) as worker:
        await until(lambda: len(worker.status().running) == 3)
        states = Counter([(await handle.astatus()).state for handle in handles])
        assert states == {"active": 3, "available": 4}
        first = worker.status().running[0]
        assert (first.type, first.attempt, first.executor) == ("wait", 1, "async")
        assert (first.step, first.why) == ("running", None)
        go.set()
        await ended(*handles)


@pytest.mark.parametrize(("slots", "most"), [(50, 50), (200, 100), (400, 200), (5_000, 500)])
def test_a_claim_asks_for_half_the_slots_of_a_large_worker_where_there_is_much(
    slots: int, most: int
) -> None:
    settings = Settings(slots=slots)
    identity = Identity(lambda: 1)
    wishes = Wishes(settings, By(Actor.WORKER, "w1"), {"noop": Kind.ASYNC}, identity)
    sizes = []
    for granted in (most, most - 1, 16, 3, 0):
        wish = wishes.next(free=slots, sync_free=settings.sync_slots)
        assert wish is not None
        sizes.append(wish.size)
        wishes.brought(wish, granted)
    assert sizes == [most, most, 16, most, 16]


async def test_a_job_that_comes_to_an_idle_worker_is_started_at_once(
    app: Detent, place: Place
) -> None:
    @app.job
    async def hello() -> str:
        return "hello"

    async with place.worker():
        for _ in range(3):
            handle = await hello.aenqueue()
            assert await handle.aresult(timeout=10) == "hello"


async def test_plain_functions_wait_in_the_store_until_a_thread_is_free(
    app: Detent, place: Place
) -> None:
    go = threading.Event()

    @app.job
    def block() -> None:
        go.wait(20)

    @app.job
    async def light() -> None:
        pass

    blocking = await app.aenqueue_many([block.bind() for _ in range(5)])
    async with place.worker(slots=10, sync_slots=2) as worker:
        await until(lambda: len(worker.status().running) == 2)
        others = await app.aenqueue_many([light.bind() for _ in range(5)])
        assert set(await ended(*others)) == {"completed"}
        states = Counter([(await handle.astatus()).state for handle in blocking])
        assert states == {"active": 2, "available": 3}
        go.set()
        await ended(*blocking)


async def test_tenants_take_turns(here: Place) -> None:
    order: list[str] = []

    @here.app.job
    async def work(ctx: Context) -> None:
        order.append(ctx.tenant)

    for tenant, number in (("a", 40), ("b", 5), ("c", 5)):
        await here.app.aenqueue_many([work.using(tenant=tenant).bind() for _ in range(number)])
    async with here.worker(slots=1, tenants=("a", "b", "c")):
        await until(lambda: len(order) == 50)
    assert Counter(order[:15]) == {"a": 5, "b": 5, "c": 5}


async def test_other_tenants_and_queues_and_types_are_left_alone(here: Place) -> None:
    app = here.app

    @app.job
    async def mine() -> None:
        pass

    @app.job
    async def other() -> None:
        pass

    left = [
        await mine.using(tenant="b").aenqueue(),
        await mine.using(queue="slow").aenqueue(),
        await other.aenqueue(),
        await here.enqueue("unknown"),
    ]
    handle = await mine.aenqueue()
    async with here.worker(types=("mine", "gone")):
        await ended(handle)
    assert {(await one.astatus()).state for one in left} == {"available"}


async def test_a_rate_is_waited_for(here: Place) -> None:
    @here.app.job(limit=Limit(rate=1, per=0.3))
    async def seldom() -> None:
        pass

    handles = await here.app.aenqueue_many([seldom.bind() for _ in range(3)])
    async with here.worker():
        await ended(*handles)
    claims = [(await handle.ahistory())[1].at for handle in handles]
    assert max(claims) - min(claims) >= 550_000


async def test_a_worker_that_was_declared_lost_goes(app: Detent, place: Place) -> None:
    stopped = asyncio.Event()

    @app.job
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await work.aenqueue()
    async with place.worker("w3") as worker:
        await until(lambda: worker.status().running)
        await place.bury("w3")
        handle = await work.aenqueue()
        with pytest.raises(InstanceLost):
            await asyncio.wait_for(place.running["w3"], 10)
        # What it ran is given to others, so it must not go on.
        assert stopped.is_set()
        assert (await handle.astatus()).state == "available"


@pytest.mark.parametrize(
    "wrong", [{"slots": 0}, {"sync_slots": 10_001}, {"queues": ()}, {"tenants": ()}]
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadOption) as caught:
        Settings(**wrong)  # type: ignore[arg-type]
    assert caught.value.fields["option"] in wrong
