"""Events, records, folding, and every rule that a broken record is found by."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from detent.errors import BadHistory
from detent.lifecycle.event import Event, StepMade
from detent.lifecycle.job import Gate
from detent.lifecycle.machine import Actor
from detent.lifecycle.replay import audit
from detent.lifecycle.workflow import (
    STEP,
    Abort,
    Accepted,
    Condition,
    Fails,
    Flow,
    Make,
    Pause,
    Policy,
    Resume,
    StepPlan,
    StepState,
    Tally,
    WhenEmpty,
    Workflow,
    WorkflowState,
    apply_step,
    apply_workflow,
    batch,
    broken_flow,
    broken_move,
    cascade,
    chain,
    decide,
    fold_step,
    fold_workflow,
    gate_of,
    group,
    is_claimable,
    stages,
)
from detent.lifecycle.workflow.commit import Commit, Move, must
from detent.lifecycle.workflow.invariants import check_flow, check_move
from tests.lifecycle.workflow_world import SYSTEM, USER, WORKER, World, ctx

U, S = Actor.USER, Actor.SYSTEM


class TestRecords:
    def test_a_history_that_creates_nothing_is_refused(self) -> None:
        event = Event("", "w", 1, 1, "open", "created", "pending", S, "", "c", kind="workflow")
        with pytest.raises(BadHistory) as caught:
            fold_workflow([event])
        assert caught.value.fields == {"record": "w", "version": 1}
        assert caught.value.message == (
            "workflow w: its first event is open, which creates nothing"
        )
        with pytest.raises(BadHistory, match="creates nothing"):
            fold_step([msgspec.structs.replace(event, kind="step")])

    def test_a_history_of_another_kind_is_refused(self) -> None:
        made = StepMade("w", 1, "at_first", "success", "wait")
        event = Event("", "w", 1, 1, "create", None, "created", S, "", "c", step_made=made)
        with pytest.raises(BadHistory):
            apply_workflow(None, event)
        with pytest.raises(BadHistory):
            apply_step(None, event)

    def test_an_audit_tells_of_a_policy_that_no_step_knows(self) -> None:
        world = World().make(stages("a"))
        birth = world.histories["step", "a"][0]
        assert birth.step_made
        made = msgspec.structs.replace(birth.step_made, fails="banana")
        fault = audit([msgspec.structs.replace(birth, step_made=made)])
        assert fault
        assert "banana" in fault.why

    def test_an_empty_history_leaves_nothing(self) -> None:
        assert fold_workflow([]) is None
        assert fold_step([]) is None

    def test_events_survive_json_with_everything_fold_needs(self) -> None:
        world = World().make(batch("a", on_failure="f"))
        world.run("a", good=False)
        for (kind, record), events in world.histories.items():
            again = [msgspec.json.decode(msgspec.json.encode(e), type=Event) for e in events]
            assert again == events
            assert world.flow
            if kind == "step":
                assert fold_step(again) == world.flow.steps[record]
            else:
                assert fold_workflow(again) == world.flow.workflow

    def test_births_carry_tenant_asker_and_reason(self) -> None:
        command = Make(tenant="t", id="w", steps=stages("a"))
        answer = decide(None, command, 7, ctx(USER, "monthly"))
        assert isinstance(answer, Accepted)
        workflow, step = answer.events[:2]
        shared: dict[str, Any] = {
            "version": 1,
            "at": 7,
            "name": "create",
            "source": None,
            "target": "created",
        }
        shared |= {"actor": U, "actor_id": "user", "command_id": "cmd", "reason": "monthly"}
        made = StepMade("w", 1, "at_first", "success", "wait")
        assert workflow == Event(tenant="t", record="w", kind="workflow", **shared)
        assert step == Event(tenant="t", record="a", kind="step", step_made=made, **shared)

    def test_moments_are_kept_where_they_belong(self) -> None:
        world = World(now=0).make(stages("a", "b"))
        [job] = world.claim("a")
        world.ok(Pause())
        world.ok(Resume())
        world.report(job)
        world.run("b")
        assert world.flow
        flow = world.flow.workflow
        assert (flow.created_at, flow.opened_at, flow.started_at) == (1, 1, 2)
        assert (flow.resumed_at, flow.ended_at, flow.cause) == (4, 7, "succeeded")
        step = world.flow.steps["b"]
        assert (step.created_at, step.opened_at, step.started_at, step.ended_at) == (1, 5, 6, 7)

    @pytest.mark.parametrize("fails", Fails)
    @pytest.mark.parametrize("condition", Condition)
    @pytest.mark.parametrize("when_empty", WhenEmpty)
    @pytest.mark.parametrize("gate", [True, False])
    def test_a_step_keeps_the_policy_it_was_planned_with(
        self, fails: Fails, condition: Condition, when_empty: WhenEmpty, gate: bool
    ) -> None:
        policy = Policy(fails, condition, when_empty, gate)
        world = World().make((StepPlan("a"), StepPlan("b", ("a",), policy)))
        assert world.flow
        assert world.flow.steps["b"].policy == policy

    def test_only_a_resume_sets_its_moment(self) -> None:
        world = World().make()
        assert world.flow
        assert world.flow.workflow.resumed_at is None
        world.ok(Pause())
        world.ok(Abort())
        assert world.flow.workflow.resumed_at is None

    def test_flow_of_sorts_whatever_order_the_records_were_read_in(self) -> None:
        world = World().make(chain("a", "b", "c"))
        assert world.flow
        steps = list(world.flow.steps.values())
        assert Flow.of(world.flow.workflow, reversed(steps), world.flow.tallies) == world.flow
        assert Flow.of(world.flow.workflow, steps).tally("a") == Tally()

    def test_a_job_sees_its_step_as_a_gate(self) -> None:
        world = World(now=0).make(stages("a", "b", gate=["b"]))
        assert world.flow
        assert gate_of(world.flow.workflow, world.flow.steps["a"]) == Gate(opened_at=1)
        assert gate_of(world.flow.workflow, world.flow.steps["b"]) == Gate(closed=True, opened_at=1)
        world.ok(Pause())
        assert gate_of(world.flow.workflow, world.flow.steps["a"]).closed
        world.ok(Resume())
        assert gate_of(world.flow.workflow, world.flow.steps["a"]) == Gate(opened_at=3)
        draft = World().make(stages("a"), draft=True).flow
        assert draft
        assert gate_of(draft.workflow, draft.steps["a"]) == Gate(closed=True)
        assert not is_claimable(draft.workflow, draft.steps["a"])


def fresh() -> Workflow:
    flow = World().make().flow
    assert flow
    return flow.workflow


_NOT_OVER = "a cause is set exactly in a terminal state"
_ELSEWHERE = "the event starts where the record stands and ends where it then stands"
_UNEVEN = "the words of a tally add up to its total"
_NEGATIVE = "no counter of a tally is negative"
_NOT_FAILED = "a job cancelled while a worker had it counts as failed"


class TestInvariants:
    def event(self, **changes: object) -> Event:
        event = Event("", "w", 3, 2_000, "pause", "pending", "paused", U, "", "c", kind="workflow")
        return msgspec.structs.replace(event, **changes)

    def test_a_good_move_breaks_nothing(self) -> None:
        before = fresh()
        after = apply_workflow(before, self.event())
        assert broken_move(before, self.event(), after) is None
        check_move(before, self.event(), after)

    @pytest.mark.parametrize(
        ("event", "after", "words"),
        [
            ({}, {"ended_at": 5}, _NOT_OVER),
            ({}, {"cause": "x"}, _NOT_OVER),
            ({}, {"version": 9}, "versions count the events, without gaps"),
            ({"at": 1}, {}, "event times never decrease"),
            ({"source": "created"}, {}, _ELSEWHERE),
            ({}, {"state": WorkflowState.PENDING}, _ELSEWHERE),
            ({}, {"state_at": 7}, "state_at is when the state was entered"),
        ],
    )
    def test_a_broken_move_is_named(
        self, event: dict[str, object], after: dict[str, object], words: str
    ) -> None:
        before = fresh()
        bad = self.event(**event)
        record = msgspec.structs.replace(apply_workflow(before, bad), **after)
        fault = broken_move(before, bad, record)
        assert fault == words
        with pytest.raises(BadHistory) as caught:
            check_move(before, bad, record)
        assert caught.value.fields == {"record": "w", "version": 3, "fault": fault}
        assert caught.value.message == f"workflow w version 3 (pause): {fault}"

    def test_nothing_leaves_an_end_and_a_life_starts_at_one(self) -> None:
        before = fresh()
        ended = apply_workflow(before, self.event(target="aborted", cause="requested"))
        again = self.event(version=4, source="aborted", target="aborted", cause="requested")
        assert broken_move(ended, again, apply_workflow(ended, again)) == (
            "nothing leaves a terminal state"
        )
        assert broken_move(None, self.event(), before) == "a life starts at version 1"
        first = msgspec.structs.replace(before, version=1)
        assert broken_move(None, self.event(), first) == "a life starts at version 1"

    def test_a_terminal_state_needs_its_moment_and_its_cause(self) -> None:
        before = fresh()
        event = self.event(target="aborted")
        assert "terminal" in str(broken_move(before, event, apply_workflow(before, event)))

    def flow(self, *states: str, workflow: str = "in_progress", ordered: bool = True) -> Flow:
        """Records in any states at all, legal together or not."""
        names = [str(n) for n in range(len(states))]
        made = World().make(stages(*names) if ordered else group(*names)).flow
        assert made
        steps = [
            msgspec.structs.replace(
                step, state=StepState(state), ended_at=9 if state in STEP.terminal else None
            )
            for step, state in zip(made.steps.values(), states, strict=True)
        ]
        record = msgspec.structs.replace(made.workflow, state=WorkflowState(workflow))
        return Flow.of(record, steps, made.tallies)

    def test_steps_in_a_row_are_workable_one_at_a_time(self) -> None:
        fault = "of steps in a row at most one is workable"
        assert broken_flow(self.flow("pending", "in_progress")) == fault
        assert broken_flow(self.flow("pending", "in_progress", ordered=False)) is None
        assert broken_flow(self.flow("completed", "in_progress")) is None
        with pytest.raises(BadHistory) as caught:
            check_flow(self.flow("pending", "in_progress"))
        assert caught.value.fields == {"record": "w", "version": 2, "fault": fault}
        assert caught.value.message == f"workflow w version 2: {fault}"

    def test_nothing_can_run_under_an_ended_workflow(self) -> None:
        fault = "under an ended workflow no step can still run"
        assert broken_flow(self.flow("completed", "pending", workflow="completed")) == fault
        assert broken_flow(self.flow("completed", "waiting", workflow="completed")) == fault

    @pytest.mark.parametrize(
        ("states", "workflow"),
        [(("completed", "failed"), "completed"), (("completed", "completed"), "failed")],
    )
    def test_a_workflow_fails_exactly_with_a_step(
        self, states: tuple[str, ...], workflow: str
    ) -> None:
        assert broken_flow(self.flow(*states, workflow=workflow)) == (
            "a workflow that was not aborted failed exactly if one of its steps did"
        )

    def test_an_aborted_workflow_may_have_failed_steps(self) -> None:
        assert broken_flow(self.flow("failed", "aborted", workflow="aborted")) is None

    def test_a_workflow_is_not_pending_once_a_step_has_started(self) -> None:
        flow = self.flow("in_progress", workflow="pending")
        step = msgspec.structs.replace(flow.steps["0"], started_at=5)
        assert broken_flow(Flow.of(flow.workflow, [step])) == (
            "a workflow is pending until one of its steps starts, or again after a resume"
        )

    def test_no_step_of_a_draft_is_open(self) -> None:
        flow = self.flow("pending", workflow="created")
        draft = msgspec.structs.replace(flow.workflow, opened_at=None)
        fault = "no step of a draft gets its turn"
        assert broken_flow(Flow.of(draft, flow.steps.values())) == fault

    def test_orders_and_dependencies_point_backwards(self) -> None:
        flow = self.flow("pending", "created")
        first, second = flow.steps.values()
        fault = "orders count from 1, without gaps"
        assert broken_flow(Flow.of(flow.workflow, [second])) == fault
        forward = msgspec.structs.replace(first, depends_on=(second.id,))
        assert "does not come before" in str(broken_flow(Flow.of(flow.workflow, [forward, second])))

    @pytest.mark.parametrize(
        ("tally", "words"),
        [
            (Tally(pending=1), _UNEVEN),
            (Tally(in_progress=-1, completed=1), _NEGATIVE),
            (Tally(pending=1, total=1, withdrawn=2, cancelled=2), _NEGATIVE),
            (Tally(pending=1, total=1, withdrawn=1), _NEGATIVE),
            (Tally(withdrawn=-1), _NEGATIVE),
            (Tally(pending=1, total=1, cancelled=1), _NOT_FAILED),
        ],
    )
    def test_a_tally_that_does_not_add_up_is_found(self, tally: Tally, words: str) -> None:
        flow = self.flow("pending")
        assert broken_flow(Flow.of(flow.workflow, flow.steps.values(), {"0": tally})) == words

    def test_a_cascade_over_counters_that_contradict_each_other_stops(self) -> None:
        world = World().make(stages("a"))
        assert world.flow
        flow = world.flow.counting("a", Tally(in_progress=1))
        with pytest.raises(BadHistory, match="add up"):
            cascade(flow, ("a",), 9_999, ctx(SYSTEM))

    def test_the_end_of_a_workflow_is_checked_as_a_whole(self) -> None:
        world = World().make(chain("a", "b", "c"))
        world.run("a")
        assert world.flow
        flow = world.flow.counting("a", Tally(completed=1))
        begun = flow.counting("b", Tally(pending=-1, in_progress=1))
        flow = cascade(begun, ("b",), 9_999, ctx(SYSTEM)).flow
        failed = flow.counting("b", Tally(in_progress=-1, failed=1))
        with pytest.raises(BadHistory, match="add up"):
            cascade(failed, ("b",), 9_999, ctx(SYSTEM))

    def test_the_cascade_never_opens_a_step_whose_turn_has_not_come(self) -> None:
        world = World().make(stages("a", "b"))
        assert world.flow
        commit = Commit(world.flow, 5_000, ctx())
        refusal = commit.move_step("b", Move("open", "pending"))
        assert refusal
        assert refusal.code == "previous_not_completed"
        assert commit.events == []
        with pytest.raises(BadHistory) as caught:
            must(refusal)
        assert caught.value.message == refusal.message
        assert caught.value.fields == msgspec.structs.asdict(refusal)
        must(None)

    def test_who_may_not_create_a_step_adds_none(self) -> None:
        """Legality is no matter of `assert`, which a run with -O would leave out."""
        world = World().make(stages("a"))
        assert world.flow
        commit = Commit(world.flow, 5_000, ctx(WORKER))
        with pytest.raises(BadHistory, match="worker may not create") as caught:
            commit.add_step(StepPlan("b"), 0)
        assert (caught.value.fields["code"], caught.value.fields["machine"]) == (
            "wrong_actor",
            "step",
        )
        assert (commit.events, list(commit.steps)) == ([], ["a"])
