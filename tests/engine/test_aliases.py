"""A job that is run again under its id; jobs that come together; and whoever listens to it all."""

from __future__ import annotations

import asyncio

from detent.engine.asks import Ask, Uniqueness
from detent.engine.engine import Engine
from detent.engine.enqueueing import Clash, Refused
from detent.lifecycle.machine import Refusal
from detent.stores.api import Fed, Stored
from detent.stores.select import Filter
from tests.contract.making import USER
from tests.contract.world import World


async def ended(engine: Engine) -> str:
    """The id of a job that was called off."""
    [made] = await engine.enqueue([Ask(type="a", payload="[1]", profile="ojs")], USER)
    job = getattr(made, "job")  # noqa: B009 - it is new, so it has one
    await engine.operators.cancel(("", job.id), USER)
    return str(job.id)


async def test_an_alias_leads_to_the_newest_and_back(world: World, engine: Engine) -> None:
    name = await ended(engine)
    first = await engine.aliases.rerun(("", name), USER, "again")
    assert isinstance(first, Stored)
    assert (first.job.rerun_of, first.job.state, first.body.payload) == (name, "available", "[1]")
    await engine.operators.cancel(("", first.job.id), USER)
    second = await engine.aliases.rerun(("", name), USER, "and again")
    assert isinstance(second, Stored)
    assert second.job.rerun_of == first.job.id
    assert await engine.aliases.newest([("", name), ("", "other")]) == [
        ("", second.job.id),
        ("", "other"),
    ]
    [old, *_] = await world.store.get([("", name)])
    assert old is not None
    assert await engine.aliases.shown([second.job, old.job, first.job]) == [name] * 3


async def test_of_two_who_ask_at_once_one_gets_a_job(world: World, engine: Engine) -> None:
    name = await ended(engine)
    asked = [engine.aliases.rerun(("", name), USER, "again") for _ in range(4)]
    answers = await asyncio.gather(*asked)
    made = [one for one in answers if isinstance(one, Stored)]
    assert len(made) == 1
    assert {one.code for one in answers if isinstance(one, Refusal)} == {"not_ended"}
    assert len(await world.store.find(Filter())) == 2


async def test_what_cannot_be_run_again_under_its_id(engine: Engine) -> None:
    async def why(name: str) -> str:
        answer = await engine.aliases.rerun(("", name), USER, "again")
        assert isinstance(answer, Refusal)
        return answer.code

    assert await why("nothing") == "unknown_job"
    [live] = await engine.enqueue([Ask(type="a", profile="ojs")], USER)
    assert await why(getattr(live, "job").id) == "not_ended"  # noqa: B009
    [plain] = await engine.enqueue([Ask(type="a", profile="python")], USER)
    name = getattr(plain, "job").id  # noqa: B009
    await engine.operators.cancel(("", name), USER)
    assert await why(name) == "no_alias"


async def test_together_or_not_at_all(world: World, engine: Engine) -> None:
    made = await engine.enqueue_together([Ask(type="a"), Ask(type="b", id="x")], USER)
    assert isinstance(made, list)
    assert [one.job.id == "x" for one in made] == [False, True]
    taken = await engine.enqueue_together([Ask(type="c"), Ask(type="d", id="x")], USER)
    assert isinstance(taken, Refused)
    assert isinstance(taken.why, Clash)
    twice = await engine.enqueue_together([Ask(type="c", id="y"), Ask(type="d", id="y")], USER)
    assert isinstance(twice, Refused)
    assert twice.index == 1
    unique = Uniqueness("same")
    pair = [Ask(type="c", unique=unique), Ask(type="d", unique=unique)]
    assert isinstance(await engine.enqueue_together(pair, USER), Refused)
    bad = await engine.enqueue_together([Ask(type="c"), Ask(type="d", queue="")], USER)
    assert isinstance(bad, Refused)
    assert bad.index == 1
    assert len(await world.store.find(Filter())) == 2


async def test_whoever_listens_hears_what_comes_after(world: World, engine: Engine) -> None:
    await world.push()
    listeners = [await engine.tail.listen() for _ in range(2)]
    job = await world.push()
    for listener in listeners:
        heard: list[Fed] = []
        while not heard:
            heard = await listener.take(5)
        assert [fed.event.record for fed in heard] == [job.id]
        engine.tail.leave(listener)
    assert await listeners[0].take(0) == []
    await engine.tail.close()


async def test_a_slow_listener_loses_the_oldest(world: World, engine: Engine) -> None:
    listener = await engine.tail.listen(lambda fed: fed.event.name == "enqueue")
    await world.push()
    [fed] = await listener.take(5)
    listener.offer([fed] * 1_500)
    assert listener.dropped is not None
    assert listener.dropped.count == 500
    assert len(await listener.take(0)) == 1_000
    await engine.tail.close()
