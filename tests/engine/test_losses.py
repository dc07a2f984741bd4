"""Losses: who is given up, when, and what a job's history says of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from detent.engine import marking
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.losing import SPARED_MAX
from detent.engine.processes import here, is_gone, process_of
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Death, Failure, Process, Store, Stored, Who, WorkerRow, key_of
from tests.contract.making import SECOND
from tests.contract.world import World

WHO = Who(supervisor="s1", process=Process("host-a", "boot-1", 4711, 5))


async def held(
    world: World, *, who: Who = WHO, name: str = "w1", job: str = "x", profile: str = "python"
) -> j.Job:
    """A job in the hands of an instance that has just been heard of."""
    until = world.now + 15 * SECOND
    await world.store.beat([WorkerRow(name, until, who=who)], now=world.now)
    await world.push(id=job, profile=profile)
    want = world.make.want(1, holder=name)
    stepped = await world.store.step([], now=world.now, want=want)
    return stepped.claimed.jobs[0].job


async def lost(world: World, job: j.Job) -> tuple[Stored, Event]:
    history = await world.store.history((job.tenant, job.id))
    return await world.got(job), next(x for x in reversed(history) if x.name == "lose")


@contextmanager
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A real process that does nothing until it is killed."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:  # noqa: S603
        try:
            yield child
        finally:
            child.kill()


# --- what is told of a loss ---------------------------------------------------------------------


async def test_a_loss_names_the_worker_its_last_heartbeat_and_how_it_ended(
    world: World, engine: Engine
) -> None:
    job = await held(world)
    world.clock.move(3 * SECOND)
    death = Death("w1", "s1", cause="sigkill_external", exit_code=-9)
    await world.store.bury([death], now=world.now)
    assert (await engine.upkeep.turn()).moved == 1
    stored, event = await lost(world, job)
    assert (stored.job.state, event.code) == ("available", "lease_lost")
    assert event.reason == (
        "worker w1 (pid 4711 on host-a) was ended by signal 9 (sigkill_external);"
        " its last heartbeat was at 2023-11-14T22:13:20.000Z"
    )
    [failure] = stored.failures
    assert (failure.attempt, failure.code, failure.message) == (1, "lease_lost", event.reason)
    told = json.loads(failure.details or "")
    assert (told["host"], told["pid"], told["signal"], told["exit_code"]) == ("host-a", 4711, 9, -9)
    assert (told["holder"], told["cause"]) == ("w1", "sigkill_external")
    assert told["last_beat_at"] == world.now - 3 * SECOND


async def test_a_loss_by_the_clock_says_until_when_it_was_trusted(
    world: World, engine: Engine
) -> None:
    job = await held(world)
    for _ in range(17):
        world.clock.move(SECOND)
        await engine.upkeep.turn()
    _, event = await lost(world, job)
    assert event.reason is not None
    assert "was silent beyond 2023-11-14T22:13:35.000Z; its last heartbeat was at" in event.reason


async def test_every_end_of_a_poisonous_job_is_in_its_history(world: World, engine: Engine) -> None:
    job = await held(world)
    for number, code in enumerate((-11, 1, -6)):
        name = f"next{number}"
        if number:
            await world.store.beat([WorkerRow(name, world.now + SECOND, who=WHO)], now=world.now)
            want = world.make.want(1, holder=name)
            assert (await world.store.step([], now=world.now, want=want)).claimed.jobs
        holder = (await world.got(job)).job.holder or ""
        await world.store.bury([Death(holder, "s1", cause="crash", exit_code=code)], now=world.now)
        await engine.upkeep.turn()
    stored = await world.got(job)
    assert (stored.job.state, stored.job.cause) == ("discarded", "poison")
    details = [json.loads(one.details or "") for one in stored.failures]
    assert [one["exit_code"] for one in details] == [-11, 1, -6]


async def test_who_ran_apart_from_a_crowded_worker_does_not_pay(
    world: World, engine: Engine
) -> None:
    job = await held(world)
    said = []
    for number, crowded in enumerate([True, True, False] + [True] * 12):
        name = f"next{number}"
        if number:
            await world.store.beat([WorkerRow(name, world.now + SECOND, who=WHO)], now=world.now)
            await world.store.step([], now=world.now, want=world.make.want(1, holder=name))
        holder = (await world.got(job)).job.holder or ""
        await world.store.bury([Death(holder, "s1", crowded=crowded)], now=world.now)
        await engine.upkeep.turn()
        said.append((await world.got(job)).job.losses)
        if (await world.got(job)).job.state == "discarded":
            break
    assert said == [1, 1, *[2] * 10, 3], "the first, its own, and beyond all belief"
    history = await world.store.history((job.tenant, job.id))
    assert [one.name for one in history].count("hand_back") == SPARED_MAX
    assert len((await world.got(job)).failures) == 3, "one that pays nothing has not failed"


@pytest.mark.parametrize(("profile", "name"), [("python", "hand_back"), ("rest", "lose")])
async def test_who_was_stopped_because_the_store_was_away_does_not_pay(
    world: World, engine: Engine, profile: str, name: str
) -> None:
    job = await held(world, profile=profile)
    death = Death("w1", "s1", cause="exit_code", exit_code=75, lapsed=True)
    await world.store.bury([death], now=world.now)
    await engine.upkeep.turn()
    _, _, event, *_ = await world.store.history((job.tenant, job.id))
    assert (event.name, event.actor) == (name, "system")
    assert "could not be renewed, because the store was away" in (event.reason or "")
    assert (await world.got(job)).job.losses == (name == "lose")


async def test_a_wire_lease_that_ran_out_says_so(world: World, engine: Engine) -> None:
    await world.push(id="x")
    [taken] = await world.claim(wire=True, lease_us=60 * SECOND, holder="remote")
    await engine.upkeep.turn()
    for _ in range(62):
        world.clock.move(SECOND)
        await engine.upkeep.turn()
    _, event = await lost(world, taken.job)
    assert (event.reason or "").startswith("remote did not renew its lease, which ended at")


LATE = j.Claim("late", "jobnik", wire=True, lease_us=60 * SECOND)


def late_report(known: Stored, *, is_good: bool) -> Change:
    """What a worker says after its lease has ended."""
    failure = Failure(known.job.attempt, known.job.last_at, "task_failed", "no")
    return Change(
        key_of(known.job),
        j.Complete(lease="old") if is_good else j.Fail(lease="old", code="task_failed"),
        By(Actor.WORKER, "jobnik"),
        beside=Beside() if is_good else Beside(failure=failure),
        known=known,
        claim=LATE,
    )


async def lose_over_wire(world: World, engine: Engine) -> Stored:
    """A job of a step that is taken and lost; it is there for the next who asks."""
    [taken] = await world.claim(wire=True, lease_us=SECOND, holder="jobnik", profiles=("jobnik",))
    world.clock.move(2 * SECOND)
    await engine.upkeep.turn()
    stored = await world.got(taken.job)
    assert stored.job.is_lost
    return stored


@pytest.mark.parametrize("losses", [1, 5])
@pytest.mark.parametrize("is_good", [True, False])
async def test_a_late_report_ends_a_lost_job_and_its_workflow(
    world: World, engine: Engine, losses: int, is_good: bool
) -> None:
    step = w.StepPlan("step")
    new = world.make.new(id="x", profile="jobnik", workflow="flow", step="step")
    await world.make_flow("flow", [step], new)
    await engine.upkeep.turn()
    for _ in range(losses):
        known = await lose_over_wire(world, engine)
    assert (await world.flow("flow")).tally("step") == w.Tally(retried=1, lost=1, total=1)
    [answer] = await engine.carry_out([late_report(known, is_good=is_good)])
    assert isinstance(answer, j.Accepted)
    stored = await world.got(known.job)
    assert stored.job == answer.job
    assert (stored.job.attempt, stored.job.losses) == (losses + 1, losses)
    flow = await world.flow("flow")
    word = "completed" if is_good else "failed"
    assert (flow.workflow.state, flow.tally("step")) == (word, w.Tally(total=1, **{word: 1}))
    if not is_good:
        assert stored.failures[-1].attempt == losses + 1
    *_, claim, end = await world.store.history(key_of(known.job))
    assert (claim.name, claim.lease) == ("claim", "late")
    assert (end.name, end.command_id) == ("complete" if is_good else "fail", claim.command_id)
    # Its lease began and ended with the report, so it has no row that anybody would find due.
    world.clock.move(3_600 * SECOND)
    assert await world.due() == []


async def test_a_late_report_comes_to_nothing_when_somebody_was_faster(
    world: World, engine: Engine
) -> None:
    await world.push(id="x", profile="jobnik")
    await engine.upkeep.turn()
    known = await lose_over_wire(world, engine)
    [taken] = await world.claim(wire=True, lease_us=SECOND, holder="jobnik", profiles=("jobnik",))
    [answer] = await engine.carry_out([late_report(known, is_good=True)])
    assert isinstance(answer, Refusal)
    assert answer.code == "not_lost"
    assert (await world.got(known.job)).job.lease == taken.job.lease


async def test_of_late_reports_at_once_one_counts(world: World, engine: Engine) -> None:
    await world.push(id="x", profile="jobnik")
    await engine.upkeep.turn()
    known = await lose_over_wire(world, engine)
    reports = [late_report(known, is_good=number != 1) for number in range(3)]
    answers = await asyncio.gather(*(engine.carry_out([one]) for one in reports))
    accepted = [one for [one] in answers if isinstance(one, j.Accepted)]
    assert [one.job for one in accepted] == [(await world.got(known.job)).job]


async def test_a_limit_that_ran_out_is_no_loss_and_has_no_such_reason(
    world: World, engine: Engine
) -> None:
    job = await held(world)
    await world.store.bury([Death("w1", "s1")], now=world.now)
    await engine.upkeep.turn()
    history = await world.store.history((job.tenant, job.id))
    assert [one.name for one in history if one.reason] == ["lose"]


# --- processes of this host -----------------------------------------------------------------------


def test_a_process_is_known_again_and_its_end_is_certain() -> None:
    mine = here()
    assert mine is not None
    assert not is_gone(mine)
    assert is_gone(replace(mine, started_at=mine.started_at - 1))
    assert not is_gone(replace(mine, host="elsewhere", pid=2**22 + 1))
    assert not is_gone(replace(mine, boot="before", pid=2**22 + 1))
    with sleeper() as child:
        other = process_of(child.pid)
        assert other is not None
        assert not is_gone(other)
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # Nobody has waited for it yet, but it runs no more.
        assert is_gone(other)
        child.wait()
        assert is_gone(other)
    assert process_of(child.pid) is None


async def test_who_is_gone_from_this_host_is_lost_without_any_grace(
    world: World, engine: Engine
) -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        who = Who(supervisor="s1", process=process, keeper=process)
        job = await held(world, who=who)
        assert (await engine.upkeep.turn()).declared_lost == 0
        child.kill()
        child.wait()
    fresh = Engine(world.store)
    assert (await fresh.upkeep.turn()).declared_lost == 1
    stored, event = await lost(world, job)
    assert stored.job.state == "available"
    assert f"(pid {child.pid} on " in (event.reason or "")
    assert "is gone (lost)" in (event.reason or "")


async def test_while_its_keeper_lives_the_keeper_tells_of_the_end(
    world: World, engine: Engine
) -> None:
    with sleeper() as child:
        who = Who(supervisor="s1", process=process_of(child.pid), keeper=here())
        await held(world, who=who)
        child.kill()
        child.wait()
    assert (await engine.upkeep.turn()).declared_lost == 0
    assert len(await world.store.workers()) == 1


# --- the mark -------------------------------------------------------------------------------------


async def test_a_turn_leaves_a_mark_once_a_second_and_grants_one_grace(world: World) -> None:
    engines = [Engine(world.store) for _ in range(3)]
    for _ in range(10):
        world.clock.move(SECOND // 4)
        await asyncio.gather(*(one.upkeep.turn() for one in engines))
    mark = await marking.read(world.store)
    [record] = await world.store.record([("upkeep", "", "mark")])
    assert record is not None
    # One for the grace, one for forgetting, and one a second.
    assert record.version <= 5
    assert world.now - mark.at < SECOND
    [grace] = mark.graces
    assert (grace.until - grace.at, mark.trusting_until) == (15 * SECOND, grace.until)
    assert str(os.getpid()) in grace.by


async def test_who_starts_a_moment_after_another_needs_no_grace(world: World) -> None:
    first = Engine(world.store)
    for _ in range(20):
        await first.upkeep.turn()
        world.clock.move(SECOND)
    await world.store.beat([WorkerRow("w1", world.now)], now=world.now)
    world.clock.move(SECOND)
    assert (await Engine(world.store).upkeep.turn()).declared_lost == 1
    assert len((await marking.read(world.store)).graces) == 1


async def test_after_a_silence_of_all_everybody_is_trusted_again(world: World) -> None:
    for _ in range(20):
        await Engine(world.store).upkeep.turn()
        world.clock.move(SECOND)
    await world.store.beat([WorkerRow("w1", world.now)], now=world.now)
    world.clock.move(60 * SECOND)
    assert (await Engine(world.store).upkeep.turn()).declared_lost == 0
    graces = (await marking.read(world.store)).graces
    assert len(graces) == 2
    assert graces[1].silent_us == 61 * SECOND


class Hanging:
    """The same store, in which the next call for what is due takes as long as an outage."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.takes_s = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def take_due(self, **asked: Any) -> Any:
        self._world.clock.move(self.takes_s * SECOND)
        self.takes_s = 0
        return await self._world.store.take_due(**asked)


