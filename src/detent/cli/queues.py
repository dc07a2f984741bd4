"""`detent queues list|pause|resume|limit`: what stands in the queues, and what may leave them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from detent.cli.bundles import expanded
from detent.cli.durations import span_option, span_us
from detent.cli.places import Author, Place, asked
from detent.cli.showing import answer, at, cell, table
from detent.engine.engine import Engine
from detent.engine.hurdles import Door
from detent.engine.queries import QueueRow
from detent.engine.telling import told_span
from detent.lifecycle.job import JobState
from detent.lifecycle.job.table import ENDED
from detent.stores.api import GateKind, Limit, Limited, LimitKind

_LIVE = tuple(state.value for state in JobState if state not in ENDED)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the queue.")]
IsType = Annotated[bool, typer.Option("--is-type", help="NAME is a type of job, not a queue.")]


@expanded
def list_(place: Place) -> None:
    """List the queues: how many jobs of each state, paused or not, and under which limit."""

    async def work(engine: Engine) -> list[QueueRow]:
        return await engine.queries.queues(place.tenant)

    found = asked(place, work)
    head = ("queue", *_LIVE, "ended", "paused", "limit")
    data = {"queues": [_data(one) for one in found]}
    answer(place, data, table(head, map(_row, found), "There are no queues."))


@expanded
def pause(place: Place, author: Author, name: Name, is_type: IsType = False) -> None:
    """Let no job of a queue, or of a type, start; those that run go on."""
    kind = _kind(is_type)

    async def work(engine: Engine) -> bool:
        told = (kind, name, author.by, author.reason)
        return await engine.operators.pause(*told, tenant=place.tenant)

    _say_gate(place, kind, name, "paused", asked(place, work))


@expanded
def resume(place: Place, author: Author, name: Name, is_type: IsType = False) -> None:
    """Let jobs of a queue, or of a type, start again."""
    kind = _kind(is_type)

    async def work(engine: Engine) -> bool:
        told = (kind, name, author.by, author.reason)
        return await engine.operators.resume(*told, tenant=place.tenant)

    _say_gate(place, kind, name, "resumed", asked(place, work))


@expanded
def limit(
    *,
    place: Place,
    author: Author,
    name: Name,
    concurrency: Annotated[int | None, typer.Option(help="So many run at once.")] = None,
    rate: Annotated[int | None, typer.Option(help="So many start within --per.")] = None,
    per: Annotated[str, span_option(meaning="The time that --rate is about.")] = "1s",
    spacing: Annotated[str | None, span_option(meaning="Starts are so far apart.")] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Take the limit away.")] = False,
    is_key: Annotated[
        bool, typer.Option("--is-key", help="NAME is a key of jobs, not a queue.")
    ] = False,
) -> None:
    """Bound how many jobs of a queue, or of a key, run at once, start within a time, or how far
    apart they start."""
    kind = LimitKind.KEY if is_key else LimitKind.QUEUE
    if lift is (concurrency is not None or rate is not None or spacing is not None):
        raise typer.BadParameter("say --concurrency, --rate or --spacing, or --lift alone.")

    async def work(engine: Engine) -> Limit | None:
        apart = None if spacing is None else span_us(spacing)
        chosen = None if lift else Limit(concurrency, rate, span_us(per), apart)
        told = (kind, name, chosen, author.by, author.reason)
        await engine.operators.set_limit(*told, tenant=place.tenant)
        return chosen

    chosen = asked(place, work)
    says = "is lifted" if chosen is None else f"is {_limit(chosen)}"
    data = {"kind": kind, "name": name, "limit": chosen}
    answer(place, data, cell(f"The limit of {kind} {name} {says}."))


QUEUES = {"list": list_, "pause": pause, "resume": resume, "limit": limit}


def _kind(is_type: bool) -> GateKind:
    return GateKind.TYPE if is_type else GateKind.QUEUE


def _say_gate(place: Place, kind: GateKind, name: str, word: str, is_changed: bool) -> None:
    data = {"kind": kind, "name": name, "state": word, "changed": is_changed}
    already = "" if is_changed else "already " if word == "paused" else "not paused, so "
    answer(place, data, cell(f"{kind} {name}: {already}{word}"))


def _row(row: QueueRow) -> tuple[Text, ...]:
    live = [row.counts.get(state, 0) for state in _LIVE]
    ended = sum(number for state, number in row.counts.items() if state not in _LIVE)
    bound = "" if row.limited is None or row.limited.row.limit is None else _used(row.limited)
    return (*map(cell, (row.name, *live, ended)), cell(_paused(row.door)), cell(bound))


def _paused(door: Door) -> str:
    if not door.gate.closed:
        return ""
    last = door.latest
    return "paused" if last is None else f"by {last.actor_id}: {last.reason or 'no reason given'}"


def _used(limited: Limited) -> str:
    limit = limited.row.limit or Limit()
    return f"{_limit(limit)}, {limited.active} run"


def _limit(limit: Limit) -> str:
    parts = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.rate is not None:
        parts.append(f"{limit.rate} per {told_span(limit.period_us)}")
    if limit.spacing_us is not None:
        parts.append(f"one every {told_span(limit.spacing_us)}")
    return ", ".join(parts)


def _data(row: QueueRow) -> dict[str, Any]:
    last, limited = row.door.latest, row.limited
    return {
        "name": row.name,
        "counts": row.counts,
        "paused": row.door.gate.closed,
        "paused_by": last.actor_id if last and row.door.gate.closed else None,
        "paused_at": at(last.at) if last and row.door.gate.closed else None,
        "reason": last.reason if last and row.door.gate.closed else None,
        "limit": None if limited is None else limited.row.limit,
        "active": None if limited is None else limited.active,
    }
