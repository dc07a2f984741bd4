"""Tallies, and what follows from what jobs do in ordered stages, row by row."""

from __future__ import annotations

import pytest

from detent.lifecycle.job import Job, JobState
from detent.lifecycle.profile import Delivery
from detent.lifecycle.workflow import (
    Abort,
    AddJobs,
    AddStep,
    Open,
    Pause,
    Policy,
    Release,
    Resume,
    StepPlan,
    Tally,
    Wait,
    bucket,
    cascade,
    dag,
    delta,
    recount,
    stages,
    step_percentage,
    workflow_percentage,
)
from tests.lifecycle.workflow_world import World, ctx


def tally(world: World, step: str) -> Tally:
    assert world.flow
    return world.flow.tally(step)


def job(state: JobState, attempt: int = 0, previous: JobState | None = None) -> Job:
    return Job(
        tenant="",
        id="j",
        version=1,
        state=state,
        profile="jobnik",
        queue="q",
        priority=0,
        delivery=Delivery.PULL,
        allowed=1,
        losses_allowed=3,
        created_at=0,
        state_at=0,
        last_at=0,
        previous=previous,
        attempt=attempt,
        step="a",
    )


class TestTally:
    @pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.AVAILABLE, JobState.RETRYABLE])
    @pytest.mark.parametrize(("attempt", "word"), [(0, "pending"), (1, "retried"), (7, "retried")])
    def test_a_waiting_job_is_pending_until_it_was_claimed_once(
        self, state: JobState, attempt: int, word: str
    ) -> None:
        assert bucket(job(state, attempt)) == word
        # A cancel leaves it under the word it had.
        cancelled = job(JobState.CANCELLED, attempt, previous=state)
        assert bucket(cancelled) == word
        assert delta(job(state, attempt), cancelled) == Tally(cancelled=1, withdrawn=1)

    @pytest.mark.parametrize("state", [JobState.PENDING, JobState.ACTIVE])
    def test_a_job_in_a_workers_hands_is_in_progress_and_failed_when_cancelled(
        self, state: JobState
    ) -> None:
        held = job(state, 1)
        assert bucket(held) == "in_progress"
        cancelled = job(JobState.CANCELLED, 1, previous=state)
        assert bucket(cancelled) == "failed"
        assert delta(held, cancelled) == Tally(in_progress=-1, failed=1, cancelled=1)

    def test_ends_have_their_words(self) -> None:
        assert bucket(job(JobState.COMPLETED, 1, JobState.ACTIVE)) == "completed"
        assert bucket(job(JobState.DISCARDED, 1, JobState.ACTIVE)) == "failed"
        assert bucket(job(JobState.DISCARDED, 0, JobState.AVAILABLE)) == "failed"

    def test_every_state_of_a_job_has_a_word(self) -> None:
        words = {bucket(job(state, attempt)) for state in JobState for attempt in (0, 1)}
        assert words == {"pending", "in_progress", "retried", "completed", "failed"}

    def test_section_10_a_new_job_raises_pending_and_total(self) -> None:
        assert delta(None, job(JobState.AVAILABLE)) == Tally(pending=1, total=1)

    def test_a_move_within_one_word_changes_nothing(self) -> None:
        assert delta(job(JobState.SCHEDULED), job(JobState.AVAILABLE)) == Tally()

    def test_recount_counts_each_job_once(self) -> None:
        jobs = [job(JobState.ACTIVE, 1), job(JobState.AVAILABLE), job(JobState.COMPLETED, 2)]
        assert recount(jobs) == Tally(pending=1, in_progress=1, completed=1, total=3)

    @pytest.mark.parametrize(
        ("completed", "total", "percentage"),
        [(0, 0, 0), (0, 3, 0), (1, 3, 33), (2, 3, 66), (3, 3, 100), (199, 200, 99)],
    )
    def test_section_10_a_steps_percentage_is_rounded_down(
        self, completed: int, total: int, percentage: int
    ) -> None:
        assert step_percentage(Tally(completed=completed, total=total)) == percentage

    def test_section_10_a_steps_percentage_keeps_moving_after_failure(self) -> None:
        world = World().make(stages("a"), jobs=2)
        first, second = world.claim("a", 2)
        world.report(first, good=False)
        assert step_percentage(tally(world, "a")) == 0
        world.report(second)
        assert step_percentage(tally(world, "a")) == 50

    def test_section_10_a_workflows_percentage_is_taken_when_a_step_completes(self) -> None:
        world = World().make(stages("a", "b", "c"))
        assert world.percentage == 0
        world.run("a")
        assert world.percentage == 33
        world.run("b")
        assert world.percentage == 66

    def test_section_7_an_appended_stage_changes_the_percentage_at_the_next_completion(
        self,
    ) -> None:
        world = World().make(stages("a", "b", "c"))
        world.run("a")
        world.run("b")
        world.claim("c")
        assert (
            world.ok(AddStep(StepPlan("d", policy=Policy()), 1, after_last=True)).percentage is None
        )
        assert world.percentage == 66
        world.report(world.running()[0])
        assert world.percentage == 75

    def test_section_10_a_failed_workflow_keeps_its_percentage(self) -> None:
        world = World().make(stages("a", "b", "c"))
        world.run("a")
        world.run("b", good=False)
        assert world.percentage == 33

    def test_without_steps_a_workflow_stands_at_nothing(self) -> None:
        assert workflow_percentage({}) == 0


