"""Limits: how many are in hands, how many start in a time, how far apart, to the microsecond."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.lifecycle import job as j
from detent.lifecycle.profile import Deadlines
from detent.stores.api import Body, GateKind, Limit, Limited, LimitKind, LimitRow, Passed, Used
from tests.contract.making import ALIVE, LOST, NEVER, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

KEYED = Body("mail.send", key="acme")
NAMES = {LimitKind.QUEUE: "default", LimitKind.KEY: "acme"}
both = pytest.mark.parametrize("kind", list(LimitKind))


async def push(world: World, *names: str, **more: Any) -> None:
    """New jobs of these ids, of the default queue and one key unless something else is said."""
    more.setdefault("body", KEYED)
    for name in names:
        await world.push(id=name, **more)


def keyed(key: str | None) -> Body:
    """A body of that key."""
    return Body("mail.send", key=key)


# --- how many are in hands ----------------------------------------------------------------------


@both
async def test_no_more_jobs_are_in_hands_than_the_limit_says(world: World, kind: LimitKind) -> None:
    await world.limit(NAMES[kind], kind, concurrency=2)
    await push(world, "a", "b", "c", "d")
    taken = await world.claim(9)
    assert [one.job.id for one in taken] == ["a", "b"]
    assert await world.claim_ids(9, holder="w2") == []
    await world.complete(taken[1].job)
    assert await world.claim_ids(9) == ["c"]


@both
async def test_of_many_claimers_at_once_exactly_as_many_get_one_as_there_is_room(
    world: World, kind: LimitKind
) -> None:
    await world.limit(NAMES[kind], kind, concurrency=7)
    await push(world, *(f"j{number:02}" for number in range(40)))
    holders = [f"w{number}" for number in range(20)]
    await world.alive(*holders)
    wants = [world.make.want(3, holder=holder) for holder in holders]
    steps = [world.store.step([], now=world.now, want=want) for want in wants]
    taken = [one.job.id for step in await asyncio.gather(*steps) for one in step.claimed.jobs]
    assert sorted(taken) == [f"j{number:02}" for number in range(7)]


async def test_claimers_and_finishers_at_once_never_exceed_the_limit(world: World) -> None:
    await world.limit("default", concurrency=3)
    await push(world, *(f"j{number:02}" for number in range(30)))
    held, done = await world.claim(3), 0
    while held and done < 30:
        ends = [world.make.doing(one.job, j.Complete(lease=one.job.lease), WORKER) for one in held]
        wants = [world.make.want(2) for _ in range(5)]
        steps = [world.store.step([end], now=world.now) for end in ends]
        steps += [world.store.step([], now=world.now, want=want) for want in wants]
        done += len(held)
        stepped = await asyncio.gather(*steps)
        held = [one for step in stepped for one in step.claimed.jobs]
        assert len(held) <= 3
        held += [] if held else await world.claim(3)
    assert done == 30


async def test_a_claim_tells_whom_it_met_and_passed_by(world: World) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=1)
    await push(world, "a", "b")
    await push(world, "c", body=keyed("tiny"))
    claimed = await world.wish(2)
    assert [one.job.id for one in claimed.jobs] == ["a", "c"]
    assert claimed.passed == (Passed(LimitKind.KEY, "default", "acme"),)
    await world.limit("default", concurrency=2)
    await push(world, "d", body=keyed(None))
    both_full = [Passed(kind, "default", "acme") for kind in (LimitKind.KEY, LimitKind.QUEUE)]
    unkeyed = Passed(LimitKind.QUEUE, "default")
    assert (await world.wish(2)).passed == tuple(sorted([*both_full, unkeyed]))
    # Who wants no more has met nobody.
    assert (await world.wish(2, queues=("other",))).passed == ()


async def test_a_unit_that_ends_a_job_makes_room_for_the_wish_beside_it(world: World) -> None:
    await world.limit("default", concurrency=1)
    await push(world, "a", "b")
    [taken] = await world.claim(2)
    end = world.make.doing(taken.job, j.Complete(lease=taken.job.lease), WORKER)
    stepped = await world.store.step([end], now=world.now, want=world.make.want(2))
    assert [one.job.id for one in stepped.claimed.jobs] == ["b"]


ENDS = ["complete", "fail", "discard", "snooze", "hand_back", "lose", "cancel"]


async def end(world: World, job: j.Job, how: str) -> None:
    """Let the job leave its holder's hands, in one of the ways there are."""
    said: dict[str, Any] = {"lease": job.lease}
    commands: dict[str, tuple[Any, Any]] = {
        "complete": (j.Complete(**said), WORKER),
        "fail": (j.Fail(**said, code="x"), WORKER),
        "discard": (j.Fail(**said, code="x"), WORKER),
        "snooze": (j.Snooze(**said, delay_us=SECOND), WORKER),
        "hand_back": (j.HandBack(**said), SYSTEM),
        "lose": (j.Lose(), SYSTEM),
        "cancel": (j.Cancel(force=True), SYSTEM),
    }
    if how == "lose":
        await world.lose("w1")
    command, by = commands[how]
    more: dict[str, Any] = {"verdict": NEVER} if how == "discard" else {}
    told = {"lease": job.lease, "lost": how == "lose"}
    await world.do(job, command, by, lease=LOST, store=told, **more)


