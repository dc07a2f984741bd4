"""`detent prune`: forget jobs that ended long enough ago."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from detent.cli.bundles import expanded
from detent.cli.durations import span_option, span_us
from detent.cli.output import spinner
from detent.cli.places import Place, asked
from detent.cli.showing import answer, at, cell
from detent.engine.engine import Engine
from detent.engine.forgetting import Forgetting, Forgotten, Watch
from detent.engine.telling import counted
from detent.lifecycle.job import JobState
from detent.stores.api import Retention


@expanded
def prune(
    *,
    place: Place,
    completed: Annotated[str | None, span_option(meaning="Keep completed jobs so long.")] = None,
    discarded: Annotated[str | None, span_option(meaning="Keep discarded jobs so long.")] = None,
    cancelled: Annotated[str | None, span_option(meaning="Keep cancelled jobs so long.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only jobs of this queue.")] = None,
    all_tenants: Annotated[bool, typer.Option("--all-tenants", help="Whoever's they are.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
) -> None:
    """Forget jobs that ended longer ago than a span, by how they ended: --completed 7d.

    Everything is sealed first, so that the proof outlives the job. Jobs of a workflow go when the
    workflow has ended. May be broken off and started again at any time.
    """
    ages = {
        JobState.COMPLETED: completed,
        JobState.DISCARDED: discarded,
        JobState.CANCELLED: cancelled,
    }
    spans = {state: span_us(age) for state, age in ages.items() if age is not None}
    if not spans:
        raise typer.BadParameter("say what may go, such as --completed 7d --discarded 30d.")
    tenant = None if all_tenants else place.tenant

    async def work(engine: Engine) -> tuple[Forgotten, list[Retention]]:
        now = engine.store.now()
        rules = [Retention(state, now - span, tenant, queue) for state, span in spans.items()]
        with _shown() as watch:
            forgetting = Forgetting(engine.store, watch)
            asking = forgetting.foresee if dry_run else forgetting.forget
            return await asking(rules), rules

    done, rules = asked(place, work)
    data = {
        "dry_run": dry_run,
        "jobs": done.jobs,
        "sealed_blocks": done.blocks,
        "rules": [{"state": one.state, "before": at(one.before)} for one in rules],
    }
    answer(place, data, cell(_told(done, dry_run)))


def _told(done: Forgotten, dry_run: bool) -> str:
    jobs = counted(done.jobs, "job")
    if dry_run:
        return f"{jobs} would be forgotten. Nothing was changed."
    sealed = f"; {counted(done.blocks, 'block')} sealed first" if done.blocks else ""
    return f"{jobs} forgotten{sealed}."


@contextmanager
def _shown() -> Iterator[Watch]:
    with spinner("{task.fields[blocks]} blocks sealed, {task.completed} jobs") as bar:
        task = bar.add_task("prune", total=None, blocks=0)
        yield lambda done: bar.update(task, completed=done.jobs, blocks=done.blocks)
