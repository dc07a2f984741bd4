"""`cascade`: what follows for steps and workflow when the tally of a step has changed.

It looks at where the counters stand, not at what moved them, so that a batch of a thousand reports
is one question and asking twice changes nothing. Two edges can follow per step, its start and its
end, and a workflow that was resumed starts again with the first word of its jobs; `needs_cascade`
tells from the workflow, one step and its tally whether any of that is due.

What it costs: judging is done for the steps touched and for those that depend on a step decided in
this commit. Around that, an end walks once over the list of steps to find them, well under a
microsecond each; only a step whose dependencies have not had their turn, a failure, and the end of
the workflow look at the whole graph.
"""

from __future__ import annotations

from collections.abc import Collection

from detent.lifecycle.job import Job
from detent.lifecycle.job.table import PARKED
from detent.lifecycle.workflow.commit import Commit, Move, must
from detent.lifecycle.workflow.invariants import check_flow, check_tallies
from detent.lifecycle.workflow.plan import Fails, WhenEmpty
from detent.lifecycle.workflow.record import Accepted, Context, Flow, Step, Workflow
from detent.lifecycle.workflow.standing import Outlook, is_running, judge
from detent.lifecycle.workflow.table import (
    STEP,
    WORKFLOW,
    StepCause,
    StepEvent,
    StepState,
    WorkflowCause,
    WorkflowEvent,
    WorkflowState,
)
from detent.lifecycle.workflow.tally import NOTHING, Tally

_OPENS = Move(StepEvent.OPEN, StepState.PENDING)
_STARTS = Move(StepEvent.START, StepState.IN_PROGRESS)
_COMPLETES = Move(StepEvent.COMPLETE, StepState.COMPLETED, StepCause.SUCCEEDED)
_COMPLETES_EMPTY = Move(StepEvent.COMPLETE, StepState.COMPLETED, StepCause.EMPTY)
_FAILS = Move(StepEvent.FAIL, StepState.FAILED, StepCause.JOB_FAILED)
_FAILS_CANCELLED = Move(StepEvent.FAIL, StepState.FAILED, StepCause.JOB_CANCELLED)

_FLOW_STARTS = Move(WorkflowEvent.START, WorkflowState.IN_PROGRESS)
_FLOW_COMPLETES = Move(WorkflowEvent.COMPLETE, WorkflowState.COMPLETED, WorkflowCause.SUCCEEDED)
_FLOW_FAILS = Move(WorkflowEvent.FAIL, WorkflowState.FAILED, WorkflowCause.STEP_FAILED)


def cascade(flow: Flow, touched: Collection[str], now: int, ctx: Context) -> Accepted:
    """Every move that follows from the tallies of the touched steps, in one commit.

    The flow holds the tallies as they are after the change. Under a workflow that has ended, and
    in a step that waits or has ended, nothing follows: the counters move, the states stay.
    """
    check_tallies(flow, touched)
    commit = Commit(flow, now, ctx)
    if any(_goes_on(flow.workflow, flow.steps[step]) for step in touched):
        _start_workflow(commit)
    ended = [step for step in touched if _advance(commit, step)]
    if ended:
        settle(commit, ended)
    answer = commit.finish()
    if answer.flow.workflow.ended_at is not None and answer.events:
        check_flow(answer.flow)
    return answer


def needs_cascade(workflow: Workflow, step: Step, tally: Tally) -> bool:
    """Whether a move is due; false means that `cascade` would answer no event."""
    if _goes_on(workflow, step):
        return True
    return is_due(step, tally)


def _goes_on(workflow: Workflow, step: Step) -> bool:
    """A job was heard of whose step had started, while its workflow rests after a resume."""
    return workflow.state is WorkflowState.PENDING and step.started_at is not None