@pytest.mark.parametrize("how", ENDS)
async def test_whatever_takes_a_job_out_of_hands_makes_room_and_wakes_who_waits(
    world: World, how: str
) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=1)
    await push(world, "a", priority=1)
    [taken] = await world.claim()
    await push(world, "b", priority=2)
    kept_back = await world.wish(holder="w2")
    assert kept_back.jobs == ()
    await end(world, taken.job, how)
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids(1, holder="w2") == ["b"]


@pytest.mark.parametrize("how", ["unit", "claim"])
async def test_jobs_that_were_dispatched_are_in_hands_too(world: World, how: str) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=1)
    job = await world.push(profile="engine", body=KEYED)
    await push(world, "b")
    await world.alive("e1")
    if how == "unit":
        told = {"taken_by": "e1"}
        job = await world.do(job, j.Dispatch("L", "e1"), SYSTEM, lease=ALIVE, store=told)
    else:
        [stored] = await world.claim(9, push=True, by=SYSTEM, holder="e1")
        job = stored.job
    assert await world.claim_ids() == []
    job = await world.do(job, j.Acknowledge(lease=job.lease), WORKER)
    assert await world.claim_ids() == []
    await world.complete(job)
    assert await world.claim_ids() == ["b"]


async def test_dispatches_respect_a_limit_that_claims_have_used_up(world: World) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=1)
    await push(world, "a")
    await push(world, "e", profile="engine")
    assert await world.claim_ids() == ["a"]
    assert await world.claim_ids(push=True, by=SYSTEM, holder="e1") == []


@both
async def test_what_was_in_hands_before_the_limit_was_set_counts(
    world: World, kind: LimitKind
) -> None:
    await push(world, "a", "b", "c")
    first, _ = await world.claim(2)
    await world.limit(NAMES[kind], kind, concurrency=2)
    assert await world.claim_ids() == []
    await world.complete(first.job)
    assert await world.claim_ids() == ["c"]


@both
async def test_a_limit_below_what_is_in_hands_lets_nothing_start_until_enough_have_ended(
    world: World, kind: LimitKind
) -> None:
    await world.limit(NAMES[kind], kind, concurrency=3)
    await push(world, *"abcde")
    taken = await world.claim(9)
    await world.limit(NAMES[kind], kind, concurrency=1)
    for stored in taken:
        assert await world.claim_ids() == []
        await world.complete(stored.job)
    assert await world.claim_ids() == ["d"]


