"""The usual graphs by name, and the check that every graph must pass.

    chain("fetch", "resize", "publish")
    batch("one", "two", on_failure="alert")
    dag({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")})

A shape only plans: what it answers goes into `Make`. A list of jobs that start and end together
is one step with many jobs; a step per job is for jobs that others depend on one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

from detent.errors import BadPolicy
from detent.lifecycle.workflow.plan import Condition, Fails, Policy, StepPlan, WhenEmpty
from detent.lifecycle.workflow.record import Step

STEPS_MAX = 10_000
EDGES_MAX = 100_000
_SHOWN = 20

_STAGE = Policy(when_empty=WhenEmpty.WAIT)
_GATED_STAGE = Policy(when_empty=WhenEmpty.WAIT, gate=True)
_ALL_DONE = Policy(fails=Fails.WHEN_ALL_DONE)


def chain(*names: str) -> tuple[StepPlan, ...]:
    """One after the other; the first failure ends it."""
    return check_graph(_in_a_row(names, {}, Policy()))


def group(*names: str) -> tuple[StepPlan, ...]:
    """All at once; a failure leaves the others alone."""
    return check_graph([StepPlan(name, policy=_ALL_DONE) for name in names])


def batch(
    *names: str,
    on_complete: str | None = None,
    on_success: str | None = None,
    on_failure: str | None = None,
) -> tuple[StepPlan, ...]:
    """A group and the steps that follow when all of it has ended, by how it ended."""
    called = (
        (on_complete, Condition.ALWAYS),
        (on_success, Condition.SUCCESS),
        (on_failure, Condition.FAILURE),
    )
    callbacks = [
        StepPlan(name, names, Policy(condition=condition))
        for name, condition in called
        if name is not None
    ]
    if not callbacks:
        _refuse("callbacks", "a batch needs at least one callback; without any it is a group")
    return check_graph([*group(*names), *callbacks])


def dag(edges: Mapping[str, Iterable[str]]) -> tuple[StepPlan, ...]:
    """Steps by name, each with the names of those it comes after."""
    return check_graph([StepPlan(name, tuple(before)) for name, before in edges.items()])


def stages(*names: str, gate: Collection[str] = ()) -> tuple[StepPlan, ...]:
    """Ordered stages: one workable at a time, empty ones hold, those in `gate` need a release."""
    unknown = set(gate).difference(names)
    if unknown:
        _refuse("gate", f"the gate names no stage of this workflow: {', '.join(sorted(unknown))}")
    return check_graph(_in_a_row(names, dict.fromkeys(gate, _GATED_STAGE), _STAGE))


def check_graph(steps: Sequence[StepPlan]) -> tuple[StepPlan, ...]:
    """The steps, each after all it depends on, or `BadPolicy` that says which step is wrong.

    Steps keep the order in which they were given as far as their dependencies let them.
    """
    if not steps:
        _refuse("steps", "a workflow shape needs at least one step")
    if len(steps) > STEPS_MAX:
        _refuse("steps", f"{len(steps)} steps; at most {STEPS_MAX}")
    if sum(len(step.depends_on) for step in steps) > EDGES_MAX:
        _refuse("depends_on", f"too many dependencies; at most {EDGES_MAX}")
    known: set[str] = set()
    for step in steps:
        if step.id in known:
            _refuse("id", f"step {step.id!r} is there twice", step=step.id)
        known.add(step.id)
    for step in steps:
        _check_step(step, known)
    return _sorted(steps)


def check_growth(step: StepPlan, steps: Mapping[str, Step]) -> None:
    """Raise `BadPolicy` when this step may not be added to those that exist."""
    if len(steps) >= STEPS_MAX:
        _refuse("steps", f"there are {len(steps)} steps; at most {STEPS_MAX}", step=step.id)
    edges = sum(len(one.depends_on) for one in steps.values()) + len(step.depends_on)
    if edges > EDGES_MAX:
        _refuse("depends_on", f"too many dependencies; at most {EDGES_MAX}", step=step.id)
    _check_step(step, steps)


def _check_step(step: StepPlan, known: Collection[str]) -> None:
    if not step.id:
        _refuse("id", "a step needs an id", step=step.id)
    if step.id in step.depends_on:
        _refuse("depends_on", f"step {step.id!r} depends on itself", step=step.id)
    if len(set(step.depends_on)) != len(step.depends_on):
        _refuse("depends_on", f"step {step.id!r} names a dependency twice", step=step.id)
    unknown = [one for one in step.depends_on if one not in known]
    if unknown:
        _refuse(
            "depends_on", f"step {step.id!r} depends on unknown step {unknown[0]!r}", step=step.id
        )
    if step.policy.condition is Condition.FAILURE and not step.depends_on:
        _refuse("condition", f"step {step.id!r} is for a failure of nothing", step=step.id)


def _in_a_row(names: Sequence[str], special: Mapping[str, Policy], usual: Policy) -> list[StepPlan]:
    return [
        StepPlan(name, tuple(names[max(place - 1, 0) : place]), special.get(name, usual))
        for place, name in enumerate(names)
    ]


def _sorted(steps: Sequence[StepPlan]) -> tuple[StepPlan, ...]:
    """Always the first given step whose dependencies are all placed; a cycle leaves some over."""
    place = {step.id: position for position, step in enumerate(steps)}
    missing = [len(step.depends_on) for step in steps]
    after: list[list[int]] = [[] for _ in steps]
    for position, step in enumerate(steps):
        for one in step.depends_on:
            after[place[one]].append(position)
    ready = [position for position, count in enumerate(missing) if not count]
    placed: list[StepPlan] = []
    while ready:
        position = heapq.heappop(ready)
        placed.append(steps[position])
        for later in after[position]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, later)
    if len(placed) < len(steps):
        _refuse_cycle({step.id: step for step in steps if missing[place[step.id]]})
    return tuple(placed)


def _refuse_cycle(left: Mapping[str, StepPlan]) -> NoReturn:
    """Whatever could not be placed depends on something else that could not: follow that."""
    seen: dict[str, None] = {}
    here = next(iter(left))
    while here not in seen:
        seen[here] = None
        here = next(one for one in left[here].depends_on if one in left)
    path = list(seen)
    cycle = (*path[path.index(here) :], here)
    shown = cycle if len(cycle) <= _SHOWN else (*cycle[: _SHOWN - 1], "...")
    way = " -> ".join(shown)
    _refuse("depends_on", f"steps depend on each other: {way}", step=here, path=cycle)


def _refuse(field: str, fault: str, **fields: object) -> NoReturn:
    raise BadPolicy(f"workflow shape: {fault}", field=field, **fields)
