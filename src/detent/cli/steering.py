"""`detent jobs cancel|rerun|hold|release|run-now|move|priority`: act on one job or on many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.text import Text

from detent.cli.bundles import Bundle, expanded
from detent.cli.jobs import Choice
from detent.cli.output import spinner
from detent.cli.places import Author, Place, asked
from detent.cli.showing import answer, cell
from detent.engine.bulk import Effects, Watch
from detent.engine.engine import Engine
from detent.engine.enqueueing import Clash, Enqueued
from detent.engine.naming import BEGINNING, meant
from detent.engine.telling import counted
from detent.engine.verbs import Rerun, RunNow, Verb
from detent.errors import UnknownJob
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal

_IDS = f"The ids, or {BEGINNING} or more characters of each; or say which by options."
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help=_IDS)]
Given = j.Answer | Enqueued | Clash


@dataclass(frozen=True)
class Sure(Bundle):
    """Many jobs are changed only by somebody who said so."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; say what would happen.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Change all jobs that the options mean.")
    ] = False


@expanded
def cancel(*, place: Place, author: Author, choice: Choice, sure: Sure, ids: Ids = None) -> None:
    """Call jobs off. One that runs is asked to stop, as its profile has it."""
    _steer(j.Cancel(), Wish(ids or [], place, author, choice, sure))


@expanded
def rerun(*, place: Place, author: Author, choice: Choice, sure: Sure, ids: Ids = None) -> None:
    """Make new jobs like these, which have ended and stay as they are. Needs a --reason."""
    if not author.reason:
        raise typer.BadParameter("say why they are to run again.", param_hint="'--reason'")
    _steer(Rerun(once=not ids), Wish(ids or [], place, author, choice, sure))


@expanded
def hold(*, place: Place, author: Author, choice: Choice, sure: Sure, ids: Ids = None) -> None:
    """Keep jobs from being claimed until they are released."""
    _steer(j.Hold(), Wish(ids or [], place, author, choice, sure))


@expanded
def release(*, place: Place, author: Author, choice: Choice, sure: Sure, ids: Ids = None) -> None:
    """Let held jobs be claimed again."""
    _steer(j.Activate(), Wish(ids or [], place, author, choice, sure))


@expanded
def run_now(*, place: Place, author: Author, choice: Choice, sure: Sure, ids: Ids = None) -> None:
    """Make jobs that wait for their time available at once."""
    _steer(RunNow(), Wish(ids or [], place, author, choice, sure))


@expanded
def move(
    *,
    place: Place,
    author: Author,
    choice: Choice,
    sure: Sure,
    ids: Ids = None,
    to: Annotated[str, typer.Option("--to", metavar="QUEUE", help="The queue to put them into.")],
) -> None:
    """Put waiting jobs into another queue, at its end."""
    _steer(j.Move(to), Wish(ids or [], place, author, choice, sure))


@expanded
def priority(
    *,
    place: Place,
    author: Author,
    choice: Choice,
    sure: Sure,
    ids: Ids = None,
    to: Annotated[int, typer.Option("--to", metavar="NUMBER", help="Higher goes first.")],
) -> None:
    """Give jobs another priority."""
    _steer(j.Reprioritise(to), Wish(ids or [], place, author, choice, sure))


ACTING = {
    "cancel": cancel,
    "rerun": rerun,
    "hold": hold,
    "release": release,
    "run-now": run_now,
    "move": move,
    "priority": priority,
}


@dataclass(frozen=True)
class Wish:
    """Which jobs, where, by whom, and how sure."""

    ids: Sequence[str]
    place: Place
    author: Author
    choice: Choice
    sure: Sure


def _steer(verb: Verb, wish: Wish) -> None:
    _need_clear(wish)
    if wish.ids:
        _steer_named(verb, wish)
    else:
        _steer_many(verb, wish)


def _need_clear(wish: Wish) -> None:
    """Either names or options; and whoever means many says whether in earnest."""
    if bool(wish.ids) is not wish.choice.is_empty:
        raise typer.BadParameter("say which jobs: by their ids, or by options like --state.")
    if wish.ids and wish.sure.dry_run:
        raise typer.BadParameter("--dry-run is for jobs that are meant by options.")
    if not wish.ids and wish.sure.dry_run is wish.sure.yes:
        raise typer.BadParameter("many jobs may be meant: say --dry-run, then --yes.")


def _steer_named(verb: Verb, wish: Wish) -> None:
    async def work(engine: Engine) -> list[tuple[str, Given]]:
        # Whoever could mean several is told so before anything is changed.
        keys = [await meant(engine.store, (wish.place.tenant, one)) for one in wish.ids]
        by = wish.author.by, wish.author.reason
        given = await engine.operators.apply(verb, keys, *by)
        return [(name, one) for (_, name), one in zip(keys, given, strict=True)]

    told = [_told(*one) for one in asked(wish.place, work)]
    lines = [cell(f"{one['id']}  {one['answer']}  {one['message']}".rstrip()) for one in told]
    answer(wish.place, {"jobs": told}, *lines)
    if any(one["answer"] == "refused" for one in told):
        raise typer.Exit(1)


def _told(name: str, given: Given) -> dict[str, Any]:
    match given:
        case j.Accepted(job=job):
            return _word(name, "accepted", f"it is {job.state} now")
        case Enqueued(job=job):
            return {**_word(name, "accepted", f"runs again as {job.id}"), "new_id": job.id}
        case j.Unchanged(job=job):
            return _word(name, "unchanged", f"it is {job.state}")
        case Clash(what=what, by=job):
            return {**_word(name, "refused", f"{job.id} is in the way"), "code": what}
        case refusal:
            return {**_word(name, "refused", _why(name, refusal)), "code": refusal.code}


def _why(name: str, refusal: Refusal) -> str:
    """What the rules say; about a job that is not there they have little to say."""
    if refusal.code != UnknownJob.code:
        return refusal.message
    return f"there is no job {name}: another store, another tenant, or it was forgotten"


def _word(name: str, word: str, message: str) -> dict[str, Any]:
    return {"id": name, "answer": word, "message": message}


def _steer_many(verb: Verb, wish: Wish) -> None:
    chosen, author = wish.choice.filter(wish.place.tenant), wish.author

    async def work(engine: Engine) -> Effects:
        with _shown() as watch:
            return await engine.bulk.apply(
                verb, chosen, author.by, author.reason, dry_run=wish.sure.dry_run, watch=watch
            )

    effects = asked(wish.place, work)
    data = {"dry_run": wish.sure.dry_run, "effects": effects}
    answer(wish.place, data, *_effects(effects, wish.sure.dry_run))
    if effects.refused and not wish.sure.dry_run:
        raise typer.Exit(1)


def _effects(effects: Effects, dry_run: bool) -> list[Text]:
    lines = [f"accepted   {effects.accepted}", f"unchanged  {effects.unchanged}"]
    for code, number in effects.refused.items():
        some = ", ".join(effects.examples[code][:3])
        lines.append(f"refused    {number}  {code}, such as {some}")
    end = "Nothing was changed: --yes does it." if dry_run else "Done."
    return [cell(line) for line in [*lines, f"{counted(effects.seen, 'job')} looked at. {end}"]]


@contextmanager
def _shown() -> Iterator[Watch]:
    """How far it is, for somebody who watches a terminal."""
    with spinner("{task.completed} jobs") as bar:
        task = bar.add_task("jobs", total=None)
        yield lambda effects: bar.update(task, completed=effects.seen)