class TestStages:
    """Sections 4, 5 and 6: the ordered stages of a Jobnik job."""

    def test_section_4_created_stages_open_in_turn_and_gated_ones_wait(self) -> None:
        world = World().make(stages("a", "b", "c", gate=["c"]))
        assert world.path() == [
            "w: None -> created",
            "a: None -> created",
            "b: None -> created",
            "c: None -> created",
            "c: created -> waiting",
            "w: created -> pending",
            "a: created -> pending",
        ]

    def test_section_5_the_first_dequeue_starts_stage_and_job(self) -> None:
        world = World().make(stages("a", "b"), jobs=2)
        world.claim("a")
        assert world.path() == ["a: pending -> in_progress", "w: pending -> in_progress"]
        world.claim("a")
        assert world.path() == []

    def test_section_5_completion_opens_the_next_stage_and_ends_the_job_with_the_last(self) -> None:
        world = World().make(stages("a", "b"))
        world.run("a")
        assert world.path() == ["a: in_progress -> completed", "b: created -> pending"]
        assert world.last
        assert world.last.opened == ("b",)
        world.claim("b")
        assert world.path() == ["b: pending -> in_progress"]
        world.report(world.running()[0])
        assert world.path() == ["b: in_progress -> completed", "w: in_progress -> completed"]

    def test_section_5_a_completion_leaves_a_waiting_stage_waiting(self) -> None:
        world = World().make(stages("a", "b", gate=["b"]))
        world.run("a")
        assert world.path() == ["a: in_progress -> completed"]
        assert world.state == "in_progress"

    def test_section_5_a_failure_fails_stage_and_job_and_leaves_later_stages(self) -> None:
        world = World().make(stages("a", "b", "c", gate=["c"]))
        world.run("a", good=False)
        assert world.path() == ["a: in_progress -> failed", "w: in_progress -> failed"]
        assert world.states() == {"a": "failed", "b": "created", "c": "waiting"}
        assert world.last
        assert world.last.sweep == ("a", "b", "c")
        assert all(job.ended_at is not None for job in world.jobs.values())

    def test_section_5_running_siblings_report_after_a_failure_and_states_stay(self) -> None:
        world = World().make(stages("a"), jobs=4, allowed=2)
        first, second, third, fourth = world.claim("a", 4)
        for _ in range(2):
            world.report(first, good=False)
            if world.state != "failed":
                [first] = world.claim("a")
        assert (world.state, world.states()) == ("failed", {"a": "failed"})
        world.report(second)
        assert world.path() == []
        world.report(third, good=False)
        assert world.jobs[third.id].state is JobState.CANCELLED, "never offered again"
        assert bucket(world.jobs[third.id]) == "retried"
        world.lose(fourth)
        assert world.jobs[fourth.id].state is JobState.CANCELLED
        assert tally(world, "a") == Tally(
            retried=2, completed=1, failed=1, total=4, cancelled=2, withdrawn=2
        )

    def test_section_5_a_retried_job_fails_nothing(self) -> None:
        world = World().make(stages("a"), allowed=2)
        world.run("a", good=False)
        assert (world.state, tally(world, "a")) == ("in_progress", Tally(retried=1, total=1))
        world.run("a")
        assert world.state == "completed"

    def test_section_5_pause_stops_dequeues_and_nothing_else(self) -> None:
        world = World().make(stages("a", "b"), jobs=2)
        (first,) = world.claim("a")
        world.ok(Pause())
        assert world.claimable() == []
        assert world.states() == {"a": "in_progress", "b": "created"}
        world.report(first)
        assert tally(world, "a").completed == 1

    def test_section_5_abort_ends_every_stage_that_has_not_ended(self) -> None:
        world = World().make(stages("a", "b", "c", "d", gate=["d"]))
        world.run("a")
        world.claim("b")
        answer = world.ok(Abort())
        assert world.path() == [
            "w: in_progress -> aborted",
            "b: in_progress -> aborted",
            "c: created -> aborted",
            "d: waiting -> aborted",
        ]
        assert answer.sweep == ("b", "c", "d")
        assert world.states()["a"] == "completed"

    def test_section_6_exactly_one_stage_is_workable_at_a_time(self) -> None:
        world = World().make(stages("a", "b", "c"))
        for name in "abc":
            workable = [k for k, v in world.states().items() if v in ("pending", "in_progress")]
            assert workable == [name]
            world.run(name)

    def test_section_6_an_empty_stage_holds_the_job_open(self) -> None:
        world = World().make(stages("a", "b"), jobs={"a": 1})
        world.run("a")
        assert (world.state, world.states()["b"]) == ("in_progress", "pending")
        world.ok(AddJobs("b", 1))
        world.run("b")
        assert world.state == "completed"

    def test_section_6_a_waiting_stage_blocks_those_after_it(self) -> None:
        world = World().make(stages("a", "b", gate=["a"]))
        assert world.claimable() == []
        world.ok(Release("a"))
        world.run("a")
        world.run("b")
        assert world.state == "completed"

    def test_a_job_without_stages_never_completes_by_itself(self) -> None:
        world = World().make()
        assert world.flow
        assert cascade(world.flow, (), 5_000, ctx()).events == ()
        world.ok(Pause())
        world.ok(Resume())
        assert world.state == "pending"


