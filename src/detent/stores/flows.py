"""What follows for a workflow when its jobs move, in the words of a store. Pure.

A store keeps a tally per step, moved by what its jobs do. After every change it asks here what
follows, and commits the answer in the same transaction, in this order: first all that was asked
for, then, workflow by workflow, the moves of workflow and steps, then the recalled jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from detent.errors import BadHistory
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause
from detent.lifecycle.workflow import Accepted, Flow, Tally
from detent.lifecycle.workflow.tally import NOTHING, Standing
from detent.stores.shapes import FlowMove, Key

__all__ = [
    "Changes",
    "Moved",
    "changes_of",
    "follow",
    "is_heard",
    "is_stale",
    "recalled",
    "touched_by",
]

Moved: TypeAlias = tuple[Standing | None, Job]
"""A job before and after a move; `None` for one that is new."""
Changes: TypeAlias = dict[Key, dict[str, Tally]]
"""By workflow and step, how the tallies change."""


def is_heard(before: Standing | None, job: Job) -> bool:
    """Whether its workflow hears of the move: it changes what a step counts."""
    return job.workflow is not None and w.delta(before, job) != NOTHING


def changes_of(moved: Iterable[Moved]) -> Changes:
    """What these moves change in the tallies of their steps."""
    changes: Changes = {}
    for before, job in moved:
        if job.workflow is None or job.step is None:
            continue
        change = w.delta(before, job)
        if change != NOTHING:
            steps = changes.setdefault((job.tenant, job.workflow), {})
            steps[job.step] = steps.get(job.step, NOTHING) + change
    return changes


def touched_by(move: FlowMove) -> dict[str, Tally]:
    """The steps that a decision may have moved on numbers that were old: to be asked again."""
    steps = {event.record for event in move.answer.events if event.kind == w.STEP.name}
    return dict.fromkeys(sorted(steps.union(move.answer.opened)), NOTHING)


def follow(flow: Flow, changes: Mapping[str, Tally], now: int, command_id: str) -> Accepted:
    """The flow with its new tallies, and the moves that follow from them."""
    tallies = dict(flow.tallies)
    for step, change in changes.items():
        tallies[step] = tallies.get(step, NOTHING) + change
    flow = msgspec.structs.replace(flow, tallies=tallies)
    due = [step for step, change in changes.items() if _follows(flow, step, change)]
    if not due:
        return Accepted(flow)
    return w.cascade(flow, due, now, w.Context(w.CASCADED_BY, command_id))


def _follows(flow: Flow, step: str, change: Tally) -> bool:
    """A step that was only asked about does not start a workflow that rests after a resume."""
    if change == NOTHING:
        return w.is_due(flow.steps[step], flow.tally(step))
    return w.needs_cascade(flow.workflow, flow.steps[step], flow.tally(step))


def recalled(flow: Flow, job: Job, now: int, command_id: str) -> j.Accepted | None:
    """The end of a job that came back to wait where nothing will ever run again."""
    if not w.returned(flow, job):
        return None
    command = j.Cancel(Cause.WORKFLOW, force=True)
    answer = j.decide(job, command, now, j.Context(w.CASCADED_BY, command_id))
    if not isinstance(answer, j.Accepted):
        raise BadHistory(f"{job.id} cannot be called off by its workflow", record=job.id)
    return answer


def is_stale(move: FlowMove, stored: Flow | None) -> bool:
    """Whether workflow or steps have moved since the decision was made."""
    if move.before is None or stored is None:
        return move.before is not stored
    return _versions(move.before) != _versions(stored)


def _versions(flow: Flow) -> tuple[int, dict[str, int]]:
    return flow.workflow.version, {step.id: step.version for step in flow.steps.values()}
