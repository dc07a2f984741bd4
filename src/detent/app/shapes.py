"""Workflows as a program writes them down: calls of jobs, in the usual shapes.

    chain(fetch.bind(url), [small.bind(), large.bind()], publish.bind())
    group(*(resize.bind(n) for n in range(10_000)))
    batch([one.bind(), two.bind()], on_failure=alert.bind())
    stages({"build": build.bind(), "deploy": [ship.bind(1), ship.bind(2)]}, gate=["deploy"])
    dag({"a": x.bind(), "b": y.bind(), "c": z.bind()}, after={"c": ["a", "b"]})

A shape only plans, and refuses what cannot work; `app.start` makes it happen. A list is a step of
jobs that run at once, and that is what makes ten thousand of them cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from detent.app.asking import Call, need_calls, need_no_conn
from detent.engine import limits, shaping
from detent.engine.shaping import Filled, Part
from detent.errors import BadArguments

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Step = Call[Any] | Sequence[Call[Any]]


class Workflow(Generic[R_co]):
    """Steps with the calls in them. The jobs of its last steps return an `R_co` each."""

    def __init__(self, steps: Sequence[Filled[Call[Any]]]) -> None:
        self.steps = tuple(steps)
        for step in self.steps:
            need_calls(step.jobs)

    def __repr__(self) -> str:
        return f"<Workflow {', '.join(step.plan.id for step in self.steps)}>"

    def copy(self) -> Workflow[R_co]:
        """The same with calls of its own, whose options can be changed."""
        own = [replace(one, jobs=tuple(call.copy() for call in one.jobs)) for one in self.steps]
        return Workflow(own)

    @property
    def calls(self) -> Iterator[Call[Any]]:
        """Every call in it."""
        return (call for step in self.steps for call in step.jobs)

    @property
    def tenant(self) -> str:
        """Whose workflow it will be: that of its jobs, which must all have the same."""
        return next((call.tenant for call in self.calls), "")

    def parts(self, now: int) -> tuple[Part, ...]:
        """What the engine is asked for; `LimitError` if a job brings too much."""
        return tuple(Part(step.plan, tuple(asked(step.jobs, now))) for step in self.steps)


def need_workflow(workflow: Workflow[R]) -> Workflow[R]:
    """The workflow, if it is one."""
    if not hasattr(workflow, "steps"):
        why = f"A {type(workflow).__name__} is no workflow"
        raise BadArguments(f"{why}: make one with chain, group, batch, stages or dag", path="")
    return workflow


def asked(calls: Sequence[Call[Any]], now: int) -> Iterator[Any]:
    """The requests for these calls, none of which brings too much."""
    need_no_conn(calls, "a workflow")
    for call in calls:
        ask = call.ask(now)
        limits.need_job(ask)
        yield ask


def chain(*steps: Step) -> Workflow[Any]:
    """One after the other, named "1", "2" and so on; the first failure ends it."""
    return Workflow(shaping.chain(*steps))


def group(*calls: Call[R]) -> Workflow[R]:
    """All at once; a failure leaves the others alone. Its one step is called "jobs"."""
    return Workflow(shaping.group(*calls))


def batch(
    calls: Sequence[Call[Any]],
    *,
    on_success: Call[Any] | None = None,
    on_failure: Call[Any] | None = None,
    on_complete: Call[Any] | None = None,
) -> Workflow[Any]:
    """A group, and what follows when all of it has ended, by how it ended; each exactly once.

    Its steps are called "jobs", "on_success", "on_failure" and "on_complete".
    """
    called = {"on_success": on_success, "on_failure": on_failure, "on_complete": on_complete}
    return Workflow(shaping.batch(calls, **called))


def stages(steps: Mapping[str, Step], *, gate: Collection[str] = ()) -> Workflow[Any]:
    """Named steps in a row. Those in `gate` wait for an approval, and empty ones for jobs."""
    return Workflow(shaping.stages(steps, _names(gate)))


def dag(steps: Mapping[str, Step], *, after: Mapping[str, Sequence[str]]) -> Workflow[Any]:
    """Named steps, each with the names of those it comes after, or the one name."""
    return Workflow(shaping.dag(steps, {name: _names(some) for name, some in after.items()}))


def _names(some: Collection[str]) -> Sequence[str]:
    """One name alone is no list of its letters."""
    return [some] if isinstance(some, str) else list(some)
