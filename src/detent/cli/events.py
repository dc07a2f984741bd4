"""`detent events`: what happens in a store, as it happens, or once more as it happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import typer

from detent.cli.bundles import expanded
from detent.cli.jobdata import event_data
from detent.cli.output import say
from detent.cli.places import Place, asked
from detent.cli.showing import at, one_line
from detent.engine.engine import Engine
from detent.stores.api import Fed

_PAUSE_S = 0.1
_PAGE = 1_000
_US = 1_000_000
_CURSOR_MAX = 2**63 - 1


@expanded
def events(
    place: Place,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until stopped.")] = False,
    since: Annotated[
        int | None,
        typer.Option(
            min=0, max=_CURSOR_MAX, metavar="CURSOR", help="Begin after this position of the feed."
        ),
    ] = None,
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Take the pauses as they were, divided by this."),
    ] = None,
) -> None:
    """Print events in the order they were committed; with --json one object per line.

    Each line begins with its position, the cursor to go on from. Without --since all are printed,
    with --follow only those to come.
    """

    async def work(engine: Engine) -> None:
        after = since
        if after is None:
            after = await engine.tail.end() if follow else 0
        async for fed in _paced(_read(engine, after, follow=follow), speed):
            if fed.event.tenant == place.tenant:
                say(_line(fed, as_json=place.as_json))

    asked(place, work)


async def _read(engine: Engine, after: int, *, follow: bool) -> AsyncIterator[Fed]:
    while True:
        page = await engine.store.feed(after, _PAGE)
        for fed in page:
            yield fed
            after = fed.pos
        if not page and not follow:
            return
        if len(page) < _PAGE and follow:
            await asyncio.sleep(_PAUSE_S)


async def _paced(feed: AsyncIterator[Fed], speed: float | None) -> AsyncIterator[Fed]:
    """The same with the pauses between them; what happens now is told now."""
    last: int | None = None
    loop, began = asyncio.get_running_loop(), 0.0
    async for fed in feed:
        if speed is not None:
            if last is None:
                last, began = fed.event.at, loop.time()
            due = began + (fed.event.at - last) / _US / speed
            await asyncio.sleep(max(due - loop.time(), 0))
        yield fed


def _line(fed: Fed, *, as_json: bool) -> str:
    event = fed.event
    if as_json:
        told: dict[str, Any] = {"cursor": fed.pos, "kind": event.kind, "id": event.record}
        return f"{msgspec.json.encode({**told, **event_data(event)}).decode()}\n"
    moved = f"{event.source or '(new)'} -> {event.target}" if event.target else ""
    who = f"{event.actor} {event.actor_id}".strip()
    parts = (str(fed.pos), at(event.at), event.kind, event.record, event.name, moved, who)
    return one_line("  ".join(part for part in parts if part)) + "\n"
