"""The short way of plain calls: the same jobs, the same errors, from any thread and any loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from detent import Detent
from detent.engine.asks import Ask, born
from detent.engine.identity import Identity
from detent.engine.moulds import mould_of, moulded
from detent.errors import DetentError, InsideLoop
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import New

USER = By(Actor.USER, "ada")


@pytest.mark.parametrize(
    "ask",
    [
        Ask(type="mail", secret=()),
        Ask(type="mail", secret=(), queue="q", priority=3, tenant="acme", losses_allowed=2),
        Ask(type="mail", secret=(), retry=RetryPolicy(max_attempts=7), reason="why"),
        Ask(type="mail", secret=(), deadlines=Deadlines(available_us=5, active_us=9)),
    ],
)
def test_what_a_mould_makes_is_what_would_have_been_decided(ask: Ask) -> None:
    mould = mould_of(ask, USER)
    assert mould is not None
    made = moulded([(mould, "[1]"), (mould, "[2]")], Identity(lambda: 1_000))
    for number, unit in enumerate(made):
        [new] = unit.new
        ctx = j.Context(USER, unit.command_id, place=new.job.place, reason=ask.reason)
        again = Ask(**{name: getattr(ask, name) for name in Ask.__struct_fields__})
        decided = born(again, new.job.id, 1_000, ctx)
        assert isinstance(decided, New)
        assert new.body.payload == f"[{number + 1}]"
        assert (new.job, new.events, new.wake_at) == (decided.job, decided.events, decided.wake_at)
        assert unit.command_id == new.job.id
    assert [unit.new[0].job.place for unit in made] == [1_000, 1_001]


def test_names_are_given_once_in_order_and_as_many_as_were_asked_for() -> None:
    identity = Identity(lambda: 1_700_000_000_000_000)
    assert identity.ids(0) == []
    names = [identity.id(), *identity.ids(600), *identity.births(3)[0]]
    assert names == sorted(set(names))
    assert {UUID(name).version for name in names} == {7}
    assert {UUID(name).variant for name in names} == {RFC_4122}
    assert len({name[-12:] for name in names}) == len(names)


@pytest.mark.parametrize(
    "more",
    [
        {"run_at": 9},
        {"expires_at": 9},
        {"ttl_us": 9},
        {"retry": RetryPolicy(total_us=9)},
        {"id": "mine"},
        {"secret": None},
        {"workflow": "w"},
    ],
)
def test_what_is_not_plain_has_no_mould(more: dict[str, Any]) -> None:
    assert mould_of(Ask(**{"type": "mail", "secret": (), **more}), USER) is None


def test_threads_and_loops_enqueue_beside_each_other(app: Detent) -> None:
    @app.job
    async def add(a: int, b: int = 0) -> int:
        return a + b

    found: list[Any] = []

    def waiting(number: int) -> None:
        found.extend(add.enqueue(number, b=one) for one in range(5))

    async def awaiting() -> list[Any]:
        found.extend(await asyncio.gather(*(add.aenqueue(one) for one in range(20))))
        return list(await add.aenqueue_many(add.bind(one) for one in range(30)))

    threads = [threading.Thread(target=waiting, args=(one,)) for one in range(4)]
    for thread in threads:
        thread.start()
    many = asyncio.run(awaiting())
    for thread in threads:
        thread.join()
    ids = [handle.id for handle in [*found, *many]]
    assert len(set(ids)) == 4 * 5 + 20 + 30
    assert sorted(app.drain()) == sorted(ids)
    assert many[-1].result() == 29
    assert [event.name for event in many[-1].history()] == ["enqueue", "claim", "complete"]


def test_many_keep_the_order_of_their_calls_whatever_their_types(app: Detent) -> None:
    @app.job
    async def one(a: int) -> None: ...

    @app.job(priority=0, queue="default", timeout=9.0)
    async def two(a: int) -> None: ...

    calls = [(one if number % 3 else two).bind(number) for number in range(12)]
    handles = app.enqueue_many(calls)
    assert app.drain() == [handle.id for handle in handles]


def test_what_is_wrong_is_said_by_the_call_that_enqueues(app: Detent) -> None:
    @app.job
    async def say(text: str) -> None: ...

    say.enqueue("a")
    long = say.using(queue="q" * 300)
    calls = [long.bind("b"), long.bind("c")]
    for wrong in (lambda: app.enqueue_many(calls), lambda: say.enqueue("x" * 2_000_000)):
        with pytest.raises(DetentError) as caught:
            wrong()
        assert caught.value.code in ("name_too_long", "payload_too_large")

    async def main() -> None:
        say.enqueue("d")

    with pytest.raises(InsideLoop):
        asyncio.run(main())
    assert len(app.drain()) == 1
