"""Why a job is where it is, on every store: each hurdle, who has it, how it ended."""

from __future__ import annotations

from typing import Any

import pytest

from detent.engine import queries
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.hurdles import Ahead, Facts, Hurdle, Verdict, hurdles
from detent.engine.queries import AHEAD_MAX, Why
from detent.engine.shaping import Order, Part, stages
from detent.engine.telling import told_at, told_span
from detent.errors import UnknownJob
from detent.lifecycle import job as j
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import (
    GateKind,
    Limit,
    LimitKind,
    Note,
    Stored,
    Who,
    WorkerRow,
    key_of,
)
from detent.stores.select import Filter, Page
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import claim, completed, failed, push

DAY = 86_400 * SECOND


async def why(engine: Engine, job: j.Job) -> Why:
    return await engine.queries.why(key_of(job))


def of(found: Why, name: str) -> Hurdle:
    """The hurdle of that name."""
    return next(one for one in found.hurdles if one.name == name)


def failing(found: Why) -> list[str]:
    return [one.name for one in found.hurdles if one.verdict is Verdict.FAIL]


# --- waiting --------------------------------------------------------------------------------------


async def test_with_a_worker_and_nothing_in_the_way_it_is_said_so(
    world: World, engine: Engine
) -> None:
    job = await push(engine)
    await world.alive("w1")
    found = await why(engine, job)
    assert found.is_waiting
    assert failing(found) == []
    assert found.answer == "Nothing is in its way: the next free worker takes it."
    assert found.expected_at == world.now
    assert of(found, "worker").verdict is Verdict.UNKNOWN
    assert "not recorded" in of(found, "worker").says


async def test_of_very_many_workers_none_is_overlooked(world: World, engine: Engine) -> None:
    job = await push(engine)
    many = [
        WorkerRow(f"w{n}", world.now + 60 * SECOND, who=Who(types=("other",)), state="running")
        for n in range(1_001)
    ]
    last = WorkerRow("last", world.now + SECOND, who=Who(), state="running")
    await world.store.beat([*many, last], now=world.now)
    assert of(await why(engine, job), "worker").says == "last would take it."
    assert len(await engine.workers.listed()) == 1_002


async def test_without_a_worker_nobody_can_say_when(world: World, engine: Engine) -> None:
    job = await push(engine)
    found = await why(engine, job)
    assert failing(found) == ["worker"]
    assert found.answer.startswith("No worker is alive.")
    assert found.expected_at is None
    await world.alive("w1", until=world.now + SECOND)
    world.clock.move(2 * SECOND)
    assert "heard of before" in (await why(engine, job)).answer


async def test_one_that_waits_for_its_time_says_when(world: World, engine: Engine) -> None:
    job = await push(engine, run_at=world.now + 90 * SECOND)
    await world.alive("w1")
    found = await why(engine, job)
    assert found.answer == f"It starts at {told_at(world.now + 90 * SECOND)}, in 1 min 30 s."
    assert found.expected_at == world.now + 90 * SECOND
    world.clock.move(100 * SECOND)
    assert "Is any server of this store running?" in (await why(engine, job)).answer


async def test_after_a_failure_it_says_what_it_waits_for(world: World, engine: Engine) -> None:
    job = await push(engine, retry=RetryPolicy(max_attempts=3, initial_us=SECOND, jitter=False))
    [taken] = await claim(world, engine)
    await engine.carry_out([failed(taken)])
    found = await why(engine, job)
    assert "After fail it goes on at" in of(found, "due").says
    assert of(found, "due").clears_at == found.expected_at


async def test_a_hold_and_both_pauses_are_told_with_who_and_why(
    world: World, engine: Engine
) -> None:
    job = await push(engine, queue="mail")
    await world.alive("w1")
    await engine.operators.apply(j.Hold(), [key_of(job)], USER, "not yet")
    await engine.operators.pause(GateKind.QUEUE, "mail", USER, "the provider is down")
    await engine.operators.pause(GateKind.TYPE, "mail.send", USER)
    found = await why(engine, job)
    assert failing(found) == ["held", "queue", "type"]
    assert of(found, "queue").says == (
        f"Its queue mail was paused by ada at {told_at(world.now)}: the provider is down."
    )
    assert of(found, "type").says.endswith(f"by ada at {told_at(world.now)}.")
    assert found.expected_at is None


