"""The jobs that fit a filter: to look at, to count, and to do something to all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from detent.app.checking import need
from detent.app.handle import Handle, Status, status_of
from detent.app.options import instant_of
from detent.engine.bulk import Effects
from detent.engine.queries import Listing
from detent.engine.verbs import Rerun, RunNow, Verb
from detent.errors import BadOption
from detent.lifecycle import job as j
from detent.runtime.bridge import Bridge, awaiting, awaiting_each, blocking, blocking_each
from detent.stores.api import Key, Stored
from detent.stores.select import Filter, Page

if TYPE_CHECKING:
    from detent.app.detent import Detent

_PAGE: Final = 100
"""How many jobs are read at a time: with what they carry, so that it must not be very many."""


class Selecting(TypedDict, total=False):
    """What a job must be to be selected; all of it holds together."""

    queue: str
    state: str
    type: str
    key: str
    tag: str
    workflow: str
    step: str
    tenant: str


def chosen_by(said: Mapping[str, str]) -> Filter:
    """The filter of these words; what no job can be is refused, for it would find nothing."""
    known = Selecting.__annotations__.keys()
    for name in said.keys() - known:
        why = f"Jobs are not selected by {name!r}, but by {', '.join(known)}"
        raise BadOption(why, option=name)
    for name, value in said.items():
        # Nothing would be found by it, or with None everything.
        need(name, value, isinstance(value, str), "a text")
    state, states = said.get("state"), [one.value for one in j.JobState]
    if state is not None and state not in states:
        why = f"No job is ever {str(state)[:20]!r}: its state is one of {', '.join(states)}"
        raise BadOption(why, option="state")
    return msgspec.structs.replace(Filter(tenant=""), **said)


class How(TypedDict, total=False):
    """How a verb is applied to many."""

    dry_run: bool
    limit: int | None
    actor: str | None


class Found(Handle[Any]):
    """A job that was selected, and how it stood then; `status()` asks again."""

    def __init__(self, app: Detent, stored: Stored) -> None:
        super().__init__(app, stored.job.id, stored.job.tenant, is_new=False)
        self.seen: Status = status_of(stored)
        """Its status when it was read, which costs nothing to look at."""


class Selection:
    """The jobs that fit a filter, whichever they are when they are looked at or changed.

    Iterated over (`for`, `async for`) it gives those that fit, newest first, each once; they are
    read page by page as the loop goes on, and what is enqueued meanwhile is not among them.

    Every verb says what it did, or with `dry_run` what it would do: decided just the same, and not
    committed. It goes from the newest to the oldest, in small commits; one that was broken off can
    be started again. `limit` bounds it to the newest; `actor` is who the history names.
    """

    def __init__(self, app: Detent, chosen: Filter) -> None:
        self._app = app
        self._chosen = chosen

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self._app.bridge

    def __repr__(self) -> str:
        told = msgspec.structs.asdict(self._chosen).items()
        said = ", ".join(f"{name}={value!r}" for name, value in told if value is not None)
        return f"<Selection {said}>"

    def __bool__(self) -> bool:
        """Whether there is any: an `if` asks that, and would be told yes otherwise."""
        return self.first() is not None

    def __iter__(self) -> Iterator[Found]:
        for page in self._waited():
            yield from page

    async def __aiter__(self) -> AsyncIterator[Found]:
        async for page in self._awaited():
            for one in page:
                yield one

    async def _count(self) -> int:
        """How many there are now; counted by the store if they have a queue and a state in common.

        By any other condition they are read, page by page: as long as it takes.
        """
        return await (await self._app.engine()).queries.count(self._chosen)

    async def _first(self) -> Found | None:
        """The newest of them, if there is any."""
        found = (await self._page(1)).jobs
        return Found(self._app, found[0]) if found else None

    async def _pages(self) -> AsyncIterator[list[Found]]:
        after, is_last = None, False
        while not is_last:
            listing = await self._page(_PAGE, after)
            yield [Found(self._app, one) for one in listing.jobs]
            after, is_last = listing.after, listing.after is None

    async def _page(self, limit: int, after: Key | None = None) -> Listing:
        return await (await self._app.engine()).queries.jobs(self._chosen, Page(limit, after))

    count, acount = blocking(_count), awaiting(_count)
    first, afirst = blocking(_first), awaiting(_first)
    _waited, _awaited = blocking_each(_pages), awaiting_each(_pages)

    # --- what is done to all of them --------------------------------------------------------------

    async def _cancel(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Call them off; those that run are asked to stop."""
        return await self._apply(j.Cancel(), reason, how)

    async def _rerun(self, reason: str, **how: Unpack[How]) -> Effects:
        """A new job for each that has ended, one at most within a day."""
        return await self._apply(Rerun(once=True), reason, how)

    async def _run_now(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Let those start that wait for their time."""
        return await self._apply(RunNow(), reason, how)

    async def _reschedule(
        self, at: datetime, reason: str | None = None, **how: Unpack[How]
    ) -> Effects:
        """Give those that wait for their time another one."""
        return await self._apply(j.Reschedule(instant_of("at", at)), reason, how)

    async def _reprioritise(
        self, priority: int, reason: str | None = None, **how: Unpack[How]
    ) -> Effects:
        """Give them another priority; higher goes first."""
        return await self._apply(j.Reprioritise(priority), reason, how)

    async def _move(self, queue: str, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Put those that wait into another queue, at its end."""
        return await self._apply(j.Move(queue), reason, how)

    async def _hold(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Keep them from being started."""
        return await self._apply(j.Hold(), reason, how)

    async def _release(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Let those that are held start again."""
        return await self._apply(j.Activate(), reason, how)

    cancel, acancel = blocking(_cancel), awaiting(_cancel)
    rerun, arerun = blocking(_rerun), awaiting(_rerun)
    run_now, arun_now = blocking(_run_now), awaiting(_run_now)
    reschedule, areschedule = blocking(_reschedule), awaiting(_reschedule)
    reprioritise, areprioritise = blocking(_reprioritise), awaiting(_reprioritise)
    move, amove = blocking(_move), awaiting(_move)
    hold, ahold = blocking(_hold), awaiting(_hold)
    release, arelease = blocking(_release), awaiting(_release)

    async def _apply(self, verb: Verb, reason: str | None, how: How) -> Effects:
        engine = await self._app.engine()
        return await engine.bulk.apply(
            verb,
            self._chosen,
            self._app.by_whom(how.get("actor")),
            reason,
            dry_run=how.get("dry_run", False),
            limit=how.get("limit"),
        )
