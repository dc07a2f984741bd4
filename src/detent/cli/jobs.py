"""`detent jobs list|show|history|logs|why`: look at jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import indent
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from detent.cli.bundles import Bundle, expanded
from detent.cli.jobdata import event_data, job_data, line_data, shown_data, why_data
from detent.cli.output import harmless, say
from detent.cli.places import Place, asked
from detent.cli.showing import answer, at, cell, facts, one_line, state_cell, table
from detent.engine.engine import Engine
from detent.engine.hurdles import Verdict
from detent.engine.naming import BEGINNING, meant
from detent.engine.queries import Listing, Shown, Why
from detent.engine.secrets import redacted
from detent.engine.telling import told_span
from detent.lifecycle.event import Event
from detent.lifecycle.job import JobState
from detent.stores.api import Failure, Key, Logged, Stored
from detent.stores.select import Filter, Page

_FOLLOW_S = 0.25
_MARKS = {Verdict.PASS: ("ok", "green"), Verdict.FAIL: ("NO", "red"), Verdict.UNKNOWN: ("?", "dim")}
_ID = f"The id of the job, or {BEGINNING} or more characters that it begins with."
Id = Annotated[str, typer.Argument(metavar="ID", help=_ID)]


@dataclass(frozen=True)
class Choice(Bundle):
    """Which jobs are meant, by what they have in common."""

    state: Annotated[JobState | None, typer.Option("--state", help="In this state.")] = None
    queue: Annotated[str | None, typer.Option("--queue", help="In this queue.")] = None
    type_: Annotated[str | None, typer.Option("--type", help="Of this type.")] = None
    tag: Annotated[str | None, typer.Option("--tag", help="With this tag.")] = None
    key: Annotated[str | None, typer.Option("--key", help="Counted under this key.")] = None
    workflow: Annotated[str | None, typer.Option("--workflow", help="Of this workflow.")] = None

    def filter(self, tenant: str) -> Filter:
        """The choice as a filter of the store."""
        return Filter(
            tenant=tenant,
            state=None if self.state is None else self.state.value,
            queue=self.queue,
            type=self.type_,
            tag=self.tag,
            key=self.key,
            workflow=self.workflow,
        )

    @property
    def is_empty(self) -> bool:
        """Whether it means every job there is."""
        return self == Choice()


@expanded
def list_(
    place: Place,
    choice: Choice,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on after this job of the page before.")
    ] = None,
) -> None:
    """List jobs, newest first; all conditions hold together.

    If there are more, the answer ends with the id that --after takes for the next page.
    """
    page = Page(limit, None if after is None else (place.tenant, after))

    async def work(engine: Engine) -> tuple[Listing, int]:
        return await engine.queries.jobs(choice.filter(place.tenant), page), engine.store.now()

    found, now = asked(place, work)
    following = None if found.after is None else found.after[1]
    rows = [_row(one, now) for one in found.jobs]
    head = ("id", "type", "state", "queue", "attempt", "for", "why")
    more = [] if following is None else [Text(f"There are more: --after {following}")]
    data = {"jobs": [job_data(one) for one in found.jobs], "after": following}
    answer(place, data, table(head, rows, "There are no such jobs."), *more)


@expanded
def show(place: Place, job: Id) -> None:
    """Tell the story of a job: where it was, for how long, what it was about, what came of it."""

    async def work(engine: Engine) -> Shown:
        return await engine.queries.show(await meant(engine.store, (place.tenant, job)))

    shown = asked(place, work)
    answer(place, shown_data(shown), *_story(shown))


@expanded
def history(place: Place, job: Id) -> None:
    """Show every move of a job: when, what, by whom and why."""

    async def work(engine: Engine) -> Shown:
        return await engine.queries.show(await meant(engine.store, (place.tenant, job)))

    shown = asked(place, work)
    events = [event_data(one) for one in shown.history]
    answer(place, {"id": shown.stored.job.id, "events": events}, _history(shown.history))


@expanded
def logs(
    place: Place,
    job: Id,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job ends.")
    ] = False,
) -> None:
    """Print the log of a job; with --json one object per line."""

    async def work(engine: Engine) -> None:
        key = await meant(engine.store, (place.tenant, job))
        await _print_log(engine, place, key, follow)

    asked(place, work)


@expanded
def why(place: Place, job: Id) -> None:
    """Say why a job is where it is: what it waits for, who has it, or how it ended."""

    async def work(engine: Engine) -> Why:
        return await engine.queries.why(await meant(engine.store, (place.tenant, job)))

    found = asked(place, work)
    answer(place, why_data(found), *_reasons(found))


READING = {"list": list_, "show": show, "history": history, "logs": logs, "why": why}


def _row(stored: Stored, now: int) -> tuple[Text, ...]:
    """What fits beside an id on a usual terminal; the rest is in the JSON."""
    job, body = stored.job, stored.body
    note = "held" if job.held else job.cause or ""
    told = (job.queue, job.attempt, told_span(now - job.state_at), note)
    return cell(job.id), cell(body.type), state_cell(job.state), *map(cell, told)


def _story(shown: Shown) -> list[RenderableType]:
    stored, job, body = shown.stored, shown.stored.job, shown.stored.body
    about = facts(
        ("id", job.id),
        ("type", body.type),
        ("queue", job.queue),
        ("priority", job.priority),
        ("tags", ", ".join(body.tags)),
        ("key", body.key),
        ("workflow", job.workflow),
        ("step", job.step),
        ("rerun of", job.rerun_of),
        ("starts at", at(job.run_at)),
        ("expires at", at(job.expires_at)),
        ("payload", redacted(body.payload)),
        ("meta", None if body.meta == "{}" else body.meta),
        ("progress", stored.note and f"{stored.note.percent} % {stored.note.text}"),
        ("result", stored.result),
        *_errors(stored.failures),
    )
    story = [cell(shown.story.sentence), Text(), about, Text(), _stays(shown)]
    return [*story, *_traceback(stored.failures)]


def _errors(failures: Sequence[Failure]) -> list[tuple[str, str]]:
    """One line for each, under one name."""
    told = []
    for one in failures:
        # Only what a handler raised has a class to tell; what happened to it has told all.
        what = f"{one.type}: {one.message}" if one.type and one.backtrace else one.message
        told.append(f"attempt {one.attempt}: {one.code} {what}")
    return list(zip_longest(("errors",), told, fillvalue="")) if told else []


def _traceback(failures: Sequence[Failure]) -> list[RenderableType]:
    """Where the last attempt that has one went wrong: the first thing that is looked for."""
    for one in reversed(failures):
        if one.backtrace:
            # Set in, so that a message of several lines is not taken for what we say of the job.
            lines = Text(indent(harmless(one.backtrace.rstrip()), "  ", lambda _: True))
            return [Text(), Text(f"The traceback of attempt {one.attempt}:"), lines]
    return []


def _stays(shown: Shown) -> RenderableType:
    rows = [
        (
            state_cell(one.state),
            *map(cell, (at(one.since), _length(one.since, one.until), one.entered_by)),
            *map(cell, (f"{one.actor} {one.actor_id}".strip(), one.reason)),
        )
        for one in shown.story.stays
    ]
    return table(("state", "since", "for", "by event", "who", "why"), rows, "")


def _length(since: int, until: int | None) -> str:
    return "" if until is None else told_span(until - since)


def _history(events: Sequence[Event]) -> RenderableType:
    rows = [
        tuple(
            map(
                cell,
                (
                    one.version,
                    at(one.at),
                    one.name,
                    one.source or "(new)",
                    one.target or "",
                    f"{one.actor} {one.actor_id}".strip(),
                    _because(one),
                ),
            )
        )
        for one in events
    ]
    head = ("version", "when", "event", "from", "to", "who", "why")
    return table(head, rows, "Nothing ever happened to it.")


def _because(event: Event) -> str:
    code = f"[{event.code}]" if event.code else ""
    return " ".join(part for part in (event.cause or "", code, event.reason or "") if part)


def _reasons(found: Why) -> list[RenderableType]:
    parts: list[RenderableType] = [cell(found.answer)]
    if not found.is_waiting:
        return parts
    rows = [(Text(*_MARKS[one.verdict]), cell(one.name), cell(one.says)) for one in found.hurdles]
    parts += [Text(), table(("", "hurdle", "what it says"), rows, "")]
    when = at(found.expected_at)
    return [*parts, Text(), Text(f"May start: {when or 'nobody can say when'}")]


async def _print_log(engine: Engine, place: Place, key: Key, follow: bool) -> None:
    store, cursor, is_last = engine.store, 0, not follow
    await engine.queries.show(key)
    while True:
        lines = await store.logs(key, cursor)
        for one in lines:
            cursor = one.cursor
            say(_line(one, place.as_json), encoding="utf-8" if place.as_json else None)
        if lines:
            continue
        if is_last:
            return
        # The last lines are committed with the end: after it one more look finds them all.
        [stored] = await store.get([key])
        is_last = stored is None or stored.job.ended_at is not None
        await asyncio.sleep(0 if is_last else _FOLLOW_S)


def _line(logged: Logged, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode(line_data(logged)).decode() + "\n"
    line = logged.line
    return f"{at(line.at)}  {line.level:<7}  {one_line(line.text)}\n"
