"""A call with many jobs that fails in the middle: its error says which are stored, and is true."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from detent.engine import coalesce, enqueueing
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.moulds import mould_of
from detent.errors import StoreBusy, StoreError, StoreUnavailable
from detent.stores import uniform
from detent.stores.api import Idempotency
from detent.stores.faulty import Fault, Faults, faulty
from detent.stores.select import Filter, Page
from detent.stores.shapes import RECORD_CHARS
from tests.contract.making import SECOND, USER
from tests.contract.world import World

JOBS = 40
Enqueue = Callable[[Engine, World], Awaitable[object]]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few jobs are many steps."""
    for module in (uniform, coalesce, enqueueing):
        monkeypatch.setattr(module, "RECORDS_MAX", 4)


async def plain(engine: Engine, _: World) -> None:
    mould = mould_of(Ask(type="mail.send", secret=()), USER)
    assert mould is not None
    await engine.enqueueing.store_new(engine.enqueueing.moulded([(mould, "[]")] * JOBS))


async def heavy(engine: Engine, _: World) -> None:
    mould = mould_of(Ask(type="mail.send", secret=()), USER)
    assert mould is not None
    payload = f'["{"x" * RECORD_CHARS * 4}"]'
    await engine.enqueueing.store_new(engine.enqueueing.moulded([(mould, payload)] * 4))


async def asked(engine: Engine, _: World) -> None:
    await engine.enqueue([Ask(type="mail.send", secret=())] * JOBS, USER)


async def stored(world: World) -> set[str]:
    return {one.job.id for one in await world.store.find(Filter(), Page(1_000))}


@pytest.mark.parametrize("enqueue", [plain, heavy, asked])
async def test_an_error_in_the_middle_says_what_is_stored(
    world: World, enqueue: Enqueue, caplog: pytest.LogCaptureFixture
) -> None:
    rates = {Fault.REFUSED: 0.1, Fault.UNDONE: 0.1, Fault.LOST: 0.1, Fault.SLOW: 0.2}
    errors: list[StoreError] = []
    for seed in range(12):
        before = await stored(world)
        async with Engine(faulty(world.store, Faults(seed=seed, rates=rates))) as engine:
            try:
                await enqueue(engine, world)
            except StoreError as error:
                errors.append(error)
                told = error.fields
                now = await stored(world) - before
                assert set(told["enqueued"]) <= now <= {*told["enqueued"], *told["unknown"]}
    assert {type(error) for error in errors} == {StoreBusy, StoreUnavailable}
    assert any(error.fields["enqueued"] for error in errors)
    assert any(error.fields["unknown"] for error in errors)
    assert caplog.text == "", "nobody complains of errors that were not heard"


async def test_a_call_with_keys_is_simply_made_again(world: World) -> None:
    until = world.now + 999 * SECOND
    asks = [
        Ask(type="mail.send", secret=(), idempotency=Idempotency(f"k{one}", "same", until))
        for one in range(JOBS)
    ]
    tries = 0
    day = Faults(seed=3, rates={Fault.REFUSED: 0.1, Fault.LOST: 0.1})
    async with Engine(faulty(world.store, day)) as engine:
        answers: list[Any] = []
        while not answers:
            tries += 1
            try:
                answers = await engine.enqueue(asks, USER)
            except StoreUnavailable:
                assert tries < 50
    assert tries > 1
    assert {one.job.id for one in answers} == await stored(world)
    assert not all(one.is_new for one in answers)
    assert len(await stored(world)) == JOBS
