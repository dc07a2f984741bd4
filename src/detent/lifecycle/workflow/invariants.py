"""What is true of every workflow and step at every version, and of the whole they form."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from detent.lifecycle.event import Event
from detent.lifecycle.life import broken_life, faulty, must_hold
from detent.lifecycle.machine import Machine
from detent.lifecycle.workflow.record import Flow, Step, Workflow
from detent.lifecycle.workflow.standing import outlooks
from detent.lifecycle.workflow.table import STEP, WORKFLOW, StepState, WorkflowState
from detent.lifecycle.workflow.tally import Tally

_WORKABLE = frozenset({StepState.PENDING, StepState.IN_PROGRESS})
_MACHINES: dict[str, Machine] = {WORKFLOW.name: WORKFLOW, STEP.name: STEP}


def check_move(before: Workflow | Step | None, event: Event, after: Workflow | Step) -> None:
    """Raise when one event breaks an invariant of its record; the fault is ours."""
    must_hold(broken_move(before, event, after), event)


def check_flow(flow: Flow) -> None:
    """Raise when the records of one workflow contradict each other; the fault is ours."""
    _raise(flow, broken_flow(flow))


def check_tallies(flow: Flow, steps: Iterable[str]) -> None:
    """Raise when the counters of one of these steps contradict each other."""
    for step in steps:
        _raise(flow, _broken_tally(flow.tally(step)))


def _raise(flow: Flow, fault: str | None) -> None:
    if fault is not None:
        raise faulty(f"workflow {flow.workflow.id}", flow.workflow.version, fault)


def broken_move(before: Workflow | Step | None, event: Event, after: Workflow | Step) -> str | None:
    """The first invariant that this event breaks, as a sentence, or `None`."""
    if (after.cause is not None) != (after.ended_at is not None):
        return "a cause is set exactly in a terminal state"
    return broken_life(_MACHINES[event.kind], before, event, after)


def broken_flow(flow: Flow) -> str | None:
    """The first rule between the records that does not hold, as a sentence, or `None`."""
    return (
        _broken_graph(flow)
        or _broken_opening(flow)
        or _broken_end(flow)
        or next((fault for one in flow.tallies.values() if (fault := _broken_tally(one))), None)
    )


def _broken_graph(flow: Flow) -> str | None:
    seen: set[str] = set()
    for order, step in enumerate(flow.steps.values(), start=1):
        if step.order != order:
            return "orders count from 1, without gaps"
        if not seen.issuperset(step.depends_on):
            return f"step {step.id} depends on a step that does not come before it"
        seen.add(step.id)
    if _is_ordered(flow) and sum(step.state in _WORKABLE for step in flow.steps.values()) > 1:
        return "of steps in a row at most one is workable"
    return None


def _is_ordered(flow: Flow) -> bool:
    return all(
        later.depends_on == (earlier.id,) for earlier, later in pairwise(flow.steps.values())
    )


def _broken_opening(flow: Flow) -> str | None:
    steps, workflow = flow.steps.values(), flow.workflow
    if workflow.opened_at is None and any(step.opened_at is not None for step in steps):
        return "no step of a draft gets its turn"
    is_fresh = workflow.state is WorkflowState.PENDING and workflow.resumed_at is None
    if is_fresh and any(step.started_at is not None for step in steps):
        return "a workflow is pending until one of its steps starts, or again after a resume"
    return None


def _broken_end(flow: Flow) -> str | None:
    state = flow.workflow.state
    if state not in WORKFLOW.terminal:
        return None
    if any(outlook.is_live for outlook in outlooks(flow).values()):
        return "under an ended workflow no step can still run"
    has_failed = any(step.state is StepState.FAILED for step in flow.steps.values())
    if state is not WorkflowState.ABORTED and has_failed != (state is WorkflowState.FAILED):
        return "a workflow that was not aborted failed exactly if one of its steps did"
    return None


def _broken_tally(tally: Tally) -> str | None:
    words = (tally.pending, tally.in_progress, tally.retried, tally.completed, tally.failed)
    if sum(words) != tally.total:
        return "the words of a tally add up to its total"
    if min(*words, tally.withdrawn, tally.waiting, tally.cancelled - tally.withdrawn) < 0:
        return "no counter of a tally is negative"
    if tally.cancelled - tally.withdrawn > tally.failed:
        return "a job cancelled while a worker had it counts as failed"
    return None
