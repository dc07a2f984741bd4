"""Commands about single steps, and every refusal in full."""

from __future__ import annotations

import pytest

from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.workflow import (
    STEP,
    WORKFLOW,
    Abort,
    Accepted,
    AddJobs,
    AddStep,
    Command,
    Make,
    Open,
    Release,
    StepPlan,
    Unchanged,
    Wait,
    stages,
)
from tests.lifecycle.workflow_world import SYSTEM, USER, WORKER, World, in_state

U, S, W = Actor.USER, Actor.SYSTEM, Actor.WORKER


class TestRelease:
    """The order of the tests: unknown, already pending, previous step, legal edge."""

    def test_an_already_pending_step_is_unchanged(self) -> None:
        assert isinstance(World().make(stages("a")).ask(Release("a")), Unchanged)

    def test_the_previous_step_is_asked_about_before_the_edge(self) -> None:
        world = World().make(stages("a", "b"))
        refusal = world.refused(Release("b"))
        assert (refusal.code, refusal.state) == ("previous_not_completed", "created")

    def test_a_waiting_step_is_not_released_before_its_predecessor_completed(self) -> None:
        world = World().make(stages("a", "b", gate=["b"]))
        assert world.refused(Release("b")).code == "previous_not_completed"
        world.run("a")
        assert world.states() == {"a": "completed", "b": "waiting"}
        world.ok(Release("b"))
        assert world.states()["b"] == "pending"

    def test_the_first_step_may_wait_and_be_released(self) -> None:
        world = World().make(stages("a", gate=["a"]))
        assert world.states() == {"a": "waiting"}
        assert world.ok(Release("a")).opened == ("a",)

    @pytest.mark.parametrize("good", [True, False])
    def test_an_ended_step_is_refused_with_its_state(self, good: bool) -> None:
        world = World().make(stages("a"))
        world.run("a", good=good)
        refusal = world.refused(Release("a"))
        assert (refusal.code, refusal.target) == ("final", "pending")
        assert refusal.state == ("completed" if good else "failed")

    def test_a_running_step_is_refused(self) -> None:
        world = World().make(stages("a"))
        world.claim("a")
        refusal = world.refused(Release("a"))
        assert (refusal.code, refusal.state) == ("no_edge", "in_progress")

    def test_a_created_step_is_never_opened_by_a_user(self) -> None:
        world = World().make(stages("a"), draft=True)
        refusal = world.refused(Release("a"))
        assert (refusal.code, refusal.state) == ("no_edge", "created")

    def test_a_gate_in_a_draft_stays_until_the_workflow_is_open(self) -> None:
        world = World().make(stages("a", gate=["a"]), draft=True)
        assert world.refused(Release("a")).code == "workflow_draft"
        world.ok(Open())
        world.ok(Release("a"))

    def test_only_a_user_releases(self) -> None:
        world = World().make(stages("a", gate=["a"]))
        assert world.refused(Release("a"), SYSTEM).code == "wrong_actor"

    def test_an_aborted_step_is_refused(self) -> None:
        world = World().make(stages("a", gate=["a"]))
        world.ok(Abort())
        refusal = world.refused(Release("a"))
        assert (refusal.code, refusal.state) == ("final", "aborted")


def step_in(state: str) -> World:
    """A workflow whose first stage is in that state and whose second has had no turn."""
    gate = ["a"] if state == "waiting" else []
    world = World().make(stages("a", "b", gate=gate), draft=state == "created")
    if state == "in_progress":
        world.claim("a")
    elif state in ("completed", "failed"):
        world.run("a", good=state == "completed")
    elif state == "aborted":
        world.ok(Abort())
    assert world.states()["a"] == state
    return world


STEP_STATES = [state.name for state in STEP.states]


class TestStepCommands:
    """Both commands about a step, in every state, by every actor."""

    @pytest.mark.parametrize("actor", Actor)
    @pytest.mark.parametrize("state", STEP_STATES)
    def test_release(self, state: str, actor: Actor) -> None:
        answer = step_in(state).ask(Release("a"), By(actor, "me"))
        if state == "pending" and actor is U:
            assert isinstance(answer, Unchanged)
        elif state == "waiting" and actor is U:
            assert isinstance(answer, Accepted)
            assert (answer.events[0].actor, answer.events[0].actor_id) == (U, "me")
        else:
            assert isinstance(answer, Refusal)
            assert (answer.state, answer.event, answer.target) == (state, "release", "pending")
            final = "final" if state in STEP.terminal else "no_edge"
            assert answer.code == (final if actor is U else "wrong_actor")

    @pytest.mark.parametrize("actor", Actor)
    @pytest.mark.parametrize("state", STEP_STATES)
    def test_wait(self, state: str, actor: Actor) -> None:
        answer = step_in(state).ask(Wait("a"), By(actor, "me"))
        if actor is W:
            assert isinstance(answer, Refusal)
            assert (answer.code, answer.state) == ("wrong_actor", state)
            assert (answer.event, answer.target) == ("wait", "waiting")
        elif state == "waiting":
            assert isinstance(answer, Unchanged)
        elif state in ("created", "pending", "in_progress"):
            assert isinstance(answer, Accepted)
            assert (answer.events[0].actor, answer.events[0].actor_id) == (S, "me")
        else:
            assert isinstance(answer, Refusal)
            assert answer.code == ("final" if state == "completed" else "workflow_finished")

    @pytest.mark.parametrize("state", STEP_STATES)
    def test_a_worker_adds_no_jobs(self, state: str) -> None:
        refusal = step_in(state).refused(AddJobs("a", 1), WORKER)
        assert (refusal.code, refusal.state) == ("wrong_actor", state)
        assert (refusal.event, refusal.target) == ("add_jobs", None)

    def test_the_system_adds_jobs(self) -> None:
        assert step_in("pending").ok(AddJobs("a", 1), SYSTEM).flow.tally("a").total == 2


