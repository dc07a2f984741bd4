"""The rig: time on demand, work on demand, death on demand."""

from __future__ import annotations

import asyncio

import pytest

from detent import BadArguments, Context, Detent, Limit, ResultTimeout, Snooze
from detent.errors import BadOption, InsideLoop
from detent.testing import Crashed, Moment, Rig, VirtualClock

app = Detent("nosuch:")
ran: list[str] = []


@app.job
def order(number: int) -> None:
    ran.append(f"order {number}")
    send.using(queue="mail", delay=60).enqueue(number)


@app.job
async def send(number: int) -> str:
    ran.append(f"send {number}")
    return f"sent {number}"


@app.job(retry=5)
def flaky(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise ValueError("not yet")
    return ctx.attempt


@app.job
def restless() -> None:
    raise Snooze(1)


@app.job(limit=Limit(rate=1, per=60))
def seldom() -> None: ...


@pytest.fixture
def shop() -> Rig:
    """A rig on the app of this module, whose own store does not even exist."""
    ran.clear()
    return Rig(app)


def test_an_app_is_on_a_store_in_memory_only_while_the_rig_is_entered(shop: Rig) -> None:
    real = app.connection
    with shop:
        assert order.enqueue(1).is_new
        assert app.connection is not real
    assert app.connection is real


def test_a_drain_runs_what_is_due_and_no_more(shop: Rig) -> None:
    with shop:
        first = order.enqueue(7)
        assert shop.drain() == [first.id]
        assert ran == ["order 7"]
        [later] = shop.assert_enqueued(send.bind(7))
        shop.clock.advance(59)
        assert shop.drain() == []
        shop.clock.advance(1)
        assert shop.drain() == [later.id]
        assert later.result() == "sent 7"


def test_a_drain_may_take_all_the_time_it_needs(shop: Rig) -> None:
    with shop:
        handle = flaky.enqueue()
        started = shop.clock.now
        assert shop.drain(advance=True) == [handle.id] * 3
        assert handle.result() == 3
        assert shop.clock.now > started
        for _ in range(3):
            seldom.enqueue()
        assert len(shop.drain(advance=True)) == 3


def test_a_drain_without_end_is_noticed(shop: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.testing.rig.RUNS_MAX", 10)
    with shop:
        restless.enqueue()
        with pytest.raises(AssertionError, match="does one snooze"):
            shop.drain(advance=True)


def test_asynchronous_tests_drain_in_their_own_loop(shop: Rig) -> None:
    async def test() -> None:
        handle = await send.aenqueue(1)
        assert await shop.adrain() == [handle.id]
        assert await handle.aresult() == "sent 1"

    with shop:
        asyncio.run(test())


def test_what_was_enqueued_is_asserted_by_type_arguments_and_place(shop: Rig) -> None:
    with shop:
        send.enqueue(1)
        send.using(queue="mail", priority=3, tenant="t").enqueue(2)
        assert len(shop.assert_enqueued(send.bind(1))) == 1
        [two] = shop.assert_enqueued(send.using(queue="mail", priority=3).bind(2), count=1)
        assert two.tenant == "t"
        shop.assert_enqueued(send.bind(3), count=0)
        for call, count in [(send.bind(3), None), (send.using(queue="x").bind(1), None)]:
            with pytest.raises(AssertionError, match=r"found 0\. Jobs there are:\n  send"):
                shop.assert_enqueued(call, count=count)
        with pytest.raises(AssertionError, match=r"Expected .* 2 times, found 1"):
            shop.assert_enqueued(send.bind(1), count=2)
        assert [one.body.type for one in shop.enqueued()] == ["send", "send"]


@pytest.mark.parametrize(
    ("moment", "runs", "events"),
    [
        ("after_claim", 1, ["claim", "lose", "due", "claim", "complete"]),
        ("before_report", 2, ["claim", "lose", "due", "claim", "complete"]),
        (Moment.AFTER_COMMIT, 1, ["claim", "complete"]),
    ],
)
def test_a_worker_dies_and_the_next_finds_what_it_left(
    shop: Rig, moment: str, runs: int, events: list[str]
) -> None:
    with shop:
        handle = send.enqueue(1)
        with pytest.raises(Crashed):
            shop.drain(crash=moment)
        shop.drain()
        assert handle.result() == "sent 1"
        assert ran == ["send 1"] * runs
        assert [event.name for event in handle.history()][1:] == events


def test_a_job_that_kills_its_workers_is_poison(shop: Rig) -> None:
    with shop:
        handle = send.enqueue(1)
        for _ in range(3):
            with pytest.raises(Crashed):
                shop.drain(crash="before_report")
        assert shop.drain() == []
        assert handle.status().cause == "poison"


def test_one_call_is_run_for_its_result(shop: Rig) -> None:
    with shop:
        assert shop.run(send.bind(3)) == "sent 3"
        with pytest.raises(ResultTimeout):
            shop.run(send.using(delay=1).bind(3))


def test_a_new_rig_has_an_app_of_its_own(rig: Rig) -> None:
    @rig.app.job
    def double(number: int) -> int:
        return number * 2

    handle = double.enqueue(2)
    rig.drain()
    assert handle.result() == 4
    assert handle.status().created_at == rig.clock.now


def test_the_clock_never_goes_back() -> None:
    clock = VirtualClock()
    now = clock()
    clock.advance_to(now - 1)
    assert clock() == now


def test_a_job_with_a_key_of_its_arguments_is_found(rig: Rig) -> None:
    @rig.app.job(key="customer:{customer}", limit=Limit(concurrency=1))
    def bill(customer: str) -> None: ...

    bill.enqueue("ada")
    rig.assert_enqueued(bill.bind("ada"), count=1)
    rig.assert_enqueued(bill.using(key="another").bind("ada"), count=0)


def test_what_cannot_be_asked_of_a_rig_is_refused_in_words(shop: Rig) -> None:
    async def drain() -> None:
        shop.drain()

    with shop:
        with pytest.raises(InsideLoop, match="begins with an a"):
            asyncio.run(drain())
        with pytest.raises(BadOption, match="after_claim"):
            shop.drain(crash="boom")
        for ask in (shop.run, shop.assert_enqueued):
            with pytest.raises(BadArguments, match=r"send\.bind"):
                ask(send)  # type: ignore[arg-type]
