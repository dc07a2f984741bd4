"""What people do by hand, on every store: one job, many jobs, queues, types and limits."""

from __future__ import annotations

from typing import Any

import pytest

from detent.engine import switches
from detent.engine.asks import Ask
from detent.engine.bulk import Effects
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.engine.shaping import Order, group
from detent.engine.verbs import Rerun, RunNow, Verb
from detent.errors import BadOption, BadPolicy, NameTooLong
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import GateKind, Key, Limit, LimitKind, key_of
from detent.stores.select import Filter
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import claim, completed, failed, push

LATER = 1_000 * SECOND


async def applied(engine: Engine, verb: Verb, key: Key, reason: str | None = None) -> Any:
    """What the verb did to that job."""
    [answer] = await engine.operators.apply(verb, [key], USER, reason)
    return answer


async def last(world: World, job: j.Job) -> tuple[str, str, str | None]:
    """What happened to the job last, by whom and why."""
    event = (await world.store.history(key_of(job)))[-1]
    return event.name, event.actor_id, event.reason


# --- one job --------------------------------------------------------------------------------------


async def test_every_verb_is_written_down_with_who_and_why(world: World, engine: Engine) -> None:
    job = await push(engine, run_at=world.now + LATER)
    verbs: list[tuple[Verb, str]] = [
        (j.Hold(), "held"),
        (j.Activate(), "activated"),
        (j.Reprioritise(7), "reprioritised"),
        (j.Move("slow"), "moved"),
        (j.Reschedule(world.now + 2 * LATER), "rescheduled"),
        (j.Cancel(), "cancel"),
    ]
    for verb, name in verbs:
        await applied(engine, verb, key_of(job), f"to be {name}")
        assert await last(world, job) == (name, "ada", f"to be {name}")
    found = (await world.got(job)).job
    assert (found.priority, found.queue, found.state) == (7, "slow", "cancelled")


async def test_run_now_makes_a_waiting_job_available_at_once(world: World, engine: Engine) -> None:
    job = await push(engine, run_at=world.now + LATER)
    answer = await applied(engine, RunNow(), key_of(job), "the customer waits")
    assert isinstance(answer, j.Accepted)
    assert answer.job.state == "available"
    assert [event.name for event in answer.events] == ["rescheduled", "due"]
    assert isinstance(await applied(engine, RunNow(), key_of(job)), j.Unchanged)
    await claim(world, engine)
    assert isinstance(await applied(engine, RunNow(), key_of(job)), Refusal)
    assert isinstance(await applied(engine, RunNow(), ("", "nowhere")), Refusal)


async def test_a_rerun_is_a_new_job_with_everything_of_the_old_one(
    world: World, engine: Engine
) -> None:
    policy = RetryPolicy(max_attempts=1)
    limits = Deadlines(active_us=5 * SECOND)
    told: dict[str, Any] = {"payload": "[1]", "meta": '{"a":1}', "tags": ("t",), "key": "k"}
    job = await push(engine, queue="q", priority=3, retry=policy, deadlines=limits, **told)
    assert (await applied(engine, Rerun(), key_of(job), "early")).code == "not_ended"
    [taken] = (await engine.claim(await wish(world, "q"))).jobs
    await engine.carry_out([failed(taken)])
    made = await applied(engine, Rerun(), key_of(job), "the disk is mended")
    assert isinstance(made, Enqueued)
    old, new = await world.got(job), await world.got(made.job)
    assert old.job.state == "discarded"
    assert (new.body, new.job.rerun_of, new.job.state) == (old.body, job.id, "available")
    same = ("queue", "priority", "allowed", "losses_allowed", "active_us", "profile")
    assert [getattr(new.job, one) for one in same] == [getattr(old.job, one) for one in same]
    assert await last(world, made.job) == ("enqueue", "ada", "the disk is mended")


async def wish(world: World, queue: str) -> Any:
    await world.alive("w1")
    return world.make.want(1, queues=(queue,))


async def test_what_cannot_be_run_again_is_refused_with_its_code(
    world: World, engine: Engine
) -> None:
    assert (await applied(engine, Rerun(), ("", "nowhere"), "x")).code == "unknown_job"
    job = await push(engine)
    await engine.operators.cancel(key_of(job), USER)
    assert (await applied(engine, Rerun(), key_of(job), "")).code == "reason_needed"
    await world.do((await world.got(job)).job, j.Erase(), USER)
    assert (await applied(engine, Rerun(), key_of(job), "x")).code == "erased"


async def test_a_job_that_came_without_a_policy_is_run_again_without_one(engine: Engine) -> None:
    job = await push(engine, profile="rest")
    await engine.operators.cancel(key_of(job), USER)
    made = await applied(engine, Rerun(), key_of(job), "x")
    assert isinstance(made, Enqueued)
    assert made.job.allowed == 1


async def test_a_member_of_a_workflow_is_run_again_on_its_own(world: World, engine: Engine) -> None:
    await engine.workflows.create(Order(parts=group(Ask(type="a")), id="w"), USER)
    [taken] = await claim(world, engine)
    await engine.carry_out([completed(taken)])
    made = await applied(engine, Rerun(), key_of(taken.job), "x")
    assert isinstance(made, Enqueued)
    assert (made.job.workflow, made.job.step) == (None, None)


# --- many jobs ------------------------------------------------------------------------------------


