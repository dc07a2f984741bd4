"""Many callers, few commits: whatever comes while one step runs is the next step.

A lone caller waits for nobody. Nothing is kept back to make a step larger, so idle latency stays
what one commit takes, and throughput grows with the number of callers.

Where the store can do several things at once, wishes have a way of their own beside that of the
units: a batch of jobs is claimed while another is ended, and no end waits for a claim. Only what
is small goes together, because a commit costs more than all that is in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from detent.errors import StoreClosed
from detent.stores.api import (
    RECORDS_MAX,
    Claimed,
    Outcome,
    SideBySide,
    Stepped,
    Store,
    Unit,
    Want,
)
from detent.stores.births import Births
from detent.stores.uniform import Uniform

WISHES_MAX = 8
"""So many different wishes are granted side by side: each may need a connection of its own."""
TOGETHER_MAX = 32
"""A step with more units than this takes no wish along if both can be done at once."""


class _Asked:
    """The units of one caller, or a wish, and who waits for the answer."""

    __slots__ = ("answered", "size", "units", "want")

    def __init__(self, units: Sequence[Unit], want: Want | None, size: int) -> None:
        self.units = units
        self.want = want
        self.size = size
        self.answered: asyncio.Future[Stepped] = asyncio.get_running_loop().create_future()


class Coalescer:
    """Turns calls into steps of one store, one step after the other on each of two ways at most."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[_Asked] = deque()
        self._wishes: deque[_Asked] = deque()
        self._working: asyncio.Task[None] | None = None
        self._wishing: asyncio.Task[None] | None = None
        self._has_sides = isinstance(store, SideBySide) and store.connections > 1
        self._is_granting = False
        self._is_closed = False

    async def commit(self, units: Sequence[Unit]) -> list[Outcome]:
        """The answers to these units, in order, once they are durable."""
        asked = [self._ask(*piece) for piece in pieces(units)]
        try:
            answers = [await one.answered for one in asked]
        except BaseException:
            _leave(asked)
            raise
        return [outcome for answer in answers for outcome in answer.outcomes]

    def ask(self, births: Births) -> asyncio.Future[Stepped]:
        """The answers to new jobs that fit into a step, awaited without a task."""
        return self._ask(births, births.weight).answered

    def claim(self, want: Want, units: Sequence[Unit] = ()) -> asyncio.Future[Stepped]:
        """The jobs that a wish is granted, claimed in the same commit as these units."""
        size = sum(unit.size for unit in units) + len(want.leases)
        return self._ask(units, size, want).answered

    async def close(self) -> None:
        """Finish what was asked for, and take nothing more."""
        self._is_closed = True
        while (left := self._wishing or self._working) is not None:
            await left

    def _ask(self, units: Sequence[Unit], size: int, want: Want | None = None) -> _Asked:
        if self._is_closed:
            raise StoreClosed("The engine is closed")
        asked = _Asked(units, want, size)
        if self._has_sides and want is not None and not units:
            self._wishes.append(asked)
            if self._wishing is None:
                self._wishing = asyncio.ensure_future(self._grant())
            return asked
        self._queue.append(asked)
        if self._working is None:
            self._working = asyncio.ensure_future(self._work())
        return asked

    async def _work(self) -> None:
        while self._queue:
            taken = _next(self._queue)
            if not self._is_granting and sum(asked.size for asked in taken) <= TOGETHER_MAX:
                taken += _next(self._wishes, RECORDS_MAX - TOGETHER_MAX)
            await self._step(_parted(taken))
        self._working = None

    async def _grant(self) -> None:
        while self._wishes:
            self._is_granting = True
            await self._step(_parted(_next(self._wishes)))
            self._is_granting = False
        self._wishing = None

    async def _step(self, parts: Sequence[Sequence[_Asked]]) -> None:
        """Mostly one; a store that has one writer makes one commit of several."""
        if len(parts) == 1:
            await self._commit(parts[0])
            return
        for first in range(0, len(parts), WISHES_MAX):
            await asyncio.gather(*map(self._commit, parts[first : first + WISHES_MAX]))

    async def _commit(self, taken: Sequence[_Asked]) -> None:
        units = Births.joined([asked.units for asked in taken])
        wants = [asked.want for asked in taken if asked.want is not None]
        want = _joined(wants) if wants else None
        try:
            stepped = await self._store.step(units, now=self._store.now(), want=want)
        except Exception as error:
            for asked in taken:
                _settle(asked, error)
            return
        shares = iter(_shares(wants, stepped.claimed))
        at = 0
        for asked in taken:
            outcomes = stepped.outcomes[at : at + len(asked.units)]
            at += len(asked.units)
            claimed = Claimed() if asked.want is None else next(shares)
            _settle(asked, Stepped(outcomes, claimed))


def _next(queue: deque[_Asked], room: int = RECORDS_MAX) -> list[_Asked]:
    """As many of those who wait as fit into one step."""
    taken: list[_Asked] = []
    while queue and (not taken or queue[0].size <= room):
        taken.append(queue.popleft())
        room -= taken[-1].size
    return taken


def _parted(taken: Sequence[_Asked]) -> list[list[_Asked]]:
    """Those whose wishes are alike together, with whoever wishes for nothing among the first."""
    if sum(asked.want is not None for asked in taken) <= 1:
        return [list(taken)]
    parts: dict[Want, list[_Asked]] = {}
    for asked in taken:
        if asked.want is not None:
            parts.setdefault(replace(asked.want, command_id="", leases=()), []).append(asked)
    found = list(parts.values())
    found[0] += [asked for asked in taken if asked.want is None]
    return found


def _joined(wants: Sequence[Want]) -> Want:
    """Wishes that differ in nothing but their leases, as one: who came first is served first."""
    if len(wants) == 1:
        return wants[0]
    return replace(wants[0], leases=tuple(lease for want in wants for lease in want.leases))


def _shares(wants: Sequence[Want], claimed: Claimed) -> Iterator[Claimed]:
    """What each of them was granted: the jobs under its own leases."""
    if len(wants) == 1:
        yield claimed
        return
    by_lease = {stored.job.lease: stored for stored in claimed.jobs}
    for want in wants:
        jobs = tuple(by_lease[lease] for lease in want.leases if lease in by_lease)
        is_short = len(jobs) < len(want.leases)
        yield replace(claimed, jobs=jobs, retry_at=claimed.retry_at if is_short else None)


def pieces(units: Sequence[Unit]) -> list[tuple[Sequence[Unit], int]]:
    """The same units in slices that fit into a step each, and how much of it they take."""
    if isinstance(units, Uniform):
        return [(piece, piece.weight) for piece in units.pieces()]
    found: list[tuple[Sequence[Unit], int]] = []
    begun = taken = 0
    for at, unit in enumerate(units):
        size = unit.weight
        if taken and taken + size > RECORDS_MAX:
            found.append((units[begun:at], taken))
            begun, taken = at, 0
        taken += size
    return [*found, (units[begun:], taken)] if taken else found


def _leave(asked: Sequence[_Asked]) -> None:
    """Nobody waits for these any more, and nobody complains that an error was not heard."""
    for one in asked:
        if not one.answered.cancel() and not one.answered.cancelled():
            one.answered.exception()


def _settle(asked: _Asked, answer: Stepped | Exception) -> None:
    # Whoever was called off is not waiting any more; what they asked for is done all the same.
    if asked.answered.done():
        return
    if isinstance(answer, Exception):
        asked.answered.set_exception(answer)
    else:
        asked.answered.set_result(answer)
