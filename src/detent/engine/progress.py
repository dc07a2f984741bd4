"""How far workflows are, and what came out of their steps. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from detent.engine.keeping import name_in
from detent.lifecycle.workflow import (
    Flow,
    Step,
    StepState,
    Tally,
    Workflow,
    step_percentage,
    workflow_percentage,
)


class Listed(msgspec.Struct, frozen=True):
    """A workflow in a list."""

    workflow: Workflow
    name: str = ""


class StepProgress(msgspec.Struct, frozen=True):
    """A step by its name: where it stands, and how its jobs do."""

    name: str
    state: StepState
    tally: Tally
    percentage: int
    depends_on: tuple[str, ...] = ()
    needs_approval: bool = False


class Progress(msgspec.Struct, frozen=True):
    """A workflow and all its steps, in order.

    `percentage` counts completed steps; each step has a percentage of its own that counts jobs.
    """

    workflow: Workflow
    percentage: int
    steps: tuple[StepProgress, ...]
    name: str = ""
    meta: str = "{}"

    def step(self, name: str) -> StepProgress:
        """The step of that name, which must be there."""
        return next(step for step in self.steps if step.name == name)


class Result(msgspec.Struct, frozen=True):
    """What a job left behind: exact JSON, or `None` if it did not complete or said nothing."""

    job_id: str
    state: str
    result: str | None
    type: str = ""
    started_at: int | None = None
    ended_at: int | None = None


class Before(msgspec.Struct, frozen=True):
    """The names of the steps that a step comes after: those it waits for, and theirs as well."""

    near: tuple[str, ...] = ()
    all: tuple[str, ...] = ()


def progress_of(flow: Flow, name: str, meta: str) -> Progress:
    """What there is to say about a workflow."""
    steps = tuple(_step(step, flow.tally(step.id)) for step in flow.steps.values())
    return Progress(flow.workflow, workflow_percentage(flow.steps), steps, name, meta)


def before(flow: Flow, step_id: str) -> Before:
    """What a step comes after, each in the order of the workflow."""
    everything: set[str] = set()
    for step in reversed(flow.steps.values()):
        if step.id == step_id or step.id in everything:
            everything.update(step.depends_on)
    near = flow.steps[step_id].depends_on if step_id in flow.steps else ()
    return Before(_names(flow, near), _names(flow, everything))


def _names(flow: Flow, steps: Collection[str]) -> tuple[str, ...]:
    return tuple(name_in(flow.workflow.id, one) for one in flow.steps if one in steps)


def _step(step: Step, tally: Tally) -> StepProgress:
    before = tuple(name_in(step.workflow, one) for one in step.depends_on)
    return StepProgress(
        name_in(step.workflow, step.id),
        step.state,
        tally,
        step_percentage(tally),
        before,
        step.state is StepState.WAITING,
    )
