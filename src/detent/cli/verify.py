"""`detent verify`: is everything in the store as it was written?"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from detent import stores
from detent.app.connection import DEFAULT_URL
from detent.cli.output import counted, errors_end, say, say_json
from detent.cli.places import StoreUrl, need_tables
from detent.engine.verify import Finding, Seen, Verification

_OBJECTS = 200_000


def verify(
    store: StoreUrl = DEFAULT_URL,
    tenant: Annotated[
        str | None, typer.Option(help="Only the records of this tenant; seals are everybody's.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit-offenders", min=1, help="Stop after this many offenders.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Replay every history; check records, workflows, feed, seals, leases and counts.

    Ends with 0 when all is well, with 1 when something is wrong, with 2 when it could not look. The
    store may be in use. Nothing is changed.
    """
    with errors_end():
        found, seen = asyncio.run(_checked(store, tenant, limit))
    if as_json:
        say_json({"ok": not found, "checked": seen, "offenders": [_data(one) for one in found]})
    else:
        say(_told(found, seen))
    if found:
        raise typer.Exit(1)


async def _checked(url: str, tenant: str | None, limit: int) -> tuple[list[Finding], Seen]:
    need_tables(url, "There is nothing to verify")
    found: list[Finding] = []
    async with stores.open(url) as store:
        with _shown() as watch, _few_collections():
            verification = Verification(store, tenant=tenant, watch=watch)
            async with aclosing(verification.findings()) as findings:
                async for finding in findings:
                    found.append(finding)
                    if len(found) == limit:
                        break
    return found, verification.seen


@contextmanager
def _few_collections() -> Iterator[None]:
    """Pages come and go whole, without cycles: to look for some all the time is a tenth of it."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _shown() -> Iterator[Any]:
    """A bar for somebody who watches a terminal; standard output stays clean either way."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.fields[records]} jobs"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("verify", total=None, records=0)

        def watch(seen: Seen) -> None:
            done = seen.events + seen.fed
            bar.update(task, total=2 * seen.end, completed=done, records=seen.records)

        yield watch


def _data(finding: Finding) -> dict[str, Any]:
    tenant, record = finding.key or (None, None)
    return {
        "check": finding.check,
        "tenant": tenant,
        "id": record,
        "version": finding.version,
        "position": finding.pos,
        "block": finding.block,
        "why": finding.why,
        "look": finding.look,
    }


def _told(found: list[Finding], seen: Seen) -> str:
    lines = [f"{one.where}: {one.why}\n  look: {one.look}\n" for one in found]
    flows = f" and {counted(seen.workflows, 'workflow')}" if seen.workflows else ""
    gone = f" and {seen.forgotten} forgotten" if seen.forgotten else ""
    staff = f" and {counted(seen.workers, 'worker')}" if seen.workers else ""
    jobs, blocks = counted(seen.records, "job"), counted(seen.blocks, "block")
    size = f"{jobs}{flows}{staff}, {counted(seen.events, 'event')}{gone}, {blocks}"
    if found:
        return "".join([*lines, f"Stopped after {size}: something is wrong.\n"])
    sealed = f"Sealed up to head {seen.head}\n" if seen.head else ""
    return f"{size}: all is well.\n{sealed}"
