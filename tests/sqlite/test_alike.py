"""Jobs that are alike are taken and ended together, and leave what they leave one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.stores.api import (
    Body,
    Committed,
    Outcome,
    Own,
    Rejected,
    Stale,
    Stored,
    Unique,
    Unit,
    Want,
)
from detent.stores.sqlite import SqliteStore
from detent.stores.sqlite.transaction import Transaction
from tests.contract.making import USER, WORKER, Clock
from tests.contract.world import World
from tests.sqlite.ways import one_by_one, tables_of, taken_one_by_one, within

Use = Callable[[World], Awaitable[None]]
TAGGED = Body("mail.send", '{"kwargs":{"to":"Zoë \\" \\\\"}}', tags=("red",), schema="v1")
ODD: dict[str, dict[str, Any]] = {
    "unique": {"unique": Unique("print", ("available", "active"))},
    "priority": {"priority": 1},
}
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
OTHER = f"sha256:{'fedcba9876543210' * 4}"


def using(path: Path, use: Use) -> None:
    async def main() -> None:
        clock = Clock()
        store = SqliteStore(path, clock)
        world = World(store, clock)
        async with store:
            await world.alive("w1")
            await use(world)
            await world.audit()

    asyncio.run(main())


async def at_once(world: World, units: Sequence[Unit]) -> list[Outcome]:
    return await world.commit(*units)


async def taken_at_once(world: World, want: Want) -> list[Stored]:
    return list((await world.store.step([], now=world.now, want=want)).claimed.jobs)


async def pushed(world: World, number: int, **more: Any) -> None:
    for one in range(number):
        body = TAGGED if one % 2 else Body("mail.send")
        await world.must(world.make.pushed(body=body, id=f'id "{one:02}\\', **more))
        world.clock.move(10)


def ended(world: World, taken: Sequence[Stored], digests: Sequence[str | None]) -> list[Unit]:
    """The ends of all of them, as the engine says them; those with a digest have a result."""
    world.clock.move(1_000)
    return [
        world.make.doing(
            one.job,
            j.Complete(lease=one.job.lease, digest=digests[at % len(digests)]),
            WORKER,
            place=None,
            store={
                "lease": one.job.lease,
                "result": digests[at % len(digests)] and f'"result {at}"',
            },
        )
        for at, one in enumerate(taken)
    ]


async def said(world: World, what: Awaitable[Any]) -> list[str]:
    """The statements that it takes."""
    heard: list[str] = []

    def listen(tx: Transaction) -> None:
        tx.connection.set_trace_callback(heard.append)

    def leave(tx: Transaction) -> None:
        tx.connection.set_trace_callback(None)

    await within(world, listen)
    await what
    await within(world, leave)
    # One that has a trigger is heard again for every row.
    told = dict.fromkeys(heard)
    return [one for one in told if "detent_jobs SET" in one or "INTO detent_events" in one]


@pytest.mark.parametrize("digests", [[None], [DIGEST], [DIGEST, None], [DIGEST, OTHER]])
def test_together_they_leave_what_they_leave_one_by_one(
    tmp_path: Path, digests: Sequence[str | None]
) -> None:
    left: list[dict[str, list[Any]]] = []
    told: list[list[Stored]] = []
    ways = (("short", taken_at_once, at_once), ("long", taken_one_by_one, one_by_one))
    for name, take, commit in ways:

        async def use(world: World, take: Any = take, commit: Any = commit) -> None:
            await pushed(world, 9)
            taken = await take(world, world.make.want(9))
            told.append(taken)
            done = await commit(world, ended(world, taken, digests))
            assert done == [Committed()] * 9

        using(tmp_path / f"{name}.db", use)
        left.append(tables_of(tmp_path / f"{name}.db"))
    assert told[0] == told[1]
    assert left[0].keys() == left[1].keys()
    for table in left[0]:
        assert left[0][table] == left[1][table], table


@pytest.mark.parametrize("lease_us", [None, 7_000_000])
@pytest.mark.parametrize("ends", [2, 7])
def test_leases_over_the_wire_have_rows_until_they_end_either_way(
    tmp_path: Path, ends: int, lease_us: int | None
) -> None:
    left: list[dict[str, list[Any]]] = []
    ways = (("short", taken_at_once, at_once), ("long", taken_one_by_one, one_by_one))
    for name, take, commit in ways:

        async def use(world: World, take: Any = take, commit: Any = commit) -> None:
            await pushed(world, 9)
            taken = await take(world, world.make.want(9, wire=True, lease_us=lease_us))
            done = await commit(world, ended(world, taken[:ends], [DIGEST]))
            assert done == [Committed()] * ends

        using(tmp_path / f"{name}.db", use)
        left.append(tables_of(tmp_path / f"{name}.db"))
    assert len(left[0]["detent_leases"]) == 9 - ends
    for table in left[0]:
        assert left[0][table] == left[1][table], table


@pytest.mark.parametrize("wire", [False, True])
def test_their_number_changes_nothing_about_the_number_of_statements(
    tmp_path: Path, wire: bool
) -> None:
    async def use(world: World) -> None:
        await pushed(world, 40)
        taken: list[Stored] = []

        async def take() -> None:
            taken.extend(await taken_at_once(world, world.make.want(40, wire=wire)))

        # The first is decided about, the others go like it.
        assert len(await said(world, take())) == 4
        assert [one.job.id for one in taken] == sorted(one.job.id for one in taken)
        assert len(await said(world, at_once(world, ended(world, taken, [None])))) == 2

    using(tmp_path / "detent.db", use)


def test_jobs_of_several_types_in_one_line_leave_what_they_leave_one_by_one(tmp_path: Path) -> None:
    left: list[dict[str, list[Any]]] = []
    for name, take in (("short", taken_at_once), ("long", taken_one_by_one)):

        async def use(world: World, take: Any = take) -> None:
            for kind in "aabbbbbbabababcaaaaaabc":
                key = "acme" if kind == "c" else None
                await world.must(world.make.pushed(body=Body(f"mail.{kind}", key=key)))
            taken = await take(world, world.make.want(22))
            assert [one.body.type[-1] for one in taken] == [*"aabbbbbbabababcaaaaaab"]

        using(tmp_path / f"{name}.db", use)
        left.append(tables_of(tmp_path / f"{name}.db"))
    assert left[0] == left[1]


@pytest.mark.parametrize("fault", ["called off", "taken away", "ended", "other lease", "gone"])
def test_a_fence_that_fails_harms_its_own_job_only(tmp_path: Path, fault: str) -> None:
    async def use(world: World) -> None:
        await pushed(world, 8)
        taken = await world.claim(8)
        units = ended(world, taken, [None])
        odd = taken[3].job
        if fault == "called off":
            await world.do(odd, j.Cancel(), USER)
        elif fault == "taken away":
            await world.do(odd, j.HandBack(lease=odd.lease), WORKER, store={"lease": odd.lease})
        elif fault == "ended":
            await world.must(units[3])
        elif fault == "other lease":
            [move] = units[3].moves
            units[3] = replace(units[3], moves=(replace(move, lease="another"),))
        else:
            [move] = units[3].moves
            job, [event] = replace(move.job, id="nobody"), move.events
            forged = replace(move, job=job, events=(replace(event, record="nobody"),))
            units[3] = replace(units[3], moves=(forged,))
        outcomes = await world.commit(*units)
        assert isinstance(outcomes.pop(3), Own if fault == "ended" else Stale)
        assert outcomes == [Committed()] * 7
        states = [one.job.state for one in (await world.everything()).values()]
        assert states.count(j.JobState.COMPLETED) == (8 if fault == "ended" else 7)

    using(tmp_path / "detent.db", use)


def test_one_job_ends_once_also_among_others_that_are_alike(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await pushed(world, 6)
        taken = await world.claim(6)
        units = ended(world, taken, [None])
        [second] = ended(world, taken[:1], [None])
        world.clock.move(-1_000)
        outcomes = await world.commit(*units, units[0], second)
        assert outcomes[:6] == [Committed()] * 6
        assert isinstance(outcomes[6], Own)
        assert isinstance(outcomes[7], Stale)

    using(tmp_path / "detent.db", use)


@pytest.mark.parametrize("text", ['"\0"', '"Zoë"', '"\ud800"'])
def test_a_result_that_is_no_plain_text_is_looked_at_by_itself(tmp_path: Path, text: str) -> None:
    async def use(world: World) -> None:
        await pushed(world, 6)
        units = ended(world, await world.claim(6), [DIGEST])
        [move] = units[2].moves
        units[2] = replace(units[2], moves=(replace(move, result=text),))
        outcomes = await world.commit(*units)
        odd = outcomes.pop(2)
        assert isinstance(odd, Committed if "Z" in text else Rejected)
        assert outcomes == [Committed()] * 5
        stored = await world.got(move.job)
        assert stored.result == (text if "Z" in text else None)

    using(tmp_path / "detent.db", use)


@pytest.mark.parametrize("odd", ["large", "unique", "priority", "actor"])
def test_whoever_stands_otherwise_is_decided_about(tmp_path: Path, odd: str) -> None:
    async def use(world: World) -> None:
        await pushed(world, 3)
        body = Body("mail.send", f'"{"x" * 20_000}"') if odd == "large" else Body("mail.send")
        await world.must(world.make.pushed(body=body, id="odd", **ODD.get(odd, {})))
        for _ in range(5):
            await world.push()
        taken = await world.claim(9)
        assert len(taken) == 9
        assert {one.job.id: one.body for one in taken}["odd"] == body
        units = ended(world, taken, [None])
        if odd == "actor":
            job = taken[4].job
            by = By(Actor.WORKER, "w2")
            done = j.Complete(lease=job.lease)
            units[4] = world.make.doing(job, done, by, place=None, store={"lease": job.lease})
        assert await world.commit(*units) == [Committed()] * 9

    using(tmp_path / "detent.db", use)


def test_whatever_was_handed_out_of_them_is_handed_out_no_more(tmp_path: Path) -> None:
    async def use(world: World) -> None:
        await pushed(world, 6)
        taken = await world.claim(6)
        await world.lose("w1")
        assert len(await world.due()) == 6
        assert await world.commit(*ended(world, taken, [None])) == [Committed()] * 6

    using(tmp_path / "detent.db", use)
    assert tables_of(tmp_path / "detent.db")["detent_handed"] == []
