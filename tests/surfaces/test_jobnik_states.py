"""What may become of jobs, stages and tasks, row by row, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.surfaces.jobnik import Jobnik, at_once, fresh, problem

ILLEGAL = "ILLEGAL_{}_STATUS_TRANSITION"


class Life:
    """A job with stages of one type, and what brings it into a state."""

    def __init__(self, jobnik: Jobnik) -> None:
        self.jobnik = jobnik
        self.type = fresh()
        self.job = jobnik.job()
        self.stage = jobnik.stage(self.job, self.type)

    def pending(self) -> None:
        self.jobnik.tasks(self.stage)

    def in_progress(self) -> None:
        self.jobnik.tasks(self.stage, 2)
        self.jobnik.take(self.type)

    def paused(self) -> None:
        self.in_progress()
        self.jobnik.steer(self.job, "PAUSED").ok()

    def completed(self) -> None:
        self.pending()
        self.jobnik.work(self.type)

    def failed(self) -> None:
        self.pending()
        self.jobnik.work(self.type, "FAILED")

    def aborted(self) -> None:
        self.in_progress()
        self.jobnik.steer(self.job, "ABORTED").ok()


JOB_STATES: dict[str, tuple[Callable[[Life], None], set[str]]] = {
    "PENDING": (Life.pending, {"PAUSED", "ABORTED"}),
    "IN_PROGRESS": (Life.in_progress, {"PAUSED", "ABORTED"}),
    "PAUSED": (Life.paused, {"PENDING", "ABORTED"}),
    "COMPLETED": (Life.completed, set()),
    "FAILED": (Life.failed, set()),
    "ABORTED": (Life.aborted, set()),
}


@pytest.mark.parametrize("state", JOB_STATES)
def test_what_a_user_may_ask_of_a_job(jobnik: Jobnik, state: str) -> None:
    bring, legal = JOB_STATES[state]
    for target in ("PENDING", "PAUSED", "ABORTED"):
        life = Life(jobnik)
        bring(life)
        before = jobnik.get(f"/jobs/{life.job}?should_return_stages=true")
        assert before["status"] == state
        answer = jobnik.steer(life.job, target)
        if target in legal:
            assert answer.ok() == {"code": "JOB_MODIFIED_SUCCESSFULLY"}
            assert jobnik.states(life.job)[0] == target
        else:
            why = f"Illegal status transition from {state} to {target}"
            problem(answer, 400, ILLEGAL.format("JOB"), why)
            assert jobnik.get(f"/jobs/{life.job}?should_return_stages=true") == before


@pytest.mark.parametrize("state", JOB_STATES)
def test_what_may_be_added_and_deleted_in_which_state(jobnik: Jobnik, state: str) -> None:
    life = Life(jobnik)
    JOB_STATES[state][0](life)
    is_over = state in ("COMPLETED", "FAILED", "ABORTED")
    added = jobnik.ask("POST", f"/jobs/{life.job}/stage", {"type": "t", "data": {}})
    if is_over:
        problem(added, 400, "JOB_IN_FINITE_STATE", "JOB_ALREADY_FINISHED_STAGES_ERROR")
    else:
        assert (added.ok(201)["order"], added.body["status"]) == (2, "CREATED")
    tasks = jobnik.ask("POST", f"/stages/{life.stage}/tasks", [{"data": {}}])
    if is_over:
        problem(tasks, 400, "STAGE_IN_FINITE_STATE", "STAGE_ALREADY_FINISHED_TASKS_ERROR")
    elif state == "PENDING":
        assert tasks.status == 201
    else:
        code = "NOT_ALLOWED_TO_ADD_TASKS_TO_IN_PROGRESS_STAGE"
        problem(tasks, 400, code, "ADD_TASK_NOT_ALLOWED")
    names = [one["id"] for one in jobnik.get(f"/stages/{life.stage}/tasks")]
    deleted = jobnik.ask("DELETE", f"/jobs/{life.job}")
    if not is_over:
        problem(deleted, 400, "JOB_NOT_IN_FINITE_STATE", "JOB_NOT_IN_FINITE_STATE")
        assert jobnik.get(f"/jobs/{life.job}")["status"] == state
        return
    assert deleted.ok() == {"code": "JOB_DELETED_SUCCESSFULLY"}
    problem(jobnik.ask("DELETE", f"/jobs/{life.job}"), 404, "JOB_NOT_FOUND")
    problem(jobnik.ask("GET", f"/jobs/{life.job}"), 404, "JOB_NOT_FOUND")
    problem(jobnik.ask("GET", f"/jobs/{life.job}/stages"), 404, "JOB_NOT_FOUND")
    problem(jobnik.ask("GET", f"/stages/{life.stage}"), 404, "STAGE_NOT_FOUND")
    for task in names:
        problem(jobnik.ask("GET", f"/tasks/{task}"), 404, "TASK_NOT_FOUND")
        problem(jobnik.tell(task, "COMPLETED"), 404, "TASK_NOT_FOUND")
    assert jobnik.get(f"/tasks?stage_type={life.type}") == []
    assert life.job not in [one["id"] for one in jobnik.get("/jobs")]


def test_what_a_user_may_ask_of_a_stage(jobnik: Jobnik) -> None:
    type_, job = fresh(), jobnik.job()
    first = jobnik.stage(job, type_)
    second = jobnik.stage(job, type_, startAsWaiting=True)
    third = jobnik.stage(job, type_)
    assert jobnik.states(job) == ("PENDING", ["PENDING", "WAITING", "CREATED"])
    # Already there: nothing changes. Not its turn: refused, whatever it is.
    assert jobnik.release(first).ok() == {"code": "STAGE_MODIFIED_SUCCESSFULLY"}
    for stage in (second, third):
        answer = jobnik.release(stage)
        problem(answer, 400, ILLEGAL.format("STAGE"), "Previous stage is not COMPLETED")
    jobnik.tasks(first)
    jobnik.take(type_)
    why = "Illegal status transition from {} to PENDING"
    problem(jobnik.release(first), 400, ILLEGAL.format("STAGE"), why.format("IN_PROGRESS"))
    jobnik.tell(jobnik.get(f"/stages/{first}/tasks")[0]["id"], "COMPLETED").ok()
    problem(jobnik.release(first), 400, ILLEGAL.format("STAGE"), why.format("COMPLETED"))
    # A waiting stage takes tasks, gives none out, and holds up all that come after it.
    assert jobnik.states(job) == ("IN_PROGRESS", ["COMPLETED", "WAITING", "CREATED"])
    jobnik.tasks(second)
    jobnik.tasks(third)
    jobnik.nothing(type_)
    assert jobnik.release(second).ok() == {"code": "STAGE_MODIFIED_SUCCESSFULLY"}
    assert jobnik.work(type_) == "COMPLETED"
    assert jobnik.states(job) == ("IN_PROGRESS", ["COMPLETED", "COMPLETED", "PENDING"])
    jobnik.steer(job, "ABORTED").ok()
    problem(jobnik.release(third), 400, ILLEGAL.format("STAGE"), why.format("ABORTED"))


def test_a_first_stage_may_wait_too(jobnik: Jobnik) -> None:
    type_, job = fresh(), jobnik.job()
    stage = jobnik.stage(job, type_, startAsWaiting=True)
    jobnik.tasks(stage)
    jobnik.nothing(type_)
    assert jobnik.states(job) == ("PENDING", ["WAITING"])
    jobnik.release(stage).ok()
    jobnik.work(type_)
    assert jobnik.states(job) == ("COMPLETED", ["COMPLETED"])


def test_what_may_be_reported_of_a_task(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    [one, two] = jobnik.tasks(life.stage, 2, maxAttempts=2)
    why = "Illegal status transition from {} to {}"

    def refused(task: str, word: str, **expected: str) -> None:
        before = jobnik.get(f"/tasks/{task}")
        for status in ("COMPLETED", "FAILED"):
            told = why.format(word, expected.get(status, status))
            problem(jobnik.tell(task, status), 400, ILLEGAL.format("TASK"), told)
        assert jobnik.get(f"/tasks/{task}") == before

    refused(one, "PENDING", FAILED="RETRIED")
    assert [jobnik.take(life.type), jobnik.take(life.type)] == [one, two]
    assert jobnik.tell(one, "FAILED").ok()["status"] == "RETRIED"
    refused(one, "RETRIED", FAILED="FAILED")
    assert jobnik.tell(two, "COMPLETED").ok()["status"] == "COMPLETED"
    refused(two, "COMPLETED", FAILED="RETRIED")
    assert jobnik.take(life.type) == one
    assert jobnik.tell(one, "FAILED").ok()["status"] == "FAILED"
    refused(one, "FAILED")
    assert jobnik.states(life.job) == ("FAILED", ["FAILED"])


def test_three_stages_from_end_to_end(jobnik: Jobnik) -> None:
    type_, job = fresh(), jobnik.job()
    stages = [jobnik.stage(job, type_) for _ in range(3)]
    for stage in stages:
        jobnik.tasks(stage, 3)
    seen = []
    for number, stage in enumerate(stages, start=1):
        for done in range(3):
            jobnik.take(type_)
            assert jobnik.counts(stage).get("inProgress") == 1
            assert jobnik.states(job)[0] == "IN_PROGRESS"
            [running] = list(jobnik.get(f"/tasks?stage_id={stage}&status=IN_PROGRESS"))
            jobnik.tell(running["id"], "COMPLETED").ok()
            assert jobnik.get(f"/stages/{stage}")["percentage"] == (33, 66, 100)[done]
        seen.append(jobnik.get(f"/jobs/{job}")["percentage"])
        if number == 2:
            # What is added does not count before the next stage completes.
            late = jobnik.stage(job, type_)
            assert jobnik.get(f"/jobs/{job}")["percentage"] == 66
    assert seen == [33, 66, 75]
    # An empty stage holds its job open, until it gets tasks.
    assert jobnik.states(job) == ("IN_PROGRESS", [*["COMPLETED"] * 3, "PENDING"])
    jobnik.tasks(late)
    jobnik.work(type_)
    assert jobnik.states(job) == ("COMPLETED", ["COMPLETED"] * 4)
    assert jobnik.get(f"/jobs/{job}")["percentage"] == 100


def test_a_failure_ends_the_job_and_leaves_later_stages_alone(jobnik: Jobnik) -> None:
    type_, job = fresh(), jobnik.job()
    first, second = jobnik.stage(job, type_), jobnik.stage(job, type_)
    third = jobnik.stage(job, type_, startAsWaiting=True)
    [bad, slow, again] = jobnik.tasks(first, 3, maxAttempts=1)
    jobnik.tasks(second)
    for _ in range(2):
        jobnik.take(type_)
    assert jobnik.tell(bad, "FAILED").ok()["status"] == "FAILED"
    assert jobnik.states(job) == ("FAILED", ["FAILED", "CREATED", "WAITING"])
    jobnik.nothing(type_)
    # What runs may still report; nothing else moves for it.
    assert jobnik.tell(slow, "COMPLETED").ok()["status"] == "COMPLETED"
    assert jobnik.counts(first) == {"completed": 1, "failed": 1, "pending": 1}
    assert jobnik.get(f"/stages/{first}")["percentage"] == 33
    assert jobnik.status(again) == "PENDING"
    assert jobnik.states(job) == ("FAILED", ["FAILED", "CREATED", "WAITING"])
    assert jobnik.ask("POST", f"/stages/{third}/tasks", [{"data": {}}]).status == 201


def test_a_sibling_that_may_be_tried_again_is_never_offered_again(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    [bad] = jobnik.tasks(life.stage)
    [late] = jobnik.tasks(life.stage, maxAttempts=3)
    assert [jobnik.take(life.type) for _ in range(2)] == [bad, late]
    jobnik.tell(bad, "FAILED").ok()
    assert jobnik.tell(late, "FAILED").ok()["status"] == "RETRIED"
    jobnik.nothing(life.type)
    assert jobnik.status(late) == "RETRIED"
    assert jobnik.counts(life.stage) == {"failed": 1, "retried": 1}


def test_a_pause_stops_nothing_but_the_dequeue(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    [first, *_] = jobnik.tasks(life.stage, 2)
    jobnik.take(life.type)
    jobnik.steer(life.job, "PAUSED").ok()
    jobnik.nothing(life.type)
    assert jobnik.states(life.job) == ("PAUSED", ["IN_PROGRESS"])
    assert jobnik.tell(first, "COMPLETED").ok()["status"] == "COMPLETED"
    late = jobnik.stage(life.job, life.type)
    assert len(jobnik.tasks(late)) == 1
    jobnik.steer(life.job, "PENDING").ok()
    assert jobnik.states(life.job) == ("PENDING", ["IN_PROGRESS", "CREATED"])
    # After a resume the next word of a worker is the start, and the end is not refused.
    assert jobnik.work(life.type) == "COMPLETED"
    assert jobnik.states(life.job) == ("IN_PROGRESS", ["COMPLETED", "PENDING"])
    assert jobnik.work(life.type) == "COMPLETED"
    assert jobnik.states(life.job) == ("COMPLETED", ["COMPLETED"] * 2)


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_the_last_report_under_a_pause_counts_at_the_resume(jobnik: Jobnik, status: str) -> None:
    life = Life(jobnik)
    [task] = jobnik.tasks(life.stage)
    jobnik.take(life.type)
    jobnik.steer(life.job, "PAUSED").ok()
    assert jobnik.tell(task, status).ok()["status"] == status
    assert jobnik.states(life.job) == ("PAUSED", [status])
    jobnik.steer(life.job, "PENDING").ok()
    assert jobnik.states(life.job) == (status, [status])


def test_a_stage_that_is_added_when_all_is_done_under_a_pause_has_its_turn(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    [task] = jobnik.tasks(life.stage)
    jobnik.take(life.type)
    jobnik.steer(life.job, "PAUSED").ok()
    jobnik.tell(task, "COMPLETED").ok()
    jobnik.tasks(jobnik.stage(life.job, life.type))
    assert jobnik.states(life.job) == ("PAUSED", ["COMPLETED", "PENDING"])
    jobnik.steer(life.job, "PENDING").ok()
    assert jobnik.work(life.type) == "COMPLETED"
    assert jobnik.states(life.job) == ("COMPLETED", ["COMPLETED"] * 2)


def test_an_abort_takes_all_stages_with_it_and_no_report_is_refused(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    jobnik.tasks(life.stage)
    jobnik.work(life.type)
    job = life.job
    assert jobnik.states(job)[0] == "COMPLETED"
    life = Life(jobnik)
    done = jobnik.stage(life.job, life.type)
    waiting = jobnik.stage(life.job, life.type, startAsWaiting=True)
    jobnik.tasks(life.stage)
    jobnik.work(life.type)
    [one, two, three, four] = jobnik.tasks(done, 4)
    jobnik.tasks(waiting)
    for _ in range(3):
        jobnik.take(life.type)
    jobnik.steer(life.job, "ABORTED").ok()
    assert jobnik.states(life.job) == ("ABORTED", ["COMPLETED", "ABORTED", "ABORTED"])
    jobnik.nothing(life.type)
    assert jobnik.tell(one, "COMPLETED").ok()["status"] == "COMPLETED"
    assert jobnik.tell(two, "FAILED").ok()["status"] == "FAILED"
    assert (jobnik.status(three), jobnik.status(four)) == ("IN_PROGRESS", "PENDING")
    counts = {"completed": 1, "failed": 1, "inProgress": 1, "pending": 1}
    assert jobnik.counts(done) == counts
    assert jobnik.states(life.job) == ("ABORTED", ["COMPLETED", "ABORTED", "ABORTED"])
    assert jobnik.get(f"/jobs/{life.job}")["percentage"] == 33
    # What is still in hands goes with the job when that is deleted.
    assert jobnik.ask("DELETE", f"/jobs/{life.job}").status == 200
    problem(jobnik.tell(three, "COMPLETED"), 404, "TASK_NOT_FOUND")


def test_a_report_may_bring_the_lease_of_its_run(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    jobnik.tasks(life.stage, maxAttempts=3)
    first = jobnik.ask("PATCH", f"/stages/{life.type}/tasks/dequeue")
    task, lease = first.body["id"], first.headers["x-detent-lease"]
    jobnik.tell(task, "FAILED", X_Detent_Lease=lease).ok()
    second = jobnik.ask("PATCH", f"/stages/{life.type}/tasks/dequeue")
    late = jobnik.tell(task, "COMPLETED", X_Detent_Lease=lease)
    problem(late, 409, "TASK_STATUS_UPDATE_FAILED")
    assert jobnik.status(task) == "IN_PROGRESS"
    lease = second.headers["x-detent-lease"]
    assert jobnik.tell(task, "COMPLETED", X_Detent_Lease=lease).ok()["status"] == "COMPLETED"


def test_of_rival_reports_one_counts(jobnik: Jobnik) -> None:
    life = Life(jobnik)
    [task, _] = jobnik.tasks(life.stage, 2, maxAttempts=5)
    jobnik.take(life.type)
    words = ["COMPLETED", "FAILED"] * 3
    asks = [("PUT", f"/tasks/{task}/status", {"status": word}) for word in words]
    answers = at_once(jobnik.port, asks)
    [won] = [one for one in answers if one.status == 200]
    # Whoever comes so late that the winner is seen hears that the move is illegal.
    assert {one.status for one in answers if one is not won} <= {409, 400}
    found = jobnik.get(f"/tasks/{task}")
    assert found["status"] == won.body["status"]
    assert found["attempts"] == (0 if found["status"] == "COMPLETED" else 1)
