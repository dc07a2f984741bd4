"""One commit in the making: the records as they stand so far and the events that led there.

Every move goes through the tables here, guards included, and is checked as it is made. A refused
move leaves the commit as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from detent.errors import BadHistory
from detent.lifecycle.event import By, Event, StepMade
from detent.lifecycle.machine import Machine, Refusal
from detent.lifecycle.workflow.applying import apply_step, apply_workflow
from detent.lifecycle.workflow.guards import GUARDS
from detent.lifecycle.workflow.invariants import check_move
from detent.lifecycle.workflow.plan import StepPlan
from detent.lifecycle.workflow.record import (
    CASCADED_BY,
    Accepted,
    Context,
    Flow,
    Step,
    Workflow,
    workflow_percentage,
)
from detent.lifecycle.workflow.standing import (
    Outlook,
    at_a_glance,
    is_claimable,
    is_running,
    outlooks,
)
from detent.lifecycle.workflow.table import STEP, WORKFLOW, StepEvent, StepState
from detent.lifecycle.workflow.tally import fresh


class Move(NamedTuple):
    """What is asked of a table; a target of `None` is an amendment."""

    event: str
    target: str | None
    cause: str | None = None


_GATED = Move(StepEvent.WAIT, StepState.WAITING)


def must(refusal: Refusal | None) -> None:
    """What follows from moves already made cannot be refused; if it is, the fault is ours."""
    if refusal is not None:
        raise _fault(refusal)


def _fault(refusal: Refusal) -> BadHistory:
    return BadHistory(refusal.message, **msgspec.structs.asdict(refusal))


class Commit:
    """Collects moves of one workflow and its steps; `finish` makes the answer of them.

    `known` holds the outlook of every step that was judged in this commit. Steps are judged in
    their order, so what is not there stands as it did before.
    """

    __slots__ = (
        "_earlier",
        "before",
        "ctx",
        "events",
        "known",
        "now",
        "steps",
        "tallies",
        "workflow",
    )

    def __init__(self, flow: Flow, now: int, ctx: Context) -> None:
        self.before = flow
        self.now = now
        self.ctx = ctx
        self.events: list[Event] = []
        self.workflow = flow.workflow
        self.steps = dict(flow.steps)
        self.tallies = dict(flow.tallies)
        self.known: dict[str, Outlook] = {}
        self._earlier: dict[str, Outlook] | None = None

    @classmethod
    def starting(cls, key: tuple[str, str], now: int, ctx: Context) -> Commit | Refusal:
        """The commit that begins with the birth of the workflow of that tenant and id."""
        event = _birth(WORKFLOW, key, now, ctx)
        if isinstance(event, Refusal):
            return event
        workflow = apply_workflow(None, event)
        check_move(None, event, workflow)
        commit = cls(Flow(workflow), now, ctx)
        commit.events.append(event)
        return commit

    def move_workflow(self, move: Move, by: By = CASCADED_BY) -> Refusal | None:
        """Move the workflow, or say why not."""
        before = self.workflow
        fired = WORKFLOW.fire(before.state, move.event, move.target, by.kind)
        if isinstance(fired, Refusal):
            return fired
        event = self._event(WORKFLOW.name, before, move, by)
        self.workflow = apply_workflow(before, event)
        check_move(before, event, self.workflow)
        self.events.append(event)
        return None

    def move_step(self, step_id: str, move: Move, by: By = CASCADED_BY) -> Refusal | None:
        """Move one step, or say why not."""
        before = self.steps[step_id]
        fired = STEP.fire(before.state, move.event, move.target, by.kind)
        if isinstance(fired, Refusal):
            return fired
        for guard in fired.guards:
            if refusal := self.unmet(guard, step_id, move, by):
                return refusal
        event = self._event(STEP.name, before, move, by)
        after = self.steps[step_id] = apply_step(before, event)
        check_move(before, event, after)
        self.events.append(event)
        return None

    def unmet(self, guard: str, step_id: str, move: Move, by: By) -> Refusal | None:
        """The refusal if that guard does not hold for the step."""
        rule, step = GUARDS[guard], self.steps[step_id]
        if rule.holds(self.workflow, step, self.outlook):
            return None
        return STEP.refusal(
            rule.code, step.state, move.event, by.kind, target=move.target, detail=rule.detail
        )

    def add_step(self, plan: StepPlan, jobs: int) -> None:
        """Append a new step with so many new jobs; one with a gate waits from its first moment."""
        made = StepMade(
            workflow=self.workflow.id,
            order=len(self.steps) + 1,
            fails=plan.policy.fails,
            condition=plan.policy.condition,
            when_empty=plan.policy.when_empty,
            gate=plan.policy.gate,
            depends_on=plan.depends_on,
        )
        event = _birth(STEP, (self.workflow.tenant, plan.id), self.now, self.ctx, made)
        if isinstance(event, Refusal):
            # Whoever may extend a workflow may create its steps: the tables contradict each other.
            raise _fault(event)
        step = self.steps[plan.id] = apply_step(None, event)
        check_move(None, event, step)
        self.events.append(event)
        if jobs:
            self.tallies[plan.id] = fresh(jobs)
        if plan.policy.gate:
            must(self.move_step(plan.id, _GATED))

    def outlook(self, step_id: str) -> Outlook:
        """What can still become of a step; the graph is looked at only if nothing less will do."""
        found = self.known.get(step_id) or at_a_glance(self.steps[step_id])
        return found or self.earlier[step_id]

    @property
    def earlier(self) -> dict[str, Outlook]:
        """The outlooks before this commit, found when first asked for."""
        if self._earlier is None:
            self._earlier = outlooks(self.before)
        return self._earlier

    def finish(self) -> Accepted:
        """The answer: the flow as it is now, and what its jobs must hear."""
        flow = Flow(self.workflow, self.steps, self.tallies)
        moved = {event.record: event.target for event in self.events if event.kind == STEP.name}
        is_further = StepState.COMPLETED in moved.values()
        opened, closed = _gates(self.before, flow, moved)
        return Accepted(
            flow=flow,
            events=tuple(self.events),
            opened=opened,
            closed=closed,
            sweep=self._sweep(moved),
            percentage=workflow_percentage(flow.steps) if is_further else None,
        )

    def _sweep(self, moved: Mapping[str, str | None]) -> tuple[str, ...]:
        """The steps whose waiting jobs this commit took the last chance from."""
        return tuple(
            step_id
            for step_id, outlook in self.known.items()
            if outlook.is_unrunnable
            and (step_id in moved or not self.earlier[step_id].is_unrunnable)
        )

    def _event(self, kind: str, record: Workflow | Step, move: Move, by: By) -> Event:
        return Event(
            tenant=record.tenant,
            record=record.id,
            version=record.version + 1,
            at=max(self.now, record.last_at),
            name=move.event,
            source=record.state,
            target=move.target,
            actor=by.kind,
            actor_id=by.id,
            command_id=self.ctx.command_id,
            kind=kind,
            cause=move.cause,
            # Only the move that was asked for has the asker's reason.
            reason=None if by is CASCADED_BY else self.ctx.reason,
        )


def _birth(
    machine: Machine, key: tuple[str, str], now: int, ctx: Context, made: StepMade | None = None
) -> Event | Refusal:
    """The first event of a record; a workflow and a step are born under the same words."""
    fired = machine.fire(None, StepEvent.CREATE, StepState.CREATED, ctx.by.kind)
    if isinstance(fired, Refusal):
        return fired
    return Event(
        tenant=key[0],
        record=key[1],
        version=1,
        at=now,
        name=fired.event,
        source=None,
        target=fired.target,
        actor=ctx.by.kind,
        actor_id=ctx.by.id,
        command_id=ctx.command_id,
        kind=machine.name,
        reason=ctx.reason,
        step_made=made,
    )


def _gates(
    before: Flow, after: Flow, moved: Mapping[str, str | None]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which steps became claimable and which stopped being so without having ended.

    Only steps that moved are looked at, unless the workflow opened or closed for all of them.
    """
    is_same = is_running(before.workflow) == is_running(after.workflow)
    opened, closed = [], []
    for step_id in moved if is_same else after.steps:
        step, earlier = after.steps[step_id], before.steps.get(step_id)
        was = earlier is not None and is_claimable(before.workflow, earlier)
        now = is_claimable(after.workflow, step)
        if now and not was:
            opened.append(step_id)
        elif was and not now and step.ended_at is None:
            closed.append(step_id)
    return tuple(opened), tuple(closed)