async def test_a_dry_run_foresees_exactly_what_is_then_done(world: World, engine: Engine) -> None:
    for _ in range(3):
        await push(engine, tags=("x",))
    ended = await push(engine, tags=("x",))
    await engine.operators.cancel(key_of(ended), USER)
    held = await push(engine, tags=("x",))
    await applied(engine, j.Hold(), key_of(held))
    await push(engine)
    chosen = Filter(tenant="", tag="x")
    before = {key: stored.job for key, stored in (await world.everything()).items()}
    foreseen = await engine.bulk.apply(j.Hold(), chosen, USER, "why", dry_run=True)
    assert (foreseen.seen, foreseen.accepted, foreseen.unchanged) == (5, 3, 1)
    assert foreseen.refused == {"final": 1}
    assert foreseen.examples["final"] == (ended.id,)
    assert {key: one.job for key, one in (await world.everything()).items()} == before
    assert await engine.bulk.apply(j.Hold(), chosen, USER, "why", dry_run=False) == foreseen
    again = await engine.bulk.apply(j.Hold(), chosen, USER, "why", dry_run=True)
    assert (again.accepted, again.unchanged) == (0, 4)


async def test_bulk_work_goes_in_batches_and_is_watched(world: World, engine: Engine) -> None:
    await engine.enqueue([Ask(type="x", run_at=world.now + LATER)] * 450, USER)
    seen: list[Effects] = []
    chosen = Filter(tenant="", state="scheduled")
    done = await engine.bulk.apply(RunNow(), chosen, USER, dry_run=False, watch=seen.append)
    assert [one.seen for one in seen] == [200, 400, 450]
    assert done.accepted == 450
    [counted] = await world.store.counts()
    assert (counted.state, counted.count) == ("available", 450)
    ready = Filter(tenant="", state="available")
    done = await engine.bulk.apply(RunNow(), ready, USER, dry_run=False, limit=10)
    assert (done.seen, done.unchanged) == (10, 10)


async def test_what_a_rerun_of_many_makes_is_not_run_again(world: World, engine: Engine) -> None:
    jobs = [await push(engine) for _ in range(3)]
    for job in jobs:
        await engine.operators.cancel(key_of(job), USER)
    chosen = Filter(tenant="", type="mail.send")
    foreseen = await engine.bulk.apply(Rerun(), chosen, USER, "all again", dry_run=True)
    assert foreseen.accepted == 3
    done = await engine.bulk.apply(Rerun(), chosen, USER, "all again", dry_run=False)
    assert done.accepted == len(done.made) == 3
    counts = {one.state: one.count for one in await world.store.counts()}
    assert counts == {"available": 3, "cancelled": 3}
    jobs = [await push(engine, queue="once") for _ in range(2)]
    for job in jobs:
        await engine.operators.cancel(key_of(job), USER)
    narrow = Filter(tenant="", queue="once", state="cancelled")
    told: dict[str, Any] = {"dry_run": False}
    first = await engine.bulk.apply(Rerun(once=True), narrow, USER, "again", limit=1, **told)
    again = await engine.bulk.apply(Rerun(once=True), narrow, USER, "again", **told)
    assert (first.accepted, again.accepted, again.unchanged) == (1, 1, 1)
    assert set(first.made) < set(again.made)
    chosen = Filter(tenant="", type="mail.send", queue="default")
    none = await engine.bulk.apply(Rerun(), chosen, USER, None, dry_run=True)
    assert none.refused == {"not_ended": 3, "reason_needed": 3}


async def test_a_filter_that_says_nothing_is_refused(engine: Engine) -> None:
    with pytest.raises(BadOption):
        await engine.bulk.apply(j.Cancel(), Filter(tenant=""), USER, dry_run=True)


# --- gates and limits -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(GateKind.QUEUE, "default"), (GateKind.TYPE, "x")])
async def test_a_pause_is_instant_and_says_who_and_why(
    world: World, engine: Engine, kind: GateKind, name: str
) -> None:
    await push(engine, type="x")
    assert await engine.operators.pause(kind, name, USER, "upgrade")
    assert not await engine.operators.pause(kind, name, USER, "again")
    assert await claim(world, engine) == []
    world.clock.move(SECOND)
    assert await engine.operators.resume(kind, name, USER, "done")
    assert not await engine.operators.resume(kind, name, USER)
    [row] = await world.store.gates()
    assert row.gate == j.Gate(closed=False, opened_at=world.now)
    assert len(await claim(world, engine)) == 1
    [record] = await world.store.record([(switches.KIND, "", switches.name_of_gate(kind, name))])
    told = [(one.what, one.actor_id, one.reason) for one in switches.read(record).changes]
    assert told == [("paused", "ada", "upgrade"), ("resumed", "ada", "done")]


async def test_a_limit_is_set_and_lifted_by_name(world: World, engine: Engine) -> None:
    await engine.enqueue([Ask(type="x", key="k")] * 3, USER)
    await engine.operators.set_limit(LimitKind.KEY, "k", Limit(concurrency=1), USER, "fair")
    assert len(await claim(world, engine)) == 1
    await engine.operators.set_limit(LimitKind.KEY, "k", None, USER)
    assert len(await claim(world, engine)) == 2
    name = switches.name_of_limit(LimitKind.KEY, "k")
    [record] = await world.store.record([(switches.KIND, "", name)])
    assert [one.what for one in switches.read(record).changes] == ["limited", "lifted"]
    with pytest.raises(BadPolicy):
        Limit(concurrency=0)
    with pytest.raises(NameTooLong):
        await engine.operators.set_limit(LimitKind.KEY, "", Limit(rate=1), USER)
    with pytest.raises(NameTooLong):
        await engine.operators.pause(GateKind.TYPE, "x" * 256, USER)
