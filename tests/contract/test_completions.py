"""Completions by the column leave behind what the same units would have, one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from detent.lifecycle import job as j
from detent.lifecycle.job.stamping import Endings
from detent.stores.api import Committed, Own, Stale, Stored, key_of
from detent.stores.completions import Completion, Completions
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World

DIGEST = "sha-256:0a"
Said = tuple[str | None, str | None, int | None]
RESULTS: dict[str, Callable[[int], Said]] = {
    "nothing": lambda _: (None, None, None),
    "texts": lambda number: (DIGEST, f'["Zoë \\u0007 {number}"]', None),
    "some": lambda number: (DIGEST, "1", None) if number % 2 else (None, None, None),
    "for a while": lambda number: (DIGEST, "{}", 2_000_000_000 * SECOND + number % 2),
}
"""What each of them brings: the digest, the text, and until when it is kept."""


async def held(world: World, number: int, **more: object) -> list[Stored]:
    """So many jobs in the hands of one worker."""
    for _ in range(number):
        await world.push()
    return await world.claim(number, **more)


def ended(world: World, jobs: list[Stored], kind: str = "nothing") -> Completions:
    endings = Endings(world.now)
    rows: list[Completion] = []
    for number, one in enumerate(jobs):
        digest, result, until = RESULTS[kind](number)
        done = j.Complete(lease=one.job.lease, digest=digest)
        endings.decide(one.job, done, j.Context(WORKER, "any"))
        assert endings.knows(one.job, done, WORKER)
        rows.append((one.job, f"end-{number:03}", digest, result, until))
    return Completions(rows, endings)


@pytest.mark.parametrize("number", [1, 3, 40])
@pytest.mark.parametrize("kind", RESULTS)
async def test_they_are_what_their_units_say(world: World, kind: str, number: int) -> None:
    jobs = await held(world, number)
    made = ended(world, jobs, kind)
    stepped = await world.store.step(made, now=world.now)
    assert list(stepped.outcomes) == [Committed()] * number
    moves = [unit.moves[0] for unit in made]
    keys = [key_of(move.job) for move in moves]
    found = await world.store.get(keys)
    bodies = [one.body for one in jobs]
    said = zip(moves, bodies, strict=True)
    assert list(found) == [Stored(move.job, body, None, move.result) for move, body in said]
    last = [one[-1].event for one in await world.store.histories(keys)]
    assert last == [move.events[0] for move in moves]


async def test_those_held_over_the_wire_let_go_of_their_leases(world: World) -> None:
    made = ended(world, await held(world, 20, wire=True, lease_us=9 * SECOND))
    stepped = await world.store.step(made, now=world.now)
    assert list(stepped.outcomes) == [Committed()] * 20
    world.clock.move(60 * SECOND)
    assert await world.due() == []


@pytest.mark.parametrize("number", [3, 30])
async def test_one_that_has_moved_on_harms_no_other(world: World, number: int) -> None:
    jobs = await held(world, number)
    await world.do(jobs[1].job, j.Reprioritise(5), USER)
    made = ended(world, jobs)
    outcomes = (await world.store.step(made, now=world.now)).outcomes
    assert [type(one) for one in outcomes] == [Committed, Stale, *[Committed] * (number - 2)]
    again = (await world.store.step(made, now=world.now)).outcomes
    assert [type(one) for one in again] == [Own, Stale, *[Own] * (number - 2)]


@pytest.mark.parametrize("kind", ["nothing", "texts"])
async def test_they_are_committed_beside_a_claim(world: World, kind: str) -> None:
    jobs = await held(world, 12)
    await world.push(id="next")
    want = world.make.want(1)
    stepped = await world.store.step(ended(world, jobs, kind), now=world.now, want=want)
    assert list(stepped.outcomes) == [Committed()] * 12
    assert [one.job.id for one in stepped.claimed.jobs] == ["next"]


async def test_two_ends_of_one_job_are_one(world: World) -> None:
    jobs = await held(world, 12)
    made = ended(world, [*jobs, jobs[0]])
    outcomes = (await world.store.step(made, now=world.now)).outcomes
    assert [type(one) for one in outcomes] == [*[Committed] * 12, Stale]


async def test_each_result_is_kept_as_long_as_is_said_of_it(world: World) -> None:
    made = ended(world, await held(world, 30), "for a while")
    await world.store.step(made, now=world.now)
    for at in (0, 1):
        world.clock.move(2_000_000_000 * SECOND + at - world.now)
        assert await world.store.forget_results(now=world.now, limit=100) == 15
