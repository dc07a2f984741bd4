"""New jobs by the column are the jobs that the same units would have made, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from detent.errors import BatchTooLarge
from detent.lifecycle import job as j
from detent.lifecycle.job.stamping import Stamp
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import RECORDS_MAX, Body, Committed, Own, Stored, Taken, Unit, key_of
from detent.stores.births import Birth, Births, Mould
from tests.contract.making import SECOND, USER
from tests.contract.world import World

PLAIN = Body("mail.send")
ODD = Body("mail.send", tags=("red",))
PAYLOADS = ("[1]", '{"kwargs":{"to":"Zoë \\"q\\" \\\\ \\n","n":[1.5,null]}}', '["\U0001f600"]')


def mould(body: Body = PLAIN, reason: str | None = None, **more: Any) -> Mould:
    stamp = Stamp.of(j.Enqueue(id="none", profile="python", **more), USER, reason)
    assert isinstance(stamp, Stamp)
    return Mould(stamp, body)


def births(
    world: World, moulds: Sequence[Mould], names: Sequence[str], apart: int = 1
) -> list[Birth]:
    """A job of each name, of one mould after the other, a moment apart or at once."""
    return [
        (
            moulds[number % len(moulds)],
            name,
            world.now + number * apart,
            world.now + number,
            PAYLOADS[number % len(PAYLOADS)],
        )
        for number, name in enumerate(names)
    ]


def named(number: int) -> list[str]:
    return [f"born-{one:04}" for one in range(number)]


MOULDS = {
    "plain": lambda: [mould()],
    "rich": lambda: [
        mould(
            Body("a.b", meta='{"a":"ö"}', retry=RetryPolicy(max_attempts=3), schema="v1", key="k"),
            'because "place":1 was free',
            tenant="acme",
            queue="q",
            priority=7,
            deadlines=Deadlines(available_us=5 * SECOND, active_us=9 * SECOND),
        )
    ],
    "mixed": lambda: [mould(), mould(queue="other"), mould(ODD), mould(losses_allowed=1)],
}


@pytest.mark.parametrize(("number", "apart"), [(1, 1), (3, 1), (40, 1), (40, 0)])
@pytest.mark.parametrize("kind", MOULDS)
async def test_they_are_what_their_units_say(
    world: World, kind: str, number: int, apart: int
) -> None:
    made = Births(births(world, MOULDS[kind](), named(number), apart))
    stepped = await world.store.step(made, now=world.now)
    assert list(stepped.outcomes) == [Committed()] * number
    news = [unit.new[0] for unit in made]
    keys = [key_of(new.job) for new in news]
    found = await world.store.get(keys)
    assert list(found) == [Stored(new.job, new.body, new.wake_at) for new in news]
    histories = await world.store.histories(keys)
    assert [[fed.event for fed in one] for one in histories] == [list(new.events) for new in news]
    assert len(await world.store.feed()) == number


async def test_they_are_claimed_in_their_order_and_counted(world: World) -> None:
    some = [mould(), mould(priority=1)]
    await world.store.step(Births(births(world, some, named(10))), now=world.now)
    [counted] = await world.store.counts()
    assert (counted.queue, counted.state, counted.count) == ("default", "available", 10)
    order = [*named(10)[1::2], *named(10)[::2]]
    assert await world.claim_ids(20) == order


@pytest.mark.parametrize("number", [2, 12])
async def test_whoever_is_in_the_way_of_one_harms_no_other(world: World, number: int) -> None:
    await world.push(id=named(number)[1])
    rows = births(world, [mould()], named(number))
    outcomes = (await world.store.step(Births(rows), now=world.now)).outcomes
    assert [type(one) for one in outcomes] == [Committed, Taken, *[Committed] * (number - 2)]
    again = (await world.store.step(Births(rows), now=world.now)).outcomes
    assert [type(one) for one in again] == [Own, Taken, *[Own] * (number - 2)]
    assert len(await world.everything()) == number


async def test_many_callers_at_once_lose_nobody(world: World) -> None:
    some = [mould(), mould(queue="other")]
    rows = births(world, some, named(60))
    steps = [Births(rows[at : at + 3]) for at in range(0, 60, 3)]
    answers = await asyncio.gather(*(world.store.step(one, now=world.now) for one in steps))
    assert all(one.outcomes == (Committed(),) * 3 for one in answers)
    assert len(await world.everything()) == 60


async def test_so_many_are_too_many(world: World) -> None:
    rows = births(world, [mould()], named(RECORDS_MAX + 1))
    with pytest.raises(BatchTooLarge):
        await world.store.step(Births(rows), now=world.now)
    assert await world.everything() == {}


async def test_a_move_that_follows_at_once_finds_the_job(world: World) -> None:
    made = Births(births(world, [mould()], named(8)))
    cancel = world.make.doing(made[3].new[0].job, j.Cancel(), USER)
    await world.store.step(made, now=world.now)
    await world.must(cancel)
    assert (await world.everything())["", "born-0003"].job.state == "cancelled"


async def test_long_payloads_are_whole_however_long_all_are_together(world: World) -> None:
    long = [f'["{at % 10}{"x" * 300_000}"]' for at in range(5)]
    rows = [
        (*row[:4], payload)
        for row, payload in zip(births(world, [mould()], named(5)), long, strict=True)
    ]
    assert set((await world.store.step(Births(rows), now=world.now)).outcomes) == {Committed()}
    found = await world.store.get([("", row[1]) for row in rows])
    assert [one.body.payload for one in found if one is not None] == long


def test_a_piece_has_so_many_jobs_and_so_much_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.stores.uniform.RECORD_CHARS", 10)
    sizes = [*[1] * RECORDS_MAX, 9_000, 1_000, 1, 20_000, 1]
    made = Births([(mould(), str(at), 0, 0, "x" * size) for at, size in enumerate(sizes)])
    assert [len(one) for one in made.pieces()] == [RECORDS_MAX, 2, 1, 1, 1]
    assert [one.weight for one in made.pieces()] == [RECORDS_MAX, 1_000, 1, 2_000, 1]
    assert [unit.command_id for one in made.pieces() for unit in one] == [
        row[1] for row in made.rows
    ]


def test_units_are_made_when_somebody_looks(world: World) -> None:
    rows = births(world, [mould()], named(5))
    made = Births(rows)
    assert (len(made), made[1].command_id, made[-1].command_id) == (5, "born-0001", "born-0004")
    assert [unit.command_id for unit in made[1:3]] == ["born-0001", "born-0002"]
    assert isinstance(Births.joined([made, made[:1]]), Births)
    other = Unit("other")
    assert list(Births.joined([made, [other]])) == [*made, other]
