"""Turns: whoever was served longest ago comes first, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest

from detent.lifecycle import job as j
from detent.stores.api import Body, Fair, LimitKind
from detent.stores.bounds import TURNS_US
from tests.contract.making import SECOND, SYSTEM, USER
from tests.contract.world import World

QUEUES = ("c", "b", "a")
kinds = pytest.mark.parametrize("fair", list(Fair))


async def push(world: World, fair: Fair, groups: str, **more: Any) -> None:
    """A job per letter, whose queue or key is that letter; its id begins with it."""
    numbers = count(len(await world.everything()))
    for group in groups:
        queue, key = (group, "k") if fair is Fair.QUEUES else ("a", group)
        body = Body("mail.send", key=key)
        await world.push(id=f"{group}{next(numbers):03}", queue=queue, body=body, **more)


async def turns(world: World, fair: Fair, number: int = 1, **more: Any) -> str:
    """Whose turn it was, in order."""
    more.setdefault("queues", QUEUES)
    return "".join(one[0] for one in await world.claim_ids(number, fair=fair, **more))


@kinds
async def test_groups_take_turns_over_many_claims_of_one_job(world: World, fair: Fair) -> None:
    await push(world, fair, "aaaabbc")
    assert [await turns(world, fair) for _ in range(8)] == [*"abcabaa", ""]


@kinds
async def test_groups_take_turns_within_one_claim_just_so(world: World, fair: Fair) -> None:
    await push(world, fair, "aaaabbc")
    assert await turns(world, fair, 9) == "abcabaa"


@kinds
async def test_the_turns_go_on_from_one_claim_to_the_next(world: World, fair: Fair) -> None:
    await push(world, fair, "aaaabbbbcccc")
    taken = ""
    for number in (2, 5, 1, 4):
        taken += await turns(world, fair, number)
        world.clock.move(SECOND)
    assert taken == "abc" * 4


@kinds
async def test_turns_are_remembered_though_nothing_waited_for_long(
    world: World, fair: Fair
) -> None:
    await push(world, fair, "ab")
    assert await turns(world, fair, 2) == "ab"
    world.clock.move(3_600 * SECOND)
    await push(world, fair, "ba")
    assert await turns(world, fair, 2) == "ab"


@kinds
async def test_a_clock_that_goes_back_does_not_turn_the_turns_round(
    world: World, fair: Fair
) -> None:
    await push(world, fair, "aabbcc")
    taken = await turns(world, fair)
    world.clock.move(-3 * SECOND)
    taken += await turns(world, fair) + await turns(world, fair)
    world.clock.move(1)
    assert taken + await turns(world, fair, 3) == "abcabc"


@kinds
async def test_who_was_never_served_comes_before_all_who_were(world: World, fair: Fair) -> None:
    await push(world, fair, "aaabbb")
    assert await turns(world, fair, 3) == "aba"
    await push(world, fair, "c", priority=-9)
    assert await turns(world, fair, 3) == "cba"


@kinds
async def test_of_those_never_served_the_most_urgent_and_then_the_first_comes_first(
    world: World, fair: Fair
) -> None:
    await push(world, fair, "ab")
    await push(world, fair, "c", priority=1)
    assert await turns(world, fair, 3) == "cab"


@kinds
async def test_within_a_group_it_goes_by_priority_and_place(world: World, fair: Fair) -> None:
    await push(world, fair, "aab")
    await push(world, fair, "ab", priority=5)
    ids = await world.claim_ids(9, fair=fair, queues=QUEUES)
    assert ids == ["a003", "b004", "a000", "b002", "a001"]


@kinds
async def test_urgency_does_not_take_another_groups_turn(world: World, fair: Fair) -> None:
    await push(world, fair, "aaa", priority=100)
    await push(world, fair, "bbb", priority=-100)
    assert await turns(world, fair, 9) == "ababab"


@kinds
async def test_a_flood_of_one_group_starves_no_other(world: World, fair: Fair) -> None:
    await push(world, fair, "a" * 60 + "b" * 3 + "c" * 2)
    first = [await turns(world, fair) for _ in range(9)]
    assert "".join(first) == "abcabcaba"


async def test_many_keys_are_each_served_once_before_one_is_served_twice(world: World) -> None:
    keys = [f"k{number:02}" for number in range(20)]
    for _ in range(3):
        for key in keys:
            await world.push(body=Body("mail.send", key=key))
    for _ in range(3):
        taken = [one for _ in range(5) for one in await world.claim(4, fair=Fair.KEYS)]
        assert sorted(one.body.key or "" for one in taken) == keys


async def test_jobs_without_a_key_are_one_group_of_their_own(world: World) -> None:
    for number in range(3):
        await world.push(id=f"n{number}")
        await world.push(id=f"a{number}", body=Body("mail.send", key="a"))
    assert await world.claim_ids(fair=Fair.KEYS) == ["n0", "a0", "n1", "a1", "n2", "a2"]


async def test_fair_to_keys_means_in_all_queues_of_the_wish_together(world: World) -> None:
    for name, queue, key in [
        ("1", "a", "x"),
        ("2", "b", "x"),
        ("3", "b", "y"),
        ("4", "a", "x"),
        ("5", "b", "y"),
    ]:
        await world.push(id=name, queue=queue, body=Body("mail.send", key=key))
    taken = await world.claim_ids(fair=Fair.KEYS, queues=("b", "a"))
    assert taken == ["1", "3", "2", "5", "4"]


@kinds
async def test_turns_are_the_tenants_own(world: World, fair: Fair) -> None:
    await push(world, fair, "aab")
    await push(world, fair, "aab", tenant="t2")
    assert await turns(world, fair) == "a"
    assert await turns(world, fair, tenant="t2") == "a"
    assert await turns(world, fair, 2) == "ba"
    assert await turns(world, fair, 2, tenant="t2") == "ba"


async def test_turns_of_queues_and_turns_of_keys_are_two_things(world: World) -> None:
    for name in "aabb":
        await world.push(queue=name, body=Body("mail.send", key=name))
    [first] = await world.claim(fair=Fair.QUEUES, queues=QUEUES)
    assert first.job.queue == "a"
    [second] = await world.claim(fair=Fair.KEYS, queues=QUEUES)
    assert second.body.key == "a"


async def test_a_claim_that_is_not_fair_neither_asks_nor_counts_whose_turn_it_is(
    world: World,
) -> None:
    await push(world, Fair.KEYS, "aabb")
    assert await world.claim_ids(1, queues=QUEUES) == ["a000"]
    assert await turns(world, Fair.KEYS) == "a"
    await push(world, Fair.KEYS, "a", priority=1)
    assert await world.claim_ids(1, queues=QUEUES) == ["a004"]
    assert await turns(world, Fair.KEYS) == "b"


@kinds
async def test_who_cannot_be_served_does_not_lose_its_turn(world: World, fair: Fair) -> None:
    kind = LimitKind.QUEUE if fair is Fair.QUEUES else LimitKind.KEY
    await push(world, fair, "aaabbb")
    assert await turns(world, fair, 2) == "ab"
    await world.limit("a", kind, concurrency=1)
    assert await turns(world, fair) == "b"
    await world.limit("a", kind)
    assert await turns(world, fair, 3) == "aba"


@kinds
async def test_a_job_that_is_held_leaves_its_turn_to_the_next_of_its_group(
    world: World, fair: Fair
) -> None:
    await push(world, fair, "aabb")
    [first, *_] = [stored.job for _, stored in sorted((await world.everything()).items())]
    await world.do(first, j.Hold(), USER)
    assert await world.claim_ids(9, fair=fair, queues=QUEUES) == ["a001", "b002", "b003"]


@kinds
async def test_a_claim_that_is_repeated_takes_no_second_turn(world: World, fair: Fair) -> None:
    await push(world, fair, "aabb")
    await world.alive("w1")
    want = world.make.want(1, fair=fair, queues=QUEUES)
    for _ in range(3):
        stepped = await world.store.step([], now=world.now, want=want)
        assert [one.job.id for one in stepped.claimed.jobs] == ["a000"]
    assert await turns(world, fair, 9) == "bab"


@kinds
async def test_claimers_at_the_same_time_take_turns_too(world: World, fair: Fair) -> None:
    await push(world, fair, "aaaabbbbcccc")
    await world.alive("w1")
    for _ in range(4):
        wants = [world.make.want(1, fair=fair, queues=QUEUES) for _ in range(3)]
        steps = [world.store.step([], now=world.now, want=want) for want in wants]
        stepped = await asyncio.gather(*steps)
        assert sorted(step.claimed.jobs[0].job.id[0] for step in stepped) == ["a", "b", "c"]


@kinds
async def test_offers_take_turns_like_claims_and_with_them(world: World, fair: Fair) -> None:
    await push(world, fair, "aabb", profile="engine")
    await push(world, fair, "ab")
    offer: dict[str, Any] = {"push": True, "by": SYSTEM, "holder": "e1"}
    assert await turns(world, fair, **offer) == "a"
    assert await turns(world, fair) == "b"
    assert await turns(world, fair, 3, **offer) == "abb"


@kinds
@pytest.mark.parametrize(("passed_us", "expected"), [(TURNS_US, "ab"), (TURNS_US + 2, "ba")])
async def test_turns_of_longer_than_a_day_ago_are_forgotten(
    world: World, fair: Fair, passed_us: int, expected: str
) -> None:
    """Then the order is that of jobs whose group was never served."""
    await push(world, fair, "ab")
    assert await turns(world, fair, 2) == "ab"
    world.clock.move(passed_us)
    await world.prune()
    await push(world, fair, "ba")
    assert await turns(world, fair, 2) == expected
