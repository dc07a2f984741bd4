"""`detent schedules list|add|pause|resume|fire|remove`: jobs that the clock makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from detent.cli.bundles import Bundle, expanded
from detent.cli.places import Author, Place, asked
from detent.cli.showing import answer, at, cell, table
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.enqueueing import Answer, Enqueued
from detent.engine.schedule import CatchUp, Overlap, Plan, Schedule

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.")]
_LIMIT = 1_000


@dataclass(frozen=True)
class Wanted(Bundle):
    """What a new schedule says beside when and what."""

    payload: Annotated[str, typer.Option("--payload", help="The arguments, as JSON.")] = "[]"
    zone: Annotated[str, typer.Option("--zone", help="The time zone of cron fields.")] = "UTC"
    queue: Annotated[str, typer.Option("--queue", help="The queue of its jobs.")] = "default"
    priority: Annotated[int, typer.Option("--priority", help="That of its jobs.")] = 0
    overlap: Annotated[
        Overlap, typer.Option("--overlap", help="While jobs of the slot before are live.")
    ] = Overlap.SKIP
    catch_up: Annotated[
        CatchUp, typer.Option("--catch-up", help="Which missed slots are made up for.")
    ] = CatchUp.LAST
    unknown_type: Annotated[
        bool,
        typer.Option("--unknown-type", help="Store the payload, though nobody knows the type yet."),
    ] = False
    description: Annotated[str, typer.Option("--description", help="What it is for.")] = ""


@expanded
def list_(place: Place) -> None:
    """List the schedules by name, with their next slot."""

    async def work(engine: Engine) -> list[Schedule]:
        return await engine.schedules.list(place.tenant, limit=_LIMIT)

    found = asked(place, work)
    head = ("name", "when", "zone", "type", "next", "fired", "changed")
    data = {"schedules": [_data(one) for one in found]}
    answer(place, data, table(head, map(_row, found), "There are no schedules."))


@expanded
def add(
    *,
    place: Place,
    author: Author,
    wanted: Wanted,
    name: Name,
    expression: Annotated[str, typer.Argument(help="Cron fields, @daily or @every 5m.")],
    type_: Annotated[str, typer.Argument(metavar="TYPE", help="The type of its jobs.")],
) -> None:
    """Add a schedule: a job of this type at every slot of the expression."""
    _need_json(wanted.payload)
    plan = _plan(place, wanted, name, expression, type_)

    async def work(engine: Engine) -> Schedule:
        if not wanted.unknown_type:
            await engine.schedules.need_known(plan)
        return await engine.schedules.add(plan, author.by, author.reason)

    made = asked(place, work)
    answer(place, _data(made), cell(f"{name}: first fires at {at(made.next_at)}"))


@expanded
def pause(place: Place, author: Author, name: Name) -> None:
    """Fire no slot until it is resumed."""

    async def work(engine: Engine) -> Schedule:
        return await engine.schedules.pause((place.tenant, name), author.by, author.reason)

    answer(place, _data(asked(place, work)), cell(f"{name}: paused"))


@expanded
def resume(place: Place, author: Author, name: Name) -> None:
    """Go on with the next slot; those that passed meanwhile are not made up for."""

    async def work(engine: Engine) -> Schedule:
        return await engine.schedules.resume((place.tenant, name), author.by, author.reason)

    found = asked(place, work)
    answer(place, _data(found), cell(f"{name}: fires next at {at(found.next_at)}"))


@expanded
def fire(place: Place, author: Author, name: Name) -> None:
    """Make one job of the schedule now, whatever its slots say."""

    async def work(engine: Engine) -> Answer:
        return await engine.schedules.fire((place.tenant, name), author.by, author.reason)

    given = asked(place, work)
    if isinstance(given, Enqueued):
        answer(place, {"name": name, "id": given.job.id}, cell(f"{name}: made job {given.job.id}"))
        return
    answer(place, {"name": name, "refused": given}, cell(f"{name}: refused"))
    raise typer.Exit(1)


@expanded
def remove(place: Place, author: Author, name: Name) -> None:
    """Remove a schedule; its jobs stay."""

    async def work(engine: Engine) -> Schedule:
        return await engine.schedules.remove((place.tenant, name), author.by, author.reason)

    answer(place, _data(asked(place, work)), cell(f"{name}: removed"))


SCHEDULES = {
    "list": list_,
    "add": add,
    "pause": pause,
    "resume": resume,
    "fire": fire,
    "remove": remove,
}


def _need_json(text: str) -> None:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise typer.BadParameter(f"that is no JSON: {error}.", param_hint="'--payload'") from None


def _plan(place: Place, wanted: Wanted, name: str, expression: str, type_: str) -> Plan:
    ask = Ask(
        type=type_,
        payload=wanted.payload,
        queue=wanted.queue,
        priority=wanted.priority,
        tenant=place.tenant,
    )
    return Plan(
        name=name,
        expression=expression,
        job=ask,
        tenant=place.tenant,
        zone=wanted.zone,
        overlap=wanted.overlap,
        catch_up=wanted.catch_up,
        description=wanted.description,
    )


def _row(one: Schedule) -> tuple[Text, ...]:
    plan, last = one.plan, one.changes[-1] if one.changes else None
    following = "paused" if one.is_paused else at(one.next_at)
    changed = "" if last is None else f"{last.what} by {last.actor_id}"
    why = f": {last.reason}" if last and last.reason else ""
    told = (plan.name, plan.expression, plan.zone, plan.job.type, following, one.fired)
    return (*map(cell, told), cell(f"{changed}{why}"))


def _data(one: Schedule) -> dict[str, Any]:
    plan = one.plan
    return {
        "name": plan.name,
        "tenant": plan.tenant,
        "expression": plan.expression,
        "zone": plan.zone,
        "type": plan.job.type,
        "queue": plan.job.queue,
        "payload": msgspec.Raw(plan.job.payload.encode()),
        "overlap": plan.overlap,
        "catch_up": plan.catch_up,
        "description": plan.description,
        "paused": one.is_paused,
        "removed_at": at(one.removed_at),
        "next_at": at(one.next_at),
        "fired_at": at(one.fired_at),
        "fired": one.fired,
        "skipped": one.skipped,
        "latest": one.latest,
        "changes": [{**msgspec.structs.asdict(x), "at": at(x.at)} for x in one.changes],
    }
