"""`decide`: what a command does to a workflow and its steps, pure.

A command moves what it names; then the graph settles in the same commit: steps get their turn, end
if their jobs already have, and the workflow follows. Commands cost time in proportion to the size
of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from detent.errors import BadPolicy
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.workflow import commands as c
from detent.lifecycle.workflow.cascade import settle
from detent.lifecycle.workflow.commit import Commit, Move, must
from detent.lifecycle.workflow.invariants import check_flow
from detent.lifecycle.workflow.plan import StepPlan
from detent.lifecycle.workflow.record import Accepted, Answer, Context, Flow, Unchanged
from detent.lifecycle.workflow.shapes import check_graph, check_growth
from detent.lifecycle.workflow.standing import outlooks
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
from detent.lifecycle.workflow.tally import fresh

_OPENS = Move(WorkflowEvent.OPEN, WorkflowState.PENDING)
_PAUSES = Move(WorkflowEvent.PAUSE, WorkflowState.PAUSED)
_RESUMES = Move(WorkflowEvent.RESUME, WorkflowState.PENDING)
_ABORTS = Move(WorkflowEvent.ABORT, WorkflowState.ABORTED, WorkflowCause.REQUESTED)
_EXTENDS = Move(WorkflowEvent.EXTENDED, None)
_STEP_ABORTS = Move(StepEvent.ABORT, StepState.ABORTED, StepCause.WORKFLOW)
_RELEASES = Move(StepEvent.RELEASE, StepState.PENDING)
_WAITS = Move(StepEvent.WAIT, StepState.WAITING)

_OWNER = frozenset({Actor.USER, Actor.SYSTEM})
_ASKERS = {c.AddJobs: _OWNER, c.Release: frozenset({Actor.USER}), c.Wait: _OWNER}
_TARGETS = {c.Release: StepState.PENDING, c.Wait: StepState.WAITING}


def decide(flow: Flow | None, command: c.Command, now: int, ctx: Context) -> Answer:
    """What the command does to the workflow: accepted with its events, unchanged, or refused."""
    if isinstance(command, c.Make):
        return _make(flow, command, now, ctx)
    if flow is None:
        return WORKFLOW.refusal(
            "unknown_workflow", None, command.event, ctx.by.kind, detail="no such workflow"
        )
    if isinstance(command, c.AddJobs | c.Release | c.Wait) and command.step not in flow.steps:
        detail = f"no step {command.step!r} in it"
        return STEP.refusal("unknown_step", None, command.event, ctx.by.kind, detail=detail)
    return _barred(flow, command, ctx) or _DECIDERS[type(command)](flow, command, now, ctx)


def _barred(flow: Flow, command: c.Command, ctx: Context) -> Refusal | None:
    """Who may not ask is refused before the step is looked at, also where nothing would change.

    The other commands always fire an edge of the workflow, which asks for the actor itself.
    """
    if not isinstance(command, c.AddJobs | c.Release | c.Wait):
        return None
    if ctx.by.kind in _ASKERS[type(command)]:
        return None
    state, target = flow.steps[command.step].state, _TARGETS.get(type(command))
    return STEP.refusal("wrong_actor", state, command.event, ctx.by.kind, target=target)


def _make(flow: Flow | None, command: c.Make, now: int, ctx: Context) -> Answer:
    if flow is not None:
        return _refused("exists", flow, command.event, ctx, "a workflow of that id exists")
    try:
        steps = check_graph(command.steps) if command.steps else ()
    except BadPolicy as error:
        return _refused("bad_graph", flow, command.event, ctx, error.message)
    if not command.jobs.keys() <= {step.id for step in steps} or _negative(command.jobs):
        fault = "jobs must name steps of the workflow, with a count of at least 0"
        return _refused("bad_value", flow, command.event, ctx, fault)
    commit = Commit.starting((command.tenant, command.id), now, ctx)
    if isinstance(commit, Refusal):
        return commit
    for step in steps:
        commit.add_step(step, command.jobs.get(step.id, 0))
    if not command.draft:
        # A workflow was asked for; that it opens at once is the system's doing.
        must(commit.move_workflow(_OPENS))
    return _settled(commit, commit.steps)


def _negative(jobs: dict[str, int]) -> bool:
    return any(count < 0 for count in jobs.values())


def _add_step(flow: Flow, command: c.AddStep, now: int, ctx: Context) -> Answer:
    if flow.workflow.state in WORKFLOW.terminal:
        return _refused("workflow_finished", flow, command.event, ctx, "it has ended")
    if command.step.id in flow.steps:
        fault = f"it has a step {command.step.id!r} already"
        return _refused("step_exists", flow, command.event, ctx, fault)
    if command.jobs < 0:
        return _refused("bad_value", flow, command.event, ctx, "jobs must be at least 0")
    plan = _placed(flow, command)
    try:
        check_growth(plan, flow.steps)
    except BadPolicy as error:
        return _refused("bad_graph", flow, command.event, ctx, error.message)
    commit = Commit(flow, now, ctx)
    if refusal := commit.move_workflow(_EXTENDS, ctx.by):
        return refusal
    commit.add_step(plan, command.jobs)
    return _settled(commit, (plan.id,))


def _placed(flow: Flow, command: c.AddStep) -> StepPlan:
    plan = command.step
    if not command.after_last or not flow.steps:
        return plan
    last = next(reversed(flow.steps))
    others = tuple(one for one in plan.depends_on if one != last)
    return replace(plan, depends_on=(*others, last))


def _add_jobs(flow: Flow, command: c.AddJobs, now: int, ctx: Context) -> Answer:
    """Only the step's own state counts, so that a paused workflow can be filled.

    A step that can never get its turn takes jobs too, because a client cannot know that; they are
    swept at once, so that none of them waits for ever.
    """
    step = flow.steps[command.step]
    if command.jobs < 1:
        return _refused("bad_value", flow, command.event, ctx, "jobs must be at least 1")
    if step.state in STEP.terminal:
        detail = "the step has ended"
        return STEP.refusal("step_finished", step.state, command.event, ctx.by.kind, detail=detail)
    if step.state is StepState.IN_PROGRESS:
        detail = "the step is running; add a step instead"
        return STEP.refusal("step_running", step.state, command.event, ctx.by.kind, detail=detail)
    is_vain = outlooks(flow)[step.id].is_unrunnable
    after = flow.counting(step.id, fresh(command.jobs))
    return Accepted(after, sweep=(step.id,) if is_vain else ())


def _open(flow: Flow, command: c.Open, now: int, ctx: Context) -> Answer:
    commit = Commit(flow, now, ctx)
    if refusal := commit.move_workflow(_OPENS, ctx.by):
        return refusal
    return _settled(commit, commit.steps)


def _pause(flow: Flow, command: c.Pause, now: int, ctx: Context) -> Answer:
    commit = Commit(flow, now, ctx)
    return commit.move_workflow(_PAUSES, ctx.by) or _checked(commit)


def _resume(flow: Flow, command: c.Resume, now: int, ctx: Context) -> Answer:
    """It rests in pending until a job is heard of, unless all was done under the pause."""
    commit = Commit(flow, now, ctx)
    if refusal := commit.move_workflow(_RESUMES, ctx.by):
        return refusal
    return _settled(commit, commit.steps)


def _abort(flow: Flow, command: c.Abort, now: int, ctx: Context) -> Answer:
    commit = Commit(flow, now, ctx)
    if refusal := commit.move_workflow(_ABORTS, ctx.by):
        return refusal
    for step in flow.steps.values():
        if step.state not in STEP.terminal:
            must(commit.move_step(step.id, _STEP_ABORTS))
    return _settled(commit, commit.steps)


def _release(flow: Flow, command: c.Release, now: int, ctx: Context) -> Answer:
    """That its turn has come is asked before whether it waits at all: callers rely on the order."""
    step = flow.steps[command.step]
    if step.state is StepState.PENDING:
        return Unchanged(flow)
    commit = Commit(flow, now, ctx)
    refusal = commit.unmet("turn", step.id, _RELEASES, ctx.by)
    refusal = refusal or commit.move_step(step.id, _RELEASES, ctx.by)
    if refusal:
        return refusal
    return _settled(commit, (step.id,))


def _wait(flow: Flow, command: c.Wait, now: int, ctx: Context) -> Answer:
    if flow.workflow.state in WORKFLOW.terminal:
        return _refused("workflow_finished", flow, command.event, ctx, "it has ended")
    if flow.steps[command.step].state is StepState.WAITING:
        return Unchanged(flow)
    # The edge is the system's; an operator's wish is carried out by it, under the operator's name.
    commit = Commit(flow, now, ctx)
    by = By(Actor.SYSTEM, ctx.by.id)
    return commit.move_step(command.step, _WAITS, by) or _checked(commit)


def _settled(commit: Commit, asked: Collection[str]) -> Accepted:
    settle(commit, asked)
    return _checked(commit)


def _checked(commit: Commit) -> Accepted:
    answer = commit.finish()
    check_flow(answer.flow)
    return answer


def _refused(code: str, flow: Flow | None, event: str, ctx: Context, detail: str) -> Refusal:
    state = None if flow is None else flow.workflow.state
    return WORKFLOW.refusal(code, state, event, ctx.by.kind, detail=detail)


_DECIDERS: dict[type, Callable[[Flow, Any, int, Context], Answer]] = {
    c.AddStep: _add_step,
    c.AddJobs: _add_jobs,
    c.Open: _open,
    c.Pause: _pause,
    c.Resume: _resume,
    c.Abort: _abort,
    c.Release: _release,
    c.Wait: _wait,
}
