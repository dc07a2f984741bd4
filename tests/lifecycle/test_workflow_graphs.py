"""What follows in chains, groups, batches and graphs, for every policy."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.lifecycle.job import Cancel, Cause, JobState
from detent.lifecycle.workflow import (
    Abort,
    Accepted,
    AddStep,
    Condition,
    Fails,
    Open,
    Outlook,
    Pause,
    Policy,
    Release,
    Resume,
    StepPlan,
    StepState,
    Tally,
    Wait,
    WhenEmpty,
    batch,
    cascade,
    chain,
    dag,
    group,
    needs_cascade,
    outlooks,
    returned,
    stages,
)
from tests.lifecycle.workflow_world import SYSTEM, World, ctx

MANY = Policy(Fails.WHEN_ALL_DONE)


def tally(world: World, step: str) -> Tally:
    assert world.flow
    return world.flow.tally(step)


class TestReturned:
    def test_a_job_that_comes_back_under_a_living_step_waits(self) -> None:
        world = World().make(stages("a"), allowed=3)
        [running] = world.claim("a")
        world.hand_back(running)
        assert world.flow
        assert not returned(world.flow, world.jobs[running.id])

    @pytest.mark.parametrize("command", [Pause(), Wait("a")])
    def test_behind_a_pause_or_a_gate_it_waits_too(self, command: Pause | Wait) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(command)
        world.hand_back(running)
        assert world.jobs[running.id].state is JobState.AVAILABLE

    def test_under_an_ended_step_it_is_cancelled(self) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Abort())
        world.hand_back(running)
        assert world.jobs[running.id].state is JobState.CANCELLED

    def test_under_a_failed_step_it_is_cancelled_while_the_workflow_goes_on(self) -> None:
        world = World().make((StepPlan("a"), StepPlan("b")), jobs=2)
        first, second = world.claim("a", 2)
        world.report(first, good=False)
        assert (world.state, world.states()) == ("in_progress", {"a": "failed", "b": "pending"})
        world.hand_back(second)
        assert world.jobs[second.id].state is JobState.CANCELLED

    def test_jobs_that_run_have_ended_or_belong_to_no_step_did_not_return(self) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Abort())
        assert world.flow
        assert not returned(world.flow, running)
        assert not returned(world.flow, replace(running, state=JobState.COMPLETED))
        assert not returned(world.flow, replace(running, state=JobState.AVAILABLE, step=None))

    def test_under_an_ended_workflow_it_is_cancelled_whatever_its_step_says(self) -> None:
        world = World().make(stages("a", "b"))
        world.run("a", good=False)
        assert world.flow
        waiting = replace(world.of("b")[0], state=JobState.AVAILABLE)
        assert returned(world.flow, waiting)


class TestPolicies:
    def test_at_first_fails_with_the_first_failure(self) -> None:
        world = World().make((StepPlan("a"),), jobs=3)
        world.run("a", good=False)
        assert world.states() == {"a": "failed"}
        assert tally(world, "a").withdrawn == 2

    def test_when_all_done_lets_the_others_finish(self) -> None:
        world = World().make((StepPlan("a", policy=MANY),), jobs=3)
        world.run("a", good=False)
        assert world.states() == {"a": "in_progress"}
        world.run("a", count=2)
        assert (world.state, tally(world, "a").completed) == ("failed", 2)

    def test_an_empty_step_completes_at_once_in_one_commit(self) -> None:
        world = World().make(chain("a", "b"), jobs=0)
        assert world.path() == [
            "w: None -> created",
            "a: None -> created",
            "b: None -> created",
            "w: created -> pending",
            "a: created -> pending",
            "a: pending -> in_progress",
            "w: pending -> in_progress",
            "a: in_progress -> completed",
            "b: created -> pending",
            "b: pending -> in_progress",
            "b: in_progress -> completed",
            "w: in_progress -> completed",
        ]
        assert world.flow
        assert world.flow.steps["a"].cause == "empty"
        assert world.percentage == 100

    @pytest.mark.parametrize("policy", [Policy(), MANY])
    def test_a_job_called_off_while_it_waits_spoils_its_step(self, policy: Policy) -> None:
        world = World().make((StepPlan("a", policy=policy),), jobs=1)
        world.cancel(world.of("a")[0])
        assert world.path() == [
            "a: pending -> in_progress",
            "w: pending -> in_progress",
            "a: in_progress -> failed",
            "w: in_progress -> failed",
        ]
        assert world.flow
        assert world.flow.steps["a"].cause == "job_cancelled"

    def test_a_job_called_off_before_its_steps_turn_counts_when_the_turn_comes(self) -> None:
        world = World().make(chain("a", "b"))
        world.cancel(world.of("b")[0])
        assert world.states()["b"] == "created"
        world.run("a")
        assert world.path()[-4:] == [
            "b: created -> pending",
            "b: pending -> in_progress",
            "b: in_progress -> failed",
            "w: in_progress -> failed",
        ]

    def test_a_failure_beside_a_cancel_is_the_cause(self) -> None:
        world = World().make((StepPlan("a", policy=MANY),), jobs=3)
        first, second, third = world.claim("a", 3)
        world.cancel(first)
        world.report(second, good=False)
        world.report(third)
        assert world.flow
        assert world.flow.steps["a"].cause == "job_failed"

    def test_a_job_cancelled_while_it_runs_fails_its_step(self) -> None:
        world = World().make((StepPlan("a"),))
        [running] = world.claim("a")
        world.cancel(running)
        assert world.flow
        assert (world.state, world.flow.steps["a"].cause) == ("failed", "job_cancelled")

    def test_an_empty_gated_step_completes_when_it_is_released(self) -> None:
        world = World().make((StepPlan("a", policy=Policy(gate=True)),), jobs=0)
        assert world.state == "pending"
        world.ok(Release("a"))
        assert world.state == "completed"

    def test_an_empty_waiting_step_holds(self) -> None:
        policy = Policy(when_empty=WhenEmpty.WAIT)
        world = World().make((StepPlan("a", policy=policy),), jobs=0)
        assert world.states() == {"a": "pending"}


class TestGraphs:
    """OJS section 18 and the general rule for the end of a workflow."""

    def test_chain_only_the_first_step_is_offered_and_each_success_opens_the_next(self) -> None:
        world = World().make(chain("0", "1", "2"), profile="ojs")
        for name in "012":
            assert [job.step for job in world.claimable()] == [name]
            world.run(name)
        assert world.state == "completed"

    def test_chain_a_failure_fails_the_workflow_with_one_of_three_completed(self) -> None:
        world = World().make(chain("0", "1", "2"), profile="ojs")
        world.run("0")
        world.run("1", good=False)
        assert (world.state, world.states()) == (
            "failed",
            {"0": "completed", "1": "failed", "2": "created"},
        )
        assert world.of("2")[0].state is JobState.CANCELLED

    def test_group_all_are_offered_at_once_and_a_failure_leaves_siblings_alone(self) -> None:
        world = World().make(group("0", "1", "2"), profile="ojs")
        assert len(world.claimable()) == 3
        world.run("1", good=False)
        assert (world.state, world.path()) == ("in_progress", ["1: in_progress -> failed"])
        world.run("0")
        world.run("2")
        assert world.state == "failed"

    def test_group_as_one_step_is_decided_when_all_are_terminal(self) -> None:
        world = World().make((StepPlan("jobs", policy=MANY),), jobs=3, profile="ojs")
        world.run("jobs", good=False)
        world.run("jobs")
        assert world.state == "in_progress"
        world.run("jobs")
        assert world.state == "failed"

    def test_group_all_completed_is_completed(self) -> None:
        world = World().make(group("0", "1"), profile="ojs")
        world.run("0")
        world.run("1")
        assert world.state == "completed"

    def test_batch_success_runs_on_complete_and_on_success_once_and_spares_on_failure(
        self,
    ) -> None:
        world = World().make(
            batch("jobs", on_complete="c", on_success="s", on_failure="f"), profile="ojs"
        )
        world.run("jobs")
        assert world.last
        assert (world.last.opened, world.last.sweep) == (("c", "s"), ("f",))
        assert world.of("f")[0].state is JobState.CANCELLED
        world.run("c")
        world.run("s")
        assert (world.state, world.states()["f"]) == ("completed", "created")

    def test_batch_failure_runs_on_complete_and_on_failure_before_the_workflow_fails(self) -> None:
        world = World().make(
            batch("0", "1", on_complete="c", on_success="s", on_failure="f"), profile="ojs"
        )
        world.run("0", good=False)
        assert world.states() == {
            "0": "failed",
            "1": "pending",
            "c": "created",
            "s": "created",
            "f": "created",
        }
        assert world.last
        assert world.last.sweep == ("0", "s")
        world.run("1")
        assert world.last.opened == ("c", "f")
        world.run("f")
        assert world.state == "in_progress"
        world.run("c")
        assert (world.state, world.states()["s"]) == ("failed", "created")

    def test_a_retryable_job_is_no_failure_until_it_is_terminal(self) -> None:
        world = World().make(batch("0", on_failure="f"), allowed=2, profile="ojs")
        world.run("0", good=False)
        assert world.states() == {"0": "in_progress", "f": "created"}

    def test_cancel_lets_active_jobs_finish_and_starts_nothing_more(self) -> None:
        world = World().make(chain("0", "1"), jobs=2, profile="ojs")
        [running] = world.claim("0")
        world.ok(Abort())
        world.report(running)
        assert world.jobs[running.id].state is JobState.COMPLETED
        assert world.claimable() == []
        assert world.refused(Abort()).code == "final"

    def test_a_diamond_joins_when_both_sides_are_done(self) -> None:
        world = World().make(dag({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}))
        world.run("a")
        world.run("b")
        assert world.states()["d"] == "created"
        world.run("c")
        world.run("d")
        assert world.state == "completed"

    def test_the_other_branch_goes_on_after_a_failure(self) -> None:
        world = World().make(dag({"a": (), "b": (), "a2": ("a",), "b2": ("b",)}))
        world.run("a", good=False)
        world.run("b")
        world.run("b2")
        assert (world.state, world.states()["a2"]) == ("failed", "created")

    def test_always_counts_dead_dependencies_as_ended(self) -> None:
        steps = (*chain("a", "b"), StepPlan("z", ("b",), Policy(condition=Condition.ALWAYS)))
        world = World().make(steps)
        world.run("a", good=False)
        assert world.states() == {"a": "failed", "b": "created", "z": "pending"}
        world.run("z")
        assert world.state == "failed"

    def test_on_failure_hears_of_a_failure_further_up(self) -> None:
        steps = (*chain("a", "b"), StepPlan("f", ("b",), Policy(condition=Condition.FAILURE)))
        world = World().make(steps)
        world.run("a", good=False)
        assert world.states()["f"] == "pending"

    def test_what_depends_on_a_spared_step_is_spared(self) -> None:
        failure, success = Policy(condition=Condition.FAILURE), Policy()
        steps = (
            StepPlan("a"),
            StepPlan("f", ("a",), failure),
            StepPlan("g", ("f",), success),
            StepPlan("h", ("g",), failure),
        )
        world = World().make(steps)
        world.run("a")
        assert world.flow
        spared = dict.fromkeys("fgh", Outlook.SPARED)
        assert outlooks(world.flow) == {"a": Outlook.DONE, **spared}
        assert world.state == "completed"

    def test_a_step_is_not_spared_while_one_before_it_may_still_fail(self) -> None:
        failure = Policy(condition=Condition.FAILURE)
        steps = (
            StepPlan("a"),
            StepPlan("b"),
            StepPlan("f", ("a",), failure),
            StepPlan("g", ("f", "b")),
            StepPlan("h", ("g",), failure),
        )
        world = World().make(steps)
        world.run("a")
        assert world.flow
        assert outlooks(world.flow)["g"] is Outlook.LATER
        world.run("b", good=False)
        assert world.states()["h"] == "pending", "g is blocked by b, and h is for that"

    def test_a_step_added_behind_a_failure_is_dead_from_the_start(self) -> None:
        world = World().make(group("a", "b"))
        world.run("a", good=False)
        answer = world.ok(AddStep(StepPlan("c", ("a",)), 1))
        assert answer.sweep == ("c",)
        assert world.of("c")[0].state is JobState.CANCELLED

    def test_a_gate_whose_turn_can_never_come_holds_nothing_open(self) -> None:
        world = World().make(stages("a", "b", gate=["b"]))
        world.run("a", good=False)
        assert world.state == "failed"


class TestCascade:
    def test_asking_twice_changes_nothing(self) -> None:
        world = World().make(chain("a", "b"))
        world.run("a")
        assert world.flow
        again = cascade(world.flow, ("a", "b", "a"), 9_999, ctx(SYSTEM))
        assert again == Accepted(world.flow)

    def test_many_reports_are_one_question(self) -> None:
        world = World().make(group("a", "b"), jobs=100)
        assert world.flow
        done = Tally(pending=-100, completed=100)
        flow = world.flow.counting("a", done).counting("b", done)
        answer = cascade(flow, ("b", "a"), 9_999, ctx(SYSTEM))
        assert answer.flow.workflow.state == "completed"
        assert [event.name for event in answer.events] == [
            "start",
            "start",
            "complete",
            "start",
            "complete",
            "complete",
        ]

    def test_nothing_follows_in_a_draft_or_a_waiting_step(self) -> None:
        world = World().make(chain("a"), draft=True)
        assert world.flow
        flow = world.flow.counting("a", Tally(pending=-1, failed=1))
        assert cascade(flow, ("a",), 9_999, ctx(SYSTEM)).events == ()

    @pytest.mark.parametrize(
        ("state", "counts", "needed"),
        [
            ("created", Tally(completed=1, total=1), False),
            ("waiting", Tally(completed=1, total=1), False),
            ("pending", Tally(pending=1, total=1), False),
            ("pending", Tally(retried=1, total=1), False),
            ("pending", Tally(in_progress=1, total=1), True),
            ("pending", Tally(pending=1, total=1, cancelled=1, withdrawn=1), True),
            ("pending", Tally(), True),
            ("in_progress", Tally(pending=1, completed=1, total=2), False),
            ("in_progress", Tally(completed=2, total=2), True),
            ("in_progress", Tally(pending=1, failed=1, total=2), True),
            ("completed", Tally(failed=1, total=1), False),
            ("failed", Tally(completed=1, total=1), False),
            ("aborted", Tally(completed=1, total=1), False),
        ],
    )
    def test_one_step_and_its_tally_tell_whether_a_move_is_due(
        self, state: str, counts: Tally, needed: bool
    ) -> None:
        world = World().make(chain("a"))
        assert world.flow
        step = replace(world.flow.steps["a"], state=StepState(state))
        assert needs_cascade(world.flow.workflow, step, counts) is needed

    def test_a_workflow_that_rests_after_a_resume_goes_on_with_any_word_of_its_jobs(self) -> None:
        world = World().make(chain("a"), jobs={"a": 2})
        world.claim("a")
        world.ok(Pause())
        world.ok(Resume())
        assert world.flow
        step, counts = world.flow.steps["a"], world.flow.tally("a")
        assert needs_cascade(world.flow.workflow, step, counts)
        going = cascade(world.flow, ("a",), 9_999, ctx(SYSTEM)).flow
        assert going.workflow.state == "in_progress"
        assert not needs_cascade(going.workflow, step, counts)

    def test_a_large_chain_settles_in_one_pass(self) -> None:
        names = [str(n) for n in range(10_000)]
        world = World()
        world.check = lambda: None  # type: ignore[method-assign]
        world.make(chain(*names), jobs=0)
        assert world.state == "completed"
        assert world.last
        assert len(world.last.events) == 4 * 10_000 + 4


class TestUserCancel:
    def test_a_member_cancelled_by_its_user_spoils_the_step(self) -> None:
        world = World().make(chain("a", "b"), profile="ojs")
        one = world.of("a")[0]
        world.move(one, Cancel(Cause.REQUESTED), SYSTEM)
        assert (world.state, world.states()["b"]) == ("failed", "created")

    def test_opening_a_draft_whose_jobs_were_called_off_fails_it_at_once(self) -> None:
        world = World().make(chain("a"), draft=True)
        world.cancel(world.of("a")[0])
        assert world.state == "created"
        world.ok(Open())
        assert world.state == "failed"
