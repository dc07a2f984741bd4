"""`detent workflow list|show|tree|pause|resume|abort|approve|wait`: look at them, and steer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from detent.cli.bundles import expanded
from detent.cli.drawing import drawn, workflow_svg
from detent.cli.output import say
from detent.cli.places import Author, Place, asked
from detent.cli.showing import answer, at, cell, facts, state_cell, table
from detent.engine.engine import Engine
from detent.engine.progress import Listed, Progress, StepProgress
from detent.errors import UnknownWorkflow
from detent.lifecycle import STEP, WORKFLOW
from detent.lifecycle import workflow as w
from detent.lifecycle.machine import Refusal
from detent.lifecycle.workflow import WorkflowState
from detent.stores.select import Page

Id = Annotated[str, typer.Argument(metavar="ID", help="The id of the workflow.")]


@expanded
def list_(
    place: Place,
    state: Annotated[WorkflowState | None, typer.Option(help="In this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on after this one of the page before.")
    ] = None,
) -> None:
    """List workflows, newest first."""
    page = Page(limit + 1, None if after is None else (place.tenant, after))

    async def work(engine: Engine) -> list[Listed]:
        chosen = None if state is None else state.value
        return await engine.workflows.list(place.tenant, chosen, page)

    found = asked(place, work)
    shown = found[:limit]
    following = shown[-1].workflow.id if len(found) > limit else None
    more = [] if following is None else [Text(f"There are more: --after {following}")]
    data = {"workflows": [_listed_data(one) for one in shown], "after": following}
    head = ("id", "name", "state", "since", "created")
    answer(place, data, table(head, map(_row, shown), "There are no such workflows."), *more)


@expanded
def show(place: Place, workflow: Id) -> None:
    """Show a workflow: its steps, how many jobs of each are where, and how far it is."""

    async def work(engine: Engine) -> Progress:
        return await _known(engine, place, workflow)

    found = asked(place, work)
    about = facts(
        ("id", found.workflow.id),
        ("name", found.name),
        ("state", found.workflow.state),
        ("done", f"{found.percentage} %"),
        ("created", at(found.workflow.created_at)),
        ("ended", at(found.workflow.ended_at)),
        ("cause", found.workflow.cause),
    )
    head = ("step", "state", "done", "waiting", "running", "completed", "failed", "after", "needs")
    steps = table(head, map(_step_row, found.steps), "It has no steps.")
    answer(place, _data(found), about, Text(), steps)


class Picture(StrEnum):
    """The ways to draw."""

    SVG = "svg"


@expanded
def tree(
    place: Place,
    workflow: Id,
    picture: Annotated[
        Picture | None, typer.Option("--format", "-f", help="Draw the graph instead, for a page.")
    ] = None,
) -> None:
    """Draw a workflow as a tree, with how far each step is."""
    if picture is not None and place.as_json:
        raise typer.BadParameter("--json contradicts --format.")

    async def work(engine: Engine) -> Progress:
        return await _known(engine, place, workflow)

    found = asked(place, work)
    if picture is None:
        answer(place, _data(found), drawn(found))
    else:
        # Programs read it, and SVG is defined in UTF-8 whatever the terminal speaks.
        say(workflow_svg(found), encoding="utf-8")


@expanded
def pause(place: Place, author: Author, workflow: Id) -> None:
    """Let no further job of it start; those that run go on."""
    _steer(place, workflow, lambda e: e.workflows.pause(*_told(place, workflow, author)))


@expanded
def resume(place: Place, author: Author, workflow: Id) -> None:
    """Let its jobs start again."""
    _steer(place, workflow, lambda e: e.workflows.resume(*_told(place, workflow, author)))


@expanded
def abort(place: Place, author: Author, workflow: Id) -> None:
    """Call it off: what waits is cancelled, what runs may end as it will."""
    _steer(place, workflow, lambda e: e.workflows.abort(*_told(place, workflow, author)))


@expanded
def approve(
    place: Place,
    author: Author,
    workflow: Id,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that waits for it.")],
) -> None:
    """Open the gate before a step."""
    key = (place.tenant, workflow)
    told = (author.by, author.reason)
    _steer(place, workflow, lambda e: e.workflows.approve(key, step, *told))


@expanded
def wait(
    place: Place,
    author: Author,
    workflow: Id,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The step that is to wait.")],
) -> None:
    """Put a gate before a step: no further job of it starts until it is approved."""
    key = (place.tenant, workflow)
    told = (author.by, author.reason)
    _steer(place, workflow, lambda e: e.workflows.wait(key, step, *told))


WORKFLOWS = {
    "list": list_,
    "show": show,
    "tree": tree,
    "pause": pause,
    "resume": resume,
    "abort": abort,
    "approve": approve,
    "wait": wait,
}


def _told(place: Place, workflow: str, author: Author) -> tuple[Any, ...]:
    return (place.tenant, workflow), author.by, author.reason


def _steer(place: Place, name: str, ask: Callable[[Engine], Awaitable[w.Answer]]) -> None:
    async def work(engine: Engine) -> w.Answer:
        await _known(engine, place, name)
        return await ask(engine)

    given = asked(place, work)
    if isinstance(given, Refusal):
        data = {"id": name, "answer": "refused", "code": given.code, "message": given.message}
        answer(place, data, cell(f"{name}  refused  {given.message}"))
        raise typer.Exit(1)
    word = "accepted" if isinstance(given, w.Accepted) else "unchanged"
    state = given.flow.workflow.state
    answer(
        place,
        {"id": name, "answer": word, "state": state},
        cell(f"{name}  {word}  it is {state}"),
    )


async def _known(engine: Engine, place: Place, name: str) -> Progress:
    found = await engine.workflows.get((place.tenant, name))
    if found is None:
        why = "another store, another tenant, or it was forgotten"
        raise UnknownWorkflow(f"There is no workflow {name}: {why}", id=name, tenant=place.tenant)
    return found


def _row(one: Listed) -> tuple[Text, ...]:
    flow = one.workflow
    told = (at(flow.state_at), at(flow.created_at))
    return cell(flow.id), cell(one.name), state_cell(flow.state, WORKFLOW), *map(cell, told)


def _step_row(step: StepProgress) -> tuple[Text, ...]:
    tally = step.tally
    counts = (tally.waiting, tally.in_progress, tally.completed, tally.failed)
    needs = "approval" if step.needs_approval else ""
    told = (f"{step.percentage} %", *counts, ", ".join(step.depends_on), needs)
    return cell(step.name), state_cell(step.state, STEP), *map(cell, told)


def _listed_data(one: Listed) -> dict[str, Any]:
    flow = one.workflow
    return {
        "id": flow.id,
        "tenant": flow.tenant,
        "name": one.name,
        "state": flow.state,
        "cause": flow.cause,
        "created_at": at(flow.created_at),
        "state_at": at(flow.state_at),
        "ended_at": at(flow.ended_at),
    }


def _data(found: Progress) -> dict[str, Any]:
    return {
        **_listed_data(Listed(found.workflow, found.name)),
        "percentage": found.percentage,
        "meta": msgspec.Raw(found.meta.encode()),
        "steps": [
            {
                "name": step.name,
                "state": step.state,
                "percentage": step.percentage,
                "depends_on": step.depends_on,
                "needs_approval": step.needs_approval,
                "jobs": msgspec.structs.asdict(step.tally),
            }
            for step in found.steps
        ],
    }