async def test_a_turn_that_waits_through_an_outage_grants_a_grace(world: World) -> None:
    """Its own call was only slow; the others could not renew meanwhile."""
    hanging = Hanging(world)
    upkeep = Engine(cast("Store", hanging)).upkeep
    for _ in range(16):
        await upkeep.turn()
        world.clock.move(SECOND)
    job = await held(world)
    hanging.takes_s = 17
    for _ in range(3):
        await upkeep.turn()
        world.clock.move(SECOND)
    assert (await world.got(job)).job.losses == 0
    assert len((await marking.read(world.store)).graces) == 2


@pytest.mark.parametrize("pause_s", [1, 2, 4, 60, 86_400])
async def test_many_short_lived_upkeeps_use_up_one_grace(world: World, pause_s: int) -> None:
    await world.store.beat([WorkerRow("w1", world.now, who=WHO)], now=world.now)
    turns = 0
    while not (await Engine(world.store).upkeep.turn()).declared_lost:
        turns += 1
        assert turns < 30
        world.clock.move(pause_s * SECOND)
    assert turns == 15 // min(pause_s, 3) + (15 % min(pause_s, 3) > 0)


async def test_a_mark_from_the_future_is_not_believed(world: World) -> None:
    await Engine(world.store).upkeep.turn()
    world.clock.move(-3_600 * SECOND)
    await Engine(world.store).upkeep.turn()
    mark = await marking.read(world.store)
    assert (mark.at, len(mark.graces)) == (world.now, 2)


async def test_a_clock_that_was_set_back_lengthens_no_grace(world: World, engine: Engine) -> None:
    await engine.upkeep.turn()
    world.clock.move(-3_600 * SECOND)
    await world.store.beat([WorkerRow("w1", world.now)], now=world.now)
    for _ in range(15):
        assert (await engine.upkeep.turn()).declared_lost == 0
        world.clock.move(SECOND)
    assert (await engine.upkeep.turn()).declared_lost == 1


async def test_instances_that_are_long_gone_are_forgotten(world: World, engine: Engine) -> None:
    await world.lose("w1")
    await engine.upkeep.turn()
    assert len(await world.store.workers(gone=True)) == 1
    world.clock.move(8 * 86_400 * SECOND)
    await engine.upkeep.turn()
    assert list(await world.store.workers(gone=True)) == []
