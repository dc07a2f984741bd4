"""Workflows as they are asked for: steps with the jobs in them, in the usual shapes.

    chain(fetch, [resize_small, resize_large], publish)
    batch([one, two, three], on_failure=alert)
    stages({"build": [compile], "deploy": [ship]}, gate=["deploy"])
    dag({"a": [x], "b": [y], "c": [z]}, after={"c": ["a", "b"]})

Jobs that start and end together are one step, however many they are: that is what makes ten
thousand of them cheap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from detent.engine.asks import Ask
from detent.engine.entering import Entry
from detent.errors import BadPolicy
from detent.lifecycle import workflow as w
from detent.lifecycle.workflow import StepPlan

NAME_MAX = 255
JOBS_MAX = 1_000_000
"""The most jobs of one workflow: as many as their ids can be numbered with."""
JOBS = "jobs"
"""The name of the one step that a group or a batch has beside its callbacks."""


T = TypeVar("T")


class Filled(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """A step and its jobs, as whatever the caller has of them. Its plan names steps as they do."""

    plan: StepPlan
    jobs: tuple[T, ...] = ()


Part: TypeAlias = Filled[Ask]
"""A step with jobs that can be made."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow that somebody wants.

    An `id` that the caller chooses makes the order repeatable: asked for again, it is the same
    workflow. `name` and `meta` (JSON) are for people and surfaces; nothing here reads them.
    `entry` is how its jobs come into queues that hold only so many.
    """

    parts: tuple[Part, ...]
    id: str | None = None
    tenant: str = ""
    name: str = ""
    meta: str = "{}"
    entry: Entry | None = None

    @property
    def jobs(self) -> dict[str, int]:
        """How many jobs each step gets."""
        return dict(Counter({part.plan.id: len(part.jobs) for part in self.parts}))


def chain(*steps: T | Sequence[T]) -> tuple[Filled[T], ...]:
    """One after the other, named 1, 2, 3 and so on; a list is a step of jobs that run at once."""
    jobs = {str(number): _some(step) for number, step in enumerate(steps, start=1)}
    return _filled(w.chain(*jobs), jobs)


def group(*jobs: T) -> tuple[Filled[T], ...]:
    """All at once; a failure leaves the others alone."""
    return _filled(w.group(JOBS), {JOBS: jobs})


def batch(
    jobs: Sequence[T],
    *,
    on_success: T | None = None,
    on_failure: T | None = None,
    on_complete: T | None = None,
) -> tuple[Filled[T], ...]:
    """A group and the jobs that follow when all of it has ended, by how it ended."""
    called = {"on_success": on_success, "on_failure": on_failure, "on_complete": on_complete}
    callbacks = {name: (ask,) for name, ask in called.items() if ask is not None}
    return _filled(w.batch(JOBS, **{name: name for name in callbacks}), {JOBS: jobs, **callbacks})


def stages(
    steps: Mapping[str, T | Sequence[T]], gate: Collection[str] = ()
) -> tuple[Filled[T], ...]:
    """Named steps in a row; those in `gate` wait for an approval, and empty ones for jobs."""
    return _filled(w.stages(*steps, gate=gate), _each(steps))


def dag(
    steps: Mapping[str, T | Sequence[T]], after: Mapping[str, Sequence[str]]
) -> tuple[Filled[T], ...]:
    """Named steps, each with the names of those it comes after."""
    unknown = after.keys() - steps.keys()
    if unknown:
        why = f"workflow shape: after names unknown steps: {', '.join(sorted(unknown))}"
        raise BadPolicy(why, field="after")
    return _filled(w.dag({name: after.get(name, ()) for name in steps}), _each(steps))


def check(order: Order) -> None:
    """Raise `BadPolicy` when a job or a name cannot be part of a workflow."""
    if sum(order.jobs.values()) > JOBS_MAX:
        raise BadPolicy(f"workflow: more than {JOBS_MAX} jobs", field="jobs")
    for part in order.parts:
        check_part(part, order.tenant)


def check_part(part: Part, tenant: str) -> None:
    """Raise `BadPolicy` when a step cannot be part of a workflow."""
    if not 0 < len(part.plan.id) <= NAME_MAX:
        raise BadPolicy(f"workflow: a step's name has 1 to {NAME_MAX} characters", field="name")
    for ask in part.jobs:
        check_member(ask, tenant)


def check_member(ask: Ask, tenant: str) -> None:
    """What would make one job of many fail to come into being cannot be asked of a member."""
    if ask.tenant != tenant:
        raise BadPolicy("workflow: a job belongs to another tenant", field="tenant")
    for name in ("id", "unique", "idempotency", "workflow", "step", "rerun_of"):
        if getattr(ask, name) is not None:
            raise BadPolicy(f"workflow: a job of a step cannot have its own {name}", field=name)


def _each(steps: Mapping[str, T | Sequence[T]]) -> dict[str, Sequence[T]]:
    return {name: _some(step) for name, step in steps.items()}


def _some(step: T | Sequence[T]) -> Sequence[T]:
    return step if isinstance(step, Sequence) else (step,)


def _filled(plans: Sequence[StepPlan], jobs: Mapping[str, Sequence[T]]) -> tuple[Filled[T], ...]:
    return tuple(Filled(plan, tuple(jobs[plan.id])) for plan in plans)
