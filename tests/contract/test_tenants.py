"""Tenants: the same ids, names and keys on both sides, and nothing ever crosses."""

from __future__ import annotations

from detent.lifecycle import job as j
from detent.stores.api import Idempotency, Line, Stale, Taken, Unique
from tests.contract.making import SECOND, USER
from tests.contract.world import World


async def test_one_id_in_two_tenants_is_two_jobs(world: World) -> None:
    ours = await world.push(id="a", tenant="ours", priority=1)
    theirs = await world.push(id="a", tenant="theirs", priority=2)
    ours = await world.do(ours, j.Hold(), USER)
    found = await world.store.get([("ours", "a"), ("theirs", "a"), ("", "a")])
    assert [stored and stored.job for stored in found] == [ours, theirs, None]
    assert len(await world.store.history(("ours", "a"))) == 2
    assert len(await world.store.history(("theirs", "a"))) == 1


async def test_a_fence_of_one_tenant_is_not_passed_by_the_other(world: World) -> None:
    ours = await world.push(id="a", tenant="ours")
    theirs = await world.push(id="a", tenant="theirs")
    held = await world.do(ours, j.Hold(), USER)
    late = world.make.doing(ours, j.Cancel(), USER)
    assert await world.commit(late) == [Stale(("ours", "a"), held)]
    assert (await world.got(theirs)).job == theirs


async def test_claims_see_their_own_tenant_only(world: World) -> None:
    for tenant in ("ours", "theirs", ""):
        await world.push(id="a", tenant=tenant)
    taken = await world.claim(9, tenant="ours")
    assert [(one.job.tenant, one.job.id) for one in taken] == [("ours", "a")]
    assert [one.job.tenant for one in await world.claim(9)] == [""]
    assert await world.claim(9, tenant="ours") == []


async def test_a_repeated_claim_answers_its_own_tenant_only(world: World) -> None:
    await world.push(tenant="ours")
    await world.alive("w1")
    want = world.make.want(tenant="ours")
    first = await world.store.step([], now=world.now, want=want)
    assert (await world.store.step([], now=world.now, want=want)).claimed == first.claimed


async def test_fingerprints_and_keys_are_the_tenants_own(world: World) -> None:
    unique = Unique("print", ("available",))
    key = Idempotency("key", "d", world.now + SECOND)
    ours = await world.push(tenant="ours", unique=unique, idempotency=key)
    await world.push(tenant="theirs", unique=unique, idempotency=key)
    [outcome] = await world.commit(world.make.pushed(tenant="ours", unique=unique))
    assert outcome == Taken("unique", ours)
    [outcome] = await world.commit(world.make.pushed(tenant="ours", idempotency=key))
    assert outcome == Taken("idempotency", ours)


async def test_gates_are_the_tenants_own(world: World) -> None:
    await world.push(tenant="ours")
    await world.push(tenant="theirs")
    await world.gate("default", closed=True, tenant="ours")
    assert await world.claim(9, tenant="ours") == []
    assert len(await world.claim(9, tenant="theirs")) == 1


async def test_logs_are_the_tenants_own(world: World) -> None:
    for tenant in ("ours", "theirs"):
        await world.push(id="a", tenant=tenant)
    lines = [(("ours", "a"), Line(1, "x")), (("theirs", "a"), Line(2, "y"))]
    assert list(await world.store.append_logs([*lines, (("", "a"), Line(3, "z"))])) == [1, 1, 0]
    assert [one.line.text for one in await world.store.logs(("ours", "a"))] == ["x"]


async def test_time_comes_to_all_tenants(world: World) -> None:
    for tenant in ("ours", "theirs"):
        await world.push(id="a", tenant=tenant, run_at=world.now + 1)
    world.clock.move(SECOND)
    due = await world.due()
    assert {one.stored.job.tenant for one in due} == {"ours", "theirs"}
    assert len(due) == 2
    await world.must(*map(world.make.ticking, due))
    assert await world.due() == []
