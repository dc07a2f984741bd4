"""Words for workflows: made of steps and jobs, and moved by what the jobs do."""

from __future__ import annotations

from typing import Any

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.workflow import Policy, WhenEmpty
from detent.stores.api import (
    New,
    Stored,
    Unit,
)
from tests.contract.making import NEVER, WORKER
from tests.contract.world import World

WAITS = Policy(when_empty=WhenEmpty.WAIT)


def job(world: World, step: str, name: str = "", flow: str = "w", **more: Any) -> New:
    """A new job of a step."""
    return world.make.new(
        id=name or f"{step}-{world.make.command_id()}", workflow=flow, step=step, **more
    )


async def chain(world: World, *names: str, jobs: int = 1, **more: Any) -> w.Flow:
    """A workflow `w` of steps in a row, each with so many jobs: a1, a2, b1, b2 and so on."""
    new = [job(world, name, f"{name}{number}") for name in names for number in range(1, jobs + 1)]
    return await world.make_flow("w", w.chain(*names), *new, **more)


def states(flow: w.Flow) -> str:
    """Workflow and steps in one line."""
    steps = (f"{step.id}:{step.state}" for step in flow.steps.values())
    return " ".join([flow.workflow.state, *steps])


async def now_at(world: World, name: str = "w") -> str:
    """Where the stored workflow stands."""
    return states(await world.flow(name))


async def command(world: World, asked: w.Command, *new: New, name: str = "w") -> w.Flow:
    """The workflow after the command."""
    await world.must(world.make.flowing(await world.flow(name), asked, *new))
    return await world.flow(name)


def completing(world: World, stored: Stored) -> Unit:
    """The report of a success."""
    held = stored.job
    return world.make.doing(held, j.Complete(lease=held.lease), WORKER, store={"lease": held.lease})


def failing(world: World, stored: Stored) -> Unit:
    """The report of a failure that is final."""
    held = stored.job
    report = j.Fail(lease=held.lease, code="x")
    return world.make.doing(held, report, WORKER, verdict=NEVER, store={"lease": held.lease})


async def moves_of(world: World, record: str) -> list[tuple[str, str]]:
    """What happened to a record, and under which command."""
    return [(one.name, one.command_id) for one in await world.store.history(("", record))]


async def sweep(world: World) -> list[str]:
    """Answer what is due; the ids of what was swept."""
    due = await world.due()
    await world.must(*map(world.make.ticking, due))
    return sorted(one.stored.job.id for one in due if one.swept)
