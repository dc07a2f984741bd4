"""Events come in order, at least once, from one process at a time, whoever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from detent.engine import subscribers
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.subscribers import KIND, Cursor, Subscriber, one_by_one
from detent.errors import BadOption
from detent.lifecycle.event import Event
from detent.stores.api import Fed
from tests.contract.making import SECOND, USER
from tests.contract.world import World

WAIT_S = 20


class Ear:
    """A subscriber that remembers, and fails or waits when it is told to."""

    def __init__(self, name: str = "ear", wants: Callable[[Event], bool] = lambda _: True) -> None:
        self.heard: list[Event] = []
        self.faults = 0
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.full = asyncio.Event()
        self.until = 1
        self.subscriber = Subscriber(name, wants, one_by_one(self._hear), from_start=True)

    async def _hear(self, event: Event) -> None:
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.faults:
            self.faults -= 1
            raise ValueError("not now")
        self.heard.append(event)
        if len(self.heard) >= self.until:
            self.full.set()


async def push(engine: Engine, count: int = 1) -> None:
    await engine.enqueue([Ask(type="x")] * count, USER)


async def fed(world: World) -> list[Event]:
    return [one.event for one in await world.store.feed(0, 100_000)]


async def all_of(engine: Engine) -> None:
    while await engine.subscribers.turn():
        pass


async def test_everything_comes_in_the_order_of_the_feed(world: World, engine: Engine) -> None:
    ear = Ear()
    engine.subscribers.add(ear.subscriber)
    await push(engine, 250)
    await all_of(engine)
    assert ear.heard == await fed(world)
    await push(engine)
    assert await engine.subscribers.turn() == 1
    assert await engine.subscribers.turn() == 0


async def test_another_process_goes_on_where_the_cursor_stands(
    world: World, engine: Engine
) -> None:
    first, second = Ear(), Ear()
    engine.subscribers.add(first.subscriber)
    await push(engine, 3)
    await all_of(engine)
    await engine.subscribers.let_go()
    other = Engine(world.store)
    other.subscribers.add(second.subscriber)
    await push(engine, 2)
    await all_of(other)
    assert [*first.heard, *second.heard] == await fed(world)


async def test_a_new_one_hears_what_comes_unless_it_asks_for_more(
    world: World, engine: Engine
) -> None:
    await push(engine, 37)
    ear = Ear()
    late = Subscriber("late", lambda _: True, ear.subscriber.deliver)
    engine.subscribers.add(late)
    assert await engine.subscribers.turn() == 0
    await push(engine)
    assert await engine.subscribers.turn() == 1
    assert ear.heard == (await fed(world))[-1:]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9])
async def test_the_end_of_the_feed_is_found(world: World, engine: Engine, count: int) -> None:
    await push(engine, count)
    last = (await world.store.feed(0, 1_000))[-1].pos if count else 0
    assert await subscribers.end_of(world.store) == last


async def test_of_two_processes_one_delivers_at_a_time(world: World, engine: Engine) -> None:
    first, second = Ear(), Ear()
    first.gate = asyncio.Event()
    engine.subscribers.add(first.subscriber)
    other = Engine(world.store)
    other.subscribers.add(second.subscriber)
    await push(engine, 3)
    delivering = asyncio.create_task(engine.subscribers.turn())
    await asyncio.wait_for(first.begun.wait(), WAIT_S)
    assert await other.subscribers.turn() == 0
    first.gate.set()
    assert await delivering == 3
    assert second.heard == []


async def test_who_dies_is_followed_after_a_while_and_cannot_move_the_cursor_any_more(
    world: World, engine: Engine
) -> None:
    first, second = Ear(), Ear()
    first.gate = asyncio.Event()
    engine.subscribers.add(first.subscriber)
    other = Engine(world.store)
    other.subscribers.add(second.subscriber)
    await push(engine, 3)
    stalled = asyncio.create_task(engine.subscribers.turn())
    await asyncio.wait_for(first.begun.wait(), WAIT_S)
    world.clock.move(subscribers.HOLD_US)
    assert await other.subscribers.turn() == 3
    await push(engine, 2)
    assert await other.subscribers.turn() == 2
    [before] = await world.store.record([(KIND, "", "ear")])
    first.gate.set()
    await stalled
    assert [before] == await world.store.record([(KIND, "", "ear")])
    assert second.heard == await fed(world)


async def test_who_fails_is_tried_again_from_there_ever_more_patiently(
    world: World, engine: Engine
) -> None:
    ear = Ear()
    engine.subscribers.add(ear.subscriber)
    await push(engine, 2)
    await engine.subscribers.turn()
    ear.faults = 3
    await push(engine, 2)
    for seconds in (1, 2, 4):
        assert await engine.subscribers.turn() == 0
        world.clock.move(seconds * SECOND - 1)
        assert await engine.subscribers.turn() == 0
        world.clock.move(1)
    assert await engine.subscribers.turn() == 2
    assert ear.heard == await fed(world)


async def test_what_was_taken_before_the_failure_is_not_told_again(
    world: World, engine: Engine
) -> None:
    heard: list[str] = []

    async def picky(event: Event) -> None:
        if len(heard) == 2 and not world.now > start:
            raise ValueError
        heard.append(event.record)

    start = world.now
    engine.subscribers.add(Subscriber("p", lambda _: True, one_by_one(picky), from_start=True))
    await push(engine, 4)
    assert await engine.subscribers.turn() == 2
    world.clock.move(SECOND)
    assert await engine.subscribers.turn() == 2
    assert heard == [event.record for event in await fed(world)]


async def test_a_batch_that_fails_comes_again_whole(world: World, engine: Engine) -> None:
    batches: list[int] = []

    async def deliver(batch: Sequence[Fed]) -> None:
        batches.append(len(batch))
        if len(batches) == 1:
            raise OSError

    engine.subscribers.add(Subscriber("b", lambda _: True, deliver, from_start=True))
    await push(engine, 3)
    await engine.subscribers.turn()
    world.clock.move(SECOND)
    await engine.subscribers.turn()
    assert batches == [3, 3]


async def test_who_hangs_or_fails_holds_up_nobody(engine: Engine) -> None:
    """Three at once: one hangs, one fails, one hears everything."""
    hanging, failing, good = Ear("hanging"), Ear("failing"), Ear("good")
    hanging.gate, failing.faults, good.until = asyncio.Event(), 1_000_000, 5
    for ear in (hanging, failing, good):
        engine.subscribers.add(ear.subscriber)
    running = asyncio.create_task(engine.subscribers.run())
    await push(engine, 5)
    await asyncio.wait_for(good.full.wait(), WAIT_S)
    hanging.gate.set()
    await _stop(running)
    assert failing.heard == []


async def _stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_stopped_process_lets_go_at_once(world: World, engine: Engine) -> None:
    ear, other = Ear(), Engine(world.store)
    engine.subscribers.add(ear.subscriber)
    running = asyncio.create_task(engine.subscribers.run())
    await push(engine, 1)
    await asyncio.wait_for(ear.full.wait(), WAIT_S)
    await _stop(running)
    next_one = Ear()
    other.subscribers.add(next_one.subscriber)
    await push(engine, 1)
    while await other.subscribers.turn():
        pass
    assert (await fed(world))[-1] in next_one.heard


async def test_what_nobody_wants_costs_no_writing(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear(wants=lambda event: event.name == "claim")
    engine.subscribers.add(ear.subscriber)
    await push(engine, 150)
    for _ in range(3):
        assert await engine.subscribers.turn() == 0
    [record] = await world.store.record([(KIND, "", "ear")])
    assert record is not None
    assert record.version == 1
    monkeypatch.setattr(subscribers, "UNSEEN_MAX", 10)
    await engine.subscribers.turn()
    [record] = await world.store.record([(KIND, "", "ear")])
    assert record is not None
    assert record.version == 2
    await world.claim(1)
    assert await engine.subscribers.turn() == 1


async def test_two_of_one_name_are_refused(engine: Engine) -> None:
    engine.subscribers.add(Ear().subscriber)
    with pytest.raises(BadOption):
        engine.subscribers.add(Ear().subscriber)


async def test_a_fault_on_the_way_ends_no_loop(engine: Engine) -> None:
    faults = [RuntimeError("once")]

    def wants(_: Event) -> bool:
        if faults:
            raise faults.pop()
        return True

    ear = Ear(wants=wants)
    engine.subscribers.add(ear.subscriber)
    await push(engine)
    running = asyncio.create_task(engine.subscribers.run())
    await asyncio.wait_for(ear.full.wait(), WAIT_S)
    await _stop(running)


async def test_who_takes_long_goes_on_holding(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribers, "KEEP_S", 0)
    ear, other = Ear(), Engine(world.store)
    ear.gate = asyncio.Event()
    engine.subscribers.add(ear.subscriber)
    late = Ear()
    other.subscribers.add(late.subscriber)
    await push(engine, 2)
    delivering = asyncio.create_task(engine.subscribers.turn())
    await asyncio.wait_for(ear.begun.wait(), WAIT_S)
    world.clock.move(subscribers.HOLD_US - 1)
    async with asyncio.timeout(WAIT_S):
        while (await _cursor(world)).until <= world.now + 1:  # noqa: ASYNC110 - another's record
            await asyncio.sleep(0)
    world.clock.move(1)
    assert await other.subscribers.turn() == 0
    ear.gate.set()
    assert await delivering == 2
    assert late.heard == []


async def _cursor(world: World) -> Cursor:
    [record] = await world.store.record([(KIND, "", "ear")])
    assert record is not None
    return msgspec.json.decode(record.data or "", type=Cursor)
