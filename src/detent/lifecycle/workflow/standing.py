"""Where a step stands in its graph: whether its turn has come, may come, or never will.

A step that has not ended is *dead* when its condition can never be met any more. There are two
kinds of dead: blocked, because something before it failed, and spared, because the failure it is
for did not happen. For the steps after it a blocked step counts as failed, a spared one does not.
A verdict, once given, never changes: that is why a step is spared only when everything before it
is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from detent.lifecycle.job import Gate
from detent.lifecycle.workflow.plan import Condition
from detent.lifecycle.workflow.record import Flow, Step, Workflow
from detent.lifecycle.workflow.table import StepState, WorkflowState


class Outlook(StrEnum):
    """What can still become of a step."""

    LATER = "later"
    READY = "ready"
    DONE = "done"
    BROKEN = "broken"
    BLOCKED = "blocked"
    SPARED = "spared"

    @property
    def is_live(self) -> bool:
        """Whether the step may still run, now or later."""
        return self is Outlook.READY or self is Outlook.LATER

    @property
    def is_unrunnable(self) -> bool:
        """Whether whatever still waits in the step waits in vain."""
        return self in _UNRUNNABLE


_UNRUNNABLE = frozenset({Outlook.BROKEN, Outlook.BLOCKED, Outlook.SPARED})
_ENDED = {
    StepState.COMPLETED: Outlook.DONE,
    StepState.FAILED: Outlook.BROKEN,
    StepState.ABORTED: Outlook.BROKEN,
}
_LIVE = frozenset({Outlook.LATER, Outlook.READY})
_BAD = frozenset({Outlook.BROKEN, Outlook.BLOCKED})
_WORKABLE = frozenset({StepState.PENDING, StepState.IN_PROGRESS})
_RUNNING = frozenset({WorkflowState.PENDING, WorkflowState.IN_PROGRESS})


def outlooks(flow: Flow) -> dict[str, Outlook]:
    """The outlook of every step, in order; one pass over steps and dependencies."""
    found: dict[str, Outlook] = {}
    for step in flow.steps.values():
        found[step.id] = judge(step, found.__getitem__)
    return found


def judge(step: Step, look: Callable[[str], Outlook]) -> Outlook:
    """The outlook of one step; `look` gives those of the steps it depends on."""
    return at_a_glance(step) or turn(step, look)


def at_a_glance(step: Step) -> Outlook | None:
    """The outlook of a step that has ended or has had its turn; its state alone tells."""
    if step.ended_at is not None:
        return _ENDED[step.state]
    return None if step.opened_at is None else Outlook.READY


def turn(step: Step, look: Callable[[str], Outlook]) -> Outlook:
    """What its dependencies alone say about a step: it must wait, is ready, or is dead."""
    before = {look(one) for one in step.depends_on}
    if step.policy.condition is Condition.SUCCESS:
        return _judge_success(before)
    if before & _LIVE:
        return Outlook.LATER
    if step.policy.condition is Condition.ALWAYS or before & _BAD:
        return Outlook.READY
    return Outlook.SPARED


def _judge_success(before: set[Outlook]) -> Outlook:
    if before & _BAD:
        return Outlook.BLOCKED
    if before & _LIVE:
        return Outlook.LATER
    return Outlook.SPARED if Outlook.SPARED in before else Outlook.READY


def is_running(workflow: Workflow) -> bool:
    """Whether the workflow lets its jobs start."""
    return workflow.state in _RUNNING


def is_claimable(workflow: Workflow, step: Step) -> bool:
    """Whether jobs of the step may be taken, as far as step and workflow are concerned."""
    return is_running(workflow) and step.state in _WORKABLE


def gate_of(workflow: Workflow, step: Step) -> Gate:
    """The two as a job sees them: closed or not, and since when its waiting limit runs."""
    opened = (step.opened_at, workflow.opened_at, workflow.resumed_at)
    latest = max((at for at in opened if at is not None), default=None)
    return Gate(closed=not is_claimable(workflow, step), opened_at=latest)