class TestWait:
    @pytest.mark.parametrize("by", [USER, SYSTEM])
    def test_it_is_recorded_as_the_systems_move_under_the_askers_name(self, by: By) -> None:
        world = World().make(stages("a"))
        answer = world.ok(Wait("a"), by)
        [event] = answer.events
        assert (event.actor, event.actor_id) == (Actor.SYSTEM, by.id)
        assert (answer.closed, world.states()) == (("a",), {"a": "waiting"})

    def test_a_worker_puts_no_gate(self) -> None:
        assert World().make(stages("a")).refused(Wait("a"), WORKER).code == "wrong_actor"

    def test_a_step_that_waits_already_is_unchanged(self) -> None:
        assert isinstance(World().make(stages("a", gate=["a"])).ask(Wait("a")), Unchanged)

    @pytest.mark.parametrize("state", ["created", "pending", "in_progress"])
    def test_it_is_taken_in_all_three_states(self, state: str) -> None:
        world = World().make(stages("a"), draft=state == "created")
        if state == "in_progress":
            world.claim("a")
        world.ok(Wait("a"))
        assert world.path() == [f"a: {state} -> waiting"]

    def test_an_ended_step_is_refused(self) -> None:
        world = World().make(stages("a", "b"))
        world.run("a")
        assert world.refused(Wait("a")).code == "final"

    def test_an_ended_workflow_is_refused(self) -> None:
        world = World().make(stages("a", "b"))
        world.run("a", good=False)
        assert world.refused(Wait("b")).code == "workflow_finished"


def draft() -> World:
    return World().make(stages("a", gate=["a"]), draft=True)


# (the world, the command, code, machine, state, target, detail): everything a surface may show.
REFUSALS: list[tuple[World, Command, str, str, str | None, str | None, str]] = [
    (
        in_state("failed"),
        AddStep(StepPlan("c")),
        "workflow_finished",
        "workflow",
        "failed",
        None,
        "it has ended",
    ),
    (
        in_state("failed"),
        Wait("b"),
        "workflow_finished",
        "workflow",
        "failed",
        None,
        "it has ended",
    ),
    (
        in_state("paused"),
        AddStep(StepPlan("a")),
        "step_exists",
        "workflow",
        "paused",
        None,
        "it has a step 'a' already",
    ),
    (
        in_state("paused"),
        AddStep(StepPlan("c"), -1),
        "bad_value",
        "workflow",
        "paused",
        None,
        "jobs must be at least 0",
    ),
    (
        in_state("paused"),
        AddStep(StepPlan("c", ("x",))),
        "bad_graph",
        "workflow",
        "paused",
        None,
        "workflow shape: step 'c' depends on unknown step 'x'",
    ),
    (
        in_state("paused"),
        AddJobs("a", 0),
        "bad_value",
        "workflow",
        "paused",
        None,
        "jobs must be at least 1",
    ),
    (
        in_state("failed"),
        AddJobs("a", 1),
        "step_finished",
        "step",
        "failed",
        None,
        "the step has ended",
    ),
    (
        in_state("in_progress"),
        AddJobs("a", 1),
        "step_running",
        "step",
        "in_progress",
        None,
        "the step is running; add a step instead",
    ),
    (in_state("pending"), AddJobs("x", 1), "unknown_step", "step", None, None, "no step 'x' in it"),
    (
        in_state("pending"),
        Release("b"),
        "previous_not_completed",
        "step",
        "created",
        "pending",
        "the steps it depends on have not ended as its condition asks",
    ),
    (
        draft(),
        Release("a"),
        "workflow_draft",
        "step",
        "waiting",
        "pending",
        "its workflow is still a draft; open that first",
    ),
    (
        in_state("paused"),
        Make(id="w"),
        "exists",
        "workflow",
        "paused",
        None,
        "a workflow of that id exists",
    ),
    (
        World(),
        Make(id="w", steps=(StepPlan("a", ("a",)),)),
        "bad_graph",
        "workflow",
        None,
        None,
        "workflow shape: step 'a' depends on itself",
    ),
    (
        World(),
        Make(id="w", jobs={"x": 1}),
        "bad_value",
        "workflow",
        None,
        None,
        "jobs must name steps of the workflow, with a count of at least 0",
    ),
    (World(), Open(), "unknown_workflow", "workflow", None, None, "no such workflow"),
]


@pytest.mark.parametrize("row", REFUSALS)
def test_a_refusal_says_everything(
    row: tuple[World, Command, str, str, str | None, str | None, str],
) -> None:
    world, command, code, machine, state, target, detail = row
    found = world.refused(command)
    table = {"workflow": WORKFLOW, "step": STEP}[machine]
    allowed = table.refusal(code, state, command.event, U).allowed
    assert found == Refusal(code, machine, state, command.event, target, U, allowed, detail)


@pytest.mark.parametrize(("state", "command"), [("pending", Release("a")), ("waiting", Wait("a"))])
def test_a_wish_already_fulfilled_answers_the_flow_as_it_is(state: str, command: Command) -> None:
    world = step_in(state)
    assert world.flow
    assert world.ask(command) == Unchanged(world.flow)