async def test_a_gate_that_nobody_signed_is_still_told(world: World, engine: Engine) -> None:
    job = await push(engine)
    await world.gate("default", closed=True)
    assert of(await why(engine, job), "queue").says == "Its queue default was paused."
    await world.gate("default", queue_deleted=True)
    assert "deleted" in of(await why(engine, job), "queue").says


async def test_a_lifetime_is_told(world: World, engine: Engine) -> None:
    job = await push(engine, expires_at=world.now + SECOND)
    assert told_at(world.now + SECOND) in of(await why(engine, job), "lifetime").says
    world.clock.move(SECOND)
    assert "lifetime" in failing(await why(engine, job))


async def test_limits_say_how_much_is_used_and_when_there_is_room(
    world: World, engine: Engine
) -> None:
    await engine.operators.set_limit(LimitKind.QUEUE, "default", Limit(concurrency=1), USER)
    rated = Limit(rate=1, period_us=60 * SECOND, spacing_us=SECOND)
    await engine.operators.set_limit(LimitKind.KEY, "acme", rated, USER, "as agreed")
    first = await push(engine, key="acme")
    found = await why(engine, first)
    assert "has room: 0 of 1 run" in of(found, "queue limit").says
    [taken] = await claim(world, engine)
    second = await push(engine, key="acme")
    found = await why(engine, second)
    assert failing(found)[:2] == ["queue limit", "key limit"]
    assert of(found, "queue limit").says.endswith(
        "used up: 1 of 1 run. Free when one of them ends."
    )
    assert "1 of 1 started within 1 min, one every 1 s" in of(found, "key limit").says
    assert of(found, "key limit").clears_at == world.now + 60 * SECOND
    assert found.expected_at is None
    await engine.carry_out([completed(taken)])
    assert (await why(engine, second)).expected_at == world.now + 60 * SECOND


async def test_those_that_go_first_are_counted_and_timed_by_the_pace_of_late(
    world: World, engine: Engine
) -> None:
    await world.alive("w1")
    await engine.enqueue([Ask(type="x")] * 2, USER)
    [one, two] = await claim(world, engine)
    last = await push(engine)
    await push(engine, priority=5)
    held = await push(engine, priority=9)
    await engine.operators.apply(j.Hold(), [key_of(held)], USER)
    await push(engine, priority=9, type="paused")
    await engine.operators.pause(GateKind.TYPE, "paused", USER)
    first, second = Ask(type="a", queue="other"), Ask(type="b", priority=9)
    parts: tuple[Part, ...] = stages({"a": first, "b": second})
    await engine.workflows.create(Order(parts=parts), USER)
    [behind] = await world.store.find(Filter(type="b"))
    assert "b is not open yet: it comes after a" in of(await why(engine, behind.job), "step").says
    found = await why(engine, last)
    assert of(found, "turn").says.startswith("1 job in queue default go first; none has ended")
    world.clock.move(4 * SECOND)
    await engine.carry_out([completed(one)])
    await engine.carry_out([completed(two)])
    world.clock.move(4 * SECOND)
    found = await why(engine, last)
    assert of(found, "turn").clears_at == world.now + 2 * SECOND
    assert found.expected_at == world.now + 2 * SECOND
    later = await push(engine, run_at=world.now + SECOND)
    assert "2 jobs" in of(await why(engine, later), "turn").says