class TestSeedAgainstOriginal:
    """Section 18, rows 1 to 14 as far as they are about workflow and steps."""

    def test_row_1_abort_spares_stages_that_have_ended(self) -> None:
        world = World().make(dag({"a": (), "b": (), "c": ("a",), "d": ("b",)}))
        world.run("a")
        world.run("b", good=False)
        world.ok(Abort())
        assert world.states() == {
            "a": "completed",
            "b": "failed",
            "c": "aborted",
            "d": "aborted",
        }

    def test_row_2_nothing_is_released_or_added_under_an_aborted_job(self) -> None:
        world = World().make(stages("a", "b", gate=["a"]))
        world.ok(Abort())
        assert world.refused(Release("a")).state == "aborted"
        assert world.refused(AddJobs("b", 1)).code == "step_finished"

    @pytest.mark.parametrize("good", [True, False])
    def test_row_3_reports_under_an_aborted_job_are_taken_and_states_stay(self, good: bool) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Abort())
        world.report(running, good=good)
        assert (world.path(), world.state, world.states()) == ([], "aborted", {"a": "aborted"})
        assert tally(world, "a") == Tally(completed=int(good), failed=int(not good), total=1)

    @pytest.mark.parametrize(("good", "word"), [(True, "completed"), (False, "failed")])
    def test_row_4_an_end_under_pause_waits_for_the_resume(self, good: bool, word: str) -> None:
        world = World().make(stages("a", "b"))
        world.run("a")
        [running] = world.claim("b")
        world.ok(Pause())
        world.report(running, good=good)
        assert (world.state, world.path()) == ("paused", [f"b: in_progress -> {word}"])
        world.ok(Resume())
        assert world.path() == [
            "w: paused -> pending",
            "w: pending -> in_progress",
            f"w: in_progress -> {word}",
        ]

    def test_row_4_the_next_stage_opens_under_pause_and_runs_after_it(self) -> None:
        world = World().make(stages("a", "b"))
        [running] = world.claim("a")
        world.ok(Pause())
        world.report(running)
        assert world.states()["b"] == "pending"
        assert world.last
        assert world.last.opened == ()
        assert world.ok(Resume()).opened == ("b",)
        world.run("b")
        assert world.state == "completed"

    def test_row_5_a_job_paused_and_resumed_while_a_stage_runs_is_not_wedged(self) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Pause())
        world.ok(Resume())
        assert world.path() == ["w: paused -> pending"]
        world.report(running)
        assert world.path() == [
            "w: pending -> in_progress",
            "a: in_progress -> completed",
            "w: in_progress -> completed",
        ]

    @pytest.mark.parametrize("act", ["claim", "retry"])
    def test_row_5_the_first_word_of_a_job_after_a_resume_starts_it_again(self, act: str) -> None:
        world = World().make(stages("a"), jobs={"a": 2}, allowed=2)
        [running] = world.claim("a", 1)
        world.ok(Pause())
        world.ok(Resume())
        assert world.state == "pending"
        if act == "claim":
            world.claim("a", 1)
        else:
            world.report(running, good=False)
        assert (world.path(), world.state) == (["w: pending -> in_progress"], "in_progress")

    def test_row_5_a_resume_before_anything_started_rests_in_pending(self) -> None:
        world = World().make(stages("a"))
        world.ok(Pause())
        world.ok(Resume())
        assert world.state == "pending"
        world.claim("a")
        assert world.state == "in_progress"

    def test_row_6_is_in_the_tests_of_release(self) -> None:
        world = World().make(stages("a"))
        before = world.flow
        world.ask(Release("a"))
        assert world.flow is before

    def test_row_7_a_stage_opens_at_creation_when_the_one_before_it_is_completed(self) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Pause())
        world.report(running)
        world.ok(AddStep(StepPlan("b"), 1, after_last=True))
        assert world.path() == ["w: paused -> None", "b: None -> created", "b: created -> pending"]
        world.ok(Resume())
        assert world.state == "pending"
        world.claim("b")
        assert world.state == "in_progress"

    def test_row_8_the_server_decides_between_retried_and_failed(self) -> None:
        world = World().make(stages("a"), allowed=2)
        for word in ("retried", "failed"):
            world.run("a", good=False)
            assert tally(world, "a") == Tally(**{word: 1}, total=1)

    def test_row_10_a_pending_job_is_not_started_by_hand(self) -> None:
        world = World().make(stages("a"))
        assert world.refused(Resume()).state == "pending"
        assert world.refused(Open()).target == "pending"

    def test_row_11_any_stage_that_starts_starts_the_job(self) -> None:
        world = World().make(dag({"a": (), "b": ()}))
        world.claim("b")
        assert world.state == "in_progress"

    def test_row_12_a_stage_is_put_to_wait_while_it_runs_and_settles_on_release(self) -> None:
        world = World().make(stages("a", "b"), jobs=2)
        first, second = world.claim("a", 2)
        world.ok(Wait("a"))
        world.report(first)
        world.report(second)
        assert (world.state, world.states()) == ("in_progress", {"a": "waiting", "b": "created"})
        world.ok(Release("a"))
        assert world.path() == [
            "a: waiting -> pending",
            "a: pending -> in_progress",
            "a: in_progress -> completed",
            "b: created -> pending",
        ]

    def test_row_12_a_failure_under_waiting_counts_on_release(self) -> None:
        world = World().make(stages("a", "b"), jobs=2)
        [first] = world.claim("a")
        world.ok(Wait("a"))
        world.report(first, good=False)
        assert world.states()["a"] == "waiting"
        answer = world.ok(Release("a"))
        assert world.path()[-2:] == ["a: in_progress -> failed", "w: in_progress -> failed"]
        assert (answer.sweep, answer.opened) == (("a", "b"), ())

    def test_row_12_a_release_with_a_job_still_running_goes_to_in_progress(self) -> None:
        world = World().make(stages("a"), jobs=2)
        world.claim("a")
        world.ok(Wait("a"))
        world.ok(Release("a"))
        assert world.path() == ["a: waiting -> pending", "a: pending -> in_progress"]

    def test_row_12_a_release_with_nothing_but_a_retry_stays_pending(self) -> None:
        world = World().make(stages("a"), allowed=2)
        [running] = world.claim("a")
        world.ok(Wait("a"))
        world.report(running, good=False)
        world.ok(Release("a"))
        assert world.path() == ["a: waiting -> pending"]
        world.run("a")
        assert world.state == "completed"

    def test_row_12_waiting_and_paused_together_settle_one_after_the_other(self) -> None:
        world = World().make(stages("a"))
        [running] = world.claim("a")
        world.ok(Wait("a"))
        world.ok(Pause())
        world.report(running)
        world.ok(Release("a"))
        assert (world.states(), world.state) == ({"a": "completed"}, "paused")
        world.ok(Resume())
        assert world.state == "completed"

    def test_row_13_a_failure_aborts_nothing(self) -> None:
        world = World().make(stages("a", "b"))
        world.run("a", good=False)
        assert "aborted" not in world.states().values()

    def test_row_14_a_lost_job_of_a_paused_job_can_end(self) -> None:
        world = World().make(stages("a"), profile="python")
        for _ in range(2):
            [running] = world.claim("a")
            world.lose(running)
        [running] = world.claim("a")
        world.ok(Pause())
        world.lose(running)
        assert world.states() == {"a": "failed"}
        world.ok(Resume())
        assert world.state == "failed"
