"""The two tables in full, steering a workflow, and adding to it."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from detent.errors import BadPolicy
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Machine, Refusal, Transition
from detent.lifecycle.workflow import (
    EDGES_MAX,
    GUARDS,
    STEP,
    STEPS_MAX,
    WORKFLOW,
    Abort,
    Accepted,
    AddJobs,
    AddStep,
    Command,
    Make,
    Open,
    Pause,
    Release,
    Resume,
    StepEvent,
    StepPlan,
    StepState,
    Tally,
    Wait,
    WorkflowEvent,
    WorkflowState,
    chain,
    decide,
    group,
    stages,
)
from detent.lifecycle.workflow.shapes import check_growth
from tests.lifecycle.workflow_world import SYSTEM, USER, WORKER, World, ctx, in_state

U, S = Actor.USER, Actor.SYSTEM

# Written by hand, apart from the tables: (source, event, target) and who may cause it.
WORKFLOW_MOVES: dict[tuple[str | None, str, str | None], set[Actor]] = {
    (None, "create", "created"): {U, S},
    ("created", "open", "pending"): {U, S},
    ("created", "pause", "paused"): {U},
    ("created", "abort", "aborted"): {U, S},
    ("pending", "start", "in_progress"): {S},
    ("pending", "pause", "paused"): {U},
    ("in_progress", "pause", "paused"): {U},
    ("paused", "resume", "pending"): {U},
    ("pending", "abort", "aborted"): {U, S},
    ("in_progress", "abort", "aborted"): {U, S},
    ("paused", "abort", "aborted"): {U, S},
    ("in_progress", "complete", "completed"): {S},
    ("in_progress", "fail", "failed"): {S},
    ("created", "extended", None): {U, S},
    ("pending", "extended", None): {U, S},
    ("in_progress", "extended", None): {U, S},
    ("paused", "extended", None): {U, S},
}
STEP_MOVES: dict[tuple[str | None, str, str | None], set[Actor]] = {
    (None, "create", "created"): {U, S},
    ("created", "open", "pending"): {S},
    ("waiting", "release", "pending"): {U},
    ("pending", "start", "in_progress"): {S},
    ("in_progress", "complete", "completed"): {S},
    ("in_progress", "fail", "failed"): {S},
    ("created", "wait", "waiting"): {S},
    ("pending", "wait", "waiting"): {S},
    ("in_progress", "wait", "waiting"): {S},
    ("created", "abort", "aborted"): {S},
    ("pending", "abort", "aborted"): {S},
    ("waiting", "abort", "aborted"): {S},
    ("in_progress", "abort", "aborted"): {S},
}
TABLES = {"workflow": (WORKFLOW, WORKFLOW_MOVES), "step": (STEP, STEP_MOVES)}


class TestTables:
    @pytest.mark.parametrize("name", TABLES)
    def test_every_state_event_target_and_actor_is_answered_as_written_down(
        self, name: str
    ) -> None:
        machine, moves = TABLES[name]
        states = [None, *(state.name for state in machine.states)]
        asked = 0
        for source, event, target, actor in product(states, machine.events, states, Actor):
            found = machine.fire(source, event, target, actor)
            asked += 1
            if actor in moves.get((source, event, target), set()):
                assert isinstance(found, Transition)
            else:
                assert isinstance(found, Refusal), (source, event, target, actor)
                assert found.code == self._code(machine, moves, source, event, target)
        assert asked == 8 * len(machine.events) * 8 * 3
        assert machine.triples == set(moves)

    def _code(
        self,
        machine: Machine,
        moves: dict[tuple[str | None, str, str | None], set[Actor]],
        source: str | None,
        event: str,
        target: str | None,
    ) -> str:
        if (source, event, target) in moves:
            return "wrong_actor"
        return "final" if source in machine.terminal else "no_edge"

    def test_states_are_the_seven_lower_case_words_of_each_machine(self) -> None:
        shared = {"created", "pending", "in_progress", "completed", "failed", "aborted"}
        assert {state.name for state in WORKFLOW.states} == shared | {"paused"}
        assert {state.name for state in STEP.states} == shared | {"waiting"}
        assert WORKFLOW.terminal == STEP.terminal == {"completed", "failed", "aborted"}
        assert {state.value for state in WorkflowState} == {s.name for s in WORKFLOW.states}
        assert {state.value for state in StepState} == {s.name for s in STEP.states}

    def test_every_event_of_the_enums_is_in_its_table(self) -> None:
        assert set(WORKFLOW.events) == set(WorkflowEvent)
        assert set(STEP.events) == set(StepEvent)

    def test_every_guard_of_the_table_has_its_rule(self) -> None:
        assert set(GUARDS) == {guard.name for guard in STEP.guards}

    def test_nothing_leaves_paused_but_a_resume_and_an_abort(self) -> None:
        leaving = {
            (event, target)
            for source, event, target in WORKFLOW.triples
            if source == "paused" and target
        }
        assert leaving == {("resume", "pending"), ("abort", "aborted")}


STEERING: dict[type, dict[str, str]] = {
    Open: {"created": "pending"},
    Pause: {"created": "paused", "pending": "paused", "in_progress": "paused"},
    Resume: {"paused": "pending"},
    Abort: dict.fromkeys(("created", "pending", "in_progress", "paused"), "aborted"),
}
ALLOWED_TO: dict[type, set[Actor]] = {Open: {U, S}, Pause: {U}, Resume: {U}, Abort: {U, S}}


class TestSteering:
    @pytest.mark.parametrize("actor", Actor)
    @pytest.mark.parametrize("state", [state.name for state in WORKFLOW.states])
    @pytest.mark.parametrize("command", STEERING)
    def test_a_command_moves_from_where_it_may_and_is_refused_elsewhere(
        self, command: type, state: str, actor: Actor
    ) -> None:
        world = in_state(state)
        answer = world.ask(command(), By(actor, "me"))
        target = STEERING[command].get(state)
        if target is not None and actor in ALLOWED_TO[command]:
            assert isinstance(answer, Accepted)
            assert world.state == target
            assert answer.events[0].actor is actor
        else:
            assert isinstance(answer, Refusal)
            assert (answer.state, answer.machine) == (state, "workflow")
            wrong = target is not None
            final = state in WORKFLOW.terminal
            assert answer.code == ("wrong_actor" if wrong else "final" if final else "no_edge")

    @pytest.mark.parametrize(
        ("state", "command", "target"),
        [
            ("pending", Resume(), "pending"),
            ("paused", Pause(), "paused"),
            ("aborted", Abort(), "aborted"),
            ("in_progress", Resume(), "pending"),
            ("completed", Abort(), "aborted"),
        ],
    )
    def test_no_self_transition_is_a_no_op_and_the_refusal_names_from_and_to(
        self, state: str, command: Command, target: str
    ) -> None:
        refusal = in_state(state).refused(command)
        assert (refusal.state, refusal.target) == (state, target)

    def test_a_workflow_is_born_created_and_opened_by_the_system_in_one_commit(self) -> None:
        world = World().make()
        assert world.path() == ["w: None -> created", "w: created -> pending"]
        assert world.last
        assert [event.actor for event in world.last.events] == [U, S]
        assert {event.command_id for event in world.last.events} == {"cmd"}

    def test_a_draft_rests_until_it_is_opened_and_then_its_first_steps_open(self) -> None:
        world = World().make(chain("a", "b"), draft=True)
        assert (world.state, world.states()) == ("created", {"a": "created", "b": "created"})
        assert world.claimable() == []
        answer = world.ok(Open(), SYSTEM)
        assert world.path() == ["w: created -> pending", "a: created -> pending"]
        assert answer.opened == ("a",)

    def test_a_draft_is_built_in_several_commits(self) -> None:
        world = World().make(draft=True)
        world.ok(AddStep(StepPlan("a")))
        for _ in range(3):
            world.ok(AddJobs("a", 4))
        assert world.states() == {"a": "created"}
        world.ok(Open())
        assert world.flow
        assert world.flow.tally("a").total == 12
        assert world.state == "pending"

    def test_a_paused_draft_is_opened_by_its_resume(self) -> None:
        world = World().make(chain("a", "b"), draft=True)
        world.ok(Pause())
        world.ok(AddStep(StepPlan("c"), 1))
        assert set(world.states().values()) == {"created"}
        world.ok(Resume())
        assert world.states() == {"a": "pending", "b": "created", "c": "pending"}
        assert world.flow
        assert world.flow.workflow.opened_at == world.flow.workflow.resumed_at == world.now

    def test_pause_closes_and_resume_opens_what_was_workable(self) -> None:
        world = World().make(group("a", "b"))
        assert world.ok(Pause()).closed == ("a", "b")
        answer = world.ok(Resume())
        assert (answer.opened, answer.closed, answer.sweep) == (("a", "b"), (), ())

    def test_the_reason_goes_to_the_move_that_was_asked_for_and_not_to_what_follows(self) -> None:
        world = World().make(chain("a"))
        answer = decide(world.flow, Abort(), 9_999, ctx(USER, "wrong data"))
        assert isinstance(answer, Accepted)
        assert [event.reason for event in answer.events] == ["wrong data", None]
        assert [event.actor_id for event in answer.events] == ["user", "cascade"]

    def test_times_never_decrease_even_if_the_clock_does(self) -> None:
        world = World(now=5_000).make(chain("a"))
        world.now = 10
        world.ok(Pause())
        assert world.flow
        assert world.flow.workflow.last_at == 5_001


class TestUnknown:
    @pytest.mark.parametrize(
        "command",
        [
            Open(),
            Pause(),
            Resume(),
            Abort(),
            Release("a"),
            Wait("a"),
            AddJobs("a", 1),
            AddStep(StepPlan("a")),
        ],
    )
    def test_a_workflow_that_does_not_exist_is_refused(self, command: Command) -> None:
        answer = decide(None, command, 1, ctx())
        assert isinstance(answer, Refusal)
        assert answer.code == "unknown_workflow"
        assert answer.event == command.event

    @pytest.mark.parametrize("command", [Release("x"), Wait("x"), AddJobs("x", 1)])
    def test_a_step_that_does_not_exist_is_refused(self, command: Command) -> None:
        refusal = World().make(chain("a")).refused(command)
        assert (refusal.code, refusal.machine) == ("unknown_step", "step")


class TestMake:
    def test_an_id_that_exists_is_refused(self) -> None:
        assert World().make().refused(Make(id="w")).code == "exists"

    def test_a_worker_creates_no_workflow(self) -> None:
        answer = decide(None, Make(id="w"), 1, ctx(WORKER))
        assert isinstance(answer, Refusal)
        assert answer.code == "wrong_actor"

    def test_a_bad_graph_is_refused_with_the_fault(self) -> None:
        steps = (StepPlan("a", ("b",)), StepPlan("b", ("a",)))
        answer = decide(None, Make(id="w", steps=steps), 1, ctx())
        assert isinstance(answer, Refusal)
        assert answer.code == "bad_graph"
        assert "a -> b -> a" in answer.message

    @pytest.mark.parametrize("jobs", [{"x": 1}, {"a": -1}])
    def test_impossible_job_counts_are_refused(self, jobs: dict[str, int]) -> None:
        answer = decide(None, Make(id="w", steps=chain("a"), jobs=jobs), 1, ctx())
        assert isinstance(answer, Refusal)
        assert answer.code == "bad_value"

    def test_steps_are_put_behind_what_they_depend_on(self) -> None:
        steps = (StepPlan("z", ("a",)), StepPlan("a"))
        answer = decide(None, Make(id="w", steps=steps, jobs={"a": 1, "z": 1}), 1, ctx())
        assert isinstance(answer, Accepted)
        assert [(step.id, step.order) for step in answer.flow.steps.values()] == [
            ("a", 1),
            ("z", 2),
        ]


class TestAddStep:
    @pytest.mark.parametrize("state", ["created", "pending", "in_progress", "paused"])
    def test_section_7_a_workflow_that_has_not_ended_takes_a_step(self, state: str) -> None:
        world = in_state(state)
        assert world.flow
        version = world.flow.workflow.version
        world.ok(AddStep(StepPlan("c"), 1, after_last=True))
        step = world.flow.steps["c"]
        assert (step.order, step.depends_on, step.state) == (3, ("b",), "created")
        assert world.flow.workflow.version == version + 1, "a rival's version fence must fail"

    @pytest.mark.parametrize("state", ["completed", "failed", "aborted"])
    def test_section_7_a_finished_workflow_takes_none(self, state: str) -> None:
        refusal = in_state(state).refused(AddStep(StepPlan("c")))
        assert (refusal.code, refusal.state) == ("workflow_finished", state)

    def test_orders_count_from_one_whatever_is_added_when(self) -> None:
        world = World().make()
        for name in "abc":
            world.ok(AddStep(StepPlan(name), 1, after_last=True))
        assert world.flow
        assert [(s.order, s.depends_on) for s in world.flow.steps.values()] == [
            (1, ()),
            (2, ("a",)),
            (3, ("b",)),
        ]

    def test_after_last_joins_the_dependencies_that_were_named(self) -> None:
        world = World().make(group("a", "b"))
        world.ok(AddStep(StepPlan("c", ("b", "a")), 1, after_last=True))
        assert world.flow
        assert world.flow.steps["c"].depends_on == ("a", "b")

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            (AddStep(StepPlan("a")), "step_exists"),
            (AddStep(StepPlan("c"), -1), "bad_value"),
            (AddStep(StepPlan("c", ("x",))), "bad_graph"),
            (AddStep(StepPlan("c", ("c",))), "bad_graph"),
        ],
    )
    def test_an_impossible_step_is_refused(self, command: AddStep, code: str) -> None:
        assert World().make(chain("a")).refused(command).code == code

    def test_a_worker_adds_no_step(self) -> None:
        refusal = World().make(chain("a")).refused(AddStep(StepPlan("b")), WORKER)
        assert refusal.code == "wrong_actor"

    def test_a_workflow_that_is_full_takes_no_more(self) -> None:
        world = World().make(chain("a"))
        assert world.flow
        step = world.flow.steps["a"]
        full = {str(n): step for n in range(STEPS_MAX)}
        with pytest.raises(BadPolicy) as caught:
            check_growth(StepPlan("b"), full)
        assert caught.value.fields == {"field": "steps", "step": "b"}
        assert caught.value.message == "workflow shape: there are 10000 steps; at most 10000"
        wide = msgspec.structs.replace(step, depends_on=("x",) * EDGES_MAX)
        check_growth(StepPlan("b"), {"a": wide})
        with pytest.raises(BadPolicy) as caught:
            check_growth(StepPlan("b", ("a",)), {"a": wide})
        assert caught.value.fields == {"field": "depends_on", "step": "b"}
        assert caught.value.message == ("workflow shape: too many dependencies; at most 100000")


class TestAddJobs:
    def stage(self, state: str) -> World:
        world = World().make(stages("a", "b", gate=["a"] if state == "waiting" else []))
        if state == "in_progress":
            world.claim("a")
        elif state == "completed":
            world.run("a")
        elif state == "failed":
            world.run("a", good=False)
        elif state == "aborted":
            world.ok(Abort())
        return world

    @pytest.mark.parametrize("state", ["pending", "waiting"])
    def test_section_7_a_stage_that_does_not_run_takes_jobs(self, state: str) -> None:
        world = self.stage(state)
        assert world.states()["a"] == state
        answer = world.ok(AddJobs("a", 2))
        assert answer.events == ()
        assert answer.flow.tally("a") == Tally(pending=3, total=3)

    def test_section_7_a_created_stage_takes_jobs(self) -> None:
        assert self.stage("pending").ok(AddJobs("b", 1)).flow.tally("b").total == 2

    def test_section_7_a_running_stage_takes_none(self) -> None:
        assert self.stage("in_progress").refused(AddJobs("a", 1)).code == "step_running"

    def test_section_7_a_running_stage_with_a_gate_takes_none_either(self) -> None:
        """The gate is open by then; what counts is that the stage runs."""
        world = self.stage("waiting")
        world.ok(Release("a"))
        world.ok(AddJobs("a", 1))
        world.claim("a")
        assert world.states()["a"] == "in_progress"
        assert world.refused(AddJobs("a", 1)).code == "step_running"

    def test_section_7_a_stage_put_to_wait_while_it_runs_takes_jobs(self) -> None:
        world = self.stage("in_progress")
        world.ok(Wait("a"))
        assert world.ok(AddJobs("a", 1)).flow.tally("a") == Tally(1, in_progress=1, total=2)

    @pytest.mark.parametrize("state", ["completed", "failed", "aborted"])
    def test_section_7_a_finished_stage_takes_none(self, state: str) -> None:
        refusal = self.stage(state).refused(AddJobs("a", 1))
        assert (refusal.code, refusal.state) == ("step_finished", state)

    def test_section_7_a_paused_workflow_can_be_filled(self) -> None:
        world = self.stage("pending")
        world.ok(Pause())
        world.ok(AddJobs("a", 1))

    def test_jobs_of_a_step_that_can_never_run_are_taken_and_swept(self) -> None:
        world = self.stage("failed")
        assert world.ok(AddJobs("b", 2)).sweep == ("b",)
        assert world.flow
        assert world.flow.tally("b") == Tally(pending=3, total=3, cancelled=3, withdrawn=3)

    def test_no_jobs_at_all_are_refused(self) -> None:
        assert self.stage("pending").refused(AddJobs("a", 0)).code == "bad_value"
