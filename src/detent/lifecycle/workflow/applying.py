"""`apply_workflow` and `apply_step`: the only writers of their records.

Deciding and folding both go through them. They trust the event; what is legal was settled before
it was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from detent.lifecycle.event import Event
from detent.lifecycle.life import creates_nothing
from detent.lifecycle.workflow.plan import Condition, Fails, Policy, WhenEmpty
from detent.lifecycle.workflow.record import Step, Workflow
from detent.lifecycle.workflow.table import STEP, WORKFLOW, StepState, WorkflowState

_Changes = dict[str, Any]


def apply_workflow(workflow: Workflow | None, event: Event) -> Workflow:
    """The workflow after the event; `None` before the first one."""
    if workflow is None:
        return _born_workflow(event)
    changes = {} if event.target is None else _moved_workflow(workflow, event, event.target)
    return replace(workflow, version=event.version, last_at=event.at, **changes)


def apply_step(step: Step | None, event: Event) -> Step:
    """The step after the event; `None` before the first one."""
    if step is None:
        return _born_step(event)
    changes = _moved_step(step, event)
    return replace(step, version=event.version, last_at=event.at, **changes)


def fold_workflow(events: Iterable[Event]) -> Workflow | None:
    """The workflow that this history leaves behind, or `None` for an empty one."""
    workflow: Workflow | None = None
    for event in events:
        workflow = apply_workflow(workflow, event)
    return workflow


def fold_step(events: Iterable[Event]) -> Step | None:
    """The step that this history leaves behind, or `None` for an empty one."""
    step: Step | None = None
    for event in events:
        step = apply_step(step, event)
    return step


def _born_workflow(event: Event) -> Workflow:
    if event.kind != WORKFLOW.name or event.source is not None or event.target is None:
        raise creates_nothing(event)
    return Workflow(
        tenant=event.tenant,
        id=event.record,
        version=event.version,
        state=WorkflowState(event.target),
        created_at=event.at,
        state_at=event.at,
        last_at=event.at,
    )


def _moved_workflow(workflow: Workflow, event: Event, target: str) -> _Changes:
    state = WorkflowState(target)
    changes: _Changes = {"state": state, "state_at": event.at}
    if workflow.state is WorkflowState.PAUSED and state is WorkflowState.PENDING:
        changes["resumed_at"] = event.at
    if state is WorkflowState.PENDING and workflow.opened_at is None:
        changes["opened_at"] = event.at
    elif state is WorkflowState.IN_PROGRESS and workflow.started_at is None:
        changes["started_at"] = event.at
    elif state in WORKFLOW.terminal:
        changes |= {"ended_at": event.at, "cause": event.cause}
    return changes


def _born_step(event: Event) -> Step:
    made = event.step_made
    if made is None or event.kind != STEP.name or event.target is None:
        raise creates_nothing(event)
    policy = Policy(
        Fails(made.fails), Condition(made.condition), WhenEmpty(made.when_empty), made.gate
    )
    return Step(
        tenant=event.tenant,
        id=event.record,
        workflow=made.workflow,
        order=made.order,
        version=event.version,
        state=StepState(event.target),
        created_at=event.at,
        state_at=event.at,
        last_at=event.at,
        depends_on=made.depends_on,
        policy=policy,
    )


def _moved_step(step: Step, event: Event) -> _Changes:
    target = StepState(str(event.target))
    changes: _Changes = {"state": target, "state_at": event.at}
    if target is StepState.PENDING:
        changes["opened_at"] = event.at
    elif target is StepState.IN_PROGRESS and step.started_at is None:
        changes["started_at"] = event.at
    elif target in STEP.terminal:
        changes |= {"ended_at": event.at, "cause": event.cause}
    return changes