@both
async def test_a_limit_that_is_lifted_or_raised_is_heard_of_at_once(
    world: World, kind: LimitKind
) -> None:
    await world.limit(NAMES[kind], kind, concurrency=1)
    await push(world, *"abcd")
    assert await world.claim_ids() == ["a"]
    kept_back = await world.wish()
    await world.limit(NAMES[kind], kind, concurrency=2)
    assert await world.store.wait(30.0, seen=kept_back.seen)
    kept_back = await world.wish(2)
    assert [one.job.id for one in kept_back.jobs] == ["b"]
    await world.limit(NAMES[kind], kind)
    assert await world.store.wait(30.0, seen=kept_back.seen)
    assert await world.claim_ids() == ["c", "d"]
    assert list(await world.store.limits()) == []


async def test_the_newest_word_about_a_limit_counts_also_within_one_call(world: World) -> None:
    rows = [LimitRow(LimitKind.QUEUE, "default", Limit(concurrency=number)) for number in (1, 3, 2)]
    await world.must(world.switching(limits=rows))
    await push(world, *"abcd")
    assert await world.claim_ids() == ["a", "b"]


async def test_lifting_a_limit_that_is_not_there_is_nothing(world: World) -> None:
    await world.limit("default")
    assert list(await world.store.limits()) == []


# --- who stands under which -----------------------------------------------------------------------


async def test_the_limits_of_queue_and_key_hold_together(world: World) -> None:
    await world.limit("default", concurrency=3)
    await world.limit("a", LimitKind.KEY, concurrency=1)
    for name in ("a1", "a2", "b1", "b2", "b3"):
        await push(world, name, body=keyed(name[0]))
    first, *_ = await world.claim(9)
    assert [one.job.id for one in await world.store.held_by("w1", 9)] == ["a1", "b1", "b2"]
    await world.complete(first.job)
    assert await world.claim_ids() == ["a2"]


async def test_jobs_that_are_kept_back_are_passed_over_for_lesser_ones(world: World) -> None:
    await world.limit("a", LimitKind.KEY, concurrency=1)
    await world.limit("slow", concurrency=1)
    for name, key, queue, priority in [
        ("1", "a", "fast", 9),
        ("2", "a", "fast", 8),
        ("3", None, "slow", 7),
        ("4", None, "slow", 6),
        ("5", "a", "slow", 5),
        ("6", "b", "fast", -1),
    ]:
        await push(world, name, body=keyed(key), queue=queue, priority=priority)
    assert await world.claim_ids(4, queues=("fast", "slow")) == ["1", "6", "3"]


async def test_many_that_are_kept_back_do_not_hide_the_one_that_is_not(world: World) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=1)
    await push(world, *(f"a{number:03}" for number in range(150)))
    await push(world, "free", body=keyed("other"), priority=-1)
    assert await world.claim_ids(2) == ["a000", "free"]


async def test_a_key_is_limited_in_all_queues_together(world: World) -> None:
    await world.limit("acme", LimitKind.KEY, concurrency=2)
    for queue in ("x", "y", "z"):
        await push(world, f"in-{queue}", queue=queue)
    assert await world.claim_ids(queues=("x",)) == ["in-x"]
    assert await world.claim_ids(queues=("z", "y")) == ["in-z"]
    assert await world.claim_ids(queues=("y",)) == []


@both
async def test_a_limit_touches_its_own_name_and_kind_only(world: World, kind: LimitKind) -> None:
    await world.limit("other", kind, concurrency=1)
    await world.limit("default", LimitKind.KEY, concurrency=1)
    await world.limit("acme", LimitKind.QUEUE, concurrency=1)
    await push(world, "a", "b")
    await push(world, "c", "d", body=keyed(None))
    assert await world.claim_ids() == ["a", "b", "c", "d"]


@both
async def test_a_limit_is_its_tenants_own(world: World, kind: LimitKind) -> None:
    await world.limit(NAMES[kind], kind, concurrency=1)
    await push(world, "a", "b")
    await push(world, "a", "b", tenant="t2")
    assert await world.claim_ids(tenant="t2") == ["a", "b"]
    assert await world.claim_ids() == ["a"]
    await world.limit(NAMES[kind], kind, concurrency=5, tenant="t2")
    assert await world.claim_ids() == []
    assert [one.row.limit for one in await world.store.limits()] == [Limit(concurrency=1)]
    assert [one.active for one in await world.store.limits("t2")] == [2]
    assert list(await world.store.limits("t3")) == []