def is_due(step: Step, tally: Tally) -> bool:
    """Whether the step itself must start or end; true also if none of its jobs was heard of."""
    if step.state is StepState.PENDING:
        return tally.has_begun or _ending(step, tally) is not None
    return step.state is StepState.IN_PROGRESS and _ending(step, tally) is not None


def returned(flow: Flow, job: Job) -> bool:
    """Whether this job came back to wait where nothing will ever run again.

    The system then cancels it in the same unit. Only what once ran can come back, so its step had
    its turn: all that can have happened is that the step or the workflow has ended since.
    """
    if job.step is None or job.state not in PARKED:
        return False
    has_ended = flow.steps[job.step].state in STEP.terminal
    return has_ended or flow.workflow.state in WORKFLOW.terminal


def settle(commit: Commit, asked: Collection[str]) -> None:
    """Judge the steps asked about and all that follows from how they stand, in their order.

    One pass is enough, because a step depends only on steps that come before it; what depends on
    nothing that was decided is passed over. In the end the workflow may be over.
    """
    asked = set(asked)
    decided: set[str] = set()
    for step_id, step in tuple(commit.steps.items()):
        if step_id not in asked and decided.isdisjoint(step.depends_on):
            continue
        outlook = commit.known[step_id] = _take_turn(commit, step_id)
        if not outlook.is_live:
            decided.add(step_id)
    if _is_over(commit):
        _end_workflow(commit)


def _start_workflow(commit: Commit) -> None:
    """A step has started: so has its workflow, unless it is paused."""
    if commit.workflow.state is WorkflowState.PENDING:
        must(commit.move_workflow(_FLOW_STARTS))


def _take_turn(commit: Commit, step_id: str) -> Outlook:
    """Let the step go as far as it may, and say what can still become of it."""
    outlook = judge(commit.steps[step_id], commit.outlook)
    if outlook is not Outlook.READY or commit.workflow.opened_at is None:
        return outlook
    if commit.steps[step_id].state is StepState.CREATED:
        must(commit.move_step(step_id, _OPENS))
    _advance(commit, step_id)
    return judge(commit.steps[step_id], commit.outlook)


def _advance(commit: Commit, step_id: str) -> bool:
    """Take the step as far as its tally says; whether it ended with that."""
    step, tally = commit.steps[step_id], commit.tallies.get(step_id, NOTHING)
    if not is_due(step, tally):
        return False
    if step.state is StepState.PENDING:
        must(commit.move_step(step_id, _STARTS))
        _start_workflow(commit)
    ending = _ending(step, tally)
    if ending is None:
        return False
    must(commit.move_step(step_id, ending))
    return True


def _ending(step: Step, tally: Tally) -> Move | None:
    """How a step that may end does end with this tally, or `None` while it goes on."""
    if not tally.total:
        return _COMPLETES_EMPTY if step.policy.when_empty is WhenEmpty.COMPLETE else None
    if tally.completed == tally.total:
        return _COMPLETES
    if not tally.spoiled:
        return None
    if step.policy.fails is Fails.WHEN_ALL_DONE and tally.ended < tally.total:
        return None
    return _FAILS if tally.spoiled > tally.cancelled else _FAILS_CANCELLED


def _is_over(commit: Commit) -> bool:
    """Whether an open workflow has no step left that can run.

    Mostly one is workable, and that is seen without looking at the graph. A paused workflow keeps
    its end for when it is resumed, and one without steps waits for its first.
    """
    if not is_running(commit.workflow) or not commit.steps:
        return False
    pending, running = StepState.PENDING, StepState.IN_PROGRESS
    if any(step.state is pending or step.state is running for step in commit.steps.values()):
        return False
    return not any(commit.outlook(step_id).is_live for step_id in commit.steps)


def _end_workflow(commit: Commit) -> None:
    _start_workflow(commit)
    has_failed = any(step.state is StepState.FAILED for step in commit.steps.values())
    must(commit.move_workflow(_FLOW_FAILS if has_failed else _FLOW_COMPLETES))
