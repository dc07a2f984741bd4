"""The records of a workflow and its steps, the whole they form, and the answers about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.workflow.plan import Policy
from detent.lifecycle.workflow.table import StepState, WorkflowState
from detent.lifecycle.workflow.tally import NOTHING, Tally

CASCADED_BY = By(Actor.SYSTEM, "cascade")
"""Who moves workflows and steps when nothing but their jobs and their graph ask for it."""


class Workflow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workflow's lifecycle, whole: everything here is rebuilt by folding its events.

    `opened_at` is when it stopped being a draft and `started_at` when its first step started; both
    are set once. `resumed_at` is the latest resume.
    """

    tenant: str
    id: str
    version: int
    state: WorkflowState
    created_at: int
    state_at: int
    last_at: int
    opened_at: int | None = None
    started_at: int | None = None
    resumed_at: int | None = None
    ended_at: int | None = None
    cause: str | None = None


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step's lifecycle, whole; `order` counts from 1, and it depends on lower orders only.

    `opened_at` is its latest entry into pending, `started_at` its first entry into in_progress.
    """

    tenant: str
    id: str
    workflow: str
    order: int
    version: int
    state: StepState
    created_at: int
    state_at: int
    last_at: int
    depends_on: tuple[str, ...] = ()
    policy: Policy = Policy()
    opened_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None
    cause: str | None = None


class Flow(msgspec.Struct, frozen=True):
    """A workflow with all its steps, by id and in their order, and the tallies of those with jobs.

    Decisions read it and never change it.
    """

    workflow: Workflow
    steps: dict[str, Step] = {}
    tallies: dict[str, Tally] = {}

    @classmethod
    def of(
        cls, workflow: Workflow, steps: Iterable[Step], tallies: Mapping[str, Tally] | None = None
    ) -> Flow:
        """The flow of these records, in whatever order they were read."""
        in_order = sorted(steps, key=lambda step: step.order)
        return cls(workflow, {step.id: step for step in in_order}, dict(tallies or {}))

    def tally(self, step: str) -> Tally:
        """The counters of that step; all zero when none were kept yet."""
        return self.tallies.get(step, NOTHING)

    def counting(self, step: str, change: Tally) -> Flow:
        """This flow after a change of one step's counters."""
        tallies = {**self.tallies, step: self.tally(step) + change}
        return msgspec.structs.replace(self, tallies=tallies)


class Context(msgspec.Struct, frozen=True):
    """Who asks, under which command, and why."""

    by: By
    command_id: str
    reason: str | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The flow as it is afterwards, the events of one commit in order, and what the jobs must hear.

    Jobs of `opened` steps became claimable with this commit, those of `closed` ones stopped being
    so for now, and the waiting jobs of `sweep` can never run any more: the system cancels them.
    `percentage` is the workflow's new one, `None` while no step completed.
    """

    flow: Flow
    events: tuple[Event, ...] = ()
    opened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()
    percentage: int | None = None


class Unchanged(msgspec.Struct, frozen=True):
    """Nothing to do: no event, no version."""

    flow: Flow


Answer: TypeAlias = Accepted | Unchanged | Refusal


def workflow_percentage(steps: Mapping[str, Step]) -> int:
    """Completed steps of all steps, rounded down; taken anew only when a step completes.

    So a step that was added since the last completion does not count yet.
    """
    ends = [step.ended_at for step in steps.values() if step.state is StepState.COMPLETED]
    latest = max((end for end in ends if end is not None), default=None)
    if latest is None:
        return 0
    return 100 * len(ends) // sum(step.created_at <= latest for step in steps.values())