async def test_a_job_that_was_moved_counts_where_it_runs(world: World) -> None:
    await world.limit("narrow", concurrency=1)
    job = await world.push(id="a", queue="wide")
    await push(world, "b", queue="narrow")
    await world.do(job, j.Move("narrow"), USER)
    assert await world.claim_ids(queues=("wide", "narrow")) == ["b"]


async def test_a_limit_does_not_stop_the_clock_of_a_waiting_job(world: World) -> None:
    await world.limit("default", concurrency=1)
    await push(world, "a")
    await push(world, "b", deadlines=Deadlines(available_us=SECOND))
    assert await world.claim_ids() == ["a"]
    world.clock.move(SECOND)
    [due] = await world.due()
    assert (due.stored.job.id, due.gate) == ("b", j.OPEN)
    await world.must(world.make.ticking(due))
    assert (await world.got(due.stored.job)).job.state == "discarded"


# --- how many start in a time ---------------------------------------------------------------------


@both
async def test_so_many_start_within_a_period_and_the_next_one_begins_to_the_microsecond(
    world: World, kind: LimitKind
) -> None:
    await world.limit(NAMES[kind], kind, rate=2, period_us=SECOND)
    await push(world, *"abcdefg")
    start = world.now
    assert await world.claim_ids(1) == ["a"]
    world.clock.move(SECOND // 2)
    assert await world.claim_ids() == ["b"]
    world.clock.move(SECOND // 2 - 1)
    assert (await world.wish(5)).retry_at == start + SECOND
    world.clock.move(1)
    assert await world.claim_ids() == ["c", "d"]
    assert (await world.wish(5)).retry_at == start + 2 * SECOND


async def test_a_period_begins_with_its_first_start_and_not_on_a_grid(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await push(world, *"abc")
    assert await world.claim_ids() == ["a"]
    world.clock.move(SECOND * 7 // 4)
    begun = world.now
    assert await world.claim_ids() == ["b"]
    world.clock.move(SECOND - 1)
    assert await world.claim_ids() == []
    world.clock.move(1)
    assert world.now == begun + SECOND
    assert await world.claim_ids() == ["c"]


async def test_a_start_counts_though_its_job_ended_or_came_back_at_once(world: World) -> None:
    await world.limit("default", rate=2, period_us=SECOND)
    await push(world, *"abc")
    one, two = await world.claim(2)
    await world.complete(one.job)
    await world.do(two.job, j.HandBack(lease=two.job.lease), WORKER)
    assert await world.claim_ids() == []
    world.clock.move(SECOND)
    assert await world.claim_ids() == ["b", "c"]


async def test_of_many_claimers_at_once_no_more_start_than_the_rate_allows(world: World) -> None:
    await world.limit("default", rate=5, period_us=SECOND)
    await push(world, *(f"j{number:02}" for number in range(30)))
    for _ in range(2):
        await world.alive("w1")
        wants = [world.make.want(2) for _ in range(10)]
        steps = [world.store.step([], now=world.now, want=want) for want in wants]
        stepped = await asyncio.gather(*steps)
        assert sum(len(step.claimed.jobs) for step in stepped) == 5
        world.clock.move(SECOND)


async def test_a_claim_that_is_repeated_or_refused_uses_nothing_up(world: World) -> None:
    await world.limit("default", rate=2, period_us=SECOND)
    await push(world, *"abc")
    await world.alive("w1")
    want = world.make.want(1)
    for _ in range(3):
        stepped = await world.store.step([], now=world.now, want=want)
        assert [one.job.id for one in stepped.claimed.jobs] == ["a"]
    lost = await world.store.step([], now=world.now, want=world.make.want(holder="ghost"))
    assert lost.claimed.lost
    assert await world.claim_ids() == ["b"]


async def test_jobs_without_the_limit_use_nothing_of_it_up(world: World) -> None:
    await world.limit("acme", LimitKind.KEY, rate=1, period_us=SECOND)
    await push(world, "a", body=keyed("other"))
    await push(world, "b", body=keyed(None))
    await push(world, "c")
    assert await world.claim_ids() == ["a", "b", "c"]


async def test_a_start_under_two_limits_counts_in_both(world: World) -> None:
    await world.limit("default", rate=3, period_us=SECOND)
    await world.limit("acme", LimitKind.KEY, rate=2, period_us=2 * SECOND)
    await push(world, *"abc")
    await push(world, "d", "e", body=keyed("other"))
    assert await world.claim_ids() == ["a", "b", "d"]
    world.clock.move(SECOND)
    assert await world.claim_ids() == ["e"]
    world.clock.move(SECOND)
    assert await world.claim_ids() == ["c"]


async def test_a_changed_rate_goes_on_with_what_was_used(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await push(world, *"abcd")
    assert await world.claim_ids() == ["a"]
    await world.limit("default", rate=2, period_us=SECOND)
    assert await world.claim_ids() == ["b"]
    await world.limit("default", rate=1, period_us=SECOND)
    assert await world.claim_ids() == []
    world.clock.move(SECOND)
    assert await world.claim_ids() == ["c"]


async def test_a_limit_that_was_lifted_and_set_again_begins_anew(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await push(world, *"abc")
    assert await world.claim_ids() == ["a"]
    await world.limit("default")
    await world.limit("default", rate=1, period_us=SECOND)
    assert await world.claim_ids() == ["b"]


async def test_what_started_before_a_rate_was_set_is_not_counted(world: World) -> None:
    await push(world, *"abcd")
    assert await world.claim_ids(2) == ["a", "b"]
    await world.limit("default", rate=1, period_us=SECOND)
    assert await world.claim_ids() == ["c"]


async def test_a_clock_that_goes_back_opens_no_new_period(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await push(world, *"ab")
    start = world.now
    assert await world.claim_ids() == ["a"]
    world.clock.move(-3 * SECOND)
    kept_back = await world.wish()
    assert (kept_back.jobs, kept_back.retry_at) == ((), start + SECOND)


# --- how far apart --------------------------------------------------------------------------------


@both
async def test_starts_are_as_far_apart_as_asked_to_the_microsecond(
    world: World, kind: LimitKind
) -> None:
    await world.limit(NAMES[kind], kind, spacing_us=SECOND)
    await push(world, *"abc")
    start = world.now
    claimed = await world.wish(3)
    assert [one.job.id for one in claimed.jobs] == ["a"]
    assert claimed.retry_at == start + SECOND
    world.clock.move(SECOND - 1)
    assert (await world.wish(3)).retry_at == start + SECOND
    world.clock.move(1)
    assert await world.claim_ids() == ["b"]
    world.clock.move(5 * SECOND)
    assert await world.claim_ids() == ["c"]


async def test_spacing_and_rate_and_concurrency_hold_together(world: World) -> None:
    await world.limit("default", spacing_us=SECOND, rate=2, period_us=10 * SECOND, concurrency=2)
    await push(world, *"abcd")
    start = world.now
    [first] = await world.claim(9)
    assert (await world.wish()).retry_at == start + SECOND
    world.clock.move(SECOND)
    assert await world.claim_ids() == ["b"]
    assert (await world.wish()).retry_at is None
    await world.complete(first.job)
    assert (await world.wish()).retry_at == start + 10 * SECOND
    world.clock.move(9 * SECOND)
    assert await world.claim_ids() == ["c"]


# --- when to ask again ----------------------------------------------------------------------------


async def test_who_got_all_it_wanted_is_not_told_to_come_again(world: World) -> None:
    await world.limit("default", rate=2, period_us=SECOND)
    await push(world, *"abc")
    assert (await world.wish(2)).retry_at is None
    assert (await world.wish(0)).retry_at is None


async def test_only_a_job_that_waits_for_nothing_but_time_has_a_moment(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await push(world, "first")
    assert (await world.wish(9)).retry_at is None
    await push(world, "held", held=True)
    await push(world, "later", run_at=world.now + 5 * SECOND)
    await push(world, "offered", profile="engine")
    await push(world, "paused", body=Body("paused"))
    await push(world, "elsewhere", tenant="t2")
    await world.gate("paused", GateKind.TYPE, closed=True)
    assert (await world.wish(9)).retry_at is None
    assert (await world.wish(9, types=("nothing",))).retry_at is None
    await push(world, "ready")
    assert (await world.wish(9)).retry_at == world.now + SECOND


async def test_who_is_kept_back_by_the_busy_has_no_moment(world: World) -> None:
    await world.limit("default", concurrency=1)
    await world.limit("acme", LimitKind.KEY, rate=1, period_us=SECOND)
    await push(world, *"ab")
    [taken] = await world.claim(1)
    assert (await world.wish()).retry_at is None
    await world.complete(taken.job)
    assert (await world.wish()).retry_at == world.now + SECOND


async def test_a_job_under_two_limits_waits_for_the_later_one(world: World) -> None:
    await world.limit("default", rate=1, period_us=SECOND)
    await world.limit("acme", LimitKind.KEY, rate=1, period_us=3 * SECOND)
    await push(world, *"ab")
    start = world.now
    assert (await world.wish(2)).retry_at == start + 3 * SECOND
    await push(world, "c", body=keyed("other"))
    assert (await world.wish(2)).retry_at == start + SECOND


async def test_the_moment_is_that_of_the_first_job_that_time_lets_through(world: World) -> None:
    for key, seconds in [("a", 5), ("b", 2), ("c", 9)]:
        await world.limit(key, LimitKind.KEY, spacing_us=seconds * SECOND)
        await push(world, f"{key}1", f"{key}2", body=keyed(key))
    claimed = await world.wish(9)
    assert [one.job.id for one in claimed.jobs] == ["a1", "b1", "c1"]
    assert claimed.retry_at == world.now + 2 * SECOND


async def test_the_moment_knows_what_the_same_claim_has_used_up(world: World) -> None:
    """The first job is looked at before its key is used up by the second."""
    await world.limit("q", spacing_us=SECOND)
    await world.limit("acme", LimitKind.KEY, spacing_us=4 * SECOND)
    await push(world, "a", queue="q", body=keyed(None))
    assert await world.claim_ids(queues=("q",)) == ["a"]
    await push(world, "b", queue="q")
    await push(world, "c")
    claimed = await world.wish(2, queues=("q", "default"))
    assert [one.job.id for one in claimed.jobs] == ["c"]
    assert claimed.retry_at == world.now + 4 * SECOND


# --- what is told about them ----------------------------------------------------------------------


async def test_limits_are_told_by_kind_and_name_with_what_is_used(world: World) -> None:
    for name in ("b", "a"):
        await world.limit(name, concurrency=2)
        await world.limit(name, LimitKind.KEY, rate=7, period_us=9, spacing_us=3)
    await push(world, "j", queue="a", body=keyed("b"))
    start = world.now
    [taken] = await world.claim(queues=("a",))
    timed, busy = Limit(rate=7, period_us=9, spacing_us=3), Limit(concurrency=2)
    used = Used(start, 1, start)
    assert list(await world.store.limits()) == [
        Limited(LimitRow(LimitKind.KEY, "a", timed), 0, Used()),
        Limited(LimitRow(LimitKind.KEY, "b", timed), 1, used),
        Limited(LimitRow(LimitKind.QUEUE, "a", busy), 1, used),
        Limited(LimitRow(LimitKind.QUEUE, "b", busy), 0, Used()),
    ]
    await world.complete(taken.job)
    assert [one.active for one in await world.store.limits()] == [0] * 4
