"""The feed: all events in one order, nothing skipped, and sealed so that it can be proven."""

from __future__ import annotations

import asyncio

import pytest

from detent.errors import BadProof
from detent.lifecycle import job as j
from detent.lifecycle import seal
from detent.lifecycle.seal import Sealed
from detent.stores.api import Key, key_of
from tests.contract.making import USER, WORKER, resealed
from tests.contract.world import World


async def test_positions_count_from_one_in_the_order_of_the_commits(world: World) -> None:
    one, two = await world.push(), await world.push()
    await world.do(one, j.Hold(), USER)
    await world.claim()
    fed = await world.store.feed()
    assert [(x.pos, x.event.record, x.event.name) for x in fed] == [
        (1, one.id, "enqueue"),
        (2, two.id, "enqueue"),
        (3, one.id, "held"),
        (4, two.id, "claim"),
    ]


async def test_units_of_one_step_are_fed_in_their_order_and_claims_after_them(
    world: World,
) -> None:
    await world.alive("w1")
    units = [world.make.pushed() for _ in range(4)]
    await world.store.step(units, now=world.now, want=world.make.want(2))
    records = [unit.new[0].job.id for unit in units]
    assert [event.record for event in await world.feed()] == records + records[:2]


async def test_the_feed_can_be_read_on_from_any_position(world: World) -> None:
    for _ in range(9):
        await world.push()
    whole = list(await world.store.feed())
    for after in range(10):
        assert list(await world.store.feed(after)) == whole[after:]
        assert list(await world.store.feed(after, 2)) == whole[after : after + 2]
    assert list(await world.store.feed(99)) == []
    assert list(await world.store.feed(0, 0)) == []


async def test_a_reader_that_keeps_its_position_sees_every_event_once(world: World) -> None:
    """Writers and a reader take turns as they please; the reader misses nothing."""
    seen: list[int] = []
    done = asyncio.Event()

    async def read() -> None:
        while True:
            over = done.is_set()
            page = await world.store.feed(len(seen), 5)
            seen.extend(fed.pos for fed in page)
            if over and not page:
                return
            await asyncio.sleep(0)

    reader = asyncio.ensure_future(read())
    await asyncio.gather(*(world.push() for _ in range(60)))
    done.set()
    await reader
    assert seen == list(range(1, 61))


async def test_refused_units_leave_no_hole_in_the_feed(world: World) -> None:
    job = await world.push()
    late = world.make.doing(job, j.Cancel(), USER)
    await world.do(job, j.Hold(), USER)
    await world.commit(late, world.make.pushed(id=job.id))
    await world.push()
    assert [fed.pos for fed in await world.store.feed()] == [1, 2, 3]


# --- seals ----------------------------------------------------------------------------------------


async def test_there_is_nothing_to_seal_in_an_empty_store(world: World) -> None:
    assert await world.store.seal() is None
    assert list(await world.store.blocks()) == []


async def test_blocks_go_on_where_the_last_one_ended(world: World) -> None:
    for _ in range(5):
        await world.push()
    first, second = await world.store.seal(limit=2), await world.store.seal(limit=2)
    third = await world.store.seal(limit=2)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [(one.number, one.first_pos, one.count) for one in (first, second, third)] == [
        (1, 1, 2),
        (2, 3, 2),
        (3, 5, 1),
    ]
    assert await world.store.seal() is None
    assert list(await world.store.blocks()) == [first, second, third]
    assert list(await world.store.blocks(1, 1)) == [second]


async def test_the_chain_is_what_sealing_the_feed_again_gives(world: World) -> None:
    for number in range(20):
        job = await world.push()
        if number % 2:
            await world.do(job, j.Cancel(), USER)
        await world.store.seal(limit=number % 4 + 1)
    while await world.store.seal(limit=3):
        pass
    blocks = list(await world.store.blocks())
    assert resealed([seal.leaf(event) for event in await world.feed()], blocks) == blocks


async def sealed_parts(world: World, key: Key) -> list[Sealed]:
    """What a proof about this record is made of, read from the store alone."""
    feed = await world.feed()
    parts = []
    for block in await world.store.blocks():
        run = feed[block.first_pos - 1 : block.first_pos - 1 + block.count]
        mine = [(n, event) for n, event in enumerate(run) if (event.tenant, event.record) == key]
        if mine:
            parts.append(Sealed(block, tuple(seal.leaf(event) for event in run), tuple(mine)))
    return parts


async def test_one_records_history_can_be_proven_from_what_the_store_gives(world: World) -> None:
    job = await world.claimed()
    await world.store.seal()
    for _ in range(5):
        await world.push()
        await world.store.seal()
    done = await world.do(job, j.Complete(lease=job.lease, digest="d"), WORKER)
    await world.store.seal()
    headers = {block.number: block for block in await world.store.blocks()}
    proof = seal.prove(await sealed_parts(world, key_of(job)), headers)
    head = seal.head(headers[max(headers)])
    assert seal.check(proof, head) == list(await world.store.history(key_of(job)))
    assert done.version == len(proof.entries)
    with pytest.raises(BadProof):
        seal.check(proof, "0" * 64)


async def test_sealing_changes_nothing_else(world: World) -> None:
    await world.push()
    before = (await world.everything(), await world.feed())
    await world.store.seal()
    assert (await world.everything(), await world.feed()) == before


async def test_concurrent_sealers_seal_each_event_once(world: World) -> None:
    for _ in range(10):
        await world.push()
    await asyncio.gather(*(world.store.seal(limit=3) for _ in range(8)))
    blocks = await world.store.blocks()
    assert sum(block.count for block in blocks) == 10
    assert [block.number for block in blocks] == list(range(1, len(blocks) + 1))
