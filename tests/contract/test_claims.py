"""Claims: who gets which job, in which order, once, and exactly as the lifecycle would have it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.machine import Actor
from detent.stores.api import Body, Claimed, Fair, GateKind, Own, Want, WorkerRow, key_of
from tests.contract.making import LOST, SECOND, SYSTEM, USER
from tests.contract.world import World


async def ids(world: World, number: int = 100, **more: Any) -> list[str]:
    """What is claimed, by id."""
    return [one.job.id for one in await world.claim(number, **more)]


# --- order ------------------------------------------------------------------------------------


async def test_claims_go_by_queue_then_priority_then_place(world: World) -> None:
    for name, queue, priority in [
        ("a", "second", 9),
        ("b", "first", 0),
        ("c", "first", 5),
        ("d", "first", 5),
        ("e", "second", -3),
        ("f", "first", -3),
    ]:
        await world.push(id=name, queue=queue, priority=priority)
    assert await ids(world, queues=("first", "second")) == ["c", "d", "b", "f", "a", "e"]


async def test_the_order_of_the_queues_is_the_claimers(world: World) -> None:
    for name, queue in [("a", "x"), ("b", "y"), ("c", "z")]:
        await world.push(id=name, queue=queue)
    assert await ids(world, queues=("z", "x")) == ["c", "a"]


async def test_place_decides_and_not_the_id(world: World) -> None:
    for name in ["c", "a", "b"]:
        await world.push(id=name)
    assert await ids(world) == ["c", "a", "b"]


async def test_equal_places_are_taken_by_id(world: World) -> None:
    jobs = [world.make.new(id=name).job for name in "ba"]
    for job in jobs:
        ctx = world.make.ctx(USER, place=5)
        answer = j.decide(None, j.Enqueue(id=job.id, profile="python"), world.now, ctx)
        assert isinstance(answer, j.Accepted)
        new = world.make.new(id=job.id, command_id=ctx.command_id)
        await world.must(
            world.make.inserting(type(new)(answer.job, answer.events, new.body, new.wake_at))
        )
    assert await ids(world) == ["a", "b"]


async def test_a_job_that_was_activated_goes_to_the_end(world: World) -> None:
    first, _ = await world.push(id="a"), await world.push(id="b")
    held = await world.do(first, j.Hold(), USER)
    assert await ids(world, 1) == ["b"]
    await world.push(id="c")
    await world.do(held, j.Activate(), USER)
    assert await ids(world) == ["c", "a"]


async def test_a_job_that_was_handed_back_keeps_its_place(world: World) -> None:
    job = await world.claimed(id="a")
    await world.push(id="b")
    await world.do(job, j.HandBack(lease=job.lease), SYSTEM, store={"lease": job.lease})
    assert await ids(world) == ["a", "b"]


async def test_no_more_is_claimed_than_leases_were_brought(world: World) -> None:
    for _ in range(5):
        await world.push()
    assert len(await world.claim(3)) == 3
    assert len(await world.claim(3)) == 2
    assert await world.claim(3) == []


async def test_a_wish_without_leases_or_queues_gets_nothing(world: World) -> None:
    await world.push()
    assert await world.claim(0) == []
    assert await world.claim(1, queues=()) == []


async def test_what_is_claimed_is_answered_in_the_order_of_the_claims(world: World) -> None:
    for name in "abc":
        await world.push(id=name)
    taken = await world.claim(3, leases=("z", "x", "y"))
    assert [(one.job.id, one.job.lease) for one in taken] == [("a", "z"), ("b", "x"), ("c", "y")]


@pytest.mark.parametrize("fair", [None, Fair.KEYS])
async def test_a_wish_that_names_a_lease_twice_gets_nothing(
    world: World, fair: Fair | None
) -> None:
    for _ in range(3):
        await world.push()
    assert await world.claim(2, leases=("L", "L"), fair=fair) == []
    assert len(await world.claim(3)) == 3


@pytest.mark.parametrize("fair", [None, Fair.KEYS])
async def test_a_lease_that_its_holder_has_from_another_tenant_is_not_given_again(
    world: World, fair: Fair | None
) -> None:
    await world.push(tenant="theirs")
    assert len(await world.claim(1, leases=("L",), tenant="theirs")) == 1
    await world.push()
    assert await world.claim(2, leases=("L", "M"), fair=fair) == []
    assert len(await world.claim(1, leases=("M",), fair=fair)) == 1


# --- what may be claimed ------------------------------------------------------------------------


async def test_only_available_jobs_are_claimed(world: World) -> None:
    await world.push(id="later", run_at=world.now + SECOND)
    ended = await world.push(id="ended")
    await world.do(ended, j.Cancel(), USER)
    await world.push(id="offered", profile="engine")
    held = await world.push(id="held", held=True)
    await world.push(id="ready")
    assert await ids(world) == ["ready"]
    await world.do(held, j.Activate(), USER)
    assert await ids(world) == ["held"]


async def test_what_has_expired_is_not_claimed_though_nobody_noticed_yet(world: World) -> None:
    await world.push(id="a", expires_at=world.now + SECOND)
    await world.push(id="b", expires_at=world.now + SECOND + 1)
    world.clock.move(SECOND)
    assert await ids(world) == ["b"]


async def test_only_known_types_and_profiles_are_claimed(world: World) -> None:
    for name, kind, profile in [("a", "x", "python"), ("b", "y", "python"), ("c", "x", "ojs")]:
        await world.push(id=name, body=Body(kind), profile=profile)
    assert await ids(world, types=()) == []
    assert await ids(world, profiles=()) == []
    assert await ids(world, types=("x",), profiles=("ojs", "rest")) == ["c"]
    assert await ids(world, types=("y", "z")) == ["b"]
    assert await ids(world) == ["a"]


async def test_what_stands_in_the_way_of_one_job_does_not_stop_the_next(world: World) -> None:
    """A claimer that wants one job looks past any number that it may not have."""
    for number in range(30):
        await world.push(body=Body("paused" if number < 29 else "mail.send"))
    await world.gate("paused", GateKind.TYPE, closed=True)
    assert len(await world.claim(2)) == 1


# --- gates --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(GateKind))
async def test_a_closed_gate_stops_claims_at_once_and_an_open_one_lets_them_go_on(
    world: World, kind: GateKind
) -> None:
    name = {GateKind.QUEUE: "default", GateKind.TYPE: "mail.send"}[kind]
    await world.push(id="a")
    await world.gate(name, kind, closed=True)
    assert await ids(world) == []
    await world.push(id="b")
    assert await ids(world) == []
    await world.gate(name, kind, opened_at=world.now)
    assert await ids(world) == ["a", "b"]


async def test_a_gate_stands_before_its_own_name_kind_and_tenant_only(world: World) -> None:
    await world.push(id="a")
    await world.gate("other", closed=True)
    await world.gate("default", GateKind.TYPE, closed=True)
    await world.gate("mail.send", GateKind.QUEUE, closed=True)
    await world.gate("default", closed=True, tenant="t2")
    assert await ids(world) == ["a"]


async def test_nothing_is_claimed_from_a_deleted_queue(world: World) -> None:
    await world.push()
    await world.gate("default", queue_deleted=True)
    assert await ids(world) == []


async def test_a_pause_writes_no_job(world: World) -> None:
    job = await world.push(expires_at=world.now + 60 * SECOND)
    before = await world.got(job)
    await world.gate("default", closed=True)
    assert await world.got(job) == before


# --- once ---------------------------------------------------------------------------------------


async def test_each_job_goes_to_exactly_one_of_many_concurrent_claimers(world: World) -> None:
    pushed = [await world.push(priority=number % 3) for number in range(60)]
    holders = [f"w{number}" for number in range(20)]
    await world.alive(*holders)
    wants = [world.make.want(4, holder=holder) for holder in holders]
    steps = [world.store.step([], now=world.now, want=want) for want in wants]
    taken = [one.job.id for step in await asyncio.gather(*steps) for one in step.claimed.jobs]
    assert len(taken) == 60
    assert sorted(taken) == sorted(job.id for job in pushed)


async def test_units_and_a_wish_are_one_commit_and_the_wish_sees_the_units(world: World) -> None:
    await world.alive("w1")
    unit = world.make.pushed(id="a")
    stepped = await world.store.step([unit], now=world.now, want=world.make.want())
    assert [one.job.id for one in stepped.claimed.jobs] == ["a"]
    assert [event.name for event in await world.feed()] == ["enqueue", "claim"]


# --- exactly as decided ---------------------------------------------------------------------------


def decided(before: j.Job, want: Want, lease: str, now: int, row: j.Lease | None) -> j.Accepted:
    """What the lifecycle says to the claim."""
    claim = j.Claim(lease, want.holder, want.wire, want.lease_us)
    answer = j.decide(before, claim, now, j.Context(want.by, want.command_id, lease=row))
    assert isinstance(answer, j.Accepted)
    return answer


@pytest.mark.parametrize("profile", ["python", "ojs", "rest", "jobnik"])
@pytest.mark.parametrize(("wire", "lease_us"), [(False, None), (True, None), (True, 7 * SECOND)])
async def test_a_claimed_record_is_what_the_lifecycle_would_have_made_of_it(
    world: World, profile: str, wire: bool, lease_us: int | None
) -> None:
    until = world.now + 3_600 * SECOND
    await world.alive("w1", until=until)
    # Some stand alike and some do not: a store may decide about the former together.
    before = [
        await world.push(profile=profile),
        await world.push(profile=profile),
        await world.push(profile=profile, expires_at=world.now + 90 * SECOND, priority=-1),
        await world.push(profile=profile, priority=-2),
        await world.push(profile=profile, priority=-2),
    ]
    world.clock.move(3 * SECOND)
    want = world.make.want(len(before), wire=wire, lease_us=lease_us)
    stepped = await world.store.step([], now=world.now, want=want)
    for job, lease, stored in zip(before, want.leases, stepped.claimed.jobs, strict=True):
        answer = decided(job, want, lease, world.now, j.Lease(until))
        for field in j.Job.__struct_fields__:
            assert getattr(stored.job, field) == getattr(answer.job, field), field
        history = await world.store.history(key_of(job))
        assert tuple(history[job.version :]) == answer.events
        assert stored == await world.got(job)
        assert stored.wake_at == j.next_wake(answer.job, world.now)


async def test_a_job_on_its_third_attempt_is_claimed_exactly_too(world: World) -> None:
    job = await world.claimed(profile="ojs")
    for number in range(2, 4):
        job = await world.do(job, j.Snooze(lease=job.lease, delay_us=0), world.make.want().by)
        want = world.make.want(wire=True, holder="remote")
        answer = decided(job, want, want.leases[0], world.now, None)
        stepped = await world.store.step([], now=world.now, want=want)
        [stored] = stepped.claimed.jobs
        job = stored.job
        assert (job, job.attempt) == (answer.job, number)


async def test_a_clock_that_went_back_makes_no_event_before_the_last(world: World) -> None:
    job = await world.push()
    world.clock.move(-3 * SECOND)
    [stored] = await world.claim()
    assert (stored.job.claimed_at, stored.job.last_at) == (job.last_at, job.last_at)


# --- push -----------------------------------------------------------------------------------------

OFFER: dict[str, Any] = {"push": True, "by": SYSTEM, "holder": "e1"}


async def test_offers_take_push_jobs_only_and_claims_pull_jobs_only(world: World) -> None:
    for name, profile, delivery in [
        ("a", "python", "push"),
        ("b", "engine", "push"),
        ("c", "python", "pull"),
        ("d", "ojs", "push"),
        ("e", "rest", None),
    ]:
        await world.push(id=name, profile=profile, delivery=delivery)
    assert await ids(world, **OFFER) == ["a", "b", "d"]
    assert await ids(world, **OFFER) == []
    assert await ids(world) == ["c", "e"]


@pytest.mark.parametrize("profile", ["python", "engine"])
@pytest.mark.parametrize(("wire", "lease_us"), [(False, None), (True, None), (True, 7 * SECOND)])
async def test_an_offered_record_is_what_the_lifecycle_would_have_made_of_it(
    world: World, profile: str, wire: bool, lease_us: int | None
) -> None:
    until = world.now + 3_600 * SECOND
    await world.alive("e1", until=until)
    before = [
        await world.push(profile=profile, delivery="push"),
        await world.push(profile=profile, delivery="push", priority=-1),
    ]
    world.clock.move(3 * SECOND)
    want = world.make.want(2, wire=wire, lease_us=lease_us, **OFFER)
    stepped = await world.store.step([], now=world.now, want=want)
    for job, lease, stored in zip(before, want.leases, stepped.claimed.jobs, strict=True):
        offer = j.Dispatch(lease, want.holder, want.wire, want.lease_us)
        ctx = j.Context(want.by, want.command_id, lease=j.Lease(until))
        answer = j.decide(job, offer, world.now, ctx)
        assert isinstance(answer, j.Accepted)
        for field in j.Job.__struct_fields__:
            assert getattr(stored.job, field) == getattr(answer.job, field), field
        history = await world.store.history(key_of(job))
        assert tuple(history[job.version :]) == answer.events
        assert stored == await world.got(job)
        assert stored.wake_at == j.next_wake(answer.job, world.now)
        assert (stored.job.state, stored.job.holder) == ("pending", "e1")


async def test_an_offer_goes_by_queue_priority_and_place_and_looks_past_what_is_closed(
    world: World,
) -> None:
    for name, queue, priority in [("a", "x", 0), ("b", "y", 9), ("c", "x", 5), ("d", "z", 9)]:
        await world.push(id=name, profile="engine", queue=queue, priority=priority)
    await world.push(id="held", profile="engine", queue="x", held=True)
    await world.gate("y", closed=True)
    assert await ids(world, **OFFER, queues=("z", "y", "x")) == ["d", "c", "a"]


async def test_nothing_is_offered_to_an_engine_that_is_not_alive(world: World) -> None:
    job = await world.push(profile="engine")
    stepped = await world.store.step([], now=world.now, want=world.make.want(**OFFER))
    assert (stepped.claimed.lost, stepped.claimed.jobs) == (True, ())
    assert (await world.got(job)).job == job


async def test_a_worker_may_not_offer_a_job_to_itself(world: World) -> None:
    """Only the system dispatches: the table says so, and the wish does not get round it."""
    await world.push(profile="engine")
    assert await ids(world, push=True) == []


async def test_an_offer_whose_reply_was_lost_answers_the_same_jobs_again(world: World) -> None:
    for _ in range(3):
        await world.push(profile="engine")
    await world.alive("e1")
    want = world.make.want(2, **OFFER)
    first = await world.store.step([], now=world.now, want=want)
    second = await world.store.step([], now=world.now, want=want)
    assert second.claimed == first.claimed
    assert len(first.claimed.jobs) == 2


async def test_each_push_job_is_offered_to_one_of_many_engines(world: World) -> None:
    pushed = [await world.push(profile="engine") for _ in range(30)]
    engines = [f"e{number}" for number in range(12)]
    await world.alive(*engines)
    wants = [world.make.want(3, push=True, by=SYSTEM, holder=engine) for engine in engines]
    steps = [world.store.step([], now=world.now, want=want) for want in wants]
    taken = [one.job.id for step in await asyncio.gather(*steps) for one in step.claimed.jobs]
    assert sorted(taken) == sorted(job.id for job in pushed)


async def test_an_offer_over_the_wire_has_a_lease_row_of_its_own(world: World) -> None:
    await world.push(profile="engine")
    [offered] = await world.claim(wire=True, lease_us=SECOND, **OFFER)
    lease = offered.job.lease or ""
    assert await world.store.extend([(lease, world.now + 9 * SECOND)], now=world.now) == [True]


# --- leases ---------------------------------------------------------------------------------------


async def test_a_wire_claim_has_a_lease_row_until_its_lease_ends(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    lease = job.lease or ""
    assert await world.store.extend([(lease, world.now + 1)], now=world.now) == [True]
    await world.do(job, j.Complete(lease=lease), world.make.want().by, store={"lease": lease})
    assert await world.store.extend([(lease, world.now + 1)], now=world.now) == [False]


async def test_a_claim_by_heartbeat_has_no_lease_row(world: World) -> None:
    job = await world.claimed()
    extended = await world.store.extend([(job.lease or "", world.now + 1)], now=world.now)
    assert extended == [False]


@pytest.mark.parametrize("state", ["missing", "silent", "lost"])
async def test_a_claimer_that_is_not_alive_is_told_so_and_gets_nothing(
    world: World, state: str
) -> None:
    job = await world.push()
    if state != "missing":
        await world.alive("w1", until=world.now)
    if state == "lost":
        await world.lose("w1")
    stepped = await world.store.step([], now=world.now, want=world.make.want())
    assert replace(stepped.claimed, seen=0) == Claimed(lost=True)
    assert (await world.got(job)).job == job


async def test_a_lost_claimer_still_gets_its_units_committed(world: World) -> None:
    unit = world.make.pushed()
    stepped = await world.store.step([unit], now=world.now, want=world.make.want())
    assert stepped.claimed.lost
    assert len(await world.everything()) == 1


async def test_a_wire_claimer_needs_no_row(world: World) -> None:
    await world.push()
    assert len(await world.claim(wire=True, holder="unheard-of")) == 1


async def test_a_worker_may_claim_until_its_last_microsecond(world: World) -> None:
    await world.push()
    await world.store.beat([WorkerRow("w1", world.now + 1)], now=world.now)
    stepped = await world.store.step([], now=world.now, want=world.make.want())
    assert len(stepped.claimed.jobs) == 1


# --- a lost reply ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [False, True])
async def test_a_claim_whose_reply_was_lost_answers_the_same_jobs_again(
    world: World, wire: bool
) -> None:
    for _ in range(5):
        await world.push()
    await world.alive("w1")
    unit, want = world.make.pushed(), world.make.want(3, wire=wire)
    first = await world.store.step([unit], now=world.now, want=want)
    world.clock.move(SECOND)
    second = await world.store.step([unit], now=world.now, want=want)
    assert second.outcomes == (Own(),)
    assert second.claimed.jobs == first.claimed.jobs
    assert len(first.claimed.jobs) == 3
    assert len(await world.claim(9)) == 3


async def test_a_repeated_claim_does_not_take_more_than_it_had(world: World) -> None:
    await world.push(id="a")
    await world.alive("w1")
    want = world.make.want(3)
    await world.store.step([], now=world.now, want=want)
    await world.push(id="b")
    again = await world.store.step([], now=world.now, want=want)
    assert [one.job.id for one in again.claimed.jobs] == ["a"]


async def test_a_repeated_claim_leaves_out_what_has_ended_meanwhile(world: World) -> None:
    await world.push(id="a")
    await world.push(id="b")
    await world.alive("w1")
    want = world.make.want(2)
    taken = (await world.store.step([], now=world.now, want=want)).claimed.jobs
    await world.do(taken[0].job, j.Cancel(force=True), SYSTEM, lease=LOST)
    again = await world.store.step([], now=world.now, want=want)
    assert [one.job.id for one in again.claimed.jobs] == ["b"]


async def test_claim_events_name_the_worker_that_asked(world: World) -> None:
    job = await world.claimed(holder="w7")
    claim = (await world.store.history(key_of(job)))[-1]
    assert (claim.name, claim.actor, claim.actor_id, claim.holder) == (
        "claim",
        Actor.WORKER,
        "w7",
        "w7",
    )