async def test_a_job_of_a_workflow_says_what_its_step_waits_for(
    world: World, engine: Engine
) -> None:
    steps = {"build": Ask(type="a"), "deploy": Ask(type="b")}
    parts: tuple[Part, ...] = stages(steps, gate=["deploy"])
    await engine.workflows.create(Order(parts=parts, id="w"), USER)
    await world.alive("w1")
    [deploy] = await world.store.find(Filter(type="b"))
    found = await why(engine, deploy.job)
    assert failing(found)[0] == "step"
    assert of(found, "step").says == "Its step deploy waits for an approval: it comes after build."
    [build] = await claim(world, engine)
    await engine.carry_out([completed(build)])
    assert of(await why(engine, deploy.job), "step").says.endswith("waits for an approval.")
    await engine.workflows.pause(("", "w"), USER)
    assert failing(await why(engine, deploy.job))[0] == "workflow"
    await engine.workflows.resume(("", "w"), USER)
    await engine.workflows.approve(("", "w"), "deploy", USER)
    assert failing(await why(engine, deploy.job)) == []
    await engine.workflows.abort(("", "w"), USER)
    assert "never run" in of(await why(engine, deploy.job), "step").says
    await engine.upkeep.turn()


async def test_a_job_of_another_tenant_is_another_job(world: World, engine: Engine) -> None:
    job = await push(engine, tenant="acme")
    await world.alive("w1")
    found = await why(engine, job)
    assert of(found, "tenant").verdict is Verdict.UNKNOWN
    with pytest.raises(UnknownJob):
        await engine.queries.why(("", job.id))


# --- running and ended ----------------------------------------------------------------------------


async def test_a_running_job_says_who_has_it_and_until_when(world: World, engine: Engine) -> None:
    job = await push(engine)
    [taken] = await claim(world, engine)
    await world.alive("w1", until=world.now + 15 * SECOND)
    note = Note(world.now, 1, 40, "half way")
    await world.store.note([(key_of(job), taken.job.lease or "", note)], now=world.now)
    world.clock.move(5 * SECOND)
    found = await why(engine, job)
    assert found.holding is not None
    assert (found.holding.holder, found.holding.percent) == ("w1", 40)
    assert found.holding.until == world.now + 10 * SECOND
    assert found.answer.startswith("w1 runs it for 5 s, as attempt 1; it is trusted until ")
    await engine.operators.cancel(key_of(job), USER, "enough")
    assert "It was asked to stop at" in (await why(engine, job)).answer
    world.clock.move(11 * SECOND)
    assert "was silent since" in (await why(engine, job)).answer
    await world.store.declare_lost(["w1"], now=world.now)
    assert "it is lost" in (await why(engine, job)).answer


async def test_a_wire_lease_is_looked_up(world: World, engine: Engine) -> None:
    job = await push(engine)
    want = world.make.want(1, holder="far", wire=True, lease_us=30 * SECOND)
    assert len((await engine.claim(want)).jobs) == 1
    found = await why(engine, job)
    assert found.holding is not None
    assert found.holding.is_wire
    assert found.holding.until == world.now + 30 * SECOND


async def test_an_ended_job_says_how_by_whom_and_why(world: World, engine: Engine) -> None:
    job = await push(engine)
    await engine.operators.cancel(key_of(job), USER, "typo in the address")
    found = await why(engine, job)
    assert found.ending is not None
    assert found.answer == (
        f"Cancelled at {told_at(world.now)} by user ada (requested: typo in the address)."
    )
    broken = await push(engine, retry=RetryPolicy(max_attempts=1))
    [taken] = await claim(world, engine)
    await engine.carry_out([failed(taken)])
    found = await why(engine, broken)
    assert found.ending is not None
    assert (found.ending.cause, found.ending.code) == ("exhausted", "boom")


# --- listing --------------------------------------------------------------------------------------


async def test_a_listing_goes_page_by_page_to_its_end(engine: Engine) -> None:
    jobs = [await push(engine, tags=("a",)) for _ in range(5)]
    await push(engine)
    seen: list[Stored] = []
    page = Page(2)
    while True:
        listing = await engine.queries.jobs(Filter(tenant="", tag="a"), page)
        seen += listing.jobs
        if listing.after is None:
            break
        page = Page(2, listing.after)
    assert [one.job.id for one in seen] == [job.id for job in reversed(jobs)]


