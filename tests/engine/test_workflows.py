"""Workflows through the engine, on every store: made, steered, watched and finished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from detent.engine import building, keeping
from detent.engine.asks import Ask, Uniqueness
from detent.engine.building import Created
from detent.engine.engine import Engine
from detent.engine.progress import Progress
from detent.engine.shaping import Order, Part, batch, chain, dag, group, stages
from detent.errors import BadPolicy, BatchTooLarge
from detent.lifecycle import workflow as w
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import UNIT_MAX, Key, Retention, StaleFlow, Unit
from detent.stores.select import Page
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.working import claim, complete_all, completed, failed, types

KEY = ("", "w")
HOUR = 3_600 * SECOND


def ask(kind: str = "x", payload: str = "[]", **more: Any) -> Ask:
    return Ask(type=kind, payload=payload, **more)


async def create(engine: Engine, parts: tuple[Part, ...], **more: Any) -> Key:
    """A new workflow `w`."""
    made = await engine.workflows.create(Order(parts=parts, **{"id": "w", **more}), USER)
    assert isinstance(made, Created), made
    return more.get("tenant", ""), made.id


async def at(engine: Engine, key: Key = KEY) -> Progress:
    found = await engine.workflows.get(key)
    assert found is not None
    return found


async def states(engine: Engine) -> str:
    """Workflow and steps in one line."""
    found = await at(engine)
    return " ".join([found.workflow.state, *(f"{one.name}:{one.state}" for one in found.steps)])


async def settle(world: World, engine: Engine) -> None:
    """Let upkeep do what is left to do."""
    while (await engine.upkeep.turn()).moved:
        pass
    await world.audit()


async def live(world: World) -> int:
    ended = ("completed", "discarded", "cancelled")
    return sum(one.count for one in await world.store.counts() if one.state not in ended)


# --- shapes ---------------------------------------------------------------------------------------


async def test_a_chain_goes_step_by_step_and_hands_results_on(world: World, engine: Engine) -> None:
    parts = chain(ask("a", "[1]"), [ask("b", "[2]"), ask("b", "[3]")], ask("c"))
    key = await create(engine, parts, name="nightly", meta='{"k":1}')
    assert await types(world, engine) == ["a"]
    assert (await at(engine)).percentage == 33
    assert await types(world, engine) == ["b", "b"]
    [last] = await claim(world, engine)
    before = await engine.workflows.results_before(last.job)
    assert {name: [one.result for one in some] for name, some in before.items()} == {
        "1": ["[1]"],
        "2": ["[2]", "[3]"],
    }
    await complete_all(engine, [last])
    found = await at(engine, key)
    assert (found.name, found.meta, found.percentage) == ("nightly", '{"k":1}', 100)
    assert await states(engine) == "completed 1:completed 2:completed 3:completed"
    assert found.step("2").tally.completed == 2
    assert found.step("3").depends_on == ("2",)


async def test_the_first_failure_ends_a_chain(world: World, engine: Engine) -> None:
    await create(engine, chain(ask("a", retry=RetryPolicy(max_attempts=1)), ask("b")))
    [taken] = await claim(world, engine)
    await engine.carry_out([failed(taken)])
    assert await states(engine) == "failed 1:failed 2:created"
    await settle(world, engine)
    assert await live(world) == 0
    [first] = await engine.workflows.results_of(KEY, "1")
    assert (first.state, first.result) == ("discarded", None)


async def test_a_failure_in_a_group_leaves_the_others_alone(world: World, engine: Engine) -> None:
    once = RetryPolicy(max_attempts=1)
    await create(engine, group(ask("a", retry=once), ask("b"), ask("c")))
    first, *others = await claim(world, engine)
    await engine.carry_out([failed(first)])
    assert await states(engine) == "in_progress jobs:in_progress"
    await complete_all(engine, others)
    assert await states(engine) == "failed jobs:failed"


@pytest.mark.parametrize(
    ("fails", "expected"),
    [(False, ["done", "end"]), (True, ["alert", "end"])],
)
async def test_a_batch_calls_back_by_how_it_ended(
    world: World, engine: Engine, fails: bool, expected: list[str]
) -> None:
    jobs = [ask("a", retry=RetryPolicy(max_attempts=1)), ask("b")]
    callbacks = {"on_success": ask("done"), "on_failure": ask("alert"), "on_complete": ask("end")}
    await create(engine, batch(jobs, **callbacks))
    first, second = await claim(world, engine)
    await engine.carry_out([failed(first) if fails else completed(first), completed(second)])
    assert sorted(await types(world, engine)) == sorted(expected)
    await settle(world, engine)
    assert (await at(engine)).workflow.state == ("failed" if fails else "completed")
    assert await live(world) == 0


async def test_a_gated_stage_waits_for_an_approval(world: World, engine: Engine) -> None:
    key = await create(engine, stages({"build": [ask("b")], "ship": [ask("s")]}, gate=["ship"]))
    early = await engine.workflows.approve(key, "ship", USER)
    assert isinstance(early, Refusal)
    assert early.code == "previous_not_completed"
    assert await types(world, engine) == ["b"]
    assert (await at(engine)).step("ship").needs_approval
    assert await types(world, engine) == []
    done = await engine.workflows.approve(key, "ship", USER, "looks good")
    assert isinstance(done, w.Accepted)
    assert isinstance(await engine.workflows.approve(key, "ship", USER), w.Unchanged)
    released = (await world.store.history(("", "w/ship")))[-1]
    assert (released.name, released.actor_id, released.reason) == ("release", "ada", "looks good")
    assert await types(world, engine) == ["s"]
    assert (await at(engine)).workflow.state == "completed"


async def test_a_graph_goes_as_its_edges_say(world: World, engine: Engine) -> None:
    steps = {name: [ask(name)] for name in "abcd"}
    await create(engine, dag(steps, {"c": ["a"], "d": ["b", "c"]}))
    assert await types(world, engine) == ["a", "b"]
    assert await types(world, engine) == ["c"]
    [last] = await claim(world, engine)
    assert list(await engine.workflows.results_before(last.job)) == ["a", "b", "c"]
    await complete_all(engine, [last])
    assert (await at(engine)).workflow.state == "completed"


# --- steering -------------------------------------------------------------------------------------


async def test_a_pause_stops_at_once_and_a_resume_goes_on(world: World, engine: Engine) -> None:
    key = await create(engine, group(ask("a"), ask("b")))
    await engine.workflows.pause(key, USER, "look first")
    assert await types(world, engine) == []
    assert (await at(engine)).workflow.state == "paused"
    await engine.workflows.resume(key, USER)
    assert await types(world, engine) == ["a", "b"]
    again = await engine.workflows.resume(key, USER)
    assert isinstance(again, Refusal)
    history = await world.store.history(KEY)
    assert [event.reason for event in history if event.name == "pause"] == ["look first"]


async def test_an_abort_cancels_what_waits_and_lets_finish_what_runs(
    world: World, engine: Engine
) -> None:
    key = await create(engine, chain([ask("a")] * 5, ask("b")))
    running = (await claim(world, engine, 2))[0]
    await engine.workflows.abort(key, USER, "wrong data")
    assert await states(engine) == "aborted 1:aborted 2:aborted"
    await settle(world, engine)
    [answer] = await engine.carry_out([completed(running)])
    assert not isinstance(answer, Refusal)
    assert (await at(engine)).step("1").tally.completed == 1
    assert await live(world) == 1


async def test_steps_and_jobs_are_added_while_it_runs(world: World, engine: Engine) -> None:
    key = await create(engine, stages({"one": [ask("a")], "two": []}))
    assert await types(world, engine) == ["a"]
    assert await states(engine) == "in_progress one:completed two:pending"
    world.clock.move(SECOND)
    await engine.workflows.add_jobs(key, "two", [ask("b", "[1]"), ask("b", "[2]")], USER)
    part = Part(w.StepPlan("three", ("one",)), (ask("c"),))
    await engine.workflows.add_step(key, part, USER, "one more", after_last=True)
    assert await types(world, engine) == ["b", "b"]
    assert [one.result for one in await engine.workflows.results_of(key, "two")] == ["[1]", "[2]"]
    late = await engine.workflows.add_jobs(key, "two", [ask("b")], USER)
    assert isinstance(late, Refusal)
    assert (late.code, (await at(engine)).step("three").depends_on) == (
        "step_finished",
        ("one", "two"),
    )
    await engine.workflows.wait(key, "three", USER)
    assert await types(world, engine) == []
    await engine.workflows.approve(key, "three", USER)
    assert await types(world, engine) == ["c"]
    assert (await at(engine)).workflow.state == "completed"


async def test_commands_at_the_same_moment_are_decided_again(world: World, engine: Engine) -> None:
    key = await create(engine, stages({"first": [ask("a")]}))
    other = Engine(world.store)
    parts = [Part(w.StepPlan(f"s{number}"), (ask("b"),)) for number in range(10)]
    added = [
        (engine if number % 2 else other).workflows.add_step(key, part, USER, after_last=True)
        for number, part in enumerate(parts)
    ]
    answers = await asyncio.gather(*added, other.workflows.pause(key, USER))
    assert all(isinstance(answer, w.Accepted) for answer in answers)
    found = await at(engine)
    assert len(found.steps) == 11
    assert [len(one.depends_on) for one in found.steps] == [0] + [1] * 10
    await engine.workflows.resume(key, USER)
    for _ in range(11):
        assert len(await types(world, engine)) == 1
    assert (await at(engine)).workflow.state == "completed"


async def test_what_is_not_there_is_refused(engine: Engine) -> None:
    for verb in (engine.workflows.pause, engine.workflows.resume, engine.workflows.abort):
        answer = await verb(KEY, USER)
        assert isinstance(answer, Refusal)
        assert answer.code == "unknown_workflow"
    assert await engine.workflows.get(KEY) is None
    key = await create(engine, chain(ask()))
    answer = await engine.workflows.approve(key, "nowhere", USER)
    assert isinstance(answer, Refusal)
    assert answer.code == "unknown_step"
    assert await engine.workflows.results_of(key, "nowhere") == []


@pytest.mark.parametrize(
    ("member", "field"),
    [
        (ask(tenant="t"), "tenant"),
        (ask(id="mine"), "id"),
        (ask(unique=Uniqueness("f")), "unique"),
        (ask(workflow="v", step="s"), "workflow"),
    ],
)
async def test_a_job_that_cannot_be_a_member_is_refused(
    engine: Engine, member: Ask, field: str
) -> None:
    with pytest.raises(BadPolicy) as refused:
        await engine.workflows.create(Order(parts=group(member)), USER)
    assert refused.value.fields["field"] == field
    key = await create(engine, stages({"one": []}))
    with pytest.raises(BadPolicy):
        await engine.workflows.add_jobs(key, "one", [member], USER)


async def test_impossible_orders_leave_nothing_behind(world: World, engine: Engine) -> None:
    bad = ask(profile="rest", retry=RetryPolicy(max_attempts=5))
    for parts in (group(ask(), bad), group(*[ask()] * 1_200, bad)):
        answer = await engine.workflows.create(Order(parts=parts, id="w"), USER)
        assert isinstance(answer, Refusal)
    with pytest.raises(BadPolicy):
        dag({"a": []}, {"b": ["a"]})
    with pytest.raises(BadPolicy):
        await engine.workflows.create(Order(parts=(Part(w.StepPlan("x" * 256)),)), USER)
    twice = (Part(w.StepPlan("a")), Part(w.StepPlan("a")))
    answer = await engine.workflows.create(Order(parts=twice), USER)
    assert isinstance(answer, Refusal)
    assert await world.store.counts() == []
    with pytest.raises(BatchTooLarge):
        await engine.workflows.add_jobs(KEY, "one", [ask()] * UNIT_MAX, USER)


async def test_workflows_are_listed_newest_first_by_tenant_and_state(
    world: World, engine: Engine
) -> None:
    for number in range(4):
        world.clock.move(SECOND)
        await create(engine, group(ask(queue="q")), id=None, name=f"n{number}")
    await create(engine, group(ask("x", tenant="t")), tenant="t", name="theirs")
    listed = await engine.workflows.list()
    assert [one.name for one in listed] == ["n3", "n2", "n1", "n0"]
    last = listed[1].workflow
    rest = await engine.workflows.list(page=Page(10, (last.tenant, last.id)))
    assert [one.name for one in rest] == ["n1", "n0"]
    await engine.workflows.abort(("", listed[0].workflow.id), USER)
    assert [one.name for one in await engine.workflows.list(state="aborted")] == ["n3"]
    assert [one.name for one in await engine.workflows.list("t")] == ["theirs"]


# --- the same order again, and drafts -------------------------------------------------------------


async def test_the_same_order_is_one_workflow(world: World, engine: Engine) -> None:
    order = Order(parts=group(ask("a"), ask("b")), id="w")
    other = Engine(world.store)
    made = await asyncio.gather(
        *(one.workflows.create(order, USER) for one in (engine, other) for _ in range(3))
    )
    assert sorted(isinstance(one, Created) and one.is_new for one in made) == [False] * 5 + [True]
    assert await types(world, engine) == ["a", "b"]
    different = await engine.workflows.create(Order(parts=group(ask("c")), id="w"), USER)
    assert isinstance(different, Refusal)
    assert different.code == "exists"


def large(number: int = 1_010) -> Order:
    """More jobs than one commit takes."""
    jobs = [ask("x", f"[{one}]") for one in range(number - 1)]
    return Order(parts=chain(jobs, ask("last")), id="w")


async def test_more_than_a_commit_takes_is_drafted_and_then_opened(
    world: World, engine: Engine
) -> None:
    assert await engine.workflows.create(large(), USER) == Created("w")
    found = await at(engine)
    assert [one.tally.total for one in found.steps] == [1_009, 1]
    assert [event.name for event in await world.store.history(KEY)] == ["create", "open"]
    taken = await claim(world, engine, 3)
    assert [one.body.payload for one in taken] == ["[0]", "[1]", "[2]"]
    await engine.upkeep.turn()
    world.clock.move(2 * HOUR)
    await engine.upkeep.turn()
    assert (await at(engine)).workflow.state == "in_progress"


async def drafted(world: World, pieces: int) -> None:
    """The engine died after so many pieces of a large order."""

    class Died(Exception):
        pass

    class Dying(building.Building):
        left = pieces + 1

        async def _commit(self, unit: Unit) -> Any:
            if not self.left:
                raise Died
            self.left -= 1
            return await super()._commit(unit)

    engine = Engine(world.store)
    coalescer = engine.workflows._coalescer  # noqa: SLF001
    dying = Dying(world.store, coalescer, engine.identity, engine.secrets)
    with pytest.raises(Died):
        await dying.build(large(), USER, None)


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_a_draft_is_finished_by_asking_again(
    world: World, engine: Engine, pieces: int
) -> None:
    await drafted(world, pieces)
    assert (await at(engine)).workflow.state == "created"
    assert await types(world, engine) == []
    for verb in (engine.workflows.pause, engine.workflows.resume):
        refused = await verb(KEY, USER)
        assert isinstance(refused, Refusal)
        assert refused.code == "workflow_draft"
    other = Engine(world.store)
    world.clock.move(HOUR // 2)
    again = await asyncio.gather(
        engine.workflows.create(large(), USER), other.workflows.create(large(), USER)
    )
    assert list(again) == [Created("w", is_new=False)] * 2
    found = await at(engine)
    assert [one.tally.total for one in found.steps] == [1_009, 1]
    assert found.workflow.state == "pending"
    different = await engine.workflows.create(large(1_020), USER)
    assert isinstance(different, Refusal)


async def test_a_draft_that_nobody_finishes_is_called_off(world: World, engine: Engine) -> None:
    await drafted(world, 2)
    world.clock.move(keeping.DRAFT_US - 1)
    await engine.upkeep.turn()
    assert (await at(engine)).workflow.state == "created"
    world.clock.move(SECOND)
    await asyncio.gather(engine.upkeep.turn(), Engine(world.store).upkeep.turn())
    assert (await at(engine)).workflow.state == "aborted"
    ended = (await world.store.history(KEY))[-1]
    assert (ended.actor_id, ended.reason) == ("upkeep", "the draft was never finished")
    world.clock.move(SECOND)
    while (await engine.upkeep.turn()).moved:
        pass
    assert await live(world) == 0
    late = await engine.workflows.create(large(), USER)
    assert isinstance(late, Refusal)


async def test_what_is_kept_goes_when_its_workflow_has_gone(world: World, engine: Engine) -> None:
    await create(engine, group(ask()))
    await types(world, engine)
    world.clock.move(keeping.KEPT_US)
    await engine.upkeep.turn()
    assert len(await world.store.records("workflow")) == 1
    while await world.store.seal():
        pass
    await world.prune(Retention("completed", world.now))
    assert await engine.workflows.get(KEY) is None
    world.clock.move(keeping.KEPT_US)
    await engine.upkeep.turn()
    assert await world.store.records("workflow") == []


async def test_a_workflow_that_others_made_is_shown_without_a_name(
    world: World, engine: Engine
) -> None:
    await world.make_flow("w", w.chain("s"), world.make.new(workflow="w", step="s"))
    found = await at(engine)
    assert (found.name, found.steps[0].name) == ("", "s")
    assert [one.name for one in await engine.workflows.list()] == [""]
    taken = await engine.workflows.create(Order(parts=group(ask()), id="w"), USER)
    assert isinstance(taken, Refusal)


async def test_a_job_outside_of_workflows_has_nothing_before_it(
    world: World, engine: Engine
) -> None:
    assert await engine.workflows.results_before(await world.push()) == {}


async def test_a_draft_opened_at_the_moment_it_is_called_off_stays_open(
    world: World, engine: Engine
) -> None:
    """Upkeep saw a draft; when it commits, the draft is open."""
    await drafted(world, 2)
    [record] = await world.store.records("workflow")
    [flow] = await world.store.flows([KEY])
    assert flow is not None
    await engine.workflows.create(large(), USER)
    unit = engine.workflows._due(record, flow)  # noqa: SLF001
    [outcome] = await world.commit(unit)
    assert isinstance(outcome, StaleFlow)
    assert (await at(engine)).workflow.state == "pending"
