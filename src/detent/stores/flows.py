"""What follows for a workflow when its jobs move, in the words of a store. Pure.

A store keeps a tally per step, moved by what its jobs do. After every change it asks here what
follows, and commits the answer in the same transaction, in this order: first all that was asked
for, then, workflow by workflow, the moves of workflow and steps, then the recalled jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from detent.errors import BadHistory
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause
from detent.lifecycle.workflow import Accepted, Flow, Tally
from detent.lifecycle.workflow.tally import NOTHING, Standing
from detent.stores.shapes import FlowMove, Key, Unit, key_of

Moved: TypeAlias = tuple[Standing | None, Job]
"""A job before and after a move; `None` for one that is new."""
Changes: TypeAlias = dict[Key, dict[str, Tally]]
"""By workflow and step, how the tallies change."""


class Followed(msgspec.Struct, frozen=True):
    """What the moves of jobs did to their workflow: its own moves, and how it is left.

    `recalled` are jobs that came back to wait where nothing will ever run again, each as it was and
    with its end; they are counted already.
    """

    answer: Accepted
    flow: Flow
    recalled: tuple[tuple[Job, j.Accepted], ...]


def heard_of(unit: Unit, stood: Callable[[Key], Standing]) -> tuple[Changes, list[Job]]:
    """What a unit changes in the tallies of steps, and the jobs whose workflows hear of it.

    `stood` tells how a job stands that is stored; nothing of the unit may be written yet.
    """
    moves = [move for move in unit.moves if move.events and move.job.step is not None]
    moved: list[Moved] = [(stood(key_of(move.job)), move.job) for move in moves]
    moved += [(None, new.job) for new in unit.new]
    changes = changes_of(moved)
    if unit.flow is not None:
        key = key_of(unit.flow.answer.flow.workflow)
        changes[key] = _touched_by(unit.flow) | changes.get(key, {})
    return changes, [job for before, job in moved if changes and _is_heard(before, job)]


def _is_heard(before: Standing | None, job: Job) -> bool:
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


def _touched_by(move: FlowMove) -> dict[str, Tally]:
    """The steps that a decision may have moved on numbers that were old: to be asked again."""
    steps = {event.record for event in move.answer.events if event.kind == w.STEP.name}
    return dict.fromkeys(sorted(steps.union(move.answer.opened)), NOTHING)


def followed(
    flow: Flow, changes: Mapping[str, Tally], jobs: Iterable[Job], now: int, command_id: str
) -> Followed:
    """What follows for one workflow; `jobs` are those that were heard of, of whatever workflow."""
    answer = _follow(flow, changes, now, command_id)
    left, called_off = answer.flow, list[tuple[Job, j.Accepted]]()
    for job in jobs:
        is_its_own = (job.tenant, job.workflow) == key_of(flow.workflow)
        ended = _recalled(left, job, now, command_id) if is_its_own else None
        if ended is not None:
            left = left.counting(job.step or "", w.delta(job, ended.job))
            called_off.append((job, ended))
    # A step without jobs has no tally.
    tallies = {step: tally for step, tally in left.tallies.items() if tally.total}
    return Followed(answer, msgspec.structs.replace(left, tallies=tallies), tuple(called_off))


def _follow(flow: Flow, changes: Mapping[str, Tally], now: int, command_id: str) -> Accepted:
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


def _recalled(flow: Flow, job: Job, now: int, command_id: str) -> j.Accepted | None:
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
