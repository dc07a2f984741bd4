"""A small world for workflow tests: real jobs of the real lifecycle, one workflow, no store.

Every commit goes through `take`, which keeps histories and checks after each of them that folding
gives the records, that tallies equal a recount, that no rule between the records is broken, and
that sweeping left no job to wait in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle.event import By, Event
from detent.lifecycle.job import Accepted as JobAccepted
from detent.lifecycle.job import (
    Cancel,
    Cause,
    Claim,
    Complete,
    Enqueue,
    Fail,
    HandBack,
    Job,
    JobState,
    Lose,
)
from detent.lifecycle.job import Command as JobCommand
from detent.lifecycle.job import Context as JobContext
from detent.lifecycle.job import Lease as JobLease
from detent.lifecycle.job import decide as decide_job
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import Verdict
from detent.lifecycle.workflow import (
    STEP,
    WORKFLOW,
    Abort,
    Accepted,
    AddJobs,
    AddStep,
    Command,
    Context,
    Flow,
    Make,
    Open,
    Pause,
    Release,
    Resume,
    Step,
    StepPlan,
    Unchanged,
    Wait,
    Workflow,
    WorkflowState,
    broken_flow,
    cascade,
    decide,
    delta,
    fold_step,
    fold_workflow,
    is_claimable,
    needs_cascade,
    outlooks,
    recount,
    returned,
    stages,
)

USER, WORKER, SYSTEM = (By(kind, kind.value) for kind in (Actor.USER, Actor.WORKER, Actor.SYSTEM))
WAITING = frozenset({JobState.SCHEDULED, JobState.AVAILABLE, JobState.RETRYABLE})
LOST = JobLease(until=0, lost=True)
ALIVE = JobLease(until=10**15)
RETRY_NOW = Verdict(retry=True, delay_us=0, cause=None)


def ctx(by: By = USER, reason: str | None = None) -> Context:
    return Context(by, "cmd", reason)


def job_ctx(by: By, lease: JobLease | None = None) -> JobContext:
    return JobContext(by, "cmd", place=1, lease=lease, verdict=RETRY_NOW)


class World:
    """One workflow and its jobs, moved by commands of users and reports of workers."""

    def __init__(self, now: int = 1_000) -> None:
        self.now = now
        self.flow: Flow | None = None
        self.jobs: dict[str, Job] = {}
        self.histories: dict[tuple[str, str], list[Event]] = {}
        self.last: Accepted | None = None
        self.percentage = 0
        self.sweeps: list[str] = []
        self.sweeps_at_once = True
        self._is_sweeping = False

    # --- what users ask -----------------------------------------------------------------

    def ask(self, command: Command, by: By = USER) -> Accepted | Unchanged | Refusal:
        before = self.flow
        self.now += 1
        answer = decide(before, command, self.now, ctx(by))
        if isinstance(answer, Accepted):
            self._enqueue(command)
            self.take(answer)
        else:
            assert self.flow is before, "a refused request leaves no trace"
        return answer

    def make(
        self,
        steps: Sequence[StepPlan] = (),
        jobs: int | dict[str, int] = 1,
        *,
        draft: bool = False,
        allowed: int = 1,
        profile: str = "jobnik",
    ) -> World:
        self.allowed, self.profile = allowed, profile
        counts = jobs if isinstance(jobs, dict) else {step.id: jobs for step in steps if jobs}
        self.ok(Make(id="w", steps=tuple(steps), jobs=counts, draft=draft))
        return self

    def ok(self, command: Command, by: By = USER) -> Accepted:
        answer = self.ask(command, by)
        assert isinstance(answer, Accepted), answer
        return answer

    def refused(self, command: Command, by: By = USER) -> Refusal:
        answer = self.ask(command, by)
        assert isinstance(answer, Refusal), answer
        return answer

    def _enqueue(self, command: Command) -> None:
        match command:
            case Make():
                counts = dict(command.jobs)
            case AddStep():
                counts = {command.step.id: command.jobs}
            case AddJobs():
                counts = {command.step: command.jobs}
            case Open() | Pause() | Resume() | Abort() | Release() | Wait():
                counts = {}
        for step, count in counts.items():
            for _ in range(count):
                self._new_job(step)

    def _new_job(self, step: str) -> None:
        job_id = f"{step}/{len(self.of(step))}"
        command = Enqueue(
            id=job_id, profile=self.profile, allowed=self.allowed, workflow="w", step=step
        )
        answer = decide_job(None, command, self.now, job_ctx(USER))
        assert isinstance(answer, JobAccepted)
        self.jobs[job_id] = answer.job

    # --- what workers do ----------------------------------------------------------------

    def of(self, step: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.step == step]

    def claimable(self) -> list[Job]:
        return [
            job for job in self.jobs.values() if job.state is JobState.AVAILABLE and self._on(job)
        ]

    def running(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.state is JobState.ACTIVE]

    def _on(self, job: Job) -> bool:
        assert self.flow is not None
        assert job.step is not None
        return is_claimable(self.flow.workflow, self.flow.steps[job.step])

    def claim(self, step: str, count: int = 1) -> list[Job]:
        found = [job for job in self.claimable() if job.step == step][:count]
        assert len(found) == count, f"{step} has {len(found)} claimable jobs"
        for job in found:
            self.move(job, Claim(lease=f"l{job.attempt}", holder="h", wire=True), WORKER)
        return [self.jobs[job.id] for job in found]

    def run(self, step: str, *, good: bool = True, count: int = 1) -> None:
        for job in self.claim(step, count):
            self.report(job, good=good)

    def report(self, job: Job, *, good: bool = True) -> None:
        job = self.jobs[job.id]
        command = Complete(lease=job.lease) if good else Fail(lease=job.lease, code="E")
        self.move(job, command, WORKER)

    def lose(self, job: Job) -> None:
        self.move(self.jobs[job.id], Lose(), SYSTEM, LOST)

    def hand_back(self, job: Job) -> None:
        self.move(self.jobs[job.id], HandBack(), SYSTEM)

    def cancel(self, job: Job) -> None:
        cause = Cause.WORKFLOW
        self.move(self.jobs[job.id], Cancel(cause, force=True), SYSTEM)

    def move(self, job: Job, command: JobCommand, by: By, lease: JobLease = ALIVE) -> None:
        """One report in one unit: the job, a cancel if it came back in vain, tally, cascade."""
        assert self.flow is not None
        assert job.step is not None
        self.now += 1
        answer = decide_job(job, command, self.now, job_ctx(by, lease))
        assert isinstance(answer, JobAccepted), answer
        after = answer.job
        if returned(self.flow, after):
            swept = decide_job(after, Cancel(Cause.WORKFLOW), self.now, JobContext(SYSTEM, "cmd"))
            assert isinstance(swept, JobAccepted), swept
            after = swept.job
        self.jobs[job.id] = after
        self.flow = self.flow.counting(job.step, delta(job, after))
        needed = needs_cascade(
            self.flow.workflow, self.flow.steps[job.step], self.flow.tally(job.step)
        )
        answered = cascade(self.flow, (job.step,), self.now, ctx(SYSTEM))
        assert needed == bool(answered.events), "needs_cascade tells exactly when an edge follows"
        self.take(answered)

    # --- every commit -------------------------------------------------------------------

    def take(self, answer: Accepted) -> None:
        self._check_gates(answer)
        self.flow = answer.flow
        self.last = answer
        for event in answer.events:
            self.histories.setdefault((event.kind, event.record), []).append(event)
        if answer.percentage is not None:
            self.percentage = answer.percentage
        self.sweeps.extend(answer.sweep)
        self.check()
        if self.sweeps_at_once and not self._is_sweeping:
            self.sweep()
            self.last = answer

    def sweep(self) -> None:
        """What the engine does in bounded batches: cancel whatever waits in these steps."""
        self._is_sweeping = True
        while self.sweeps:
            for job in self.of(self.sweeps[0]):
                if job.state in WAITING:
                    self.cancel(job)
            self.sweeps.pop(0)
        self._is_sweeping = False

    def check(self) -> None:
        flow = self.flow
        assert flow is not None
        assert broken_flow(flow) is None, broken_flow(flow)
        history = self.histories[WORKFLOW.name, "w"]
        assert fold_workflow(history) == flow.workflow
        self._check_moments(history, flow.workflow)
        for step_id, step in flow.steps.items():
            history = self.histories[STEP.name, step_id]
            assert fold_step(history) == step
            assert step.workflow == flow.workflow.id
            self._check_moments(history, step)
            assert flow.tally(step_id) == recount(self.of(step_id)), step_id
            # After a resume the workflow rests until a job is heard of; no step is waited for.
            going = replace(flow.workflow, state=WorkflowState.IN_PROGRESS)
            due = needs_cascade(going, step, flow.tally(step_id))
            assert not due, f"{step_id} was left behind"
        self._check_sweeps(flow)

    def _check_moments(self, history: list[Event], record: Workflow | Step) -> None:
        """What can be told from the events without applying them."""
        moves = [event for event in history if event.target is not None]
        assert [event.version for event in history] == list(range(1, record.version + 1))
        assert (record.created_at, record.last_at) == (history[0].at, history[-1].at)
        assert (record.state, record.state_at) == (moves[-1].target, moves[-1].at)

    def _check_gates(self, answer: Accepted) -> None:
        """Opened and closed are what became claimable and what stopped being so unended."""
        before = self._claimable_steps(self.flow) if self.flow else []
        after = self._claimable_steps(answer.flow)
        assert set(answer.opened) == set(after).difference(before)
        shut = [one for one in before if one not in after]
        steps = answer.flow.steps
        assert set(answer.closed) == {one for one in shut if steps[one].ended_at is None}

    def _claimable_steps(self, flow: Flow) -> list[str]:
        return [one.id for one in flow.steps.values() if is_claimable(flow.workflow, one)]

    def _check_sweeps(self, flow: Flow) -> None:
        hopeless = {one for one, outlook in outlooks(flow).items() if outlook.is_unrunnable}
        for job in self.jobs.values():
            if job.state in WAITING and job.step in hopeless:
                assert job.step in self.sweeps, f"{job.id} waits for ever"

    # --- reading ------------------------------------------------------------------------

    @property
    def state(self) -> str:
        assert self.flow is not None
        return self.flow.workflow.state.value

    def states(self) -> dict[str, str]:
        assert self.flow is not None
        return {step.id: step.state.value for step in self.flow.steps.values()}

    def path(self) -> list[str]:
        """The moves of the last commit, as `record: source -> target`."""
        assert self.last is not None
        return [f"{e.record}: {e.source} -> {e.target}" for e in self.last.events]


def in_state(state: str) -> World:
    """A workflow of two ordered stages, brought into that state by legal moves."""
    world = World().make(stages("a", "b"), draft=state == "created")
    match state:
        case "in_progress":
            world.claim("a")
        case "paused":
            world.ok(Pause())
        case "completed":
            world.run("a")
            world.run("b")
        case "failed":
            world.run("a", good=False)
        case "aborted":
            world.ok(Abort())
        case _:
            pass
    assert world.state == state
    return world
