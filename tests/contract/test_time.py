"""Time: what is due, for whom; who is alive; and whose clock is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from detent.errors import BadName, ClockAhead
from detent.lifecycle import job as j
from detent.lifecycle.job import Gate
from detent.lifecycle.profile import Deadlines
from detent.stores.api import (
    Claimed,
    Committed,
    Death,
    GateKind,
    GateRow,
    LeaseAlive,
    Limit,
    LimitKind,
    LimitRow,
    Rejected,
    WorkerRow,
    key_of,
)
from tests.contract.making import LOST, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

# --- due ----------------------------------------------------------------------------------------


async def test_what_is_due_is_handed_out_oldest_first_and_nothing_else(world: World) -> None:
    for name, wait in [("a", 3), ("c", 1), ("later", 9), ("b", 2)]:
        await world.push(id=name, run_at=world.now + wait * SECOND)
    await world.push(id="ready")
    assert await world.due_ids() == []
    world.clock.move(3 * SECOND)
    assert await world.due_ids() == ["c", "b", "a"]


async def test_a_job_is_due_at_its_microsecond_and_not_before(world: World) -> None:
    await world.push(id="a", run_at=world.now + SECOND)
    world.clock.move(SECOND - 1)
    assert await world.due_ids() == []
    world.clock.move(1)
    assert await world.due_ids() == ["a"]


async def test_no_more_is_handed_out_than_asked_for_and_the_rest_comes_next(world: World) -> None:
    for number in range(5):
        await world.push(id=f"j{number}", run_at=world.now + number + 1)
    world.clock.move(SECOND)
    assert await world.due_ids(2) == ["j0", "j1"]
    assert await world.due_ids(2) == ["j2", "j3"]
    assert await world.due_ids(2) == ["j4"]
    assert await world.due_ids(0) == []


async def test_each_due_item_goes_to_exactly_one_of_many_callers(world: World) -> None:
    for number in range(40):
        await world.push(id=f"j{number:02}", run_at=world.now + 1)
    world.clock.move(SECOND)
    handed = await asyncio.gather(*(world.due_ids(7) for _ in range(12)))
    flat = [one for some in handed for one in some]
    assert len(flat) == 40
    assert len(set(flat)) == 40


async def test_what_was_handed_out_is_handed_out_again_after_the_hold(world: World) -> None:
    await world.push(id="a", run_at=world.now + 1)
    world.clock.move(SECOND)
    assert await world.due_ids(hold_us=3 * SECOND) == ["a"]
    world.clock.move(3 * SECOND - 1)
    assert await world.due_ids() == []
    world.clock.move(1)
    assert await world.due_ids() == ["a"]


async def test_handing_out_makes_no_version_and_the_answer_is_committed_by_a_step(
    world: World,
) -> None:
    job = await world.push(run_at=world.now + 1)
    world.clock.move(SECOND)
    [due] = await world.due()
    assert due.stored.job == job == (await world.got(job)).job
    assert (await world.got(job)).wake_at == world.now + SECOND // 2
    await world.must(world.make.ticking(due))
    assert (await world.got(job)).job.state == "available"
    assert await world.due() == []


async def test_a_job_that_is_armed_again_is_due_at_the_new_time(world: World) -> None:
    job = await world.push(run_at=world.now + 1)
    world.clock.move(SECOND)
    await world.due(hold_us=60 * SECOND)
    assert await world.rearm(job, world.now + 2) == Committed()
    world.clock.move(1)
    assert await world.due_ids() == []
    world.clock.move(1)
    assert await world.due_ids() == [job.id]


async def test_a_due_job_is_handed_out_with_nothing_when_nobody_holds_it(world: World) -> None:
    await world.push(run_at=world.now + 1)
    world.clock.move(SECOND)
    [due] = await world.due()
    assert (due.lease, due.gate) == (None, j.OPEN)


async def test_a_due_job_is_handed_out_with_its_lease_row(world: World) -> None:
    job = await world.claimed(wire=True, lease_us=10 * SECOND)
    until = world.now + 30 * SECOND
    await world.store.extend([(job.lease or "", until)], now=world.now)
    world.clock.move(10 * SECOND)
    [due] = await world.due()
    assert due.lease == j.Lease(until)
    rearmed = world.make.ticking(due)
    await world.must(rearmed)
    assert rearmed.moves[0].events == ()
    assert (await world.got(job)).wake_at == until


async def test_a_due_job_is_handed_out_with_its_workers_row(world: World) -> None:
    job = await world.claimed()
    until = world.now + 77 * SECOND
    await world.alive("w1", until=until)
    await world.rearm(job, world.now)
    [due] = await world.due()
    assert due.lease == j.Lease(until)


async def test_a_row_that_is_missing_is_handed_out_as_lost(world: World) -> None:
    job = await world.push(profile="engine")
    offered = await world.do(job, j.Dispatch("L", "ghost"), SYSTEM, lease=j.Lease(world.now + 1))
    await world.rearm(offered, world.now)
    [due] = await world.due()
    assert due.lease == LOST


async def test_a_wire_lease_that_ran_out_is_lost_by_the_clock(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    world.clock.move(10 * SECOND)
    [due] = await world.due()
    await world.must(world.make.ticking(due))
    names = [event.name for event in await world.store.history(key_of(job))]
    assert names == ["enqueue", "claim", "lose", "due"]


# --- workers --------------------------------------------------------------------------------------


async def test_beats_are_answered_one_by_one_and_in_order(world: World) -> None:
    await world.lose("gone")
    rows = [WorkerRow(name, world.now + SECOND) for name in ("new", "gone", "other")]
    assert await world.store.beat(rows, now=world.now) == [True, False, True]


async def test_a_lost_instance_stays_lost_whatever_it_says(world: World) -> None:
    await world.lose("w1")
    row = WorkerRow("w1", world.now + 3_600 * SECOND)
    assert await world.store.beat([row], now=world.now) == [False]
    stepped = await world.store.step([], now=world.now, want=world.make.want())
    assert stepped.claimed.lost


async def test_a_lost_instance_is_lost_by_every_clock(world: World) -> None:
    """Somebody whose clock is behind still sees its time running; that brings nobody back."""
    offered, _ = await world.push(profile="engine"), await world.push()
    await world.lose("w1")
    world.clock.move(-SECOND)
    stepped = await world.store.step([], now=world.now, want=world.make.want())
    assert replace(stepped.claimed, seen=0) == Claimed(lost=True)
    row, told = j.Lease(world.now + 1), {"taken_by": "w1"}
    unit = world.make.doing(offered, j.Dispatch("L", "w1"), SYSTEM, lease=row, store=told)
    [outcome] = await world.commit(unit)
    assert isinstance(outcome, LeaseAlive)


async def test_an_instance_is_declared_lost_only_when_its_time_is_over(world: World) -> None:
    await world.alive("w1", until=world.now + SECOND)
    world.clock.move(SECOND - 1)
    assert await world.store.declare_lost(["w1"], now=world.now) == [False]
    world.clock.move(1)
    assert await world.store.declare_lost(["w1"], now=world.now) == [True]
    assert await world.store.declare_lost(["w1"], now=world.now) == [True]


async def test_a_beat_in_time_saves_the_instance(world: World) -> None:
    await world.alive("w1", "w2", until=world.now + SECOND)
    world.clock.move(SECOND)
    await world.alive("w1", until=world.now + SECOND)
    assert await world.store.declare_lost(["w1", "w2"], now=world.now) == [False, True]


async def test_the_jobs_of_a_lost_worker_become_due_in_batches(world: World) -> None:
    pushed = [await world.push() for _ in range(7)]
    taken = await world.claim(5)
    other = await world.claim(1, holder="w2")
    assert await world.due() == []
    await world.lose("w1")
    first, second = await world.due(3), await world.due(3)
    assert [len(first), len(second)] == [3, 2]
    assert {one.stored.job.id for one in first + second} == {one.job.id for one in taken}
    assert {one.lease for one in first + second} == {j.Lease(world.now, lost=True)}
    await world.must(*map(world.make.ticking, first + second))
    assert {one.job.id for one in await world.store.held_by("w1", 99)} == set()
    assert [one.job for one in await world.store.held_by("w2", 99)] == [other[0].job]
    assert len(await world.claim(99, holder="w3")) == len(pushed) - 1


async def test_a_lost_workers_job_is_due_again_after_the_hold(world: World) -> None:
    job = await world.claimed()
    await world.lose("w1")
    assert await world.due_ids() == [job.id]
    assert await world.due_ids() == []
    world.clock.move(SECOND // 2)
    assert await world.due_ids() == [job.id]


async def test_a_lost_workers_job_is_due_whatever_its_wake_time_says(world: World) -> None:
    """Somebody amends the job and arms its alarm anew, not knowing of the loss."""
    job = await world.claimed()
    await world.lose("w1")
    await world.do(job, j.Cancel(), USER)
    assert await world.due_ids() == [job.id]


async def test_a_lost_worker_does_not_take_wire_leases_of_the_same_name_with_it(
    world: World,
) -> None:
    await world.claimed(wire=True, holder="w1")
    await world.lose("w1")
    assert await world.due() == []


# --- leases ---------------------------------------------------------------------------------------


async def test_extending_is_answered_one_by_one_and_moves_no_version(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote")
    before = await world.got(job)
    until = world.now + 7_200 * SECOND
    leases = [("nobody's", until), (job.lease or "", until)]
    assert await world.store.extend(leases, now=world.now) == [False, True]
    assert (await world.got(job)).job == before.job
    assert len(await world.store.history(key_of(job))) == 2


@pytest.mark.parametrize("how", ["complete", "snooze", "cancel", "lose"])
async def test_a_lease_that_has_ended_cannot_be_extended(world: World, how: str) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=SECOND)
    world.clock.move(SECOND)
    lease, row = job.lease, j.Lease(world.now)
    commands: dict[str, j.Command] = {
        "complete": j.Complete(lease=lease),
        "snooze": j.Snooze(lease=lease, delay_us=1),
        "cancel": j.Cancel(force=True),
        "lose": j.Lose(),
    }
    by = SYSTEM if how in ("cancel", "lose") else WORKER
    told = {"lease": lease, "lost": how == "lose"}
    await world.do(job, commands[how], by, lease=row, store=told)
    assert await world.store.extend([(lease or "", world.now)], now=world.now) == [False]


async def test_a_later_end_touches_only_the_lease(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    before = await world.got(job)
    for seconds in (10, 60):
        until = world.now + seconds * SECOND
        assert await world.store.extend([(job.lease or "", until)], now=world.now) == [True]
        assert await world.got(job) == before


async def test_an_earlier_end_is_noticed_in_time(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    before, until = await world.got(job), world.now + 4 * SECOND
    assert await world.store.extend([(job.lease or "", until)], now=world.now) == [True]
    assert await world.got(job) == replace(before, wake_at=until)
    world.clock.move(4 * SECOND - 1)
    assert await world.due() == []
    world.clock.move(1)
    [due] = await world.due()
    assert due.lease == j.Lease(until)
    lost = world.make.ticking(due)
    await world.must(lost)
    assert lost.moves[0].lost


async def test_an_earlier_end_goes_before_the_soft_lock_and_a_job_that_never_wakes(
    world: World,
) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    world.clock.move(10 * SECOND)
    assert len(await world.due(hold_us=SECOND)) == 1
    await world.store.extend([(job.lease or "", world.now + 5)], now=world.now)
    assert await world.due() == []
    world.clock.move(5)
    assert [due.lease for due in await world.due()] == [j.Lease(world.now)]


@pytest.mark.parametrize("how", ["rearm", "never", "amend"])
async def test_no_late_word_puts_an_earlier_end_off(world: World, how: str) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=10 * SECOND)
    until = world.now + 4 * SECOND
    await world.store.extend([(job.lease or "", until)], now=world.now)
    if how == "amend":
        await world.do(job, j.Reprioritise(3), USER)
    else:
        at = None if how == "never" else world.now + 10 * SECOND
        assert await world.rearm(job, at) == Committed()
    assert (await world.got(job)).wake_at == until


async def test_an_amendment_leaves_the_lease_row_alone(world: World) -> None:
    job = await world.claimed(wire=True, holder="remote", lease_us=9 * SECOND)
    until = world.now + 5 * SECOND
    assert await world.store.extend([(job.lease or "", until)], now=world.now) == [True]
    world.clock.move(SECOND)
    job = await world.do(job, j.Reprioritise(3), USER)
    await world.rearm(job, world.now)
    assert [due.lease for due in await world.due()] == [j.Lease(until)]


# --- gates ----------------------------------------------------------------------------------------


async def test_a_due_job_is_handed_out_with_the_gates_before_it_as_one(world: World) -> None:
    limits = Deadlines(available_us=SECOND)
    await world.push(deadlines=limits)
    await world.gate("default", opened_at=5)
    await world.gate("mail.send", GateKind.TYPE, opened_at=7)
    world.clock.move(SECOND)
    [due] = await world.due(hold_us=1)
    assert due.gate == j.Gate(opened_at=7)
    await world.gate("default", closed=True)
    await world.gate("mail.send", GateKind.TYPE, opened_at=3)
    world.clock.move(1)
    [due] = await world.due(hold_us=1)
    assert due.gate == j.Gate(closed=True, opened_at=3)
    await world.gate("default", queue_deleted=True, opened_at=9)
    await world.gate("mail.send", GateKind.TYPE, closed=True)
    world.clock.move(1)
    [due] = await world.due()
    assert due.gate == j.Gate(closed=True, opened_at=9, queue_deleted=True)


async def test_the_limit_of_waiting_starts_anew_when_the_gate_opens(world: World) -> None:
    job = await world.push(deadlines=Deadlines(available_us=10 * SECOND))
    await world.gate("default", closed=True)
    world.clock.move(10 * SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert (await world.got(job)).job == job
    await world.gate("default", opened_at=world.now)
    world.clock.move(10 * SECOND)
    await world.must(*map(world.make.ticking, await world.due()))
    assert (await world.got(job)).job.state == "discarded"


# --- the clock ------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[World, int], Awaitable[object]]] = {
    "step": lambda world, now: world.store.step([world.make.pushed(id="x")], now=now),
    "take_due": lambda world, now: world.store.take_due(now=now, limit=1),
    "beat": lambda world, now: world.store.beat([WorkerRow("x", now)], now=now),
    "bury": lambda world, now: world.store.bury([Death("x")], now=now),
    "forget_workers": lambda world, now: world.store.forget_workers(before=0, now=now),
    "ship": lambda world, now: world.store.ship([], now=now),
    "declare_lost": lambda world, now: world.store.declare_lost(["x"], now=now),
    "extend": lambda world, now: world.store.extend([("x", now)], now=now),
    "note": lambda world, now: world.store.note([], now=now),
    "take_due_records": lambda world, now: world.store.take_due_records(now=now, limit=1),
    "prune": lambda world, now: world.store.prune([], now=now),
}


@pytest.mark.parametrize("call", list(CALLS))
async def test_a_now_that_is_too_far_ahead_is_refused_and_changes_nothing(
    world: World, call: str
) -> None:
    with pytest.raises(ClockAhead) as refused:
        await CALLS[call](world, world.now + 5 * SECOND + 1)
    assert refused.value.code == "clock_ahead"
    assert await world.everything() == {}


@pytest.mark.parametrize("call", list(CALLS))
async def test_clocks_may_differ_by_five_seconds_and_run_behind(world: World, call: str) -> None:
    await CALLS[call](world, world.now + 5 * SECOND)
    await CALLS[call](world, world.now - 3_600 * SECOND)


async def test_the_overdue_are_those_whose_time_is_over_and_who_are_not_lost(world: World) -> None:
    for name, after in [("w3", 3), ("w1", 1), ("w2", 2), ("w4", 9)]:
        await world.store.beat([WorkerRow(name, world.now + after * SECOND)], now=world.now)
    assert list(await world.store.overdue(now=world.now)) == []
    world.clock.move(3 * SECOND)
    over = await world.store.overdue(now=world.now)
    assert [row.id for row in over] == ["w1", "w2", "w3"]
    assert [row.id for row in await world.store.overdue(now=world.now, limit=1)] == ["w1"]
    await world.store.declare_lost(["w1"], now=world.now)
    await world.store.beat([WorkerRow("w2", world.now + SECOND)], now=world.now)
    assert [row.id for row in await world.store.overdue(now=world.now)] == ["w3"]


async def test_the_workers_are_those_that_are_not_lost_the_longest_trusted_first(
    world: World,
) -> None:
    await world.alive("w1", until=world.now + SECOND)
    await world.alive("w2", "w3", until=world.now + 2 * SECOND)
    await world.lose("w4")
    rows = await world.store.workers()
    assert [(row.id, row.alive_until - world.now) for row in rows] == [
        *(("w2", 2 * SECOND), ("w3", 2 * SECOND)),
        ("w1", SECOND),
    ]
    assert [row.id for row in await world.store.workers(1)] == ["w2"]


async def test_a_store_tells_its_time(world: World) -> None:
    assert world.store.now() == world.now
    world.clock.move(SECOND)
    assert world.store.now() == world.now


async def test_gates_are_told_by_tenant(world: World) -> None:
    rows = [
        GateRow(GateKind.TYPE, "x", Gate(closed=True)),
        GateRow(GateKind.QUEUE, "b", Gate(opened_at=7)),
        GateRow(GateKind.QUEUE, "a", Gate(closed=True, queue_deleted=True)),
        GateRow(GateKind.QUEUE, "a", Gate(closed=True), tenant="t2"),
    ]
    await world.must(world.switching(rows))
    assert list(await world.store.gates()) == [rows[2], rows[1], rows[0]]
    assert list(await world.store.gates("t2")) == [rows[3]]
    assert list(await world.store.gates("t3")) == []


@pytest.mark.parametrize("name", ["\0", "a\0", "\ud800", "caf\udc80"])
async def test_names_that_no_database_can_keep_are_refused(world: World, name: str) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: world.store.beat([WorkerRow(name, world.now)], now=world.now),
        lambda: world.store.declare_lost([name], now=world.now),
        lambda: world.store.beat([WorkerRow("w", 2**70)], now=world.now),
    ]
    for call in calls:
        with pytest.raises(BadName) as refused:
            await call()
        assert refused.value.code == "bad_name"
    gate, limit = GateRow(GateKind.QUEUE, name, Gate()), LimitRow(LimitKind.KEY, name, Limit())
    for unit in (world.switching([gate]), world.switching(limits=[limit])):
        [outcome] = await world.commit(unit)
        assert isinstance(outcome, Rejected)