async def test_jobs_are_counted_by_the_store_or_by_reading_them_all(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_COUNT_PAGE", 2)
    jobs = [await push(engine, queue="a", tags=("red",)) for _ in range(4)]
    await push(engine, queue="b", type="else", tags=("red",))
    await push(engine, queue="a", tenant="other")
    await engine.operators.cancel(key_of(jobs[0]), USER, "why")
    wanted: dict[int, list[dict[str, Any]]] = {
        0: [{"queue": "c"}, {"tag": "blue"}, {"queue": "b", "type": "mail.send"}],
        1: [{"queue": "a", "state": "cancelled"}, {"type": "else"}],
        3: [
            {"queue": "a", "state": "available"},
            {"queue": "a", "state": "available", "tag": "red"},
        ],
        4: [{"queue": "a"}, {"state": "available"}, {"type": "mail.send"}],
        5: [{}, {"tag": "red"}],
    }
    for count, filters in wanted.items():
        for one in filters:
            assert await engine.queries.count(Filter(tenant="", **one)) == count, one
    assert await engine.queries.count(Filter()) == 6


async def test_queues_are_those_with_jobs_gates_or_limits(engine: Engine) -> None:
    await push(engine, queue="a")
    await push(engine, queue="other", tenant="t")
    await engine.operators.pause(GateKind.QUEUE, "b", USER, "why not")
    await engine.operators.set_limit(LimitKind.QUEUE, "c", Limit(concurrency=2), USER)
    await engine.operators.set_limit(LimitKind.KEY, "k", Limit(concurrency=2), USER)
    [a, b, c] = await engine.queries.queues()
    assert (a.name, a.counts) == ("a", {"available": 1})
    assert b.door.gate.closed
    assert b.door.latest is not None
    assert (b.door.latest.actor_id, b.door.latest.reason) == ("ada", "why not")
    assert c.limited is not None
    assert c.limited.row.limit == Limit(concurrency=2)


async def test_a_story_adds_up_the_time_of_every_stay(world: World, engine: Engine) -> None:
    job = await push(engine, retry=RetryPolicy(max_attempts=2, initial_us=SECOND, jitter=False))
    world.clock.move(3 * SECOND)
    [taken] = await claim(world, engine)
    world.clock.move(2 * SECOND)
    await engine.carry_out([failed(taken)])
    world.clock.move(SECOND)
    await engine.upkeep.turn()
    shown = await engine.queries.show(key_of(job))
    assert shown.story.sentence.startswith("Available on attempt 1 after 1 failure; 4 s waiting")
    [taken] = await claim(world, engine)
    world.clock.move(SECOND)
    await engine.carry_out([completed(taken)])
    shown = await engine.queries.show(key_of(job))
    assert [one.state for one in shown.story.stays] == [
        *("available", "active", "retryable", "available", "active"),
        "completed",
    ]
    assert shown.story.sentence == (
        "Completed on attempt 2 after 1 failure; 4 s waiting, 3 s working."
    )


def test_spans_are_told_in_two_units() -> None:
    told = {
        0: "0 ms",
        999_999: "999 ms",
        61 * SECOND: "1 min 1 s",
        3_600 * SECOND: "1 h",
        DAY + 7_200 * SECOND: "1 d 2 h",
        -61 * SECOND: "-1 min 1 s",
    }
    assert {us: told_span(us) for us in told} == told


async def test_in_the_middle_of_a_long_queue_nobody_is_said_to_be_next(engine: Engine) -> None:
    """Those that were looked at come after it; there are others, and most of them go first."""
    _, job = [await push(engine) for _ in range(2)]
    await engine.enqueue([Ask(type="mail.send")] * AHEAD_MAX, USER)
    found = await why(engine, job)
    assert "nobody can say how many of them go first" in of(found, "turn").says
    assert "turn" in failing(found)
    assert found.expected_at is None


async def test_a_queue_too_long_to_count_and_a_missing_engine_are_told_as_such(
    world: World, engine: Engine
) -> None:
    job = await push(engine, profile="engine")
    facts = Facts(stored=await world.got(job), now=world.now, ahead=Ahead(7, False, SECOND))
    found = {one.name: one for one in hurdles(facts)}
    assert found["turn"].says.startswith("At least 7 jobs in queue default go first")
    assert found["turn"].clears_at is None
    assert found["worker"].says.startswith("No engine is alive.")
