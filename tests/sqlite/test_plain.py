"""What is judged at a glance leaves the very rows that the long way leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detent.errors import StoreClosed
from detent.lifecycle import job as j
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Committed, Outcome, Own, Rejected, Stored, Taken, Unit
from detent.stores.births import Births
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import USER, WORKER, Clock
from tests.contract.world import World
from tests.sqlite.ways import mould, one_by_one, tables_of

Commit = Callable[[World, Sequence[Unit]], Any]
BODIES = (
    Body("mail.send"),
    Body("mail.send", '{"kwargs":{"to":"Zoë"}}', retry=RetryPolicy(max_attempts=5)),
    Body("mail.send", key="acme", tags=("red",), schema="v1"),
)


def units(world: World) -> list[Unit]:
    """New jobs under ids of their own making, as the engine makes them."""
    made = []
    for number in range(9):
        name = f"id-{number}"
        more: dict[str, Any] = {"run_at": world.now + 60_000_000} if number % 4 == 3 else {}
        new = world.make.new(body=BODIES[number % 3], id=name, command_id=name, **more)
        made.append(Unit(name, new=(new,)))
    return made


def endings(world: World, taken: Sequence[Stored]) -> list[Unit]:
    told: Sequence[dict[str, str]] = ({}, {"result": '"ok"'}, {"result": '"Zoë"'})
    return [
        world.make.doing(
            one.job,
            j.Complete(lease=one.job.lease),
            WORKER,
            store={"lease": one.job.lease, **told[number % 3]},
        )
        for number, one in enumerate(taken)
    ]


async def at_once(world: World, some: Sequence[Unit]) -> list[Outcome]:
    return await world.commit(*some)


async def lived(path: Path, commit: Commit) -> dict[str, list[Any]]:
    """All tables after some jobs were born, taken and done."""
    clock = Clock()
    store = SqliteStore(path, clock)
    world = World(store, clock)
    async with store:
        await world.alive("w1")
        assert all(isinstance(one, Committed) for one in await commit(world, units(world)))
        clock.move(1_000_000)
        stepped = await store.step([], now=world.now, want=world.make.want(6))
        done = await commit(world, endings(world, stepped.claimed.jobs))
        assert all(isinstance(one, Committed) for one in done)
    return tables_of(path)


def test_the_short_way_leaves_what_the_long_way_leaves(tmp_path: Path) -> None:
    short = asyncio.run(lived(tmp_path / "short.db", at_once))
    long = asyncio.run(lived(tmp_path / "long.db", one_by_one))
    assert short.keys() == long.keys()
    for name in short:
        assert short[name] == long[name], name
    assert (len(short["detent_jobs"]), len(short["detent_events"])) == (9, 9 + 6 + 6)


def test_an_id_that_is_taken_is_found_out_although_nobody_looked(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "jobs.db", clock)
    world = World(store, clock)

    async def main() -> list[Outcome]:
        async with store:
            first, second, *_ = units(world)
            await world.must(first)
            stolen = replace(first, new=(replace(first.new[0], events=second.new[0].events),))
            other = world.make.new(id="id-0", command_id="another")
            return await world.commit(first, second, second, Unit("another", new=(other,)), stolen)

    outcomes = asyncio.run(main())
    assert [type(one) for one in outcomes] == [Own, Committed, Own, Taken, Own]


@pytest.mark.parametrize("field", ["payload", "meta"])
def test_what_no_other_database_could_keep_is_rejected(tmp_path: Path, field: str) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "jobs.db", clock)
    world = World(store, clock)

    async def main() -> list[Outcome]:
        async with store:
            body = replace(Body("mail.send"), **{field: '"\0"'})
            new = world.make.new(body=body, id="a", command_id="a")
            return await world.commit(Unit("a", new=(new,)), world.make.pushed())

    bad, good = asyncio.run(main())
    assert isinstance(bad, Rejected)
    assert isinstance(good, Committed)


def test_whoever_has_no_loop_waits_for_the_same_commit(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "jobs.db", clock)
    world = World(store, clock)

    async def main() -> list[Stored | None]:
        async with store:
            some = units(world)
            stepped = await asyncio.to_thread(store.step_here, some, now=world.now)
            assert list(stepped.outcomes) == [Committed()] * 9
            again = await asyncio.to_thread(store.step_here, some[:1], now=world.now)
            assert list(again.outcomes) == [Own()]
            return list(await store.get([("", "id-0")]))

    [stored] = asyncio.run(main())
    assert stored is not None
    with pytest.raises(StoreClosed):
        store.step_here([], now=world.now)


async def born(path: Path, commit: Commit) -> dict[str, list[Any]]:
    """All tables after jobs of three moulds were born, some of them alone."""
    clock = Clock()
    store = SqliteStore(path, clock)
    world = World(store, clock)
    some = [mould(), mould(queue="other", deadlines=Deadlines(available_us=9)), mould(key="k")]
    async with store:
        for number in (1, 30):
            rows = [
                (some[at % 3], f"id-{number}-{at}", world.now + at, world.now + at, f'["Zoë",{at}]')
                for at in range(number)
            ]
            # Columns are written by mould, so the positions of their events are too.
            rows.sort(key=lambda row: some.index(row[0]))
            outcomes = await commit(world, Births(rows))
            assert all(isinstance(one, Committed) for one in outcomes)
    return tables_of(path)


async def by_the_column(world: World, some: Sequence[Unit]) -> Sequence[Outcome]:
    return (await world.store.step(some, now=world.now)).outcomes


async def each_alone(world: World, some: Sequence[Unit]) -> Sequence[Outcome]:
    """One after the other, now by the caller itself and now by the thread that writes."""
    assert isinstance(world.store, SqliteStore)
    outcomes: list[Outcome] = []
    for at in range(len(some)):
        one = some[at : at + 1]
        here = at % 2 and world.store.step_here(one, now=world.now)
        outcomes += (here or await world.store.step(one, now=world.now)).outcomes
    return outcomes


def test_columns_leave_what_the_long_way_leaves(tmp_path: Path) -> None:
    short = asyncio.run(born(tmp_path / "short.db", by_the_column))
    alone = asyncio.run(born(tmp_path / "alone.db", each_alone))
    long = asyncio.run(born(tmp_path / "long.db", one_by_one))
    assert short == long
    assert alone == long
    assert len(short["detent_jobs"]) == 31


def test_what_comes_in_the_same_transaction_finds_who_was_born_in_it(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "jobs.db", clock)
    world = World(store, clock)
    made = Births([(mould(), f"id-{at}", world.now, world.now + at, "[]") for at in range(9)])
    cancels = [world.make.doing(unit.new[0].job, j.Cancel(), USER) for unit in made[3:5]]

    async def main() -> list[Outcome]:
        def run(tx: Transaction) -> list[Outcome]:
            return [*tx.commit(made, world.now), *tx.commit(cancels, world.now)]

        async with store:
            answers = await store._writing().do(run)  # noqa: SLF001 - in one transaction for sure
            [counted, other] = sorted(await store.counts(), key=lambda one: one.count)
            assert (counted.state, counted.count, other.count) == ("cancelled", 2, 7)
            return answers

    assert asyncio.run(main()) == [Committed()] * 11
